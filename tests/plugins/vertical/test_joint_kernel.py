"""Kernel ridge and kernel logistic regression over the columns of all parties are those of the joined table."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import rbf_kernel

from p2pfl import live, simulate
from p2pfl.core.errors import DataError, LearningError, ModelError
from p2pfl.data.data_description import Description
from p2pfl.data.parties import Parties, Party
from p2pfl.experiment import plan, read
from p2pfl.plugins.audit.column_attacks import explained_columns
from p2pfl.plugins.vertical import joint_kernel
from p2pfl.plugins.vertical.aligned_table import AlignedTable
from p2pfl.plugins.vertical.joint_kernel import VerticalKernel
from p2pfl.plugins.vertical.kernel_solution import solve_logistic, solve_ridge
from p2pfl.plugins.vertical.vertical_prediction import predict_together
from p2pfl.privacy.keys import SeededSource
from p2pfl.results.models.predictor import Predictor
from vertical_experiments import PARTIES, changed
from vertical_roles import THREE, overheard, play

PEOPLE = 160


@pytest.fixture
def columns():
    return np.random.default_rng(8).normal(size=(PEOPLE, 7)) * [1, 20, 0.1, 3, 1, 5, 2] + 4


@pytest.fixture
def target(columns):
    standard = (columns - columns.mean(axis=0)) / columns.std(axis=0)
    return np.sin(standard @ np.ones(7)) + standard[:, 0] * standard[:, 3] + 10


@pytest.fixture
def table(columns, target):
    """The aligned columns of three parties, in which a quarter of the rows are held out."""
    names = {"ada": [0, 1, 2], "bob": [3, 4], "eve": [5, 6]}
    keys = (tuple(map(str, range(PEOPLE))),)
    own = {
        peer: Party(columns[:, each], keys, target=target if peer == "bob" else None, name=peer)
        for peer, each in names.items()
    }
    parties = Parties(PARTIES, "bob", "cleo", ("row:exact",), own, 50)
    return AlignedTable(parties, lambda _: np.arange(PEOPLE), PEOPLE, 7, 0.25)


def oracle(table, columns, target, *, ridge, gamma):
    train, test = columns[table.trained], columns[table.held_out]
    mean, deviation = train.mean(axis=0), train.std(axis=0)
    middle = target[table.trained].mean()
    model = KernelRidge(alpha=ridge, kernel="rbf", gamma=gamma)
    model.fit((train - mean) / deviation, target[table.trained] - middle)
    return model.dual_coef_, model.predict((test - mean) / deviation) + middle


@pytest.mark.parametrize(("ridge", "gamma"), [(1.0, 0.0), (1e-3, 0.3)])
def test_it_is_kernel_ridge_of_the_joined_columns(table, columns, target, ridge, gamma):
    model = VerticalKernel(ridge=ridge, gamma=gamma, consent="distances")
    fit = play(model.fit(table, THREE, SeededSource(1)), THREE)
    own = fit.fitted.own("bob")
    dual, predicted = oracle(table, columns, target, ridge=ridge, gamma=gamma or 1 / 7)
    assert own["dual"] == pytest.approx(dual, rel=1e-6, abs=1e-6 * np.abs(dual).max())
    kernel = np.exp(-own["gamma"] * own["distances"])
    assert kernel @ own["dual"] + own["bias"] == pytest.approx(predicted, rel=1e-6)
    scores = play(model.score(table, THREE, fit), THREE)()
    held = target[table.held_out]
    assert scores["scores"][1] == pytest.approx(1 - ((predicted - held) ** 2).mean() / held.var(), rel=1e-6)


def with_classes(table, target):
    """Return the table with classes in place of the target."""
    bob = table.parties.party("bob")
    classes = replace(
        bob, target=(target > np.median(target)).astype(np.int64), description=Description(classes=(0, 1))
    )
    return replace(table, parties=replace(table.parties, own={**table.parties.own, "bob": classes}))


@pytest.mark.parametrize(("ridge", "gamma"), [(1.0, 1 / 7), (0.01, 0.05)])
def test_of_classes_it_is_logistic_regression_on_functions_whose_products_are_the_kernel(
    table, columns, target, ridge, gamma
):
    classes = with_classes(table, target)
    model = VerticalKernel(family="binomial", ridge=ridge, gamma=gamma, consent="distances")
    own = play(model.fit(classes, THREE, SeededSource(1)), THREE).fitted.own("bob")
    train, test = columns[table.trained], columns[table.held_out]
    mean, deviation = train.mean(axis=0), train.std(axis=0)
    train, test = (train - mean) / deviation, (test - mean) / deviation
    values, vectors = np.linalg.eigh(rbf_kernel(train, train, gamma=gamma))
    used = values > 1e-13
    functions = vectors[:, used] / np.sqrt(values[used])
    wanted = LogisticRegression(C=1 / ridge, solver="newton-cg", tol=1e-12, max_iter=1000)
    wanted.fit(rbf_kernel(train, train, gamma=gamma) @ functions, classes.targets())
    logits = np.exp(-own["gamma"] * own["distances"]) @ own["dual"] + own["bias"]
    sure = wanted.decision_function(rbf_kernel(test, train, gamma=gamma) @ functions)
    assert logits == pytest.approx(sure, abs=1e-6 * np.abs(sure).max())


def test_classes_that_the_columns_separate_have_finite_coefficients_and_one_class_none():
    points = np.array([[-3.0], [-2.5], [2.5], [3.0]])
    kernel = rbf_kernel(points, gamma=0.1)
    solution = solve_logistic(kernel, np.array([0, 0, 1, 1]), ridge=1e-6)
    assert np.abs(1e-6 * solution.dual).max() < 1e-3
    with pytest.raises(LearningError, match="one class only"):
        solve_logistic(kernel, np.ones(4, np.int64), ridge=1.0)


def test_a_kernel_that_no_distances_make_ends_the_fit_in_a_sentence():
    indefinite = np.array([[1.0, 0.1, 0.9], [0.1, 1.0, 0.9], [0.9, 0.9, 1.0]])
    assert np.linalg.eigvalsh(indefinite).min() < -0.1
    with pytest.raises(LearningError, match=r"the kernel is not positive definite, .* set model.options.ridge higher"):
        solve_logistic(indefinite, np.array([0, 1, 0]), ridge=1e-6)
    with pytest.raises(LearningError, match="the kernel is not positive definite"):
        solve_ridge(np.ones((2, 2)), np.array([0.0, 2.0]), ridge=1e-20)  # equal rows, and next to no penalty


def test_more_columns_than_training_rows_are_no_lie(table):
    many = np.random.default_rng(1).normal(size=(PEOPLE, 130))
    party = replace(table.parties.party("ada"), features=many)
    wide = replace(table.parties, own={**table.parties.own, "ada": party})
    model = VerticalKernel(consent="distances", gamma=0.01)
    assert play(
        model.fit(AlignedTable(wide, lambda _: np.arange(PEOPLE), PEOPLE, 7, 0.25), THREE, SeededSource(1)), THREE
    )


def test_distances_give_the_columns_of_everybody_to_who_knows_a_few(table):
    """Distances place all rows up to a rotation (Torgerson's scaling), which as many known people undo."""
    model = VerticalKernel(consent="distances")
    _, views = overheard(model.fit(table, THREE, SeededSource(1)), THREE)
    received = np.array(max(views["bob"], key=len)) / joint_kernel.FRACTION
    train = len(table.trained)
    foreign = np.concatenate([table.standardised(peer).train for peer in ("ada", "eve")], axis=1)
    squares = np.zeros((train, train))
    squares[np.triu_indices(train, 1)] = received[: train * (train - 1) // 2]
    squares += squares.T
    centre = np.eye(train) - 1 / train
    values, vectors = np.linalg.eigh(-centre @ squares @ centre / 2)
    places = vectors[:, -5:] * np.sqrt(values[-5:])
    assert explained_columns(np.arange(6), places, foreign) == pytest.approx(1.0, abs=1e-6)


CLASSES = changed(
    data={"name": "breast_cancer"}, model={"name": "kernel", "options": {"family": "binomial", "consent": "distances"}}
)


@pytest.mark.slow
async def test_live_parties_learn_classes_as_in_the_simulation(tmp_path):
    run = simulate(CLASSES, source=SeededSource(7), folder=tmp_path / "run")
    ended = await live(CLASSES, source=SeededSource(7))
    for peer, model in run.models.items():
        for name, tensor in model.items():
            assert np.array_equal(ended.models[peer][name].numpy(), tensor.numpy(), equal_nan=True), (peer, name)
    assert run.summary["difference"] < 1e-6
    assert 0.9 < run.summary["alone"] < run.summary["together"] == pytest.approx(run.summary["pooled"], abs=1e-6)
    saved = Predictor.load(tmp_path / "run" / "peers" / "bob.safetensors")
    assert saved.saved.names


KERNEL = changed(model={"name": "kernel", "options": {"consent": "distances"}})


@pytest.mark.slow
async def test_live_parties_end_with_the_parts_of_the_simulation(tmp_path):
    run = simulate(KERNEL, source=SeededSource(7), folder=tmp_path / "run")
    ended = await live(KERNEL, source=SeededSource(7))
    for peer, model in run.models.items():
        for name, tensor in model.items():
            assert np.array_equal(ended.models[peer][name].numpy(), tensor.numpy(), equal_nan=True), (peer, name)
    assert run.summary["difference"] < 1e-6
    assert run.summary["alone"] < run.summary["together"] == pytest.approx(run.summary["pooled"], abs=1e-6)
    assert "support" in run.models["eve"]
    assert "dual" not in run.models["ada"]
    learned = run.summary["privacy"]["learned"]
    assert "squared distances of ada and eve between all pairs of rows" in learned["bob, the label holder"]
    assert learned["ada, a feature holder"] == "which of its rows all have; nothing of the model"
    assert "cleo" not in run.summary["privacy"]["statement"]


@pytest.mark.slow
def test_predictions_from_the_files_of_all_parties_are_those_of_the_joined_table(tmp_path, columns, target):
    for peer, each in {"ada": [0, 1, 2], "bob": [3, 4], "eve": [5, 6]}.items():
        names = [f"x{column}" for column in each]
        values = np.column_stack([np.arange(PEOPLE), columns[:, each], *([target] if peer == "bob" else [])])
        head = ["id", *names, *(["y"] if peer == "bob" else [])]
        for folder, people in ((tmp_path, range(120)), (tmp_path / "new", range(120, PEOPLE))):
            folder.mkdir(exist_ok=True)
            lines = [",".join([str(int(who)), *map(repr, map(float, rest))]) for who, *rest in values[people]]
            (folder / f"{peer}.csv").write_text("\n".join([",".join(head), *lines]))
        listed = ", ".join(f'{name} = "number"' for name in head[1:])
        declared = f"columns = {{ {listed} }}"
        (tmp_path / f"{peer}.columns.toml").write_text(declared if peer != "bob" else f'target = "y"\n{declared}')
    options = {"path": f"{tmp_path}/{{peer}}.csv", "label": "bob", "helper": "cleo", "keys": [["id:digits"]]}
    data = {"name": "vertical", "test": 0.0, "options": options}
    run = simulate({**KERNEL, "data": data}, folder=tmp_path / "run")
    predicted = predict_together(run, f"{tmp_path}/new/{{peer}}.csv")
    train = columns[:120]
    mean, deviation, middle = train.mean(axis=0), train.std(axis=0), target[:120].mean()
    model = KernelRidge(alpha=1.0, kernel="rbf", gamma=1 / 7).fit((train - mean) / deviation, target[:120] - middle)
    wanted = model.predict((columns[120:] - mean) / deviation) + middle
    assert predicted.values == pytest.approx(wanted, rel=1e-6)
    assert {*predicted.parties} == {"ada bob eve"}


@pytest.mark.parametrize(
    ("changes", "kind", "sentence"),
    [
        ({"model": {"options": {}}}, ModelError, 'set model.options.consent = "distances" if all parties agree'),
        (
            {"topology": {"peers": ["ada", "bob", "cleo"]}},
            ModelError,
            "would show bob the distances of one other party",
        ),
        ({"data": {"name": "breast_cancer"}}, DataError, 'bob has classes, which family = "gaussian" does not take'),
        ({"model": {"options": {"family": "binomial", "consent": "distances"}}}, DataError, "among its targets"),
        ({"model": {"options": {"ridge": 0.0}}}, ModelError, "make no kernel model"),
    ],
)
def test_what_a_joint_kernel_refuses_is_one_sentence_before_anything_leaves(changes, kind, sentence):
    sections = {name: {**KERNEL[name], **value} for name, value in changes.items()}
    with pytest.raises(kind, match=sentence):
        plan(read(KERNEL | sections))


def test_many_rows_are_refused(table, monkeypatch):
    monkeypatch.setattr(joint_kernel, "MAX_ROWS", PEOPLE - 1)
    with pytest.raises(LearningError, match="more than 159"):
        play(VerticalKernel(consent="distances").fit(table, THREE, SeededSource(1)), THREE)
