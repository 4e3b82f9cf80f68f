"""Regressions of single peers, pooled with fixed and random effects, against statsmodels and closed forms."""

import numpy as np
import pytest
import statsmodels.api as sm
import torch
from statsmodels.stats.meta_analysis import combine_effects

from p2pfl import topology
from p2pfl.algorithms import Exact
from p2pfl.core.errors import DataError, InputError, LearningError, ModelError
from p2pfl.core.explanations import FittedCoefficient, FittedRegression
from p2pfl.data import Dataset, Federation
from p2pfl.experiment.modes import Pairwise
from p2pfl.learning import ExactLearner
from p2pfl.learning.exact_learner import alone
from p2pfl.plugins.exact.regression.meta_analysis import MetaAnalysis
from p2pfl.results.forest_plot import draw_forest, forest_panels
from p2pfl.results.pages.features import regression_blocks
from p2pfl.results.pages.rendering import page
from p2pfl.simulation import simulate
from plugins.exact.rscript import computed_by_r

SITES = 6

NAMES = tuple(f"peer{number}" for number in range(SITES))


def sites(family):
    """Return the features and targets of sites whose slopes differ."""
    rng = np.random.default_rng(2)
    found = []
    for _ in range(SITES):
        features = np.rint(16 * rng.normal(size=(90, 2))) / 16
        slope = 0.6 + 0.5 * rng.normal()
        predictor = 0.2 + slope * features[:, 0] - 0.3 * features[:, 1]
        noisy = np.rint(64 * (predictor + rng.normal(size=90))) / 64
        targets = noisy if family == "gaussian" else (rng.random(90) < 1 / (1 + np.exp(-predictor))).astype(float)
        found.append((features, targets))
    return found


def federation(parts, *, classes):
    names = [f"peer{number}" for number in range(len(parts))]
    ends = np.cumsum([0, *(len(targets) for _, targets in parts)])
    own = {name: np.arange(*ends[place : place + 2]) for place, name in enumerate(names)}
    nobody = dict.fromkeys(names, np.empty(0, np.int64))
    targets = torch.from_numpy(np.concatenate([each for _, each in parts]))
    dataset = Dataset(
        torch.from_numpy(np.concatenate([each for each, _ in parts])), targets.long() if classes else targets, classes
    )
    return Federation(dataset, own, nobody, nobody)


def pooled(parts, *, classes, least=1, **options):
    model = MetaAnalysis(features=2, classes=classes, owned=True, least=least, **options)
    learner = ExactLearner(model, federation(parts, classes=classes))
    graph = topology.complete(len(parts))
    privacy = Pairwise(mask_graph="complete")
    run = simulate(Exact(), learner, graph, rounds=3, privacy=privacy, baselines=False)
    tensors = {name: tensor.numpy() for name, tensor in run.models["peer0"].items()}
    return tensors, learner.explained(learner._row(tensors)).regression


def oracle(parts, family):
    """Return the estimates of each site and their variances, ``[sites, 3]``, the intercept last."""
    fits = [
        sm.GLM(targets, np.column_stack([features, np.ones(90)]), family=family).fit(tol=1e-15, maxiter=100)
        for features, targets in parts
    ]
    return np.array([fit.params for fit in fits]), np.array([fit.bse**2 for fit in fits])


@pytest.mark.parametrize("family", ["gaussian", "binomial"])
def test_pooled_estimates_are_those_of_dersimonian_and_laird(family):
    parts = sites(family)
    estimates, variances = oracle(parts, sm.families.Gaussian() if family == "gaussian" else sm.families.Binomial())
    for effects in ("random", "fixed"):
        tensors, regression = pooled(parts, classes=None if family == "gaussian" else 2, effects=effects)
        for place, row in enumerate(regression.coefficients):
            wanted = combine_effects(estimates[:, place], variances[:, place], method_re="dl")
            fixed = effects == "fixed" or wanted.tau2 <= 0  # statsmodels keeps a negative variance between sites
            mean = wanted.mean_effect_fe if fixed else wanted.mean_effect_re
            error = wanted.sd_eff_w_fe if fixed else wanted.sd_eff_w_re
            assert row.estimate == pytest.approx(mean, rel=1e-9)
            assert row.error == pytest.approx(error, rel=1e-9)
            assert tensors["heterogeneity"][place] == pytest.approx(wanted.q, rel=1e-8)
            assert tensors["between"][place] == pytest.approx(max(0.0, wanted.tau2), rel=1e-8, abs=1e-12)
        assert regression.facts["sites"] == SITES
        assert regression.tests[0].freedom == SITES - 1
        assert f"pooled with {effects} effects" in " ".join(regression.notes())


def test_sites_with_the_same_data_differ_by_nothing():
    part = sites("gaussian")[0]
    tensors, regression = pooled([part] * 4, classes=None)
    assert tensors["between"].tolist() == [0.0] * 3
    assert regression.facts["I2 of x0"] == 0.0
    once, _ = oracle([part], sm.families.Gaussian())
    assert [each.estimate for each in regression.coefficients] == pytest.approx(once[0], rel=1e-9)


def test_a_coefficient_that_some_sites_lack_is_pooled_over_the_others():
    parts = sites("gaussian")
    features, targets = parts[0]
    parts[0] = np.column_stack([features[:, 0], np.ones(90)]), targets
    tensors, _ = pooled(parts, classes=None)
    assert tensors["sites_with"].tolist() == [6.0, 5.0, 6.0]


def test_a_peer_without_a_model_of_its_own_ends_the_run():
    parts = sites("binomial")
    features, _ = parts[0]
    parts[0] = features, (features[:, 0] > 0).astype(float)
    with pytest.raises(LearningError, match="peer0 has no model of its own: the features separate the classes"):
        pooled(parts, classes=2)


def test_one_peer_has_nothing_to_pool():
    model = MetaAnalysis(features=2, classes=None, least=1)
    learner = ExactLearner(model, federation(sites("gaussian")[:1], classes=None))
    with pytest.raises(LearningError, match="nothing to pool"):
        alone(learner.asking(learner.start(["peer0"])[0], round=0), "peer0")


def test_what_has_no_effect_is_refused():
    with pytest.raises(ModelError, match='set it to "random" or "fixed"'):
        MetaAnalysis(features=2, classes=2, effects="mixed")
    with pytest.raises(ModelError, match="ridge has no effect"):
        MetaAnalysis(features=2, classes=2, ridge=1.0)


@pytest.mark.parametrize("family", ["gaussian", "binomial"])
def test_estimates_of_sites_and_pooled_ones_are_those_of_r(family, tmp_path, against_r):
    parts = sites(family)
    columns = {"site": np.repeat(np.arange(SITES), 90), "y": np.concatenate([each for _, each in parts])}
    columns |= {f"x{place}": np.concatenate([each[:, place] for each, _ in parts]) for place in range(2)}
    code = f"""
    s <- lapply(split(d, d$site), function(p)
      coef(summary(glm(y ~ x0 + x1, {family}, p, control = glm.control(epsilon = 1e-15, maxit = 100)))))
    for (k in c(2, 3, 1)) {{
      b <- sapply(s, function(m) m[k, 1]); v <- sapply(s, function(m) m[k, 2])^2; w <- 1 / v
      q <- sum(w * (b - sum(w * b) / sum(w))^2)
      t <- max(0, (q - length(b) + 1) / (sum(w) - sum(w^2) / sum(w))); r <- 1 / (v + t)
      show(b); show(sqrt(v)); show(c(sum(r * b) / sum(r), sqrt(1 / sum(r))))
    }}
    """
    shown = iter(computed_by_r(code, columns, tmp_path, packages=("stats",)))
    _, regression = pooled(parts, classes=None if family == "gaussian" else 2, shown_sites=NAMES)
    for place, row in enumerate(regression.coefficients):
        found = [[getattr(site, name)[place] for site in regression.sites] for name in ("estimates", "errors")]
        for ours, wanted in zip([*found, [row.estimate, row.error]], shown, strict=False):
            against_r("glm of each site, pooled by DerSimonian and Laird: estimates, errors", ours, wanted)


@pytest.mark.slow
def test_a_forest_plot_has_each_site_with_its_weight_and_the_pooled_estimate(tmp_path):
    _, regression = pooled(sites("binomial"), classes=2, shown_sites=NAMES)
    panels = forest_panels(regression)
    assert [title for title, _ in panels] == ["x0", "x1"]
    for _, entries in panels:
        assert [each.label for each in entries] == [*NAMES, "random effects"]
        assert sum(each.weight for each in entries[:-1]) == pytest.approx(1)
        assert entries[-1].pooled
    draw_forest(regression, path=str(tmp_path / "forest.svg"))
    draw_forest(regression, path=str(tmp_path / "forest.pdf"))
    drawn = (tmp_path / "forest.svg").read_text()
    assert all(f">{text}</text>" in drawn for text in (*NAMES, "x0", "x1", "odds ratio", "weight", "random effects"))
    assert (tmp_path / "forest.pdf").read_bytes().startswith(b"%PDF")
    assert "Forest plot" in page("Regression", [("c", "Coefficients", regression_blocks(regression))])


def test_the_intervals_of_other_regressions_are_drawn_too():
    _, regression = pooled(sites("gaussian"), classes=None)
    [(title, entries)] = forest_panels(regression)
    assert (title, [each.label for each in entries]) == ("", ["x0", "x1"])
    assert "No peer's estimate is shown" in " ".join(regression.notes())
    lasso = FittedRegression("lasso", (FittedCoefficient("x0", 1.0),), {}, errors="none")
    with pytest.raises(InputError, match="a lasso has no intervals to draw"):
        draw_forest(lasso)


def test_estimates_that_would_follow_from_the_others_are_refused():
    for number in (1, 2):
        with pytest.raises(LearningError, match="leaves out one or two peers"):
            pooled(sites("gaussian"), classes=None, shown_sites=NAMES[:-number])
    _, regression = pooled(sites("gaussian"), classes=None, shown_sites=NAMES[:3])
    assert [each.peer for each in regression.sites] == [*NAMES[:3]]


def test_a_site_with_few_people_of_a_class_does_not_show_its_estimates():
    parts = sites("binomial")
    features, targets = parts[0]
    parts[0] = features, np.where(np.cumsum(targets) > 3, 0.0, targets)  # three people have the event
    with pytest.raises(DataError, match=r"fewer than 5 people of a peer in model\.options\.shown_sites share"):
        pooled(parts, classes=2, least=5, shown_sites=NAMES)
    _, regression = pooled(parts, classes=2, least=5)
    assert regression.sites == ()


def test_a_name_that_takes_no_part_is_refused():
    with pytest.raises(ModelError, match='shown_sites names "nobody", which takes no part'):
        pooled(sites("gaussian"), classes=None, least=5, shown_sites=("nobody",))
    with pytest.raises(ModelError, match="names a peer twice"):
        MetaAnalysis(features=2, classes=2, shown_sites=("ada", "ada"))


def test_the_statement_names_the_sites_that_show_their_estimates():
    assert "the estimates and standard errors of ada, bob" in MetaAnalysis.shown({"shown_sites": ["ada", "bob"]})
    assert "standard errors" not in MetaAnalysis.shown({})
