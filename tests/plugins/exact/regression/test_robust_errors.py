"""Standard errors that are robust to the variance, or to dependence within clusters, against numpy and R's sandwich."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from p2pfl import topology
from p2pfl.algorithms import Exact
from p2pfl.core.errors import DataError, LearningError, ModelError
from p2pfl.data import Dataset, Federation
from p2pfl.data.data_description import Description, Field
from p2pfl.experiment.modes import Pairwise
from p2pfl.learning import ExactLearner
from p2pfl.plugins.exact import GLM, Lasso
from p2pfl.simulation import simulate
from plugins.exact.rscript import computed_by_r
from plugins.exact.tables import masked_as_pooled, shared_out, trained

LARGEST_ERROR = 1e-9
"""Largest relative error against R and numpy, on doubles."""

PEERS = 4
FIELDS = (Field("a"), Field("b"), Field("w"), Field("ward"))


def patients(count=160):
    """Return the columns of patients of wards, of which no two peers have the same; residuals of a ward are alike."""
    rng = np.random.default_rng(5)
    ward = np.sort(rng.integers(0, 20, count)).astype(float)
    a, b = rng.normal(size=count).round(3), rng.normal(2, 1, count).round(3)
    shift = rng.normal(size=20)[ward.astype(int)]
    y = (1 + 0.5 * a - 0.3 * b + shift + (1 + np.abs(a)) * rng.normal(size=count)).round(3)
    ill = (rng.random(count) < 1 / (1 + np.exp(-(0.4 * a + shift)))).astype(float)
    counts = rng.poisson(np.exp(0.2 * a + 0.3 * shift)).astype(float)
    return {
        "a": a,
        "b": b,
        "w": rng.uniform(0.5, 2, count).round(2),
        "ward": ward,
        "y": y,
        "ill": ill,
        "counts": counts,
    }


def federation(columns, target, *, fields=FIELDS):
    """Return peers with five wards each."""
    owner = (columns["ward"] // 5).astype(int)
    parts = {f"peer{number}": np.flatnonzero(owner == number) for number in range(PEERS)}
    nobody = dict.fromkeys(parts, np.empty(0, np.int64))
    hot = [
        np.eye(len(field.levels))[columns[field.name].astype(int)] if field.levels else columns[field.name][:, None]
        for field in fields
    ]
    features = torch.from_numpy(np.concatenate(hot, axis=1))
    classes = 2 if target == "ill" else None
    targets = torch.from_numpy(columns[target])
    targets = targets.long() if classes else targets
    dataset = Dataset(features, targets, classes, description=Description(columns=fields))
    return Federation(dataset, parts, nobody, nobody)


def model_of(target, *, fields=FIELDS, **options):
    family = {"y": "gaussian", "ill": "binomial", "counts": "poisson"}[target]
    width = sum(len(field.levels or "1") for field in fields)
    given = {"features": width, "classes": 2 if target == "ill" else None, "family": family, "fields": fields}
    return GLM(**given, **({"var_weights": "w"} if "w" in [field.name for field in fields] else {}), least=1, **options)


def fitted(model, data):
    """Return the coefficients that masked peers find."""
    learner = ExactLearner(model, data)
    graph = topology.complete(PEERS)
    privacy = Pairwise(mask_graph="complete")
    run = simulate(Exact(), learner, graph, rounds=30, privacy=privacy, baselines=False)
    tensors = {name: tensor.numpy() for name, tensor in run.models["peer0"].items()}
    regression = model.explained(tensors, fields=FIELDS, classes=("0", "1")).regression
    names = ["(intercept)", "a", "b"]
    rows = {each.name: each for each in regression.coefficients}
    return regression, np.array([[rows[name].error, rows[name].p] for name in names]).T


def errors_of(found, wanted):
    return float(np.max(np.abs(np.array(found) - wanted) / np.abs(wanted)))


FITS = {
    "y": "m <- lm(y ~ a + b, d, weights = w)",
    "ill": "m <- suppressWarnings(glm(ill ~ a + b, quasibinomial, d, weights = w, control = control))",
    "counts": "m <- suppressWarnings(glm(counts ~ a + b, quasipoisson, d, weights = w, control = control))",
}


@pytest.mark.parametrize("target", ["y", "ill", "counts"])
def test_robust_errors_are_those_of_sandwich(tmp_path, target, against_r):
    columns = patients()
    code = f"""
    control <- glm.control(epsilon = 1e-15, maxit = 100); {FITS[target]}
    for (v in list(vcovHC(m, type = "HC0"), vcovHC(m, type = "HC1"), vcovCL(m, ~ ward))) show(sqrt(diag(v)))
    """
    shown = computed_by_r(code, columns, tmp_path, packages=("sandwich",))
    kinds = [{"errors": "HC0"}, {"errors": "HC1"}, {"errors": "cluster", "cluster": "ward"}]
    for kind, wanted in zip(kinds, shown, strict=True):
        fields = FIELDS if "cluster" in kind else FIELDS[:3]
        data = federation(columns, target, fields=fields)
        regression, (errors, _) = fitted(model_of(target, fields=fields, **kind), data)
        against_r("vcovHC(HC0, HC1), vcovCL of lm, quasibinomial, quasipoisson with weights", errors, wanted)
        assert regression.errors == kind["errors"]


def scores_of(columns):
    """Return the design, residuals and inverse products of least squares."""
    design = np.column_stack([np.ones(len(columns["a"])), columns["a"], columns["b"]])
    inverse = np.linalg.inv(design.T @ design)
    return design, columns["y"] - design @ (inverse @ (design.T @ columns["y"])), inverse


def test_robust_errors_are_those_of_numpy():
    columns, fields = patients(), FIELDS[:2]
    design, residuals, inverse = scores_of(columns)
    meat = design.T @ (design * residuals[:, None] ** 2)
    wanted = np.sqrt(np.diag(inverse @ meat @ inverse))
    count = len(design)
    for kind, factor in (("HC0", 1.0), ("HC1", np.sqrt(count / (count - 3)))):
        regression, (errors, _) = fitted(
            model_of("y", fields=fields, errors=kind), federation(columns, "y", fields=fields)
        )
        assert errors_of(errors, wanted * factor) < LARGEST_ERROR
        assert regression.freedom == count - 3


@pytest.mark.parametrize("cluster", [None, "ward"])
def test_errors_of_clusters_are_those_of_numpy(cluster):
    columns = patients()
    fields = (*FIELDS[:2], Field("ward", tuple(map(str, range(20)))))
    design, residuals, inverse = scores_of(columns)
    group = columns["ward"] if cluster else columns["ward"] // 5
    sums = np.stack([(design * residuals[:, None])[group == each].sum(axis=0) for each in np.unique(group)])
    clusters, count = len(sums), len(design)
    factor = clusters / (clusters - 1) * (count - 1) / (count - 3)
    wanted = np.sqrt(factor * np.diag(inverse @ (sums.T @ sums) @ inverse))
    fields = fields if cluster else fields[:2]
    model = model_of("y", fields=fields, errors="cluster", cluster=cluster)
    regression, (errors, _) = fitted(model, federation(columns, "y", fields=fields))
    assert errors_of(errors, wanted) < LARGEST_ERROR
    assert (regression.freedom, regression.facts["clusters"]) == (clusters - 1, clusters)
    assert f"the {clusters} clusters, which are few" in " ".join(regression.notes())


def test_peers_under_masks_end_with_the_robust_model_of_their_pooled_data():
    columns = patients()
    features = np.column_stack([columns["a"], columns["b"]])
    data = shared_out(features, columns["y"], classes=None, peers=5)
    masked_as_pooled(GLM(features=2, classes=None, least=1, errors="HC1"), data, topology.ring(5), rounds=5)


def test_a_frequency_counts_as_so_many_samples():
    columns = patients()
    features = np.column_stack([columns["a"], columns["b"], np.tile([1.0, 2.0], 80)])
    repeated = np.repeat(np.arange(160), features[:, 2].astype(int))
    fields = (Field("x0"), Field("x1"), Field("x2"))
    counted = GLM(features=3, classes=None, least=1, errors="HC1", freq_weights="x2", fields=fields)
    plain = GLM(features=2, classes=None, least=1, errors="HC1")
    _, one = trained(counted, shared_out(features, columns["y"], classes=None, peers=2), rounds=5)
    _, two = trained(plain, shared_out(features[repeated, :2], columns["y"][repeated], classes=None, peers=2), rounds=5)
    assert np.allclose(one["covariance"], two["covariance"], rtol=1e-9, atol=0)


def test_clusters_that_two_peers_share_are_refused():
    columns = patients()
    fields = (*FIELDS[:2], Field("ward", tuple(map(str, range(20)))))
    data = federation(columns, "y", fields=fields)
    moved = {
        **data.train,
        "peer0": data.train["peer0"][:-1],
        "peer1": np.append(data.train["peer0"][-1:], data.train["peer1"]),
    }
    model = model_of("y", fields=fields, errors="cluster", cluster="ward")
    with pytest.raises(DataError, match="two peers have samples of the same cluster"):
        fitted(model, replace(data, train=moved))
    one = samples_of_one_ward(data)
    with pytest.raises(LearningError, match="there is one cluster"):
        fitted(model, one)


def samples_of_one_ward(data):
    """Return the same samples, all of which are in the first ward of one peer."""
    features = data.dataset.features.clone()
    features[:, 2:] = 0
    features[:, 2] = 1
    everyone = np.sort(np.concatenate([*data.train.values()]))
    parts = {peer: everyone if peer == "peer0" else np.empty(0, np.int64) for peer in data.train}
    return replace(data, dataset=replace(data.dataset, features=features), train=parts)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"errors": "HC3"}, "choose from classical, HC0, HC1, cluster"),
        ({"cluster": "x1"}, 'has no effect with errors = "classical"'),
        ({"errors": "HC0", "ridge": 1.0}, "does not work with a ridge"),
        ({"errors": "cluster", "cluster": "x7"}, "there is no column"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, sentence):
    with pytest.raises(ModelError, match=sentence):
        GLM(features=2, classes=None, **options)


def test_a_lasso_has_no_errors_to_choose():
    with pytest.raises(ModelError, match="no effect with lasso"):
        Lasso(features=2, classes=None, errors="HC0")


def test_the_statement_says_what_robust_errors_show():
    assert "weighted by the squared residuals" in GLM.shown({"errors": "HC1"})
    assert "the number of clusters" in GLM.shown({"errors": "cluster"})
    assert "squared" not in GLM.shown({})
