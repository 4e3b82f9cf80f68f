import json

import numpy as np
import pytest
import torch

from graph_files import save_graph
from p2pfl import topology as graphs
from p2pfl.core.errors import ExperimentError, TopologyError
from p2pfl.experiment import plan, read
from p2pfl.network.peer.masking.mask_cover import peer_ledgers_of
from p2pfl.simulation import simulate

SMALL = {
    "rounds": 2,
    "topology": {"kind": "ring", "peers": 6, "degree": 2},
    "data": {"name": "wine"},
    "model": {"name": "linear"},
    "learning": {"device": "cpu", "dtype": "float64"},
}


@pytest.fixture
def one_way(tmp_path):
    """A graph in which some are heard by more than they hear."""
    arcs = ["ab", "bc", "cd", "da", "ac", "bd"]
    table = {
        "directed": True,
        "graph": {},
        "nodes": [{"id": peer} for peer in "abcd"],
        "edges": [{"source": a, "target": b} for a, b in arcs],
    }
    path = tmp_path / "one_way.json"
    path.write_text(json.dumps(table), "utf-8")
    return str(path)


def resolved(*changes):
    return plan(read(SMALL, changes=changes))


@pytest.mark.parametrize("kind", ["none", "chebyshev"])
def test_accelerated_gossip_conserves_no_flows(kind):
    found = plan(read(SMALL, changes=[f"gossip.acceleration={kind}"]), only=["peer0"])
    assert peer_ledgers_of(found, "peer0", large=False).conserving == (kind == "none")


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        (("topology.kind=base",), graphs.base(6, degree=2)),
        (("topology.kind=tree", "topology.options.branching=3"), graphs.tree(6, branching=3)),
        (
            ("topology.kind=epidemic_local", "topology.options.period=5"),
            graphs.epidemic_local(6, degree=2, period=5, seed=0),
        ),
        (
            ("topology.kind=epidemic_oracle", "topology.options.period=3"),
            graphs.epidemic_oracle(6, degree=2, period=3, seed=0),
        ),
    ],
)
def test_every_setting_of_a_kind_reaches_its_builder(changes, same):
    found = resolved(*changes)
    assert found.topology == same
    for phase, weights in enumerate(found.weights):
        assert (weights.matrix != graphs.natural(same.at(phase)).matrix).nnz == 0


def test_weights_are_those_of_the_graph_unless_others_are_named():
    found = resolved("topology.kind=base", "topology.peers=5", "topology.degree=1", "gossip.weights=metropolis")
    own = resolved("topology.kind=base", "topology.peers=5", "topology.degree=1")
    assert (found.weights[2].matrix != own.weights[2].matrix).nnz > 0
    assert found.facts["weights"] != own.facts["weights"]
    product = np.linalg.multi_dot([each.matrix.toarray() for each in reversed(own.weights)])
    assert abs(product - 1 / 5).max() < 1e-15
    assert own.gossip.steps == 5


def test_pushed_sums_over_their_masses_are_the_mean_of_all(one_way, tmp_path):
    pushed = (f"topology.kind={one_way}", "gossip.weights=push", "gossip.tolerance=1e-9")
    save_graph(graphs.complete(4).named("abcd"), tmp_path / "complete.json")
    server = (f"topology.kind={tmp_path / 'complete.json'}",)
    ours, theirs = (simulate(read(SMALL, changes=changes)).models for changes in (pushed, server))
    assert list(ours) == list("abcd")
    for peer, model in ours.items():
        for name, tensor in model.items():
            torch.testing.assert_close(tensor, theirs[peer][name], rtol=0, atol=1e-8)


@pytest.mark.parametrize("mode", ["none", "independent"])
def test_weights_that_move_the_mean_are_welcome_where_nothing_must_cancel(mode):
    assert not resolved("topology.kind=epidemic_local", f"privacy.mode={mode}").masked


@pytest.mark.slow
def test_masks_that_would_not_cancel_are_refused():
    with pytest.raises(
        ExperimentError,
        match=r'privacy\.mode = "pairwise" does not work on epidemic_local, whose .* do not keep the mean',
    ):
        resolved("topology.kind=epidemic_local", "privacy.mode=pairwise")
    assert resolved("topology.kind=epidemic_oracle", "privacy.mode=pairwise").masked


@pytest.mark.sampled(fast=2)
@pytest.mark.parametrize("name", ["fedprox", "scaffold", "fedadam", "fednova", "per_fedavg", "partial"])
def test_whatever_divides_by_masses_is_exact_on_one_way_edges(name, one_way, tmp_path):
    save_graph(graphs.complete(4).named("abcd"), tmp_path / "complete.json")
    learning = (f"learning.algorithm={name}", "rounds=2")
    pushed = (*learning, f"topology.kind={one_way}", "gossip.weights=push", "gossip.tolerance=1e-9")
    server = (*learning, f"topology.kind={tmp_path / 'complete.json'}")
    ours, theirs = (simulate(read(SMALL, changes=changes)).models for changes in (pushed, server))
    for peer, model in ours.items():
        for key, tensor in model.items():
            torch.testing.assert_close(tensor, theirs[peer][key], rtol=0, atol=1e-5)


def test_sums_that_nobody_divides_are_refused(one_way):
    push = (f"topology.kind={one_way}", "gossip.weights=push")
    with pytest.raises(
        ExperimentError, match=r'gossip\.weights: "push" does not work with dpsgd, which does not divide'
    ):
        resolved(*push, "learning.algorithm=dpsgd")
    with pytest.raises(ExperimentError, match=r"with learning\.weighted = false, .*; set learning\.weighted to true"):
        resolved(*push, "learning.weighted=false")
    resolved(
        *push,
        "learning.weighted=false",
        "learning.stragglers=0.3",
        "learning.stragglers.drop=true",
        "learning.epochs=2",
    )
    with pytest.raises(
        TopologyError,
        match=(
            '"a" receives from 1 peers and sends to 2, but in this directed graph every peer must receive from and '
            r'send to as many peers as "a" receives from \(1\); make the edges undirected, give the weights, or use '
            '"push"'
        ),
    ):
        resolved(push[0])
    with pytest.raises(
        ExperimentError, match=r'which is no file with a matrix .*; set it to "metropolis", "max_degree", "push"'
    ):
        resolved("gossip.weights=metropols")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (("topology.kind=tree", "topology.options.braching=3"), 'tree has no option braching; .* "branching"'),
        (
            ("topology.kind=tree", "topology.options.rewire=0.2"),
            "tree has no option rewire; its options are: branching",
        ),
        (("topology.kind=tree", "topology.options.branching=few"), 'branching is "few"; set it to a whole number'),
    ],
)
def test_options_of_a_graph_are_those_of_its_kind(changes, said):
    with pytest.raises(ExperimentError, match=rf"^topology\.options.*{said}"):
        plan(read(SMALL, changes=list(changes)))
