"""Runs without a peer: they are those that never had it."""

import pytest
import torch

import p2pfl
from p2pfl.core.errors import ExperimentError, TopologyError
from p2pfl.data import federate
from p2pfl.experiment import plan, read
from p2pfl.topology import complete

SMALL = {
    "name": "small",
    "rounds": 2,
    "topology": {"kind": "complete", "peers": 4},
    "data": {"name": "wine"},
    "model": {"name": "linear"},
    "learning": {"device": "cpu", "dtype": "float64"},
}


def last(experiment, changes=()):
    """Return the last models by peer."""
    return p2pfl.simulate(read(experiment, changes=list(changes)), baselines=False).models


@pytest.mark.parametrize("algorithm", ["fedavg", "dpsgd", "scaffold"])
def test_a_run_without_a_peer_is_that_of_a_graph_and_data_that_never_had_it(algorithm):
    table = SMALL | {"learning": SMALL["learning"] | {"algorithm": algorithm, "without": ["peer2"]}}
    models = last(table)
    others = ["peer0", "peer1", "peer3"]
    assert sorted(models) == others
    data = federate("wine", peers=complete(4).peers, seed=0).of(*others)
    own = plan(read(table))
    never = p2pfl.compose(own.algorithm, own.learner.on(data), complete(4).without(["peer2"]), rounds=2)
    for peer, model in p2pfl.simulate(never, baselines=False).models.items():
        for name, values in model.items():
            assert torch.equal(values, models[peer][name])


def test_who_is_left_out_changes_no_draw_of_the_others():
    whole, rest = plan(read(SMALL)), plan(read(SMALL, changes=['learning.without=["peer2"]']))
    for peer in rest.topology.peers:
        for part in ("train", "test"):
            mine, theirs = (getattr(each.federation, part)[peer] for each in (whole, rest))
            samples = [
                each.federation.dataset.features[torch.from_numpy(own)] for each, own in ((whole, mine), (rest, theirs))
            ]
            assert torch.equal(*samples)


@pytest.mark.parametrize(
    ("changes", "error", "sentence"),
    [
        (['learning.without=["nobody"]'], ExperimentError, 'learning.without names "nobody", which is no peer'),
        (
            ['learning.without=["peer0", "peer1", "peer2", "peer3"]'],
            ExperimentError,
            "learning.without names all peers",
        ),
        (['learning.without=["peer0"]', "topology.kind=star"], TopologyError, "the graph falls into 3 parts"),
    ],
)
def test_a_run_that_nobody_could_play_without_a_peer_is_refused(changes, error, sentence):
    with pytest.raises(error, match=sentence):
        plan(read(SMALL, changes=changes))


async def test_live_peers_without_a_peer_end_with_the_models_of_the_simulation():
    table = SMALL | {"topology": {"kind": "ring", "peers": 5}, "learning": SMALL["learning"] | {"algorithm": "dpsgd"}}
    changes = ['learning.without=["peer2"]']
    simulated = last(table, changes)
    live = await p2pfl.live(read(table, changes=changes))
    for peer, model in live.models.items():
        for name, values in model.items():
            assert torch.allclose(values, simulated[peer][name], atol=1e-12)
