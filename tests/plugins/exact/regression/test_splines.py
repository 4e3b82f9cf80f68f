"""Splines with given knots, and with knots at quantiles of all data, against R's ns and bs."""

import csv
import json

import numpy as np
import pytest
import torch

from p2pfl.cli import main
from p2pfl.core.errors import DataError, ExperimentError
from p2pfl.data.data_description import Field
from p2pfl.data.tables.formula import Formula, SplineField
from p2pfl.data.tables.splines import b_spline, natural_spline, spline_values
from p2pfl.experiment import plan, read
from p2pfl.network.transport import MemoryTransport
from p2pfl.plugins.exact import GLM, Cox, MetaAnalysis
from p2pfl.plugins.exact.sketch import Sketch
from p2pfl.plugins.exact.spline_columns import SplineColumns, _placed
from p2pfl.plugins.exact.statistics_commands import regression_of
from p2pfl.privacy.keys import SeededSource
from p2pfl.results.models import Predictor
from p2pfl.results.models.model_file import load
from p2pfl.simulation import simulate
from plugins.exact.rscript import computed_by_r
from swarms import live

X = np.array([60.0, 80.0, 99.5, 110.0, 121.0, 135.25, 200.0, 250.0, 333.0])
KINDS = {"ns": natural_spline, "bs": b_spline}


def test_a_natural_spline_is_straight_beyond_its_ends():
    step = 1e-3
    for row in natural_spline([110.0, 130.0], (80.0, 250.0)):
        for x in (60.0, 79.9, 250.1, 400.0):
            bend = np.diff(spline_values(np.array([x - step, x, x + step]), row), 2)[0] / step**2
            assert abs(bend) < 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_splines_are_smooth_at_their_knots(kind):
    for row in KINDS[kind]([110.0, 130.0], (80.0, 250.0)):
        for knot in (80.0, 110.0, 130.0, 250.0):
            steps = np.array([0, 1e-4, 2e-4])
            left, right = (np.diff(spline_values(knot + side * steps, row), 2) for side in (-1, 1))
            assert np.allclose(left, right, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_splines_are_those_of_r(kind, tmp_path, against_r):
    code = f"""
    b <- suppressWarnings({kind}(d$x, knots = c(110, 121, 140), Boundary.knots = c(80, 250)))
    for (j in 1:ncol(b)) show(b[, j])
    """
    wanted = np.array(computed_by_r(code, {"x": X}, tmp_path, packages=("splines",)))
    found = np.stack([spline_values(X, row) for row in KINDS[kind]([110, 121, 140], (80.0, 250.0))])
    assert found.shape == wanted.shape
    against_r("ns, bs: values above 1e-6", found[wanted > 1e-6], wanted[wanted > 1e-6])
    assert np.allclose(found, wanted, rtol=0, atol=1e-12)


def test_torch_and_numpy_find_the_same_values():
    rows = np.stack([*natural_spline([110, 121], (80.0, 250.0))], axis=1)
    values = np.tile(X[:, None], 3)
    found = spline_values(torch.from_numpy(values), torch.from_numpy(rows))
    assert np.array_equal(found.numpy(), spline_values(values, rows))


def test_a_spline_without_knots_has_the_values_of_its_variable_until_a_model_finds_them():
    fields = [Field("age"), Field("sex", ("f", "m"))]
    design = Formula.of("y ~ ns(log(age), 2) + sex + bs(age, df=4)", fields)
    names = ["ns(log(age), 2)1", "ns(log(age), 2)2", "sex", *(f"bs(age, 4){number}" for number in range(1, 5))]
    assert [each.name for each in design.fields] == names
    assert [each.inner for each in design.fields if isinstance(each, SplineField)] == [1, 1, 1, 1, 1, 1]
    assert np.allclose(design.apply(torch.tensor([[9.0, 0.0, 1.0]])), [[np.log(9)] * 2 + [1.0, 0.0] + [9.0] * 4])


def patients(count=240):
    """Return ages, weights, outcomes and times; ages are whole."""
    rng = np.random.default_rng(4)
    age, weight = rng.integers(20, 90, count).astype(float), rng.normal(70, 12, count).round(2)
    risk = np.sin(age / 12) + 0.02 * weight
    return {
        "age": age,
        "weight": weight,
        "y": (risk + rng.normal(size=count)).round(3),
        "ill": (rng.random(count) < 1 / (1 + np.exp(1.5 - risk))).astype(float),
        "week": np.minimum(np.ceil(rng.exponential(30 / np.exp(risk - 1.5))), 52),
        "died": (rng.random(count) < 0.7).astype(float),
    }


def settings_of(folder, model, formula, *, target, event=None, columns=None, **options):
    """Return the settings of three peers with a table each."""
    columns = columns or patients()
    for number in range(3):
        with (folder / f"peer{number}.csv").open("w", newline="") as file:
            rows = zip(*(column[number::3].tolist() for column in columns.values()), strict=True)
            csv.writer(file).writerows([columns, *rows])
    declared = dict.fromkeys(columns, "number") | {"ill": [0, 1], "died": "integer"}
    used = {name: declared[name] for name in ("age", "weight", target, *([event] if event else []))}
    data = {"path": str(folder / "{peer}.csv"), "target": target, "columns": used} | ({"event": event} if event else {})
    return {
        "rounds": 30,
        "topology": {"kind": "complete", "peers": 3},
        "data": {"name": "table", "options": data},
        "model": {"name": model, "options": {"formula": formula, **options}},
        "privacy": {"mode": "pairwise"},
    }


def fitted(folder, *given, **named):
    simulate(settings_of(folder, *given, **named), folder=folder / "run", baselines=False)
    return regression_of(load(folder / "run" / "peers" / "peer0.safetensors"))


def boundaries(facts, name, inner):
    """Return the ends and knots of a spline, as R takes them."""
    knots = ", ".join(repr(facts[f"knot {number} of {name}"]) for number in range(1, inner + 1))
    ends = f"{facts[f'low end of {name}']!r}, {facts[f'high end of {name}']!r}"
    return f"knots = c({knots}), Boundary.knots = c({ends})"


def compare(against_r, call, regression, code, *, folder, packages):
    estimates, errors = computed_by_r(code, patients(), folder, packages=packages)
    order = sorted(regression.coefficients, key=lambda each: not each.intercept)
    ours = np.array([(each.estimate, each.error) for each in order]).T
    against_r(f"{call}, knots from totals: coefficients, errors", ours, [estimates, errors])


@pytest.mark.parametrize(("target", "family"), [("y", "gaussian"), ("ill", "binomial")])
def test_coefficients_with_knots_from_totals_are_those_of_r_with_the_same_knots(target, family, tmp_path, against_r):
    formula = f"{target} ~ ns(age, 3) + bs(weight, df=5)"
    regression = fitted(tmp_path, "glm", formula, target=target)
    age, weight = boundaries(regression.facts, "ns(age, 3)", 2), boundaries(regression.facts, "bs(weight, 5)", 2)
    code = f"""
    m <- suppressWarnings(glm({target} ~ ns(age, {age}) + bs(weight, {weight}), {family}, d,
      control = glm.control(epsilon = 1e-15, maxit = 100)))
    s <- coef(summary(m)); show(s[, 1]); show(s[, 2])
    """
    compare(against_r, "glm(ns, bs)", regression, code, folder=tmp_path, packages=("splines",))


@pytest.mark.slow
def test_a_cox_regression_takes_knots_from_totals_as_well(tmp_path, against_r):
    formula = "week ~ ns(age, 3) + weight"
    options = {"horizon": 60.0, "least": 1}
    regression = fitted(tmp_path, "cox", formula, target="week", event="died", **options)
    age = boundaries(regression.facts, "ns(age, 3)", 2)
    code = f"""
    m <- coxph(Surv(week, died) ~ ns(age, {age}) + weight, d, control = coxph.control(eps = 1e-14, iter.max = 100))
    show(coef(m)); show(sqrt(diag(vcov(m))))
    """
    compare(against_r, "coxph(ns)", regression, code, folder=tmp_path, packages=("survival", "splines"))
    curve = [
        "survival",
        str(tmp_path / "run" / "peers" / "peer0.safetensors"),
        "--profiles",
        str(tmp_path / "peer0.csv"),
    ]
    assert main([*curve, "--json"]) == 0


def test_knots_are_quantiles_of_all_data_that_whole_numbers_hit(tmp_path):
    facts, age = fitted(tmp_path, "glm", "y ~ ns(age, 3)", target="y").facts, np.sort(patients()["age"])
    found = [facts[f"{name} of ns(age, 3)"] for name in ("low end", "knot 1", "knot 2", "high end")]
    assert found == [age[4], age[239 // 3], age[2 * 239 // 3], age[-5]]


def test_a_saved_model_knows_its_knots(tmp_path):
    regression = fitted(tmp_path, "glm", "y ~ ns(age, 3) + weight", target="y")
    path = tmp_path / "run" / "peers" / "peer1.safetensors"
    found = np.ravel(Predictor.load(path).predict(tmp_path / "peer2.csv").values)
    facts, beta = regression.facts, [each.estimate for each in regression.coefficients]
    knots = [facts[f"knot {number} of ns(age, 3)"] for number in (1, 2)]
    rows = natural_spline(knots, (facts["low end of ns(age, 3)"], facts["high end of ns(age, 3)"]))
    age, weight = (patients()[name][2::3] for name in ("age", "weight"))
    columns = [*(spline_values(age, row) for row in rows), weight, np.ones(80)]
    assert np.allclose(found, np.stack(columns, axis=1) @ beta, rtol=1e-9)


@pytest.mark.parametrize("model", ["lasso", "meta_analysis"])
def test_other_regressions_take_knots_from_totals(model, tmp_path):
    plain = fitted(tmp_path, "glm", "y ~ ns(age, 3) + weight", target="y")
    (tmp_path / "run").rename(tmp_path / "plain")
    regression = fitted(
        tmp_path, model, "y ~ ns(age, 3) + weight", target="y", **({"lambdas": 9} if model == "lasso" else {})
    )
    assert [each.name for each in regression.coefficients] == [each.name for each in plain.coefficients]
    knots = [key for key in plain.facts if "of ns(age, 3)" in key]
    assert len(knots) == 4
    assert [regression.facts[key] for key in knots] == [plain.facts[key] for key in knots]


@pytest.mark.slow
async def test_live_peers_find_the_knots_of_the_simulation(tmp_path):
    settings = settings_of(tmp_path, "glm", "ill ~ ns(age, 3) + bs(weight, df=4)", target="ill")
    settings["transport"] = {"patience": 20.0}
    models = simulate(settings, baselines=False, source=SeededSource(3)).models
    for name, end in (await live(read(settings), MemoryTransport(), source=SeededSource(3))).items():
        for key, tensor in end.peer.plan.learner.state_dict(end.state.rows[0]).items():
            assert np.array_equal(tensor.numpy(), models[name][key].numpy()), (name, key)


def cells(values):
    low, counts = np.unique(values, return_counts=True)
    return Sketch(low, low + 0.25, counts)


@pytest.mark.parametrize("values", [[1.0] * 30, [1.0] * 20 + [2.0] * 20, [*range(12)], [1.0] * 50 + [*range(2, 9)]])
def test_knots_with_few_people_between_them_are_refused(values):
    spline = SplineField("ns(x, 4)1", columns=4)
    with pytest.raises(DataError, match=r"fewer than 5 people are between two knots of ns\(x, 4\)"):
        _placed(spline, cells(np.array(values, float)), least=5)


def test_every_interval_has_as_many_people_as_the_check_wants():
    values = np.random.default_rng(1).integers(0, 40, 400).astype(float)
    knots, ends = _placed(SplineField("ns(x, 5)1", columns=5), cells(values), least=5)
    inside = [np.sum((values > one) & (values < two)) for one, two in zip([-1, *knots], [*knots, 99], strict=True)]
    assert min(inside) >= 5
    assert (np.sum(values <= ends[0]) >= 5, np.sum(values >= ends[1]) >= 5) == (True, True)


def test_the_run_ends_where_values_are_alike(tmp_path):
    columns = patients()
    columns["age"] = np.where(columns["age"] < 80, 50.0, columns["age"])
    settings = settings_of(tmp_path, "glm", "y ~ ns(age, 3)", target="y", columns=columns)
    with pytest.raises(DataError, match="fewer than 5 people are between two knots"):
        simulate(settings, baselines=False)


def test_one_person_far_beyond_the_ends_is_refused(tmp_path):
    columns = patients()
    columns["age"][7] = 9000.0
    settings = settings_of(tmp_path, "glm", "y ~ ns(age, 3) + weight", target="y", columns=columns)
    with pytest.raises(DataError, match=r"one person may have more than .* of a combination of ns\(age, 3\)"):
        simulate(settings, baselines=False)


def test_models_that_find_no_knots_say_so(tmp_path):
    settings = settings_of(tmp_path, "boosting", "y ~ ns(age, 3)", target="y")
    with pytest.raises(ExperimentError, match=r"boosting does not find the knots of ns\(age, 3\)"):
        plan(read(settings))


@pytest.mark.parametrize("model", [GLM, Cox, MetaAnalysis])
def test_the_statement_says_that_values_are_counted(model):
    assert "from which the knots follow" in model.shown({"formula": "y ~ ns(age, 3)"})
    assert "knots" not in model.shown({"formula": "y ~ ns(age, knots=[4], range=[1, 9])"})


def test_a_model_without_splines_has_no_tensor_for_them():
    assert "splines" not in GLM(features=2, classes=2).layout.names
    assert SplineColumns.of(2, None).start == {}


@pytest.mark.slow
def test_a_model_with_knots_is_exported(tmp_path, capsys):
    fitted(tmp_path, "glm", "ill ~ ns(age, 3) + weight", target="ill")
    path = tmp_path / "run" / "peers" / "peer0.safetensors"
    assert main(["export", str(path), "--to", "onnx", "--out", str(tmp_path / "m.onnx")]) == 0
    capsys.readouterr()
    assert main(["coefficients", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["knot 1 of ns(age, 3)"] > 20
