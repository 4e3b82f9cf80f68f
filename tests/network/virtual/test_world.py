"""Real peers in simulated worlds."""

import multiprocessing
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from p2pfl.algorithms import gossip_learning
from p2pfl.algorithms.averaging import Averaging
from p2pfl.core.errors import DecodeError
from p2pfl.core.rows import raw
from p2pfl.experiment import plan, read
from p2pfl.network.peer import end
from p2pfl.network.peer.round_totals import RoundTotals
from p2pfl.network.peer.storage.journal import Journal
from p2pfl.network.protocol.ledgers.flows import FlowLedger
from p2pfl.network.protocol.ledgers.peer_ledgers import PeerLedgers
from p2pfl.network.protocol.membership.edges import Edges
from p2pfl.network.protocol.session.presence import Presence
from p2pfl.network.protocol.session.start_wait import StartWait
from p2pfl.network.protocol.totals.convergecast import Convergecast
from p2pfl.network.protocol.wire.envelope import Envelope
from p2pfl.network.protocol.wire.messages import Claim
from p2pfl.network.protocol.wire.wire_rows import Delivery, Head
from p2pfl.network.secagg.sender import SumSender
from p2pfl.privacy.total_masks import TotalMasks
from p2pfl.results.content import Unsettled
from p2pfl.simulation import simulate
from swarms import SMALL
from worlds.explore import Kept, explored, outcome, searched
from worlds.faults import KINDS, history
from worlds.invariants import Watch
from worlds.settings import Plans, setting
from worlds.world import World

pytestmark = pytest.mark.slow

SEEDS = 300


@pytest.fixture(scope="module")
def plans():
    return Plans()


def _some(first, last):
    torch.set_num_threads(1)
    return list(explored(range(first, last)))


together = pytest.mark.xdist_group("seen")  # one worker plays the histories, once


@pytest.fixture(scope="module")
def seen():
    """All outcomes, from two processes."""
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        halves = [pool.submit(_some, first, first + SEEDS // 2) for first in (0, SEEDS // 2)]
        return [found for half in halves for found in half.result()]


@together
@pytest.mark.nightly
def test_three_hundred_histories_are_survived(seen):
    assert {found.seed: found.failure for found in seen if found.failure} == {}


@together
@pytest.mark.nightly
def test_every_kind_of_fault_has_happened(seen):
    kinds = Counter(kind for found in seen for kind in found.kinds)
    assert set(kinds) == set(KINDS)
    faults = sum((found.faults for found in seen), Counter())
    for fault in ("lost", "twice", "overtaken", "pauses", "deaths", "forgeries", "crashes", "broker restarts"):
        assert faults[fault] > 50
    assert faults["compared with simulate"] > 20
    assert faults["compared with simulate although peers came back"] > 3


@together
@pytest.mark.nightly
def test_one_seed_is_one_history(seen):
    again = list(explored(range(10)))
    assert [found.log for found in again] == [found.log for found in seen[:10]]


@together
@pytest.mark.nightly
def test_another_process_with_another_hash_seed_has_the_same_history(seen):
    code = "from worlds.explore import explored; print([found.digest for found in explored([*range(8), 2012])])"
    environment = os.environ | {"PYTHONHASHSEED": "12345", "PYTHONPATH": str(Path(__file__).parents[2])}
    said = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert said.strip() == str([found.digest for found in (*seen[:8], outcome(2012, plans=Plans()))])


def test_twelve_histories_are_survived():
    few = _some(0, 12)
    assert {found.seed: found.failure for found in few if found.failure} == {}
    assert [found.log for found in explored(range(3))] == [found.log for found in few[:3]]


def test_an_exploration_that_was_interrupted_goes_on_and_counts_each_block_once(tmp_path):
    kept, blocks = Kept(tmp_path / "kept.jsonl"), [range(2), range(2, 4)]
    sums = [searched(block, tmp_path) for block in blocks]
    sums[0].failures[1] = "a deadlock"
    kept.add(blocks[0], sums[0])
    with kept.path.open("a") as file:
        file.write('[2, 4, false, {"se')  # when the machine stopped
    assert kept.read() == {(0, 2): sums[0]}
    kept.add(blocks[1], sums[1])
    assert kept.read() == {(0, 2): sums[0], (2, 4): sums[1]}
    assert Kept(kept.path, insiders=True).read() == {}


def test_where_nothing_goes_wrong_nobody_misses_anything(plans):
    compared = 0
    for seed in range(20):
        found = outcome(seed, plans=plans, kinds=())
        assert not found.failure
        assert not found.kinds
        compared += found.faults["compared with simulate"]
        compared += setting(seed).totals and found.faults["totals"] > 0
    assert compared >= 18  # all but those whose peers wait for nobody


def test_weights_that_differ_alike_at_both_ends_are_found_by_comparing_with_the_simulation(monkeypatch, plans):
    monkeypatch.setattr(Edges, "row", lightly)
    assert any("those of the simulation" in outcome(seed, plans=plans, kinds=()).failure for seed in range(3))


heard = FlowLedger.receive


def gullible(self, peer, payload):
    try:
        return opened(self, peer, payload)
    except DecodeError:
        return Claim(0)


def nothing(_self):
    """Say nothing."""


def mutual(self):
    """Of old: where somebody came back, those that gather wait until each has said that it has begun."""
    membership, progress = self.shared.membership, self.shared.progress
    if not self.presence.acquainted or membership.greeted & membership.neighbours > membership.present:
        return False
    told = self.streams.senders & membership.present <= progress.places.keys()
    if self.shared.running:
        return told
    resumed = any(membership.up[peer].rounds for peer in membership.present)
    return not (membership.absent or membership.silent) and (told or bool(self.shared.me.rounds) or not resumed)


def lightly(self, phase):
    """Neighbours weigh half of what they should, at both ends: all averages of averages stay what they are."""
    return {peer: weight / 2 + (peer == self.me) / 2 for peer, weight in weighed(self, phase).items()}


def mistaken(self, phase):
    """Everybody has the weight of the next."""
    row = weighed(self, phase)
    peers = sorted(row)
    return {peer: row[other] for peer, other in zip(peers, peers[1:] + peers[:1], strict=True)}


def doubled(heard, own):
    rows, ages = merging(heard, own)
    return 2 * rows, ages


def rejuvenated(heard, own):
    rows, _ = merging(heard, own)
    return rows, heard.rows[-1:, -1:].double()


opened = Envelope.open
weighed = Edges.row
merging = gossip_learning.merge_models
ANY = range(40)
contributing = Convergecast.contribute
totalling = RoundTotals.total
keyed = TotalMasks.keys


def twice(self, values):
    return contributing(self, values * 2)


async def other(self, contribution, *, peer, size, bits):
    total = await totalling(self, contribution, peer=peer, size=size, bits=bits)
    total[-1:] += peer == "peer1"
    return total


def numberless(self, peer, *, slot, participants):
    return keyed(self, peer, slot=slot._replace(number=0), participants=participants)


weights = Averaging.masses
settled = PeerLedgers._settle


async def flooded(self, learner, net, active):
    """Peers divide by the largest number of samples that they know: one that misses messages weighs too much."""
    return await weights(replace(self, mean_samples=None), learner, net, active)


def halved(self, chain):
    late = settled(self, chain)
    return None if late is None else late / 2


async def equally(_self, _learner, _net, active):
    return active.to(torch.float64).unsqueeze(-1)


TOTALS = [seed for seed in range(120) if setting(seed).totals]
WEIGHTED = [seed for seed in range(200) if setting(seed).weighted and "rounds=1" not in setting(seed).changes]
WAITLESS = [seed for seed in range(200) if setting(seed).asynchronous]
MUTANTS = {
    "a flow is not held": (FlowLedger, "list_unsettled", lambda _self: [], ANY),
    "what is taken back stays": (FlowLedger, "receive", lambda *each: dict(list(heard(*each).items())[:0]), ANY),
    "what cannot be opened is believed": (Envelope, "open", gullible, ANY),
    "neighbours weigh half of what they should": (Edges, "row", lightly, ANY),
    "rows have each other's weights": (Edges, "row", mistaken, ANY),
    "those that gather beside one that came back wait for each other": (StartWait, "_all_present", mutual, [251, 31]),
    "rows leave the hull of the goals": (gossip_learning, "merge_models", doubled, WAITLESS),
    "ages are those of the last heard": (gossip_learning, "merge_models", rejuvenated, WAITLESS),
    "all peers have the same weight": (Averaging, "masses", equally, WEIGHTED),
    "peers divide by different numbers of samples": (Averaging, "masses", flooded, [137]),
    "half of what comes late enters": (PeerLedgers, "_settle", halved, [167]),
    "nobody says that it is back": (Presence, "come_back", nothing, [180]),
    "terms are masked for incarnations that have ended": (SumSender, "_check", lambda *_: None, [429, 621]),
    "who comes back after its end says what nobody can read": (Journal, "over", False, [2135]),
    "nobody says what an earlier life may have left open": (end, "unsettled", lambda *_, **__: Unsettled(), [2, 18]),
    "what an earlier life said stays": (FlowLedger, "revive", lambda *_: {}, [1684, 2101]),
    "a peer adds its numbers to a total twice": (Convergecast, "contribute", twice, TOTALS),
    "a peer ends with another total": (RoundTotals, "total", other, TOTALS),
    "two totals of a round have one key": (TotalMasks, "keys", numberless, TOTALS),
}


@pytest.mark.sampled(fast=0, all=6)
@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_a_world_notices_what_must_not_be(mutant, monkeypatch, plans):
    owner, name, instead, seeds = mutant
    monkeypatch.setattr(owner, name, instead)
    assert any(outcome(seed, plans=plans).failure for seed in seeds)


def test_a_row_used_twice_or_in_another_exchange_or_never_sent_is_noticed():
    row = torch.ones(3)
    delivery = Delivery(Head(1, 0, "float32", 3), row)
    watches = {name: Watch({}) for name in ("fine", "twice", "elsewhere", "invented")}
    for name, watch in watches.items():
        watch.sent(("bob", 1), (1, 0), raw(row if name != "invented" else 2 * row))
        watch.arrived("ada", ("bob", 1), delivery)
        watch.used(("ada", 1), "bob", delivery, gossip_step=(2 if name == "elsewhere" else 1, 0))
    watches["twice"].used(("ada", 1), "bob", delivery, gossip_step=(1, 0))
    assert [name for name, watch in watches.items() if watch.failure] == ["twice", "elsewhere", "invented"]


def test_faults_that_end_connections_are_drawn():
    names = ("ada", "bob", "cyd")
    kinds = ("half-open connections", "broker restarts", "broker restarts that forget")
    drawn = [history(seed, peers=names, patience=20.0, kinds=kinds) for seed in range(40)]
    assert any(each.restarts for each in drawn)
    assert any(not restart.kept for each in drawn for restart in each.restarts)
    assert any(each.conditions[name].cuts for each in drawn for name in names)


@pytest.mark.sampled(fast=0, all=2)
@pytest.mark.parametrize("changes", [[], ["learning.weighted=false"]], ids=str)
def test_where_nothing_is_given_up_peers_end_where_the_simulation_ends(changes):
    """However late, narrow, doubled and out of order: what arrives in the end is all that counts."""
    experiment = read(SMALL, changes=changes)
    resolved = plan(experiment)
    kinds = ("latency", "bandwidth", "duplication", "overtaking", "clocks", "stragglers", "loss")
    faults = history(5, peers=resolved.topology.peers, patience=20.0, kinds=kinds)
    assert len(faults.kinds) >= 3
    world = World(5, setting(5), resolved, faults)
    assert not world.run().failure
    assert not any(ended.missed for ended in world.ended.values())
    run = simulate(experiment, source=world.source, baselines=False)
    for name, ended in world.ended.items():
        model = resolved.learner.state_dict(ended.state.rows[0])
        for key, value in run.models[name].items():
            assert torch.allclose(
                model[key], value, rtol=0, atol=1e-10 if experiment.privacy.mode == "none" else 2**-20
            )
