"""Tables of regressions as R prints them: t, R2, F, criteria, ratios and tests between nested models."""

import csv
import json
import math

import docx
import numpy as np
import pytest

from p2pfl.cli import main
from p2pfl.core.errors import InputError
from p2pfl.plugins.exact import GLM
from p2pfl.plugins.exact.regression.inference import compare_nested
from p2pfl.plugins.exact.statistics_commands import regression_of
from p2pfl.results.models.model_file import load
from p2pfl.results.pages.features import coefficient
from p2pfl.simulation import simulate
from plugins.exact.hospital_cases import case, experiment_of, pooled
from plugins.exact.rscript import computed_by_r
from plugins.exact.tables import shared_out, trained

PACKAGES = ("MASS", "sandwich")
CONTROL = "control = glm.control(epsilon = 1e-14, maxit = 100)"
SHOWN = """
table <- function(m, ci) for (x in list(coef(summary(m))[, 1], coef(summary(m))[, 2], coef(summary(m))[, 3],
  coef(summary(m))[, 4], ci[, 1], ci[, 2])) show(x)
"""
KEYS = ("estimate", "error", "z", "p", "low", "high")

RATIO_HEADS = ("odds_ratio", "odds_ratio_low", "odds_ratio_high")

COLUMNS = {"age": "number", "lwt": "number", "smoke": "number", "ht": "number"}


def saved(folder, settings):
    """Return the path of the model that peers learn."""
    simulate(settings, folder=folder, baselines=False)
    return folder / "peers" / "peer0.safetensors"


def birthwt(data_dir, tmp_path, *, target, columns, **options):
    """Return the settings of a regression of the birth weights; their sites have few patients with hypertension."""
    folder = case(data_dir, "test-part", tmp_path)
    settings = experiment_of(folder, "birthwt.toml", model={"name": "glm", "options": {"least": 1, **options}})
    levels = {"bwt": "number", "low": [0, 1], "ftv": "number"}
    settings["data"]["options"] |= {"target": target, "columns": columns | {target: levels[target]}}
    return settings, pooled(folder)


def check_table(against_r, call, fitted, shown, names):
    """Check coefficients against those of R, which come by column with the intercept first."""
    rows = {each.name: each for each in fitted.coefficients if each.estimate is not None}
    order = ["(intercept)", *names]
    assert {*rows} == {*order}
    for key, values in zip(KEYS, shown, strict=True):
        against_r(
            f"{call}: coefficients, errors, t or z, p, intervals", [getattr(rows[name], key) for name in order], values
        )


def test_a_weighted_linear_model_has_the_t_and_p_of_lm(data_dir, tmp_path, against_r):
    folder = case(data_dir, "t-distribution", tmp_path)
    fitted = regression_of(load(saved(tmp_path / "run", experiment_of(folder, "e.toml"))))
    code = """
    for (v in c("District", "Group", "Age")) { d[[v]] <- factor(d[[v]]) }
    d$District <- relevel(d$District, "4"); d$Group <- relevel(d$Group, ">2l"); d$Age <- relevel(d$Age, ">35")
    d$Group <- factor(d$Group, c(">2l", "<1l", "1-1.5l", "1.5-2l"))
    d$Age <- factor(d$Age, c(">35", "<25", "25-29", "30-35"))
    m <- lm(Claims ~ District + Group + Age, d, weights = Holders); s <- summary(m); f <- s$fstatistic
    table(m, confint(m))
    show(c(s$r.squared, s$adj.r.squared, f[1], pf(f[1], f[2], f[3], lower = FALSE), AIC(m), BIC(m), logLik(m)))
    """
    *shown, facts = computed_by_r(SHOWN + code, pooled(folder), tmp_path, packages=PACKAGES)
    levels = {"District": ("1", "2", "3"), "Group": ("<1l", "1-1.5l", "1.5-2l"), "Age": ("<25", "25-29", "30-35")}
    check_table(
        against_r,
        "lm(weights)",
        fitted,
        shown,
        [f"{column}: {level}" for column, names in levels.items() for level in names],
    )
    keys = ("r2", "adjusted_r2", "f", "f_p", "aic", "bic", "log_likelihood")
    against_r("lm(weights): R2, adjusted R2, F, p, AIC, BIC, logLik", [fitted.facts[key] for key in keys], facts)
    assert fitted.freedom == 54


def test_a_gamma_model_has_the_t_and_the_criteria_of_glm(data_dir, tmp_path, against_r):
    settings, columns = birthwt(data_dir, tmp_path, target="bwt", columns=COLUMNS, family="gamma")
    fitted = regression_of(load(saved(tmp_path / "run", settings)))
    code = f"""
    m <- glm(bwt ~ age + lwt + smoke + ht, Gamma("log"), d, {CONTROL})
    for (step in 1:20) m <- update(m, start = coef(m))  # R stops where the deviance, which is flat, stands still
    se <- coef(summary(m))[, 2]; q <- qt(0.975, m$df.residual)
    table(m, cbind(coef(m) - q * se, coef(m) + q * se))
    show(c(deviance(m), m$null.deviance, summary(m)$dispersion, AIC(m), BIC(m), logLik(m)))
    """
    *shown, facts = computed_by_r(SHOWN + code, columns, tmp_path, packages=PACKAGES)
    check_table(against_r, "glm(Gamma(log))", fitted, shown, COLUMNS)
    keys = ("deviance", "null_deviance", "dispersion", "aic", "bic", "log_likelihood")
    against_r("glm(Gamma(log)): deviances, dispersion, AIC, BIC, logLik", [fitted.facts[key] for key in keys], facts)
    assert fitted.ratio == "ratio of means"


def test_a_logistic_model_has_odds_ratios_with_intervals(data_dir, tmp_path, against_r):
    settings, columns = birthwt(data_dir, tmp_path, target="low", columns=COLUMNS)
    fitted = regression_of(load(saved(tmp_path / "run", settings)))
    code = f"""
    m <- glm(low ~ age + lwt + smoke + ht, binomial, d, {CONTROL}); ci <- confint.default(m)
    table(m, ci)
    show(c(AIC(m), BIC(m), m$null.deviance - deviance(m), pchisq(m$null.deviance - deviance(m), 4, lower = FALSE)))
    show(exp(cbind(coef(m), ci))[-1, ])
    """
    *shown, facts, ratios = computed_by_r(SHOWN + code, columns, tmp_path, packages=PACKAGES)
    check_table(against_r, "glm(binomial)", fitted, shown, COLUMNS)
    keys = ("aic", "bic", "chi2", "chi2_p")
    against_r("glm(binomial): AIC, BIC, likelihood ratio, p", [fitted.facts[key] for key in keys], facts)
    rows = {each.name: each for each in fitted.coefficients}
    against_r("exp(confint.default(glm)): odds ratios", np.array([rows[name].ratio for name in COLUMNS]).T, ratios)
    assert rows["(intercept)"].ratio == (None, None, None)


NESTED = {
    "bwt": "s <- lm(bwt ~ age + lwt, d); m <- lm(bwt ~ age + lwt + smoke + ht, d); a <- anova(s, m)[2, ]",
    "low": "s <- glm(low ~ age + lwt, binomial, d); m <- glm(low ~ age + lwt + smoke + ht, binomial, d)",
}
"""Models of R with few and more columns, by target."""


@pytest.mark.parametrize("target", NESTED)
def test_nested_models_are_compared_as_by_anova(data_dir, tmp_path, capsys, target, against_r):
    small, columns = birthwt(data_dir, tmp_path, target=target, columns={"age": "number", "lwt": "number"})
    large, _ = birthwt(data_dir, tmp_path, target=target, columns=COLUMNS)
    paths = [str(saved(tmp_path / str(number), each)) for number, each in enumerate((small, large))]
    code = f"""
    {NESTED[target]}
    l <- 2 * as.numeric(logLik(m) - logLik(s)); show(c(l, 2, pchisq(l, 2, lower = FALSE)))
    if (exists("a")) show(c(a$F, a$`Pr(>F)`))
    """
    shown = computed_by_r(code, columns, tmp_path, packages=PACKAGES)
    capsys.readouterr()
    for one, other in (paths, paths[::-1]):
        assert main(["coefficients", one, "--against", other, "--json"]) == 0
        test = json.loads(capsys.readouterr().out)["against"]
        against_r("logLik of nested models: ratio, p", [test["chi2"], test["freedom"], test["p"]], shown[0])
        assert test["lacking"] == ["ht", "smoke"]
        if target == "bwt":
            against_r("anova(lm, lm): F, p", [test["f"], test["f_p"]], shown[1])
        else:
            assert test["f"] is None
    assert main(["coefficients", paths[1], "--against", paths[0]]) == 0
    assert "likelihood ratio " in capsys.readouterr().out


def fit(features, targets, **options):
    """Return the coefficients of a model of pooled data."""
    model = GLM(features=features.shape[1], classes=None, least=1, coefficients_per_sample=1.0, **options)
    learner, tensors = trained(model, shared_out(features, targets, classes=None, peers=3), rounds=20)
    return learner.explained(learner._row(tensors)).regression


WEIGHTS = (
    *(4.17, 5.58, 5.18, 6.11, 4.50, 4.61, 5.17, 4.53, 5.33, 5.14),
    *(4.81, 4.17, 4.41, 3.59, 5.87, 3.83, 6.03, 4.89, 4.32, 4.69),
)
"""Weights of plants of two groups, which R's help of ``lm`` takes from Dobson, An introduction to GLMs, 1990."""


def test_plant_weights_have_the_table_that_r_prints():
    group = np.repeat([0.0, 1.0], 10)[:, None]
    fitted = fit(group, np.array(WEIGHTS))
    slope, intercept = fitted.coefficients
    printed = [(round(each.estimate, 4), round(each.error, 4), round(each.z, 3)) for each in (intercept, slope)]
    assert printed == [(5.032, 0.2202, 22.85), (-0.371, 0.3114, -1.191)]
    assert round(slope.p, 3) == 0.249
    facts = {key: float(f"{fitted.facts[key]:.4g}") for key in ("r2", "adjusted_r2", "f", "f_p")}
    assert facts == {"r2": 0.07308, "adjusted_r2": 0.02158, "f": 1.419, "f_p": 0.249}
    assert fitted.freedom == 18


def test_a_randomised_trial_has_the_table_that_r_prints():
    counts = np.array([18, 17, 15, 20, 10, 20, 25, 13, 12], float)  # R's help of `glm`, from Dobson
    outcome, treatment = np.tile(np.eye(3)[:, 1:], (3, 1)), np.repeat(np.eye(3)[:, 1:], 3, axis=0)
    fitted = fit(np.column_stack([outcome, treatment]), counts, family="poisson")
    two, three, *_, intercept = fitted.coefficients
    assert [round(each.estimate, 4) for each in (intercept, two, three)] == [3.0445, -0.4543, -0.293]
    assert [round(each.error, 4) for each in (intercept, two, three)] == [0.1709, 0.2022, 0.1927]
    assert [round(each.p, 4) for each in (two, three)] == [0.0246, 0.1285]
    assert round(fitted.facts["deviance"], 4) == 5.1291
    assert round(fitted.facts["null_deviance"], 3) == 10.581
    assert round(fitted.facts["aic"], 2) == 56.76
    assert fitted.freedom is None
    assert math.isclose(two.ratio[0], math.exp(two.estimate))


def test_models_that_are_not_nested_or_of_other_rows_are_refused():
    rng = np.random.default_rng(1)
    features, targets = rng.normal(size=(40, 2)), rng.normal(size=40)
    one, whole = fit(features[:, :1], targets), fit(features, targets)
    assert compare_nested(one, whole).lacking == ("x1",)
    with pytest.raises(InputError, match="other samples or targets"):
        compare_nested(one, fit(features, targets + 1e-3 * features[:, 0]))
    with pytest.raises(InputError, match="not nested"):
        compare_nested(whole, whole)
    with pytest.raises(InputError, match="without a likelihood"):
        compare_nested(one, fit(features, targets, ridge=1.0))


def test_coefficients_are_written_as_csv_html_tex_and_docx(data_dir, tmp_path, capsys):
    settings, _ = birthwt(data_dir, tmp_path, target="low", columns=COLUMNS)
    path = saved(tmp_path / "run", settings)
    fitted = regression_of(load(path))
    files = {kind: tmp_path / f"c.{kind}" for kind in ("csv", "html", "tex", "docx")}
    options = [text for kind, file in files.items() for text in (f"--{kind}", str(file))]
    assert main(["coefficients", str(path), *options]) == 0
    assert "odds ratio" in capsys.readouterr().out
    head, *rows = csv.reader(files["csv"].read_text().splitlines())
    assert head == ["feature", "estimate", "std_error", "z", "p", "low", "high", *RATIO_HEADS]
    first = fitted.coefficients[0]
    assert [float(cell) for cell in rows[0][1:]] == [*(getattr(first, key) for key in KEYS), *first.ratio]
    shown = [coefficient(each, ratio=True) for each in fitted.coefficients]
    document = docx.Document(files["docx"])
    assert [[cell.text for cell in row.cells] for row in document.tables[0].rows][1:] == shown
    assert document.paragraphs[0].text == "Regression of low"
    page = files["html"].read_text()
    assert all(f">{cell.replace('<', '&lt;')}</td>" in page for row in shown for cell in row[1:] if cell)
    assert f"smoke & ${shown[3][1]}$" in files["tex"].read_text()
    assert main(["report", str(tmp_path / "run"), "--tex", str(tmp_path / "r.tex")]) == 0
    assert f"smoke & ${shown[3][1]}$" in (tmp_path / "r.tex").read_text()
