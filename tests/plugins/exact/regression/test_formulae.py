"""Formulae of regressions: designs as R makes them, and coefficients as R finds them."""

import csv
import json

import numpy as np
import pytest
import torch

from p2pfl.cli import main
from p2pfl.core.errors import DataError, ExperimentError, ModelError
from p2pfl.data.data_description import Field
from p2pfl.data.tables.formula import Formula
from p2pfl.data.tables.splines import natural_spline, spline_values
from p2pfl.experiment import plan, read
from p2pfl.network.transport import MemoryTransport
from p2pfl.plugins.exact.statistics_commands import regression_of
from p2pfl.privacy.keys import SeededSource
from p2pfl.results.models import Predictor
from p2pfl.results.models.model_file import load
from p2pfl.simulation import simulate
from plugins.exact.hospital_cases import case, experiment_of, pooled
from plugins.exact.rscript import computed_by_r
from swarms import live

FIELDS = (Field("age"), Field("lwt", range=(80.0, 250.0)), Field("smoke"), Field("race", ("white", "black", "other")))
COLUMNS = {"age": "number", "lwt": "number", "smoke": "number", "race": [1, 2, 3], "bwt": "number", "low": [0, 1]}


def names_of(text, fields=FIELDS):
    return [each.name for each in Formula.of(text, fields).fields]


def design_of(text, rows, fields=FIELDS):
    """Return the design of rows of age, lwt, smoke and the place of the race."""
    encoded = np.column_stack([rows[:, :3], np.eye(3)[rows[:, 3].astype(int)]])
    return Formula.of(text, fields).apply(torch.from_numpy(encoded)).numpy()


def test_operators_mean_what_they_mean_in_r():
    assert names_of("low ~ age * smoke") == ["age", "smoke", "age:smoke"]
    assert names_of("age:smoke + age") == ["age", "age:smoke"]
    assert names_of("(age + smoke + lwt)^2 - age:lwt") == ["age", "smoke", "lwt", "age:smoke", "smoke:lwt"]
    assert names_of("age * smoke * lwt - age:smoke:lwt")[-1] == "smoke:lwt"
    assert names_of("age + age + smoke:age + age:smoke") == ["age", "smoke:age"]
    assert [Formula.of(text, FIELDS).intercept for text in ("age", "age - 1", "0 + age", "-1 + age")] == [
        True,
        False,
        False,
        False,
    ]
    assert Formula.of("Surv(time, status) ~ age", FIELDS).target == "time"


def test_levels_are_compared_with_their_first_or_with_the_named_one():
    [race] = Formula.of("race", FIELDS).fields
    assert race.levels == ("black", "other", "white")  # the model leaves the last one out
    [race] = Formula.of("C(race, ref='other')", FIELDS).fields
    assert race.levels == ("white", "black", "other")
    assert names_of("race * smoke")[2:] == ["race=black:smoke", "race=other:smoke"]
    assert names_of("smoke + race:smoke") == ["smoke", "race=black:smoke", "race=other:smoke"]
    assert names_of("race:smoke") == ["race=white:smoke", "race=black:smoke", "race=other:smoke"]


ROWS = np.array([[20.0, 120.0, 1.0, 0.0], [31.0, 95.0, 0.0, 2.0], [25.0, 180.0, 1.0, 1.0], [40.0, 260.0, 0.0, 2.0]])


def test_functions_and_arithmetic_are_those_of_numpy():
    age, lwt = ROWS[:, 0], ROWS[:, 1]
    found = design_of("log(age) + I((lwt - 100)^2 / 10 - 2 * age) + sqrt(lwt) + I(-age^2)", ROWS)
    assert np.allclose(found, np.column_stack([np.log(age), (lwt - 100) ** 2 / 10 - 2 * age, np.sqrt(lwt), -(age**2)]))


def fitted(data_dir, tmp_path, formula, *, target, **options):
    """Return the coefficients by name, and the path of the model."""
    folder = case(data_dir, "test-part", tmp_path)
    model = {"name": "glm", "options": {"least": 1, "formula": formula, **options}}
    settings = experiment_of(folder, "birthwt.toml", model=model)
    settings["data"]["options"] |= {"target": target, "columns": COLUMNS}
    simulate(settings, folder=tmp_path / "run", baselines=False)
    path = tmp_path / "run" / "peers" / "peer0.safetensors"
    rows = regression_of(load(path)).coefficients
    return {each.name: (each.estimate, each.error) for each in rows if each.estimate is not None}, path, folder


FORMULAE = {
    "age * smoke + C(race, ref='3')": (
        "age * smoke + relevel(factor(race), '3')",
        ["(intercept)", "age", "smoke", "race: 1", "race: 2", "age:smoke"],
    ),
    "ns(lwt, knots=[110, 135], range=[80, 250]) + race * smoke": (
        "ns(lwt, knots = c(110, 135), Boundary.knots = c(80, 250)) + factor(race) * smoke",
        [
            *("(intercept)", "ns(lwt)1", "ns(lwt)2", "ns(lwt)3", "race: 2", "race: 3", "smoke"),
            *("race=2:smoke", "race=3:smoke"),
        ],
    ),
    "log(lwt) + I(age^2) + race:smoke - 1": (
        "log(lwt) + I(age^2) + factor(race):smoke - 1",
        ["log(lwt)", "I(age^2)", "race=1:smoke", "race=2:smoke", "race=3:smoke"],
    ),
}


@pytest.mark.sampled(fast=2)
@pytest.mark.parametrize("target", ["bwt", "low"])
@pytest.mark.parametrize("formula", FORMULAE)
def test_coefficients_of_formulae_are_those_of_r(data_dir, tmp_path, formula, target, against_r):
    r, names = FORMULAE[formula]
    found, _, folder = fitted(data_dir, tmp_path, f"{target} ~ {formula}", target=target)
    family = "gaussian" if target == "bwt" else "binomial"
    code = f"""
    m <- glm({target} ~ {r}, {family}, d, control = glm.control(epsilon = 1e-15, maxit = 100)); s <- coef(summary(m))
    show(s[, 1]); show(s[, 2])
    """
    estimates, errors = computed_by_r(code, pooled(folder), tmp_path, packages=("splines",))
    assert {*found} == {*names}
    ours = np.array([found[name] for name in names]).T
    against_r("glm of formulae (*, :, factor, ns, log, I): coefficients, errors", ours, [estimates, errors])


def test_a_saved_model_predicts_from_the_columns_of_the_table(data_dir, tmp_path):
    formula = "bwt ~ age * smoke + ns(lwt, knots=[110], range=[80, 250])"
    found, path, folder = fitted(data_dir, tmp_path, formula, target="bwt")
    predictions = Predictor.load(path).predict(folder / "peer0.csv").values
    rows = pooled(folder)
    count = len(predictions)
    spline = natural_spline([110], (80.0, 250.0))
    design = {"age": rows["age"][:count], "smoke": rows["smoke"][:count], "(intercept)": np.ones(count)}
    design["age:smoke"] = design["age"] * design["smoke"]
    design |= {
        f"ns(lwt){number}": spline_values(rows["lwt"][:count], row) for number, row in enumerate(spline, start=1)
    }
    wanted = sum(found[name][0] * values for name, values in design.items())
    assert np.allclose(np.asarray(predictions).ravel(), wanted, rtol=1e-9)


def test_columns_with_a_role_stay_beside_the_formula(tmp_path):
    rng = np.random.default_rng(3)
    table = np.column_stack([rng.integers(1, 9, 90), rng.integers(1, 5, 90), rng.poisson(3, 90)])
    rows = table.tolist()
    for number in range(3):
        with (tmp_path / f"peer{number}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["dose", "years", "cases"], *rows[number::3]])
    settings = {
        "rounds": 20,
        "topology": {"kind": "complete", "peers": 3},
        "data": {
            "name": "table",
            "options": {
                "path": str(tmp_path / "{peer}.csv"),
                "target": "cases",
                "columns": dict.fromkeys(("dose", "years", "cases"), "number"),
            },
        },
        "model": {"name": "glm", "options": {"family": "poisson", "exposure": "years", "formula": "cases ~ log(dose)"}},
        "privacy": {"mode": "pairwise"},
    }
    run = simulate(settings, folder=tmp_path / "run", baselines=False)
    regression = run.summary["explained"]["regression"]
    assert [each["name"] for each in regression["coefficients"]] == ["log(dose)", "(intercept)"]
    design, mean = np.column_stack([np.log(table[:, 0]), np.ones(90)]), table[:, 1]
    beta = np.array([each["estimate"] for each in regression["coefficients"]])
    score = design.T @ (table[:, 2] - mean * np.exp(design @ beta))
    assert np.allclose(score, 0, atol=1e-8)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("age + heigth", 'there is no column "heigth"; choose from age, lwt, smoke, race'),
        ("age +", "it ends where a term belongs"),
        ("age) + lwt", r'"\)" comes after the end'),
        ("(age + lwt", r'the end stands where "\)" belongs'),
        ("poly(age, 2)", r"poly\(\) is no function here; use C, I, ns, bs, log, sqrt, exp"),
        ("C(smoke)", "declare them in data.options.columns, such as smoke = "),
        ("C(race, ref='grey')", 'has no level "grey"; choose from white, black, other'),
        ("C(race, base='black')", '"base" is no option here; write ref='),
        ("ns(age, 2.5)", r"takes knots, or a whole number of degrees of freedom from 1 to 20; write ns\(age, 3\)"),
        ("bs(age, df=2)", "a whole number of degrees of freedom from 3 to 20"),
        ("bs(age, df=age)", "stands where a number belongs"),
        ("ns(age, 3, knots=[20])", "takes knots, or a whole number of degrees of freedom"),
        ("ns(age, 3, range=[20])", "is no interval"),
        ("ns(age, 3) * smoke", r"the knots of ns\(age, 3\) in an interaction are not known beforehand"),
        ("ns(age, knots=[20, 30])", "do not ascend between two ends"),
        ("ns(lwt, knots=[130, 110])", "do not ascend between two ends"),
        ("ns(lwt, knots=[a])", "stands where a number belongs"),
        ("log(race)", "has levels, with which nobody calculates"),
        ("age^9", "is no power of terms"),
        ("age + 3", "the number 3 is no term"),
        ("age $ lwt", "is no part of a formula"),
        ("1", "it has no term"),
        ("age + (1 | site)", "random effects .* add the site as a column, or set errors"),
        ("y ~ age ~ lwt", "twice"),
    ],
)
def test_what_is_no_formula_is_refused_in_a_sentence(text, sentence):
    with pytest.raises(ModelError, match=sentence):
        Formula.of(text, FIELDS)


def test_a_formula_of_another_target_or_of_scaled_columns_is_refused(data_dir, tmp_path):
    folder = case(data_dir, "test-part", tmp_path)
    settings = experiment_of(folder, "birthwt.toml", model={"name": "glm", "options": {"formula": "bwt ~ age"}})
    with pytest.raises(ExperimentError, match='has "bwt" on its left side, and the target of the table is "low"'):
        plan(read(settings))
    settings["model"]["options"]["formula"] = "low ~ age"
    with pytest.raises(ExperimentError, match="in their units"):
        plan(read(settings, changes=["data.scale=true"]))
    settings["model"]["options"]["formula"] = "low ~ log(ptl)"
    with pytest.raises(DataError, match=r"log\(ptl\) is not finite for some rows"):
        plan(read(settings))
    settings["model"] = {"name": "boosting", "options": {"formula": "low ~ age * lwt"}}
    assert plan(read(settings)).federation.dataset.shape == (3,)


def test_coefficients_of_a_formula_are_printed(data_dir, tmp_path, capsys):
    _, path, _ = fitted(data_dir, tmp_path, "low ~ age * smoke", target="low")
    capsys.readouterr()
    assert main(["coefficients", str(path), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["coefficients"]
    assert [each["name"] for each in rows] == ["age", "smoke", "age:smoke", "(intercept)"]


def birthwt(data_dir, tmp_path, formula, **options):
    model = {"name": "glm", "options": {"formula": formula} | options}
    settings = experiment_of(case(data_dir, "test-part", tmp_path), "birthwt.toml", model=model)
    settings["data"]["options"] |= {"target": "bwt", "columns": COLUMNS | {"ht": [0, 1], "ui": "number"}}
    return settings


def test_a_combination_of_levels_that_few_people_have_is_refused(data_dir, tmp_path):
    settings = birthwt(data_dir, tmp_path, "bwt ~ ht * smoke + race * smoke")
    simulate(settings | {"topology": {"kind": "complete", "peers": 4}}, baselines=False)
    with pytest.raises(DataError, match=r"fewer than 8 people share a value of ht=1:smoke"):
        simulate(birthwt(data_dir, tmp_path, "bwt ~ ht * smoke", least=8), baselines=False)


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("errors", ["HC1", "cluster"])
async def test_live_peers_find_the_robust_errors_of_the_simulation(data_dir, tmp_path, errors):
    settings = birthwt(data_dir, tmp_path, "bwt ~ age * smoke + log(lwt)", errors=errors)
    models = simulate(settings, baselines=False, source=SeededSource(3)).models
    for name, end in (await live(read(settings), MemoryTransport(), source=SeededSource(3))).items():
        for key, tensor in end.peer.plan.learner.state_dict(end.state.rows[0]).items():
            assert np.array_equal(tensor.numpy(), models[name][key].numpy()), (name, key)


def wards(folder, formula, *, rare):
    """Return the settings of four hospitals, in whose ward ``rare`` are four people, and all rows as columns."""
    rng = np.random.default_rng(2)
    others = [level for level in "abcd" if level != rare]
    ward = np.array([rare] * 4 + [others[number % 3] for number in range(156)])
    smoke, age = rng.integers(0, 2, 160), rng.integers(20, 80, 160).astype(float)
    smoke[:4] = [0, 0, 1, 1]
    y = (age / 10 + smoke + (ward == others[0]) + rng.normal(size=160)).round(3)
    for number in range(4):
        with (folder / f"peer{number}.csv").open("w", newline="") as file:
            rows = zip(*(column[number::4].tolist() for column in (ward, smoke, age, y)), strict=True)
            csv.writer(file).writerows([["ward", "smoke", "age", "y"], *rows])
    columns = {"ward": [*"abcd"], "smoke": "number", "age": "number", "y": "number"}
    options = {"path": str(folder / "{peer}.csv"), "target": "y", "columns": columns}
    settings = {
        "rounds": 20,
        "topology": {"kind": "complete", "peers": 4},
        "data": {"name": "table", "options": options},
        "model": {"name": "glm", "options": {"formula": formula, "merge": "rare"}},
        "privacy": {"mode": "pairwise"},
    }
    return settings, (ward, smoke, age, y)


@pytest.mark.parametrize(("rare", "merged"), [("a", "da"), ("b", "bc"), ("c", "cd")])
def test_rare_levels_are_one_beside_an_interaction_of_other_columns(tmp_path, rare, merged):
    settings, (ward, smoke, age, y) = wards(tmp_path, "y ~ ward + age * smoke", rare=rare)
    regression = simulate(settings, baselines=False).summary["explained"]["regression"]
    found = {each["name"]: each["estimate"] for each in regression["coefficients"]}
    joined = np.where(np.isin(ward, [*merged]), merged[0], ward)
    levels = sorted({*joined})
    design = np.column_stack([*(joined == level for level in levels), age, smoke, age * smoke]).astype(float)
    oracle = np.linalg.lstsq(design, y, rcond=None)[0]
    assert [found[name] for name in ("age", "smoke", "age:smoke")] == pytest.approx(oracle[-3:].tolist(), rel=1e-9)
    names = [f"{merged[0]}+{merged[1]}" if level == merged[0] else level for level in levels]
    effects = np.array(
        [found[f"ward: {name}"] or 0.0 for name in names]
    )  # 0 of the level that others are compared with
    assert np.diff(effects) == pytest.approx(np.diff(oracle[:-3]), rel=1e-9)


@pytest.mark.sampled(fast=4)
@pytest.mark.parametrize("rare", [*"abcd"])
@pytest.mark.parametrize("formula", ["y ~ ward * smoke", "y ~ ward:smoke", "y ~ ward + ward:smoke", "y ~ ward * age"])
def test_rare_levels_of_an_interaction_are_refused_though_levels_are_merged(tmp_path, formula, rare):
    """The columns of an interaction would still tell the people of a level apart, the first level included."""
    settings, _ = wards(tmp_path, formula, rare=rare)
    with pytest.raises(DataError, match=r"fewer than 5 people share a value of .*ward(=.)?:(smoke|age)"):
        simulate(settings, baselines=False)
