import numpy as np
import scipy.sparse
import torch

from p2pfl.core.neighbourhood import Released, run_without_loop
from p2pfl.experiment import plan, read
from p2pfl.simulation import Faults, StackedNeighbourhood, simulate
from p2pfl.topology import metropolis, ring

TABLE = {
    "rounds": 1,
    "seed": 6,
    "topology": {"kind": "complete", "peers": 6},
    "data": {"name": "wine"},
    "model": {"name": "linear"},
    "learning": {"dtype": "float64", "weighted": False},
    "privacy": {"mode": "pairwise", "mask": 10.0},
    "gossip": {"steps": 1},
    "simulation": {"absence": 0.4},
}


def rows(run, resolved):
    models = [run.models[name] for name in resolved.topology.peers]
    return torch.stack([torch.cat([model[key].flatten() for key in resolved.learner.layout.names]) for model in models])


def test_nothing_of_an_absent_peer_moves_and_masks_of_the_others_cancel():
    resolved = plan(read(TABLE))
    masked = rows(simulate(resolved, baselines=False), resolved)
    start = resolved.learner.start(resolved.topology.peers)
    moved = (masked != start).any(1)
    assert 0 < moved.sum() < 6
    plain = rows(simulate(read(TABLE, changes=["privacy.mode=none"]), baselines=False), resolved)
    assert torch.equal((plain != start).any(1), moved)
    mean = plain[moved].mean(0)
    assert torch.allclose(
        masked[moved], mean, atol=1e-5
    )  # of those that are present, at each of them: the round counts
    assert not torch.allclose(plain[moved], mean, atol=1e-3)


def test_at_consensus_no_exchange_moves_a_model_however_differently_heavy_its_rows():
    graph = ring(5)
    net = StackedNeighbourhood([metropolis(graph)], round=0, seed=0)
    masses = torch.tensor([[0.5], [1.0], [3.0], [0.2], [0.3]], dtype=torch.float64)
    model = torch.ones(5, 3, dtype=torch.float64)
    run_without_loop(net.mix(Released(model * masses, masses)))
    assert net.distance.abs().max() < 1e-12
    idle = torch.tensor([[0.0], [1.0], [1.0], [1.0], [1.0]], dtype=torch.float64)
    run_without_loop(net.mix(Released(model * idle, idle)))
    assert torch.isfinite(net.distance).all()


def test_who_has_nobody_left_to_share_a_mask_with_is_not_heard_either():
    partners = scipy.sparse.csr_array(np.eye(4, k=1) + np.eye(4, k=-1))  # a path: 0 - 1 - 2 - 3
    everywhere = scipy.sparse.csr_array(np.full((4, 4), 0.25))
    faults, seen = Faults(absence=0.4, partners=partners), set()
    for round in range(40):
        drawn = Faults(absence=0.4).present(range(4), seed=1, round=round).numpy()
        there = faults.present(range(4), seed=1, round=round).numpy()
        company = [any(drawn[other] for other in (peer - 1, peer + 1) if 0 <= other < 4) for peer in range(4)]
        assert there.tolist() == (drawn if drawn.all() else drawn & company).tolist()
        heard = faults.senders(everywhere, seed=1, round=round, step=0).toarray()
        assert (heard[:, ~there][there] == 0).all()
        assert (heard[~there] == np.eye(4)[~there]).all()
        seen.add(bool((drawn & ~there).any()))
    assert seen == {True, False}
