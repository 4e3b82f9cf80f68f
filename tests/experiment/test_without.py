"""Runs without a peer: they are those that never had it."""

import asyncio

import pytest
import torch

import p2pfl
from p2pfl.core.errors import ExperimentError, TopologyError
from p2pfl.data import federate
from p2pfl.experiment import plan, read
from p2pfl.network.peer.storage.checkpoint import CheckpointStore
from p2pfl.network.protocol.membership.entry_round import common
from p2pfl.network.transport import MemoryTransport
from p2pfl.privacy.keys import SeededSource
from p2pfl.topology import complete
from restarts import RestartablePeers

SMALL = {
    "name": "small",
    "rounds": 2,
    "topology": {"kind": "complete", "peers": 4},
    "data": {"name": "wine"},
    "model": {"name": "linear"},
    "learning": {"device": "cpu", "dtype": "float64"},
}


WITHOUT = ['learning.without=["peer2"]']
OTHERS = ["peer0", "peer1", "peer3"]
GRID = 2.0**-20
"""One step of the grid of masks."""

MASKS = ["privacy.mode=pairwise", "privacy.mask=30.0", "privacy.partners=1"]
EXACT = ["learning.algorithm=exact", "privacy.mode=pairwise"]
CASES = {
    "fedavg": [],
    "dpsgd": ["learning.algorithm=dpsgd"],
    "scaffold": ["learning.algorithm=scaffold"],
    "glm": ["model.name=glm", 'model.options={family="gaussian"}', "data.name=diabetes", *EXACT],
    "boosting": ["model.name=boosting", "model.options={max_depth=2}", *EXACT],
}
MARKS = dict.fromkeys(CASES, ()) | dict.fromkeys(("glm", "boosting"), pytest.mark.plugin("exact"))
parametrize = pytest.mark.parametrize(
    "changes", [pytest.param(changes, marks=MARKS[name]) for name, changes in CASES.items()], ids=CASES
)


def last(experiment, changes=(), **options):
    """Return the last models by peer."""
    return p2pfl.simulate(read(experiment, changes=list(changes)), baselines=False, unaccounted=True, **options).models


def apart(models, others):
    """Return the largest difference of a number of two sets of models of the peers that remain."""
    assert sorted(models) == sorted(others) == OTHERS
    return max(float((models[peer][name] - others[peer][name]).abs().max()) for peer in OTHERS for name in models[peer])


@pytest.mark.sampled(fast=2)
@parametrize
def test_a_run_without_a_peer_is_that_of_a_graph_and_data_that_never_had_it(changes):
    experiment = read(SMALL, changes=[*changes, *WITHOUT])
    own = plan(experiment)
    test = 0.2 if len(own.federation.test["peer0"]) else 0.0  # regressions fit all samples
    peers, name = complete(4).peers, experiment.data.name
    data = federate(name, peers=peers, seed=0, test=test, dtype=own.federation.dataset.features.dtype).of(*OTHERS)
    never = p2pfl.compose(own.algorithm, own.learner.on(data), complete(4).without(["peer2"]), rounds=2)
    assert apart(last(SMALL, [*changes, *WITHOUT]), p2pfl.simulate(never, baselines=False).models) == 0


@pytest.mark.sampled(fast=1)
@parametrize
def test_a_replay_that_is_killed_in_the_middle_ends_in_the_same_bits(tmp_path, changes):
    changes = [*changes, *WITHOUT, "rounds=4"]
    whole = last(SMALL, changes)
    seen = []

    def stop(records):
        seen.append(records)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        last(SMALL, changes, folder=tmp_path / "run", observe=stop)
    assert apart(last(SMALL, changes, folder=tmp_path / "run", resume=True), whole) == 0


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


@pytest.mark.slow
@parametrize
async def test_live_peers_without_a_peer_end_with_the_models_of_the_simulation(changes):
    changes = [*changes, *WITHOUT]
    live = await p2pfl.live(read(SMALL, changes=changes))
    exact = "learning.algorithm=exact" in changes  # sums of integers; other sums round by their order
    assert apart(live.models, last(SMALL, changes)) <= (0 if exact else 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [[], ["learning.algorithm=dpsgd"]], ids=["fedavg", "dpsgd"])
async def test_under_other_masks_a_replay_is_the_same_run_to_one_step_of_their_grid(changes):
    masked = [*changes, *MASKS, *WITHOUT]
    never = last(SMALL, masked, source=SeededSource(5))
    assert apart(last(SMALL, masked, source=SeededSource(6)), never) <= GRID
    live = await p2pfl.live(read(SMALL, changes=masked))
    assert apart(live.models, never) <= GRID
    assert apart(never, last(SMALL, [*changes, *WITHOUT])) > 0  # masks round to their grid


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "tolerance"),
    [([], 1e-10), (["learning.algorithm=scaffold"], 1e-10), (MASKS, GRID)],
    ids=["fedavg", "scaffold", "masks"],
)
async def test_live_peers_that_are_killed_in_a_replay_go_on_without_the_peer(tmp_path, changes, tolerance):
    changes = [*changes, *WITHOUT, "rounds=6"]
    experiment = read(SMALL, changes=changes)
    async with asyncio.timeout(60):
        lives = RestartablePeers(experiment, MemoryTransport(), tmp_path)
        lives.start()
        await lives.until(lambda now: all(peer.phase == "learning" for peer in now.values()))
        await lives.until(lambda now: any(peer.mailbox.gossip_step >= (3, 0) for peer in now.values()))
        await lives.kill()
        together = common(CheckpointStore(tmp_path, name).former().rounds for name in lives.names)
        assert 0 < together < 6
        lives.start(resume=True, at=together)
        ended = await lives.end()
    models = {name: end.peer.plan.learner.state_dict(end.state.rows[0]) for name, end in ended.items()}
    assert apart(models, last(SMALL, changes)) <= tolerance
