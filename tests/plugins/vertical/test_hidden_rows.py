"""Linear models of the common rows of two parties, of which neither knows which they are."""

from dataclasses import replace

import numpy as np
import pytest
import statsmodels.api as sm
from sklearn.linear_model import Ridge

from p2pfl import live, simulate
from p2pfl.core.errors import DataError, ExperimentError
from p2pfl.experiment import plan, read
from p2pfl.learning.additive import add_up, answer_questions
from p2pfl.plugins.vertical.vertical_prediction import predict_together
from p2pfl.privacy.keys import SeededSource

KNOWN = {"ada": range(254), "bob": range(100, 418)}
"""People of both parties, of whom 154 are common; bob has the labels."""

NAMES = {"ada": (0, 1, 2), "bob": (3, 4)}
"""Columns of both."""


@pytest.fixture
def settings(tmp_path):
    """The experiment, the columns of everybody, and the target."""
    rng = np.random.default_rng(5)
    columns = rng.normal(size=(418, 5)) @ rng.normal(size=(5, 5)) * [1, 10, 0.1, 3, 1] + [0, 50, 1, -2, 7]
    target = columns @ [3.0, -0.3, 8.0, 0.3, 1.0] + rng.normal(0, 3, 418)
    for peer, people in KNOWN.items():
        head = ["id", *(f"x{each}" for each in NAMES[peer]), *(["y"] if peer == "bob" else [])]
        rows = [head]
        for person in rng.permutation(list(people)).tolist():
            own = [*columns[person, NAMES[peer]], *([target[person]] if peer == "bob" else [])]
            rows.append([str(person), *(repr(float(each)) for each in own)])
        (tmp_path / f"{peer}.csv").write_text("\n".join(map(",".join, rows)))
        declared = ", ".join(f'{each} = "number"' for each in head[1:])
        (tmp_path / f"{peer}.columns.toml").write_text(
            ('target = "y"\n' if peer == "bob" else "") + f"columns = {{ {declared} }}"
        )
    options = {"path": f"{tmp_path}/{{peer}}.csv", "label": "bob", "helper": "cleo", "keys": [["id:digits"]]}
    experiment = {
        "name": "clinic",
        "rounds": 1,
        "topology": {"kind": "complete", "peers": ["ada", "bob", "cleo"]},
        "data": {"name": "vertical", "test": 0.0, "options": options | {"rows": "hidden"}},
        "model": {"name": "glm", "options": {"family": "gaussian"}},
        "privacy": {"mode": "pairwise"},
    }
    return experiment, columns, target


COMMON = range(100, 254)


@pytest.mark.slow
@pytest.mark.parametrize("ridge", [0.0, 3.0])
def test_the_model_is_that_of_the_common_rows(settings, tmp_path, ridge):
    experiment, columns, target = settings
    experiment["model"]["options"]["ridge"] = ridge
    run = simulate(experiment, folder=tmp_path / "run")
    own = run.models
    assert own["ada"]["samples"] == own["bob"]["samples"] == 154
    scale = np.concatenate([own[peer]["deviation"].numpy() for peer in KNOWN])
    learned = np.concatenate([own[peer]["weight"].numpy() for peer in KNOWN])
    oracle = sm.OLS(target[COMMON], sm.add_constant(columns[COMMON])).fit()
    if ridge:
        model = Ridge(alpha=ridge, solver="cholesky").fit(columns[COMMON] / scale, target[COMMON])
        assert learned == pytest.approx(model.coef_, rel=1e-6)
    else:
        assert learned / scale == pytest.approx(oracle.params[1:], rel=1e-6)
        errors = np.concatenate([own[peer]["error"].numpy() for peer in KNOWN]) / scale
        assert errors == pytest.approx(oracle.bse[1:], rel=1e-6)
        assert sum(float(own[peer]["value"]) for peer in KNOWN) == pytest.approx(oracle.rsquared, abs=1e-6)
        predicted = predicted_of(run, tmp_path)
        assert {who: predicted[who] for who in map(str, COMMON)} == pytest.approx(
            {str(who): value for who, value in zip(COMMON, oracle.fittedvalues, strict=True)}, rel=1e-6
        )
    assert run.summary["difference"] < 1e-6


@pytest.mark.slow
def test_functions_of_columns_are_those_of_the_common_rows(settings):
    experiment, *_ = settings
    experiment["model"]["options"]["maps"] = {"ada": "spline:4", "bob": "fourier:4"}
    run = simulate(experiment)
    assert run.summary["difference"] < 1e-6
    assert run.models["ada"]["weight"].shape == (9,)


def predicted_of(run, tmp_path):
    (tmp_path / "asked").mkdir()
    for peer in KNOWN:
        (tmp_path / "asked" / f"{peer}.csv").write_text((tmp_path / f"{peer}.csv").read_text())
    values = predict_together(run, f"{tmp_path}/asked/{{peer}}.csv").values.tolist()
    people = [line.split(",")[0] for line in (tmp_path / "bob.csv").read_text().splitlines()[1:]]
    return dict(zip(people, values, strict=True))


@pytest.mark.slow
async def test_live_parties_learn_the_scores_of_test_rows_and_not_who_is_common(settings):
    experiment, *_ = settings
    experiment["data"]["test"] = 0.4
    run = simulate(experiment, source=SeededSource(3))
    ended = await live(experiment, source=SeededSource(3))
    for peer, model in run.models.items():
        for name, tensor in model.items():
            assert np.array_equal(ended.models[peer][name].numpy(), tensor.numpy(), equal_nan=True), (peer, name)
    summary = run.summary
    assert summary["together"] == pytest.approx(summary["pooled"], abs=1e-6)
    assert summary["alone"] < summary["together"]
    assert summary["alone"] == ended.summary["alone"]
    assert run.models["bob"]["samples"] + run.models["bob"]["held_out"] == 154
    learned = summary["privacy"]["learned"]
    assert learned["ada, a feature holder"].startswith("how many people are in both tables; who, only by")
    assert "linear predictor" not in learned["bob, the label holder"] + summary["privacy"]["statement"]
    assert "has no coefficient if they are not" in learned["a party with a column that is 1 for one of its people"]


@pytest.mark.slow
def test_a_party_receives_its_positions_and_otherwise_random_numbers_of_each_row(settings):
    experiment, *_ = settings
    made = plan(read(experiment)).drawing(SeededSource(7))
    received = {peer: [] for peer in KNOWN}

    def total(question):
        to = question.to
        if to is None or to.peer not in received:
            return add_up(question, made.topology.peers)

        def take(values):
            received[to.peer].append(values)
            to.take(values)

        return add_up(replace(question, to=replace(to, take=take)), made.topology.peers)

    answer_questions(made.learner.asking(made.learner.start(["ada"])[0], round=0), total)
    for peer, people in KNOWN.items():
        of_rows = [each for each in received[peer] if each.size >= 418 and each.size % 418 == 0]
        positions, *masked = of_rows
        assert sorted(positions[positions >= 0]) == [*range(len(people))]
        assert len(masked) >= 4
        for values in masked:
            assert len(np.unique(values)) == values.size  # neither zeros nor ones of absent rows
            assert np.median(np.abs(values.astype(float))) > 2.0**60


@pytest.mark.parametrize(
    ("options", "kind", "sentence"),
    [
        ({"name": "glm", "options": {"family": "poisson"}}, ExperimentError, "would show who is common"),
        ({"name": "lasso", "options": {}}, ExperimentError, "would show who is common"),
    ],
)
def test_models_that_send_something_of_each_row_are_refused(settings, options, kind, sentence):
    experiment, *_ = settings
    with pytest.raises(kind, match=sentence):
        plan(read(experiment | {"model": options}))


def test_few_common_test_rows_are_refused_before_their_sums_are_opened(settings):
    experiment, *_ = settings
    experiment["data"]["test"] = 0.1
    with pytest.raises(DataError, match=r"rows in common, fewer than data\.options\.least = 50"):
        simulate(experiment)
