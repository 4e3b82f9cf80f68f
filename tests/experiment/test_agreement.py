"""What peers agree on before the first and after the last round of an experiment."""

import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from safetensors.torch import load_file

from p2pfl.algorithms import Accord
from p2pfl.errors import ExperimentError, PrivacyError
from p2pfl.experiment import plan, read
from p2pfl.experiment.agreement import OPENING, Agreement, directly
from p2pfl.experiment.catalogue import ALGORITHMS, traits_of
from p2pfl.identity import SeededSource
from p2pfl.neighbourhood import Released, settled
from p2pfl.privacy.masks import Masks, swarm_secrets
from p2pfl.simulation import simulate
from p2pfl.simulation.stacked import StackedNeighbourhood
from p2pfl.topology import ring

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


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_at_consensus_all_peers_hold_one_model_whose_score_is_that_on_all_test_data(mode):
    ended = run("learning.consensus=true", "gossip.steps=30", *mode)
    models = list(ended.models.values())
    for name, tensor in models[0].items():
        assert all(torch.equal(tensor, other[name]) for other in models)
    resolved = plan(read(TABLE))
    federation = resolved.federation
    learner = resolved.learner.on(federation.pooled())
    row = learner.layout.join({name: tensor.unsqueeze(0) for name, tensor in models[0].items()})
    scores = learner.evaluate(row, peers=["pooled"])
    assert ended.summary["common"] == pytest.approx({name: float(value) for name, value in scores.items()}, abs=1e-5)


def test_the_one_model_is_the_mean_of_what_was_released():
    ended = run("learning.weighted=false")
    agreed = run("learning.weighted=false", "learning.consensus=true", "gossip.tolerance=1e-6")
    for name, tensor in agreed.models["peer0"].items():
        mean = torch.stack([model[name] for model in ended.models.values()]).mean(0)
        assert torch.allclose(tensor, mean, atol=1e-5)


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


def test_with_a_guarantee_one_model_is_agreed_on_and_no_score():
    ended = run("learning.consensus=true", "privacy.mode=pairwise", "privacy.epsilon=8")
    first, *others = (model["1.weight"] for model in ended.models.values())
    assert all(torch.equal(first, other) for other in others)
    assert ended.summary["common"] is None


def test_a_checkpoint_holds_the_scale_its_model_was_trained_on(tmp_path):
    ended = run("data.scale=true", folder=tmp_path / "run")
    state = load_file(tmp_path / "run" / "peers" / "peer0.state")
    assert state["scale.mean"].tolist() == ended.summary["statistics"]["mean"]


def huge(*, peer, peers, seed):
    del peer, peers, seed
    return torch.full((4, 2), 3e9), torch.tensor([0, 1, 0, 1])


def test_features_too_large_to_be_masked_are_refused_with_what_to_do():
    changes = [f"data.name={__name__}:huge", "data.options={classes=2}", "data.scale=true", "data.test=0.5"]
    with pytest.raises(PrivacyError, match=r"^data\.scale: expected .*; give the features in larger units$"):
        run(*changes, "privacy.mode=pairwise")
    assert run(*changes).summary["statistics"]["mean"] == [3e9, 3e9]


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if traits_of(name).personal])
def test_consensus_is_refused_where_each_peer_has_a_model_of_its_own(algorithm):
    with pytest.raises(
        ExperimentError,
        match=r"^learning\.consensus = true does not work with .* each peer ends with a model of its own",
    ):
        plan(read(TABLE, changes=["learning.consensus=true", f"learning.algorithm={algorithm}"]))


@pytest.mark.parametrize("key", ["data.scale", "learning.consensus"])
def test_under_secagg_nothing_is_agreed_on_by_rows_that_nobody_may_see(key):
    with pytest.raises(ExperimentError, match=rf'^{key} = true does not work with privacy\.mode = "secagg"'):
        plan(read(TABLE, changes=[f"{key}=true", "privacy.mode=secagg"]))


def test_masked_sums_show_a_neighbour_nothing_of_a_peers_own(monkeypatch):
    released, given = [], Released.__init__

    def noted(self, rows, *rest, **how):
        released.append(rows.clone())
        given(self, rows, *rest, **how)

    graph = ring(3)
    masks = Masks(swarm_secrets(graph, source=SeededSource(1), run="x"), deviation=1.0, topology=graph)
    values = torch.tensor([[269_629.0 * 60, -0.5], [1.0, 2.0], [3.0, 4.25]], dtype=torch.float64)
    resolved = plan(read(TABLE, changes=["topology.peers=3", "topology.kind=complete"]))
    agreement = Agreement(resolved, SeededSource(1))
    net = StackedNeighbourhood(resolved.weights, round=0, seed=0)
    monkeypatch.setattr(Released, "__init__", noted)
    found = settled(agreement.blind(net, masks, phase=OPENING).mean(agreement.exact(), values))
    exact = ((values * 2**20).round().sum(0) / 2**20 / 3).expand(3, 2)
    assert torch.equal(found, exact)  # to the last bit
    shown = released[0].reshape(3, 2, 4)
    assert ((shown >= 0) & (shown < 2**16) & (shown == shown.round())).all()
    # A neighbour that knows its own mask still sees the number plus a word that is uniform modulo 2^64.
    key = masks._key(("peer0", "peer2"), round=OPENING, attempt=0)
    word = int.from_bytes(Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(8)), "little")
    mine = masks._key(("peer0", "peer1"), round=OPENING, attempt=0)
    known = int.from_bytes(Cipher(ChaCha20(mine, bytes(16)), mode=None).encryptor().update(bytes(8)), "little")
    seen = (sum(int(limb) << 16 * place for place, limb in enumerate(shown[0, 0].tolist())) - known) % 2**64
    assert seen == (int(values[0, 0] * 2**20) + word) % 2**64


def test_features_whose_squares_cannot_be_masked_are_refused_before_their_sums_leave(monkeypatch):
    def leaves(*_):
        raise AssertionError

    monkeypatch.setattr(Accord, "settle", leaves)
    changes = [f"data.name={__name__}:wide", "data.options={classes=2}", "data.scale=true", "data.test=0.5"]
    with pytest.raises(PrivacyError, match=r"^data\.scale: expected .*; give the features in larger units$"):
        run(*changes, "privacy.mode=pairwise")


def wide(*, peer, peers, seed):
    del peer, peers, seed
    return torch.full((4, 2), 1e7), torch.tensor([0, 1, 0, 1])
