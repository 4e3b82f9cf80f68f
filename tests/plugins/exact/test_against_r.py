"""Regressions, curves and Table 1 from Python against R on the pooled rows; conftest.py lists all comparisons."""

import numpy as np
import pandas as pd
import pytest
from lifelines.datasets import load_lung

import p2pfl
from plugins.exact.rscript import computed_by_r

KEYS = ("estimate", "error", "z", "p", "low", "high")
CONTROL = "control = glm.control(epsilon = 1e-15, maxit = 200)"
SUMMARY = "s <- coef(summary(m)); for (k in 1:4) show(s[, k]); ci <- confint.default(m); show(ci[, 1]); show(ci[, 2])"
GLMS = {
    'glm(binomial("probit"))': ("ill ~ a + b", {"link": "probit"}),
    'glm(binomial("cloglog"))': ("ill ~ a + b", {"link": "cloglog"}),
    "glm(poisson, offset(log(days)))": ("visits ~ a + b", {"family": "poisson", "exposure": "days"}),
    "glm.nb": ("visits ~ a + b", {"family": "negative_binomial", "alpha": "estimate"}),
}
CALLS = {
    "glm(poisson, offset(log(days)))": f"glm(visits ~ a + b + offset(log(days)), poisson, d, {CONTROL})",
    "glm.nb": f"glm.nb(visits ~ a + b, d, {CONTROL})",
}
SITES = ("east", "north", "south", "west")


def patients(rows=320):
    """Return columns of decimals and counts."""
    rng = np.random.default_rng(41)
    a, b = rng.normal(63.1, 9.3, rows).round(3), rng.exponential(2.7, rows).round(4)
    days, arm = rng.integers(20, 90, rows), rng.integers(0, 2, rows)
    mean = np.exp(0.02 * (a - 63) - 0.1 * b) * days / 20
    ill = (rng.random(rows) < 1 / (1 + np.exp(0.06 * (63 - a) + 0.3 * b))).astype(int)
    stage = rng.choice(3, rows, p=[0.5, 0.3, 0.2])
    visits = rng.negative_binomial(3, 3 / (3 + mean))
    return {"a": a, "b": b, "days": days, "visits": visits, "ill": ill, "arm": arm, "stage": stage}


def of_sites(columns):
    """Return the columns as the tables of four sites."""
    frame = pd.DataFrame(columns)
    return {site: frame.iloc[number::4] for number, site in enumerate(SITES)}


def numbers_of(analysis):
    """Return the numbers of all coefficients, the intercept first, by kind."""
    rows = analysis.results["coefficients"]
    rows = sorted(rows, key=lambda row: row["name"] != "(intercept)")
    return [[row[key] for row in rows] for key in KEYS]


@pytest.mark.slow
@pytest.mark.parametrize("call", GLMS)
def test_generalised_linear_models_are_those_of_r(call, tmp_path, against_r):
    columns, (formula, options) = patients(), GLMS[call]
    refined = "" if call == "glm.nb" else "for (k in 1:20) m <- update(m, start = coef(m)); "
    code = f"m <- {CALLS.get(call, f'glm({formula}, {call[4:-1]}, d, {CONTROL})')}\n{refined}{SUMMARY}"
    wanted = computed_by_r(code, columns, tmp_path, packages=("MASS",))
    used = {"a": "number", "b": "number"} | ({"days": "number"} if "exposure" in options else {})
    used |= {"ill": [0, 1]} if formula.startswith("ill") else {"visits": "number"}
    fit = p2pfl.glm(formula, of_sites(columns), columns=used, options={"least": 1, **options})
    against_r(f"{call}: coefficients, errors, z, p, intervals", numbers_of(fit), wanted)


@pytest.mark.slow
@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_proportional_hazards_of_the_lung_data_are_those_of_r(ties, tmp_path, against_r):
    lung = load_lung()[["time", "status", "age", "sex"]].astype(int)
    code = f"""
    m <- coxph(Surv(time, status) ~ age + sex, d, ties = "{ties}", control = coxph.control(eps = 1e-14, iter.max = 50))
    s <- coef(summary(m)); ci <- confint(m); for (x in list(s[, 1], s[, 3], s[, 4], s[, 5], ci[, 1], ci[, 2])) show(x)
    show(m$loglik); z <- cox.zph(m, transform = "km")$table; show(z[, 1]); show(z[, 3])
    """
    *table, likelihood, statistics, p = computed_by_r(code, {name: lung[name].to_numpy() for name in lung}, tmp_path)
    columns = {"time": "number", "status": [0, 1], "age": "number", "sex": "number"}
    options = {"horizon": 1023.0, "least": 1, "ties": ties}
    fit = p2pfl.cox("time ~ age + sex", of_sites(lung), event="status", columns=columns, options=options)
    against_r("coxph(efron, breslow): coefficients, errors, z, p, intervals", numbers_of(fit), table)
    against_r("coxph: loglik", [fit.results["null_likelihood"], fit.results["likelihood"]], likelihood)
    tests = fit.results["tests"]
    ours = [[each[key] for each in tests] for key in ("statistic", "p")]
    against_r("cox.zph: statistics, p", ours, [statistics, p])


@pytest.mark.slow
def test_the_tests_of_table_1_are_those_of_r(tmp_path, against_r):
    rows = patients()
    columns = {"age": rows["a"].round(), "ill": rows["ill"], "stage": rows["stage"], "arm": rows["arm"]}
    code = """
    w <- suppressWarnings(wilcox.test(age ~ arm, d, exact = FALSE)); a <- t.test(age ~ arm, d)
    show(c(a$statistic, a$p.value)); show(w$p.value)
    for (y in c("ill", "stage")) {
      x <- chisq.test(table(d[[y]], d$arm), correct = FALSE); show(c(x$statistic, x$p.value)) }
    x <- oneway.test(age ~ stage, d, var.equal = TRUE); show(c(x$statistic, x$p.value))
    """
    welch, rank, ill, stage, anova = computed_by_r(code, columns, tmp_path, packages=("stats",))
    declared = {"age": "number", "ill": [0, 1], "stage": [0, 1, 2], "arm": [0, 1]}
    found = {}
    for by in ("arm", "stage"):
        fit = p2pfl.describe(of_sites(columns), target=by, columns=declared, options={"by": "target"})
        found |= {(by, each["name"]): each for each in fit.results["groups"]["columns"]}

    def tested(by, name):
        return found[by, name]["statistic"], found[by, name]["p"]

    against_r("t.test (Welch): statistic, p", tested("arm", "age"), welch)
    against_r("wilcox.test(correct): p", found["arm", "age"]["rank_p"], rank)
    against_r(
        "chisq.test(correct = FALSE): statistic, p", [tested("arm", name) for name in ("ill", "stage")], [ill, stage]
    )
    against_r("oneway.test(var.equal): F, p", tested("stage", "age"), anova)
