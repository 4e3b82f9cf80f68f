"""Principal components from totals are those of scikit-learn on the pooled data."""

import numpy as np
import pytest
from sklearn import datasets, decomposition

from p2pfl import topology
from p2pfl.algorithms import Exact
from p2pfl.core.errors import DataError, LearningError, ModelError
from p2pfl.data.data_description import Description
from p2pfl.experiment.modes import Pairwise
from p2pfl.learning import ExactLearner
from p2pfl.plugins.exact.elementary import eigen
from p2pfl.plugins.exact.statistics.pca import PCA, projected
from p2pfl.simulation import simulate
from plugins.exact.tables import shared_out, trained


@pytest.mark.parametrize("standardise", [False, True])
def test_components_are_those_of_scikit_learn(standardise):
    features, targets = datasets.load_wine(return_X_y=True)
    features = features.astype(np.float32).astype(float)
    model = PCA(features=13, components=5, standardise=standardise)
    federation = shared_out(features, targets, classes=3, peers=6)
    privacy = Pairwise(mask_graph="complete")
    run = simulate(
        Exact(), ExactLearner(model, federation), topology.ring(6), rounds=2, privacy=privacy, baselines=False
    )
    found = {name: tensor.numpy() for name, tensor in run.models["peer4"].items()}
    learner, pooled = trained(model, federation, rounds=1)
    assert all(np.array_equal(found[name], value) for name, value in pooled.items())
    centred = features / features.std(0, ddof=1) if standardise else features
    oracle = decomposition.PCA(svd_solver="full").fit(centred)
    assert np.allclose(found["variance"], oracle.explained_variance_, rtol=1e-10, atol=1e-12)
    assert np.allclose(found["components"], oracle.components_[:5], atol=1e-10)
    shares = projected(found, model, Description())["share"]
    assert np.allclose(shares, oracle.explained_variance_ratio_, atol=1e-12)
    part = learner._part(np.arange(20))
    assert np.allclose(model.predicted(found, part), oracle.transform(centred)[:20, :5], atol=1e-6)


@pytest.mark.parametrize("size", [1, 2, 7, 64])
def test_eigenvectors_are_those_of_lapack(size):
    rng = np.random.default_rng(size)
    root = rng.normal(size=(size, size)) * 10.0 ** rng.uniform(-4, 4, size)
    matrix = root @ root.T
    values, vectors = eigen(matrix)
    assert np.allclose(values, np.linalg.eigvalsh(matrix)[::-1], atol=1e-13 * values[0])
    assert np.allclose(vectors @ vectors.T, np.eye(size), atol=1e-12)
    assert np.allclose(matrix @ vectors.T, vectors.T * values, atol=1e-12 * values[0])
    assert (vectors[np.arange(size), np.abs(vectors).argmax(1)] > 0).all()


def test_features_without_variation_have_components_without_variance():
    values, vectors = eigen(np.diag([0.0, 3.0, 3.0]))
    assert values.tolist() == [3, 3, 0]
    assert vectors.tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0]]
    assert eigen(np.zeros((2, 2)))[0].tolist() == [0, 0]


def test_what_has_no_components_is_refused():
    lonely = ExactLearner(PCA(features=2, least=1), shared_out(np.ones((1, 2)), [1.0], classes=None, peers=3))
    with pytest.raises(LearningError, match="one sample has no principal components"):
        simulate(Exact(), lonely, topology.ring(3), rounds=1, baselines=False)
    gaps = shared_out([[1.0, np.nan], [2.0, 3.0]], [1.0, 2.0], classes=None, peers=1)
    learner = ExactLearner(PCA(features=2), gaps)
    with pytest.raises(DataError, match="missing values, which pca does not take"):
        learner.fit(learner.start(["peer0"]), peers=["peer0"], round=0)
    with pytest.raises(ModelError, match="is 4; set it to at most the 3 features"):
        PCA(features=3, components=4)
    with pytest.raises(ModelError, match="at most 512 features, not 784"):
        PCA(features=784)
