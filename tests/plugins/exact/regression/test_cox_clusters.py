"""Cox regression of several rows a person, with errors clustered by person: those of R and of numpy."""

import numpy as np
import pytest
import torch
from lifelines.datasets import load_stanford_heart_transplants

from p2pfl import topology
from p2pfl.algorithms import Exact
from p2pfl.core.errors import DataError, ModelError
from p2pfl.data import Dataset, Federation
from p2pfl.data.data_description import Description, Field
from p2pfl.experiment.modes import Pairwise
from p2pfl.learning import ExactLearner
from p2pfl.plugins.exact import Cox
from p2pfl.simulation import simulate
from plugins.exact.rscript import computed_by_r

pytestmark = pytest.mark.filterwarnings("ignore:Starting with pandas version 4")  # inside lifelines

NAMES = ("start", "id", "age", "surgery", "transplant", "year")


@pytest.fixture(scope="module")
def heart():
    """Return R's data set heart: 103 patients in 172 rows, before and after a transplant."""
    frame = load_stanford_heart_transplants()
    return {name: frame[name].to_numpy(float) for name in (*NAMES, "stop", "event")}


def fit(heart, *, owner=None, levels=False, **options):
    """Return the coefficients that masked peers find, without limits on cells; peers own patients, or as said rows."""
    owner, ids = heart["id"].astype(int) % 4 if owner is None else owner, np.unique(heart["id"])
    names = [name for name in NAMES if name != "id" or "cluster" in options]
    fields = tuple(Field(name, tuple(map(str, ids)) if name == "id" and levels else None) for name in names)
    columns = [(heart["id"][:, None] == ids) if field.levels else heart[field.name][:, None] for field in fields]
    features = torch.from_numpy(np.concatenate(columns, axis=1).astype(float))
    times = torch.from_numpy(np.where(heart["event"] == 1, heart["stop"], -heart["stop"]))
    graph = topology.complete(4)
    parts = {peer: np.flatnonzero(owner == number) for number, peer in enumerate(graph.peers)}
    nobody = dict.fromkeys(graph.peers, np.empty(0, np.int64))
    data = Federation(Dataset(features, times, None, description=Description(columns=fields)), parts, nobody, nobody)
    given = {"features": features.shape[1], "classes": None, "fields": fields, "entry": "start", "times": "union"}
    model = Cox(**given, least=1, **options)
    privacy = Pairwise(mask_graph="complete")
    run = simulate(Exact(), ExactLearner(model, data), graph, rounds=20, privacy=privacy, baselines=False)
    tensors = {name: value.numpy() for name, value in run.models["peer0"].items()}
    return model.explained(tensors, fields=fields, classes=()).regression


def errors_of(regression):
    return np.array([each.error for each in regression.coefficients])


@pytest.mark.slow
@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_errors_clustered_by_person_are_those_of_r(heart, tmp_path, ties, against_r):
    code = f"""
    m <- coxph(Surv(start, stop, event) ~ age + surgery + transplant + year, d, cluster = id, ties = "{ties}",
      control = coxph.control(eps = 1e-14, iter.max = 100))
    show(coef(m)); show(sqrt(diag(vcov(m))))
    """
    estimates, errors = computed_by_r(code, heart, tmp_path)
    regression = fit(heart, errors="cluster", cluster="id", ties=ties)
    ours = [each.estimate for each in regression.coefficients], errors_of(regression)
    against_r("coxph(start, stop, cluster, both ties): coefficients, errors", ours, [estimates, errors])
    assert regression.facts["clusters"] == 103
    assert "dependence within the 103 clusters" in " ".join(regression.notes())


def test_levels_and_numbers_name_the_same_clusters(heart):
    numbers, levels = (fit(heart, errors="cluster", cluster="id", levels=each) for each in (False, True))
    assert np.array_equal(errors_of(levels), errors_of(numbers))
    assert np.abs(errors_of(fit(heart, errors="robust")) / errors_of(numbers) - 1).max() > 0.01


def test_clusters_of_one_row_have_robust_errors(heart):
    owner = np.arange(172) % 4
    clustered = fit(heart | {"id": np.arange(172.0)}, owner=owner, errors="cluster", cluster="id")
    assert np.array_equal(errors_of(clustered), errors_of(fit(heart, owner=owner, errors="robust")))


def test_without_a_column_each_peer_is_a_cluster(heart):
    owner = heart["id"].astype(int) % 4
    named = fit(heart | {"id": owner.astype(float)}, owner=owner, errors="cluster", cluster="id")
    plain = fit(heart, owner=owner, errors="cluster")
    assert np.array_equal(errors_of(plain), errors_of(named))
    assert plain.facts["clusters"] == 4


def test_a_person_of_two_peers_is_refused_where_levels_name_them(heart):
    owner = heart["id"].astype(int) % 4
    owner[np.flatnonzero(heart["transplant"] == 1)[0]] += 1
    with pytest.raises(DataError, match="two peers have samples of the same cluster"):
        fit(heart, owner=owner % 4, levels=True, errors="cluster", cluster="id")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"errors": "HC1"}, 'set it to "classical", "robust" or "cluster"'),
        ({"cluster": "id"}, 'cluster has no effect with errors = "classical"'),
        ({"errors": "cluster", "cluster": "nobody"}, 'there is no column "nobody" without another role'),
        (
            {"errors": "cluster", "cluster": "start", "entry": "start"},
            'there is no column "start" without another role',
        ),
        ({"errors": "cluster", "cluster": "id", "ridge": 1.0}, "ridge does not work with robust errors"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, sentence):
    with pytest.raises(ModelError, match=sentence):
        Cox(features=6, classes=None, fields=tuple(map(Field, NAMES)), horizon=9.0, **options)


def test_predictions_need_no_person_and_the_statement_says_what_clusters_show():
    model = Cox(features=6, classes=None, fields=tuple(map(Field, NAMES)), horizon=9.0, errors="cluster", cluster="id")
    assert "id" in model.training_only
    assert "score residuals of each cluster" in Cox.shown({"errors": "cluster"})
    assert "cluster" not in Cox.shown({"errors": "robust"})
