"""Families, links, offsets and weights of regressions: those of statsmodels on the pooled data, live and simulated."""

import csv
import json
import warnings

import numpy as np
import pytest
import statsmodels.api as sm

from p2pfl import topology
from p2pfl.cli import main
from p2pfl.core.errors import DataError, ExperimentError, LearningError, ModelError
from p2pfl.experiment import plan, read
from p2pfl.network.transport import MemoryTransport
from p2pfl.plugins.exact.regression.fits import coefficients
from p2pfl.plugins.exact.regression.glm import GLM
from p2pfl.plugins.exact.regression.lasso import Lasso
from p2pfl.privacy.keys import SeededSource
from p2pfl.simulation import simulate
from plugins.exact.regression.test_glm import fitted
from plugins.exact.tables import shared_out, trained
from swarms import live

CLOSE = 1e-10
SAMPLES = 300
RNG = np.random.default_rng(0)
FEATURES = np.column_stack([RNG.normal(120, 15, SAMPLES), RNG.integers(0, 2, SAMPLES)]).astype(np.float32)
PREDICTOR = (FEATURES - [120, 0.5]) @ [0.02, 0.5]
ROLES = {
    "exposure": RNG.uniform(0.5, 9, SAMPLES).astype(np.float32),
    "offset": RNG.normal(size=SAMPLES).astype(np.float32),
    "freq_weights": RNG.integers(0, 4, SAMPLES).astype(np.float32),
    "var_weights": RNG.uniform(0.2, 3, SAMPLES).astype(np.float32),
}
CLASSES = (RNG.random(SAMPLES) < 1 / (1 + np.exp(-PREDICTOR))).astype(int)
COUNTS = RNG.negative_binomial(2, 2 / (2 + np.exp(1 + PREDICTOR)))
NUMBERS = (PREDICTOR + RNG.normal(size=SAMPLES)).astype(np.float32)
POSITIVE = np.exp(NUMBERS)

FAMILIES = {
    "probit": ({"classes": 2, "link": "probit"}, sm.families.Binomial(sm.families.links.Probit()), CLASSES),
    "cloglog": ({"classes": 2, "link": "cloglog"}, sm.families.Binomial(sm.families.links.CLogLog()), CLASSES),
    "logit": ({"classes": 2}, sm.families.Binomial(), CLASSES),
    "linear": ({"classes": None}, sm.families.Gaussian(), NUMBERS),
    "gamma": ({"classes": None, "family": "gamma"}, sm.families.Gamma(sm.families.links.Log()), POSITIVE),
    "poisson": ({"classes": None, "family": "poisson"}, sm.families.Poisson(), COUNTS),
    "negative binomial": (
        {"classes": None, "family": "negative_binomial", "alpha": 0.5},
        sm.families.NegativeBinomial(alpha=0.5),
        COUNTS,
    ),
}


@pytest.mark.sampled(fast=4)
@pytest.mark.parametrize(
    ("family", "roles"),
    [
        ("probit", ()),
        ("poisson", ("exposure", "offset", "freq_weights", "var_weights")),
        ("negative binomial", ("exposure", "var_weights")),
        ("linear", ("offset", "freq_weights")),
        ("gamma", ("offset", "var_weights")),
        ("logit", ("offset", "freq_weights")),
        ("cloglog", ("freq_weights",)),
        ("negative binomial", ()),
        ("linear", ("var_weights",)),
    ],
)
def test_a_regression_with_offsets_and_weights_is_that_of_statsmodels(family, roles):
    options, oracle, targets = FAMILIES[family]
    columns = {role: ROLES[role] for role in roles}
    names = {role: f"x{2 + number}" for number, role in enumerate(roles)}
    model = GLM(features=2 + len(roles), **options, **names)
    table = np.column_stack([FEATURES, *columns.values()])
    found = fitted(model, table, targets, classes=model.classes, graph=topology.ring(3))
    design = np.column_stack([FEATURES.astype(float), np.ones(SAMPLES)])
    wide = {role: values.astype(float) for role, values in columns.items()}
    oracle = sm.GLM(targets.astype(float), design, family=oracle, **wide)
    oracle = oracle.fit(tol=1e-13, tol_criterion="params", maxiter=300)
    own = coefficients(model.stacked(found), found["covariance"], list("abc"))
    assert np.abs((np.array([each.estimate for each in own]) - oracle.params) / oracle.bse).max() < CLOSE
    assert np.allclose([each.error for each in own], oracle.bse, rtol=CLOSE)
    assert found["deviance"] == pytest.approx(oracle.deviance, rel=CLOSE)
    assert found["null_deviance"] == pytest.approx(oracle.null_deviance, rel=CLOSE)
    if not model.kind.family.dispersed:
        assert found["deviance"] - 2 * found["saturated"] + 6 == pytest.approx(oracle.aic, rel=CLOSE)
    _, pooled = trained(model.alone, shared_out(table, targets, classes=model.classes, peers=4), rounds=40)
    for name, value in pooled.items():
        assert np.array_equal(found[name], value, equal_nan=True), name


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("roles", [(), ("exposure", "offset")])
def test_alpha_is_estimated_as_statsmodels_estimates_it(roles):
    names = {role: f"x{2 + number}" for number, role in enumerate(roles)}
    model = GLM(features=2 + len(roles), classes=None, family="negative_binomial", alpha="estimate", **names)
    table = np.column_stack([FEATURES, *(ROLES[role] for role in roles)])
    found = fitted(model, table, COUNTS, classes=None, graph=topology.ring(3))
    design = np.column_stack([FEATURES.astype(float), np.ones(SAMPLES)])
    design[:, 0] = (design[:, 0] - 120) / 15  # statsmodels does not converge on the raw column
    wide = {role: ROLES[role].astype(float) for role in roles}
    alpha, beta = float(found["alpha"][0]), model.stacked(found)
    near = np.array([15 * beta[0], beta[1], beta[2] + 120 * beta[0]])
    oracle = sm.NegativeBinomial(COUNTS.astype(float), design, **wide)
    with warnings.catch_warnings(action="ignore"):  # its optimiser comes by alphas near 0
        fit = oracle.fit(disp=0)
        fit = oracle.fit(start_params=fit.params, method="newton", tol=1e-14, maxiter=50, disp=0)
    assert np.allclose([*near, alpha], fit.params, rtol=1e-8)
    assert found["deviance"] - 2 * found["saturated"] + 8 == pytest.approx(fit.aic, rel=CLOSE)
    raw = np.column_stack([FEATURES.astype(float), np.ones(SAMPLES)])
    given = sm.GLM(COUNTS.astype(float), raw, family=sm.families.NegativeBinomial(alpha=alpha), **wide)
    given = given.fit(tol=1e-13, tol_criterion="params", maxiter=300)
    own = coefficients(beta, found["covariance"], list("abc"))
    assert np.allclose([each.error for each in own], given.bse, rtol=1e-8)  # those of glm.nb
    assert found["deviance"] == pytest.approx(given.deviance, rel=1e-9)
    assert found["null_deviance"] == pytest.approx(given.null_deviance, rel=1e-9)
    step = 1e-4 * alpha
    scores = [oracle.score([*near, alpha + move])[-1] for move in (step, -step)]
    assert found["alpha_error"][0] == pytest.approx(np.sqrt(-2 * step / (scores[0] - scores[1])), rel=1e-5)
    _, pooled = trained(model.alone, shared_out(table, COUNTS, classes=None, peers=4), rounds=40)
    for name, value in pooled.items():
        assert np.array_equal(found[name], value, equal_nan=True), name


def test_counts_that_vary_no_more_than_those_of_poisson_have_no_alpha():
    model = GLM(features=2, classes=None, family="negative_binomial", alpha="estimate")
    even = np.arange(SAMPLES) % 3 + 3
    with pytest.raises(
        LearningError, match=r'so there is no alpha to estimate; set model\.options\.family to "poisson"'
    ):
        fitted(model, FEATURES, even, classes=None, graph=topology.ring(3))


@pytest.mark.slow
def test_the_estimate_of_alpha_is_printed(admissions, tmp_path, capsys):
    admissions["model"]["options"] = {"family": "negative_binomial", "alpha": "estimate", "exposure": "days"}
    simulate(admissions, folder=tmp_path / "run", baselines=False)
    saved = str(tmp_path / "run" / "peers" / "peer0.safetensors")
    assert main(["coefficients", saved, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert 0 < found["alpha_error"] < found["alpha"]
    assert found["aic"] > found["deviance"]
    assert main(["coefficients", saved]) == 0
    assert "alpha error" in capsys.readouterr().out


def test_multinomial_regression_is_that_of_statsmodels():
    scores = np.exp(np.column_stack([np.zeros(SAMPLES), PREDICTOR, 0.5 - PREDICTOR]))
    shares = np.cumsum(scores, axis=1) / scores.sum(axis=1, keepdims=True)
    targets = (np.random.default_rng(1).random(SAMPLES)[:, None] > shares).sum(axis=1)
    model = GLM(features=2, classes=3)
    found = fitted(model, FEATURES, targets, classes=3, graph=topology.path(5))
    design = np.column_stack([FEATURES.astype(float), np.ones(SAMPLES)])
    with pytest.warns(Warning, match="failed to converge"):  # it is asked for more digits than its test can see
        oracle = sm.MNLogit(targets, design).fit(method="newton", maxiter=50, tol=1e-16, disp=0)
    own = coefficients(model.stacked(found), found["covariance"], model.labels(["pulse", "drug"], ["a", "b", "c"]))
    assert [each.name for each in own[2:4]] == ["b | (intercept)", "c | pulse"]
    assert np.allclose([each.estimate for each in own], oracle.params.T.ravel(), rtol=CLOSE)
    assert np.allclose([each.error for each in own], oracle.bse.T.ravel(), rtol=CLOSE)
    assert found["deviance"] == pytest.approx(-2 * oracle.llf, rel=CLOSE)
    counts = np.bincount(targets)
    assert found["null_deviance"] == pytest.approx(-2 * (counts * np.log(counts / SAMPLES)).sum(), rel=CLOSE)
    _, pooled = trained(model.alone, shared_out(FEATURES, targets, classes=3, peers=2), rounds=40)
    for name, value in pooled.items():
        assert np.array_equal(found[name], value), name


def test_frequencies_stand_for_repeated_rows():
    times = ROLES["freq_weights"].astype(int)
    table = np.column_stack([FEATURES, times])
    model = GLM(features=3, classes=2, freq_weights="x2")
    found = fitted(model, table, CLASSES, classes=2, graph=topology.ring(3))
    repeated = fitted(
        GLM(features=2, classes=2), np.repeat(FEATURES, times, axis=0), np.repeat(CLASSES, times), classes=2
    )
    assert found["samples"] == repeated["samples"] == times.sum()
    assert np.allclose(found["covariance"], repeated["covariance"], rtol=1e-11)


def test_a_lasso_path_takes_weights_and_offsets():
    table = np.column_stack([FEATURES, ROLES["freq_weights"], ROLES["offset"]])
    shifted = (NUMBERS - ROLES["offset"]).astype(np.float32)
    times = ROLES["freq_weights"].astype(int)
    model = Lasso(features=4, classes=None, lambdas=4, freq_weights="x2", offset="x3")
    _, found = trained(model, shared_out(table, NUMBERS, classes=None, peers=3), rounds=4)
    repeated = shared_out(np.repeat(FEATURES, times, axis=0), np.repeat(shifted, times), classes=None, peers=3)
    _, plain = trained(Lasso(features=2, classes=None, lambdas=4), repeated, rounds=4)
    assert np.allclose(found["path"], plain["path"], rtol=1e-5, atol=1e-7)  # the targets are single precision


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"classes": 2, "link": "log"}, 'link is "log", and binomial takes logit or probit or cloglog'),
        ({"classes": 2, "exposure": "x0"}, "exposure needs a logarithm as link, which binomial does not have"),
        ({"classes": None, "offset": "age"}, 'offset: there is no column of numbers "age"; choose from x0, x1'),
        ({"classes": None, "offset": "x0", "var_weights": "x0"}, "offset, var_weights name one column twice"),
        ({"classes": None, "offset": "x0", "var_weights": "x1"}, "every column has a role, so no feature is left"),
        ({"classes": None, "family": "negative_binomial", "alpha": 0.0}, "alpha is 0.0; set it above 0"),
        (
            {"classes": None, "family": "negative_binomial", "alpha": "ml"},
            'alpha is ml; set it above 0 or to "estimate"',
        ),
        ({"classes": None, "family": "poisson", "alpha": "estimate"}, "belongs to negative_binomial, not to poisson"),
        ({"classes": 3, "ridge": 1.0}, "ridge does not work with multinomial"),
        ({"classes": 3, "offset": "x0"}, "multinomial takes no offset and no exposure"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, said):
    with pytest.raises(ModelError, match=said):
        GLM(features=2, **options)


@pytest.mark.parametrize(
    ("role", "value", "said"),
    [
        ("exposure", 0.0, "has in the column of model.options.exposure a number that is not positive; correct it"),
        ("freq_weights", 1.5, "a number that is no count; name whole numbers, or use model.options.var_weights"),
        ("var_weights", 0.0, "a weight that is not positive; leave these samples out"),
    ],
)
def test_values_that_a_role_does_not_allow_are_refused(role, value, said):
    column = np.ones(SAMPLES, np.float32)
    column[3] = value
    model = GLM(features=3, classes=None, family="poisson", **{role: "x2"})
    with pytest.raises(DataError, match=said):
        fitted(model, np.column_stack([FEATURES, column]), COUNTS, classes=None, graph=topology.ring(3))


@pytest.fixture
def admissions(tmp_path):
    """Return the experiment of four hospitals that count admissions in wards of different sizes."""
    for number in range(4):
        with (tmp_path / f"peer{number}.csv").open("w", newline="") as file:
            rows = zip(FEATURES, COUNTS, ROLES["exposure"], ROLES["freq_weights"], strict=True)
            cells = [[f"{x[0]:.4f}", int(x[1]), int(y), f"{e:.3f}", int(w)] for x, y, e, w in rows]
            csv.writer(file).writerows([["pulse", "drug", "falls", "days", "wards"], *cells[number::4]])
    columns = dict.fromkeys(("pulse", "falls", "days"), "number") | dict.fromkeys(("drug", "wards"), "integer")
    return {
        "name": "falls",
        "rounds": 30,
        "topology": {"kind": "path", "peers": 4},
        "data": {
            "name": "table",
            "options": {"path": str(tmp_path / "{peer}.csv"), "target": "falls", "columns": columns},
        },
        "model": {
            "name": "glm",
            "options": {"family": "poisson", "exposure": "days", "freq_weights": "wards"},
        },
        "privacy": {"mode": "pairwise", "mask_graph": "complete"},
    }


@pytest.mark.slow
async def test_live_peers_end_with_the_weighted_regression_of_the_simulation(admissions):
    experiment = read(admissions)
    run = simulate(experiment, baselines=False)
    for name, end in (await live(experiment, MemoryTransport(), source=SeededSource(3))).items():
        found = end.peer.plan.learner.state_dict(end.state.rows[0])
        for key, tensor in run.models[name].items():
            assert np.array_equal(found[key].numpy(), tensor.numpy(), equal_nan=True), key


def test_columns_with_a_role_have_no_coefficient_and_predictions_need_no_weights(admissions, tmp_path, capsys):
    simulate(admissions, folder=tmp_path / "run", baselines=False)
    saved = str(tmp_path / "run" / "peers" / "peer0.safetensors")
    assert main(["coefficients", saved, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    by_name = {each["name"]: each["estimate"] for each in found["coefficients"]}
    assert list(by_name) == ["drug", "pulse", "(intercept)"]
    assert found["aic"] > 0
    (tmp_path / "new.csv").write_text("pulse,drug,days\n100,1,2.0\n100,1,4.0\n")
    assert main(["predict", saved, str(tmp_path / "new.csv")]) == 0
    head, one, two = capsys.readouterr().out.split()
    expected = np.exp(100 * by_name["pulse"] + by_name["drug"] + by_name["(intercept)"])
    assert head == "prediction"
    assert float(one) == pytest.approx(2 * expected, rel=1e-9)
    assert float(two) == pytest.approx(4 * expected, rel=1e-9)


def test_a_scaled_offset_is_refused(admissions):
    with pytest.raises(ExperimentError, match=r"data\.scale would change the units of the offset, the exposure or"):
        plan(read(admissions | {"data": admissions["data"] | {"scale": True}}))
    columns = admissions["data"]["options"]["columns"] | {"days": {"type": "number", "mean": 5.0, "deviation": 2.0}}
    data = {"name": "table", "options": admissions["data"]["options"] | {"columns": columns}}
    with pytest.raises(ModelError, match="from a column that is scaled, so it would have other units"):
        plan(read(admissions | {"data": data}))
