"""Proportional odds against R's polr, statsmodels and the likelihood itself."""

import numpy as np
import pytest
import torch
from statsmodels.miscmodels.ordinal_model import OrderedModel

from p2pfl import topology
from p2pfl.algorithms import Exact
from p2pfl.core.errors import LearningError, ModelError
from p2pfl.experiment.modes import Pairwise
from p2pfl.learning import ExactLearner
from p2pfl.learning.exact_model import Part
from p2pfl.plugins.exact.regression.ordinal import Ordinal, derivatives
from p2pfl.simulation import simulate
from plugins.exact.rscript import computed_by_r
from plugins.exact.tables import masked_as_pooled, shared_out, trained

CLASSES = ("low", "mid", "high", "top")


def patients(count=400):
    rng = np.random.default_rng(11)
    features = np.column_stack([np.rint(32 * rng.normal(size=count)) / 32, rng.integers(0, 2, count)])
    latent = 0.9 * features[:, 0] - 0.7 * features[:, 1] + rng.logistic(size=count)
    return features, np.searchsorted([-1.0, 0.4, 2.0], latent)


def fitted(features, targets, *, peers=5, classes=4, **options):
    model = Ordinal(features=features.shape[1], classes=classes, least=1, **options)
    learner, tensors = trained(model, shared_out(features, targets, classes=classes, peers=peers), rounds=20)
    return model, tensors, learner.explained(learner._row(tensors)).regression


def log_likelihood(beta, thresholds, features, targets):
    below = 1 / (1 + np.exp(-(thresholds - (features @ beta)[:, None])))
    ends = np.column_stack([np.zeros(len(below)), below, np.ones(len(below))])
    return np.log(np.diff(ends, axis=1)[np.arange(len(targets)), targets])


def test_derivatives_are_those_of_the_likelihood():
    thresholds, step = np.array([-1.0, 0.3, 1.1]), 1e-5
    for target in range(4):
        scores, information = derivatives(np.array([target]), np.array([0.4]), thresholds=thresholds)

        def value(change, target=target):
            shifted = log_likelihood(np.array([0.4 + change[0]]), thresholds + change[1:], np.ones((1, 1)), [target])
            return shifted[0]

        for place in range(4):
            one = np.eye(4)[place] * step
            assert scores[0, place] == pytest.approx((value(one) - value(-one)) / (2 * step), abs=1e-8)
            for other in range(4):
                two = np.eye(4)[other] * step
                mixed = value(one + two) - value(one - two) - value(two - one) + value(-one - two)
                assert -information[0, place, other] == pytest.approx(mixed / (4 * step * step), abs=1e-4)


@pytest.mark.slow
def test_the_fit_is_that_of_statsmodels():
    features, targets = patients()
    _, _, regression = fitted(features, targets)
    oracle = OrderedModel(targets, features, distr="logit").fit(method="newton", tol=1e-14, disp=0)
    beta, thresholds = oracle.params[:2], oracle.model.transform_threshold_params(oracle.params)[1:-1]
    estimates = [each.estimate for each in regression.coefficients]
    assert np.allclose(estimates, [*beta, *thresholds], rtol=1e-7)
    assert regression.facts["log_likelihood"] == pytest.approx(oracle.llf, rel=1e-12)
    assert [each.error for each in regression.coefficients[:2]] == pytest.approx(oracle.bse[:2], rel=1e-6)


def test_the_maximum_is_exact_and_errors_follow_from_the_observed_information():
    features, targets = patients()
    _, tensors, regression = fitted(features, targets)
    beta, thresholds = tensors["weight"][0], tensors["bias"]
    scores, information = derivatives(targets, features @ beta, thresholds=thresholds)
    design = np.column_stack([features, np.ones((len(targets), 3))])
    places = [0, 0, 1, 2, 3]
    assert np.abs((design * scores[:, places]).sum(axis=0)).max() < 1e-9
    whole = np.einsum("ni,nij,nj->ij", design, information[:, places][:, :, places], design)
    wanted = np.sqrt(np.diag(np.linalg.inv(whole)))
    assert np.max(np.abs([each.error for each in regression.coefficients] - wanted) / wanted) < 1e-9
    assert regression.ratio == "odds ratio"
    assert regression.coefficients[-1].ratio == (None, None, None)
    assert regression.facts["aic"] == pytest.approx(-2 * log_likelihood(beta, thresholds, features, targets).sum() + 10)


def test_the_fit_is_that_of_polr(tmp_path, against_r):
    features, targets = patients()
    code = """
    m <- polr(factor(y) ~ a + b, d, Hess = TRUE, control = list(reltol = 1e-16, maxit = 1000))
    show(c(coef(m), m$zeta)); show(coef(summary(m))[, 2]); show(c(deviance(m), AIC(m)))
    """
    columns = {"a": features[:, 0], "b": features[:, 1], "y": targets}
    estimates, errors, facts = computed_by_r(code, columns, tmp_path, packages=("MASS",))
    _, _, regression = fitted(features, targets)
    ours = np.array([(each.estimate, each.error) for each in regression.coefficients]).T
    against_r("polr: coefficients (R's BFGS ends there)", ours[0], estimates, limit=1e-6)
    against_r("polr: errors (R differentiates by steps)", ours[1], errors, limit=1e-6)
    against_r("polr: deviance, AIC", [regression.facts["deviance"], regression.facts["aic"]], facts)


@pytest.mark.parametrize("graph", [topology.ring(5), topology.complete(3)])
def test_masked_peers_end_with_the_model_of_their_pooled_data(graph):
    features, targets = patients()
    data = shared_out(features, targets, classes=4, peers=len(graph.peers))
    masked_as_pooled(Ordinal(features=2, classes=4, least=1), data, graph, rounds=8)


def test_weights_and_offsets_count():
    features, targets = patients()
    counts = np.tile([1.0, 2.0], 200)
    twice = np.repeat(np.arange(400), counts.astype(int))
    _, weighted, _ = fitted(np.column_stack([features, counts]), targets, freq_weights="x2")
    _, repeated, _ = fitted(features[twice], targets[twice])
    assert np.allclose(weighted["weight"][0, :2], repeated["weight"][0], rtol=1e-9)
    _, shifted, _ = fitted(np.column_stack([features, features[:, 0]]), targets, offset="x2")
    _, plain, _ = fitted(features, targets)
    assert shifted["weight"][0, 0] == pytest.approx(plain["weight"][0, 0] - 1, rel=1e-9)


def test_predictions_are_those_of_the_torch_module():
    features, targets = patients()
    model, tensors, _ = fitted(features, targets)
    module = model.module()
    module.load_state_dict({name: torch.from_numpy(np.asarray(value)) for name, value in tensors.items()})
    found = module(torch.from_numpy(features)).softmax(dim=1).detach().numpy()
    own = torch.from_numpy(model.predicted(tensors, Part(features, targets))).softmax(dim=1).numpy()
    wanted = np.exp(
        np.stack(
            [log_likelihood(tensors["weight"][0], tensors["bias"], features, np.full(400, k)) for k in range(4)], 1
        )
    )
    assert np.allclose(found, wanted, rtol=1e-12)
    assert np.allclose(own, wanted, rtol=1e-12)


def test_a_feature_that_orders_the_classes_is_named():
    features, targets = patients()
    data = shared_out(np.column_stack([targets + 0.1 * features[:, 0], features[:, 1]]), targets, classes=4, peers=5)
    learner = ExactLearner(Ordinal(features=2, classes=4, least=1), data)
    with pytest.raises(LearningError, match='"x0"'):
        simulate(
            Exact(), learner, topology.ring(5), rounds=60, privacy=Pairwise(mask_graph="complete"), baselines=False
        )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"classes": 2}, "three or more ordered classes"),
        ({"errors": "HC0"}, "errors has no effect with ordinal"),
        ({"link": "probit"}, "link has no effect with ordinal"),
        ({"fit_intercept": False}, "fit_intercept has no effect"),
    ],
)
def test_what_has_no_effect_is_refused(options, sentence):
    with pytest.raises(ModelError, match=sentence):
        Ordinal(**({"features": 2, "classes": 3} | options))
