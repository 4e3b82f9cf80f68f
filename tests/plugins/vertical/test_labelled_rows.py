"""Models of all rows of the label holder, also of those that another party lacks."""

import numpy as np
import pytest
from safetensors.torch import load_file
from sklearn.preprocessing import SplineTransformer
from statsmodels.api import Logit

from p2pfl import simulate
from p2pfl.experiment import plan, read
from p2pfl.plugins.vertical.vertical_prediction import predict_together

KNOWN = {"ada": range(150), "bob": range(200), "eve": range(60, 260)}
"""People of each party; bob has the labels."""


@pytest.fixture
def clinic(tmp_path):
    """The experiment, and the columns of everybody: two of ada, two of eve, one of bob, and the target."""
    rng = np.random.default_rng(3)
    columns = rng.normal(5, 2, (260, 5))
    target = columns @ [1.0, -0.5, 0.8, 0.3, 2.0] + rng.normal(0, 0.5, 260)
    names = {"ada": (0, 1), "eve": (2, 3), "bob": (4,)}
    for peer, people in KNOWN.items():
        order = rng.permutation(list(people))
        head = ["id", *(f"x{each}" for each in names[peer]), *(["y"] if peer == "bob" else [])]
        rows = [
            [
                str(person),
                *(repr(float(columns[person, each])) for each in names[peer]),
                *([repr(float(target[person]))] if peer == "bob" else []),
            ]
            for person in order
        ]
        (tmp_path / f"{peer}.csv").write_text("\n".join(map(",".join, [head, *rows])))
        listed = ", ".join(f'x{each} = "number"' for each in names[peer])
        declared = (
            f"columns = {{ {listed} }}\n"
            if peer != "bob"
            else f'target = "y"\ncolumns = {{ {listed}, y = "number" }}\n'
        )
        (tmp_path / f"{peer}.columns.toml").write_text(declared)
    settings = {
        "name": "clinic",
        "rounds": 1,
        "topology": {"kind": "complete", "peers": ["ada", "bob", "cleo", "eve"]},
        "data": {
            "name": "vertical",
            "options": {
                "path": f"{tmp_path}/{{peer}}.csv",
                "label": "bob",
                "helper": "cleo",
                "keys": [["id:digits"]],
                "rows": "labelled",
            },
        },
        "model": {"name": "glm", "options": {"family": "gaussian"}},
        "privacy": {"mode": "pairwise"},
    }
    return settings, columns, target


def joined_design(columns):
    """Joined table with indicators of missing rows, whose columns are zero."""
    rows = np.arange(200)
    parts = [np.ones((200, 1)), columns[:200, 4:]]
    for peer, own in (("ada", [0, 1]), ("eve", [2, 3])):
        there = np.isin(rows, list(KNOWN[peer]))[:, None]
        parts += [np.where(there, columns[:200][:, own], 0.0), there.astype(float)]
    return np.hstack(parts)


def joined_fit(columns, target):
    """Return the coefficients and the fitted values of the joined table."""
    design = joined_design(columns)
    beta = np.linalg.lstsq(design, target[:200], rcond=None)[0]
    return beta, design @ beta


def test_coefficients_and_predictions_are_those_of_the_joined_table_with_indicators(clinic, tmp_path):
    settings, columns, target = clinic
    run = simulate(settings, folder=tmp_path / "run")
    beta, fitted = joined_fit(columns, target)
    own = {peer: load_file(tmp_path / "run" / "peers" / f"{peer}.safetensors") for peer in KNOWN}
    learned = {peer: (each["weight"] / each["deviation"]).numpy() for peer, each in own.items()}
    assert float(own["bob"]["samples"]) == 200
    assert np.concatenate([learned["bob"], learned["ada"][:2], learned["eve"][:2]]) == pytest.approx(
        beta[[1, 2, 3, 5, 6]], rel=1e-6
    )
    (tmp_path / "asked").mkdir()
    for peer in KNOWN:
        (tmp_path / "asked" / f"{peer}.csv").write_text((tmp_path / f"{peer}.csv").read_text())
    predicted = predict_together(run, f"{tmp_path}/asked/{{peer}}.csv")
    people = [int(line.split(",")[0]) for line in (tmp_path / "bob.csv").read_text().splitlines()[1:]]
    assert predicted.values.tolist() == pytest.approx(fitted[people].tolist(), rel=1e-6)
    assert {*predicted.parties} == {"ada bob", "ada bob eve", "bob eve"}


def test_splines_of_a_party_that_lacks_rows_predict_as_those_of_the_joined_table(clinic, tmp_path):
    settings, columns, target = clinic
    options = {"family": "gaussian", "maps": {"ada": "spline:5"}}
    run = simulate(settings | {"model": {"name": "glm", "options": options}}, folder=tmp_path / "run")
    there = np.isin(np.arange(200), list(KNOWN["ada"]))
    splines = SplineTransformer(n_knots=3, degree=3).fit(columns[:200, :2][there]).transform(columns[:200, :2])
    design = np.hstack([joined_design(columns), np.where(there[:, None], splines, 0.0)])
    fitted = design @ np.linalg.lstsq(design, target[:200], rcond=None)[0]
    (tmp_path / "asked").mkdir()
    for peer in KNOWN:
        (tmp_path / "asked" / f"{peer}.csv").write_text((tmp_path / f"{peer}.csv").read_text())
    predicted = predict_together(run, f"{tmp_path}/asked/{{peer}}.csv")
    people = [int(line.split(",")[0]) for line in (tmp_path / "bob.csv").read_text().splitlines()[1:]]
    assert predicted.values.tolist() == pytest.approx(fitted[people].tolist(), rel=1e-6)


def test_a_joint_kernel_predicts_rows_that_parties_lack(clinic, tmp_path):
    settings, *_ = clinic
    model = {"name": "kernel", "options": {"consent": "distances", "ridge": 0.5}}
    assert plan(read(settings | {"model": model})).learner.test == 0.2  # as no file says otherwise
    run = simulate(settings | {"model": model, "data": settings["data"] | {"test": 0.0}}, folder=tmp_path / "run")
    assert run.summary["difference"] < 1e-6
    (tmp_path / "asked").mkdir()
    for peer in KNOWN:
        (tmp_path / "asked" / f"{peer}.csv").write_text((tmp_path / f"{peer}.csv").read_text())
    predicted = predict_together(run, f"{tmp_path}/asked/{{peer}}.csv")
    targets = [float(line.split(",")[-1]) for line in (tmp_path / "bob.csv").read_text().splitlines()[1:]]
    dual = run.models["bob"]["dual"].numpy()  # a residual of kernel ridge is the penalty times the dual coefficient
    assert np.sort(np.array(targets) - predicted.values) == pytest.approx(np.sort(0.5 * dual[:200]), abs=1e-6)


@pytest.mark.slow
def test_a_logistic_regression_is_that_of_the_joined_table_with_indicators(clinic, tmp_path):
    settings, columns, target = clinic
    ill = target > np.median(target[:200]) + np.random.default_rng(1).normal(0, 4, 260)
    head, *lines = (tmp_path / "bob.csv").read_text().splitlines()
    cells = [line.split(",") for line in lines]
    (tmp_path / "bob.csv").write_text(
        "\n".join([head, *(",".join([who, own, "yes" if ill[int(who)] else "no"]) for who, own, _ in cells)])
    )
    declared = (tmp_path / "bob.columns.toml").read_text()
    (tmp_path / "bob.columns.toml").write_text(declared.replace('y = "number"', 'y = ["no", "yes"]'))
    run = simulate(settings | {"model": {"name": "glm", "options": {"family": "binomial"}}}, folder=tmp_path / "run")
    oracle = Logit(ill[:200], joined_design(columns)).fit(method="newton", tol=1e-12, disp=False)
    own = {peer: load_file(tmp_path / "run" / "peers" / f"{peer}.safetensors") for peer in KNOWN}
    learned = np.concatenate([(own[peer]["weight"] / own[peer]["deviation"]).numpy()[:2] for peer in ("ada", "eve")])
    places = [2, 3, 5, 6]
    assert np.abs(learned - oracle.params[places]).max() < 1e-4 * oracle.bse[places].min()
    learned = run.summary["privacy"]["learned"]
    assert "which of its rows ada and eve lack, by their predictors" in learned["bob, the label holder"]
    assert "which of its rows bob has" in learned["ada, a feature holder"]


@pytest.mark.slow
def test_a_party_that_lacks_no_row_gives_the_model_of_the_common_rows(clinic, tmp_path):
    settings, columns, target = clinic
    text = (tmp_path / "bob.csv").read_text().splitlines()
    kept = [line for line in text[1:] if 60 <= int(line.split(",")[0]) < 150]
    (tmp_path / "bob.csv").write_text("\n".join([text[0], *kept]))
    weights = []
    for rows in ("labelled", "common"):
        options = settings["data"]["options"] | {"rows": rows}
        run = simulate(settings | {"data": settings["data"] | {"options": options}}, folder=tmp_path / rows)
        own = {peer: load_file(run.folder / "peers" / f"{peer}.safetensors") for peer in KNOWN}
        weights.append(np.concatenate([(each["weight"] / each["deviation"]).numpy()[:2] for each in own.values()]))
    assert weights[0] == pytest.approx(weights[1], rel=1e-6)
    del columns, target


def test_a_single_column_hides_nothing_even_beside_the_indicator(clinic, tmp_path):
    settings, *_ = clinic
    (tmp_path / "ada.columns.toml").write_text('columns = { x0 = "number" }')
    with pytest.raises(Exception, match=r"ada has fewer than 2 encoded columns"):
        plan(read(settings))
