"""What peers agree on before the first and after the last round of an experiment."""

import pytest
import torch

from p2pfl.core.errors import ExperimentError, PrivacyError
from p2pfl.core.neighbourhood import run_without_loop
from p2pfl.data import federation as federations
from p2pfl.experiment import plan, read
from p2pfl.experiment.catalogue import ALGORITHMS, traits_of
from p2pfl.experiment.swarm_agreement import PeersAgreement, directly
from p2pfl.learning.histograms import score_histograms
from p2pfl.simulation import simulate
from p2pfl.simulation.stacked import StackedNeighbourhood

TABLE = {
    "rounds": 2,
    "topology": {"kind": "ring", "peers": 5},
    "data": {"name": "synthetic", "options": {"alpha": 1.0, "beta": 1.0}},
    "model": {"name": "linear"},
    "learning": {"device": "cpu", "rate": 0.01},
    "gossip": {"steps": 2},
}
MODES = {"none": [], "masks": ["privacy.mode=pairwise"]}


def run(*changes, **options):
    return simulate(read(TABLE, changes=list(changes)), baselines=False, **options)


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_features_are_scaled_as_if_all_data_were_in_one_place(mode):
    told = run("data.scale=true", *mode).summary["statistics"]
    resolved, found = directly(plan(read(TABLE, changes=["data.scale=true", *mode])))
    assert told["samples"] == int(found.samples[0])
    assert told["classes"] == found.classes[0].tolist()
    assert told["mean"] == pytest.approx(found.mean[0].tolist(), abs=1e-6)
    assert told["deviation"] == pytest.approx(found.deviation[0].tolist(), abs=1e-5)
    train = torch.cat([torch.from_numpy(part) for part in resolved.federation.train.values()])
    assert resolved.federation.dataset.features[train].mean(0).abs().max() < 1e-5


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_at_consensus_all_peers_hold_one_model_whose_score_is_that_on_all_test_data(mode):
    ended = run("learning.consensus=true", *mode)
    models = list(ended.models.values())
    for name, tensor in models[0].items():
        assert all(torch.equal(tensor, other[name]) for other in models)
    resolved = plan(read(TABLE))
    federation = resolved.federation
    learner = resolved.learner.on(federation.pooled())
    row = learner.layout.join({name: tensor.unsqueeze(0) for name, tensor in models[0].items()})
    scores = learner.evaluate(row, peers=["pooled"])
    curves = score_histograms(learner.tallies(row, peers=["pooled"])[0].numpy())
    expected = {name: float(value) for name, value in scores.items()} | curves
    assert {*expected} == {"loss", "accuracy", "calibration_error", "brier"}
    assert ended.summary["common"] == pytest.approx(expected, abs=1e-5)


def test_the_one_model_is_the_mean_of_what_was_released():
    ended = run("learning.weighted=false")
    agreed = run("learning.weighted=false", "learning.consensus=true")
    for name, tensor in agreed.models["peer0"].items():
        mean = torch.stack([model[name] for model in ended.models.values()]).double().mean(0).to(tensor)
        assert torch.equal(tensor, mean)


def test_without_either_nothing_changes_and_nothing_is_told():
    summary = run().summary
    assert summary["common"] is None
    assert summary["statistics"] is None


def test_scaled_features_are_refused_where_noise_promises_more():
    for changes in (
        ["privacy.mode=pairwise", "privacy.epsilon=8"],
        ["privacy.mode=independent", "privacy.noise=0.1"],
        ["privacy.mode=independent"],
        ["learning.example_noise=1.0"],
    ):
        with pytest.raises(ExperimentError, match=r"^data\.scale = true does not work with private noise"):
            plan(read(TABLE, changes=["data.scale=true", *changes]))


@pytest.mark.slow
def test_with_a_guarantee_one_model_is_agreed_on_and_no_score():
    ended = run("learning.consensus=true", "privacy.mode=pairwise", "privacy.epsilon=8")
    first, *others = (model["1.weight"] for model in ended.models.values())
    assert all(torch.equal(first, other) for other in others)
    assert ended.summary["common"] is None


def huge(*, peer, peers, seed):
    del peer, peers, seed
    return torch.full((4, 2), 1e13), torch.tensor([0, 1, 0, 1])


HUGE = [f"data.name={__name__}:huge", "data.options={classes=2}", "data.scale=true", "data.test=0.5"]


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_large_features_add_up_exactly_and_too_large_ones_are_refused_before_their_sums_leave(mode, monkeypatch):
    mean = run(*HUGE, *mode).summary["statistics"]["mean"]
    assert mean == pytest.approx([1e13, 1e13], rel=1e-6)

    def leaves(*_, **__):
        raise AssertionError

    monkeypatch.setattr("p2pfl.experiment.swarm_agreement.MAX_NUMBER", 1e26)
    monkeypatch.setattr(StackedNeighbourhood, "total", leaves)
    with pytest.raises(PrivacyError, match=r"^data\.scale: .*; give the features in larger units$"):
        run(*HUGE, *mode)


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if traits_of(name).personal])
def test_consensus_is_refused_where_each_peer_has_a_model_of_its_own(algorithm):
    with pytest.raises(
        ExperimentError,
        match=r"^learning\.consensus = true does not work with .* each peer ends with a model of its own",
    ):
        plan(read(TABLE, changes=["learning.consensus=true", f"learning.algorithm={algorithm}"]))


def test_under_secagg_nothing_is_agreed_on_by_rows_that_nobody_may_see():
    with pytest.raises(
        ExperimentError, match=r'^learning\.consensus = true does not work with privacy\.mode = "secagg"'
    ):
        plan(read(TABLE, changes=["learning.consensus=true", "privacy.mode=secagg"]))


MEANS = [
    [],
    ["privacy.mode=pairwise"],
    ["privacy.mode=secagg", "topology.kind=complete", "learning.weighted=false", "gossip.steps=1"],
]


@pytest.mark.parametrize("changes", MEANS, ids=["none", "pairwise", "secagg"])
def test_statistics_by_totals_are_those_of_float64_sums_to_rounding(changes):
    resolved = plan(read(TABLE, changes=["data.scale=true", *changes]))
    net = StackedNeighbourhood(resolved.weights, round=0, seed=0, graph=resolved.topology.union)
    values = federations.totals(resolved.federation, net.peers) / 3  # [N, 1 + C + F]
    sums = run_without_loop(PeersAgreement(resolved).total(net, values))
    assert torch.allclose(sums, values.sum(0).expand_as(sums), rtol=1e-12, atol=1e-14)
    assert torch.equal(sums, sums[:1].expand_as(sums))
    found, direct = run_without_loop(PeersAgreement(resolved).open(net))[1], directly(resolved)[1]
    for name, rows in vars(found).items():
        assert torch.allclose(rows.double(), vars(direct)[name].double(), rtol=1e-12), name


def test_masks_that_could_not_hide_the_sums_are_refused():
    changes = ["topology.kind=path", "privacy.mode=pairwise", "privacy.partners=1"]
    with pytest.raises(PrivacyError, match="could part the masks"):
        run("data.scale=true", *changes)
    assert run("learning.consensus=true", *changes).summary["common"] is None
