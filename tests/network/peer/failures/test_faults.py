"""Faults that once stopped a peer for ever."""

import asyncio
import math
from dataclasses import replace

import pytest
import torch

from p2pfl.core.errors import RunError, TransportError
from p2pfl.experiment import plan, read
from p2pfl.network.peer import Peer
from p2pfl.network.peer.model_agreement import ModelAgreement
from p2pfl.network.protocol.wire.envelope import CONTROL, SEALED
from p2pfl.network.protocol.wire.messages import Announcement
from p2pfl.network.protocol.wire.wire_codec import encode
from p2pfl.network.transport import MemoryTransport
from swarms import SMALL, live, timeless
from waiting import DEADLINE


async def killed(peer, *, when):
    """Run a peer until a moment comes, then lose its connection."""
    async with peer:
        running = asyncio.create_task(peer.run())
        await peer.connection.until(lambda: when(peer), by=math.inf)
        peer.connection.channel.abort()
        with pytest.raises(TransportError):
            await running


async def test_a_peer_whose_only_listener_vanishes_in_the_middle_of_a_row_goes_on():
    changes = [
        "topology.kind=path",
        "topology.peers=2",
        "model.hidden=[4000]",
        "transport.chunk=1024",
        "gossip.steps=1",
    ]
    experiment = read(SMALL, changes=changes)

    async with asyncio.timeout(DEADLINE):
        transport = MemoryTransport()
        victim = Peer("peer1", plan(experiment, only=["peer1"]), transport=transport)

        def half(peer):
            held = any(inbox.held for inbox in peer.session.streams.inboxes.values())
            return held or peer.mailbox.gossip_step > (0, 0)

        others, _ = await asyncio.gather(live(experiment, transport, names=["peer0"]), killed(victim, when=half))
        ended = others["peer0"]
    assert ended.records[-1].round == 2
    assert torch.isfinite(ended.state.rows).all()


@pytest.mark.slow
def test_an_outage_longer_than_patience_is_survived():
    changes = ["topology.kind=path", "topology.peers=2", "rounds=20", "gossip.steps=1", "transport.patience=1.2"]
    experiment = read(SMALL, changes=changes)
    counts = {"chunks": 0}

    def deaf(_, message):
        """From the 6th chunk on, drop what is said until both have given up a row or two."""
        if message.data[:1] == bytes([SEALED]) and message.data[1:5] != CONTROL.to_bytes(4, "little"):
            counts["chunks"] += 1
        if counts["chunks"] > 6:
            counts["since"] = counts.get("since", 0) + 1
        return 0 < counts.get("since", 0) < 15 and "/state" not in message.topic

    ended = timeless(live(experiment, MemoryTransport(lose=deaf)))
    for end in ended.values():
        assert any(record.missed for record in end.records)
        assert end.records[-1].received == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "word", [b"xx", encode(Announcement("peer1", 99, "up", {"seed": "1"}))], ids=["junk", "another hello"]
)
async def test_a_strangers_word_on_a_neighbours_state_topic_ends_nobodys_run(word):
    experiment = read(SMALL, changes=["topology.kind=ring", "topology.peers=3", "rounds=20"])

    async with asyncio.timeout(DEADLINE):
        transport = MemoryTransport()
        running = asyncio.create_task(live(experiment, transport))
        async with transport.join("mallory") as mallory:
            await mallory.subscribe("p2pfl/v1/test/peer/peer0/pub/0")
            await anext(mallory)  # they have begun
            await mallory.publish("p2pfl/v1/test/peer/peer1/state", word)
        ended = await running
    assert {end.records[-1].round for end in ended.values()} == {19}


def test_grid_rows_wider_than_the_models_numbers_arrive():
    changes = ["topology.kind=path", "topology.peers=2", "learning.dtype=float32", "rounds=1"]
    changes += ["privacy.mode=independent", "privacy.noise=0.01", "privacy.bits=38"]
    ended = timeless(live(read(SMALL, changes=changes), MemoryTransport()))
    assert not any(end.records[-1].missed or end.peer.session.shared.refused for end in ended.values())


@pytest.mark.slow
async def test_a_mass_that_no_peer_can_have_is_not_mixed():
    experiment = read(SMALL, changes=["topology.kind=path", "topology.peers=3", "gossip.steps=1"])

    async with asyncio.timeout(DEADLINE):
        transport = MemoryTransport()
        malicious = Peer("peer2", plan(experiment, only=["peer2"]), transport=transport)
        heavy = replace(malicious.plan.algorithm.average, mean_samples=1e-9)
        malicious.plan = replace(malicious.plan, algorithm=replace(malicious.plan.algorithm, average=heavy))

        async def lie():
            async with malicious:
                await malicious.run()

        ended, _ = await asyncio.gather(live(experiment, transport, names=["peer0", "peer1"]), lie())
        ended = ended["peer1"]
    assert ended.peer.session.shared.refused["peer2: mass"] == experiment.rounds
    assert [record.missed for record in ended.records] == [["peer2"]] * experiment.rounds


def test_under_masks_who_vanishes_before_statistics_are_agreed_on_ends_the_run_with_a_sentence():
    changes = ["data.scale=true", "transport.gather={ seconds = 1.0, quorum = 0.3 }", "transport.patience=2.0"]
    masks = ["privacy.mode=pairwise", "privacy.partners=1", "privacy.departures=go_on"]
    experiment = read(SMALL, changes=["topology.kind=ring", "topology.peers=3", *changes, *masks])
    with pytest.raises(ExceptionGroup) as caught:
        timeless(live(experiment, MemoryTransport(), names=["peer0", "peer1"]))
    said = [str(error) for error in caught.value.exceptions]
    assert any(each.startswith("data.scale: a total over all peers did not complete") for each in said), said
    assert any("peer2 did not answer; start the peers that are missing" in each for each in said), said


def test_without_masks_the_majority_agrees_on_statistics_of_its_own_data():
    changes = ["data.scale=true", "transport.gather={ seconds = 1.0, quorum = 0.3 }", "transport.patience=2.0"]
    experiment = read(SMALL, changes=["topology.kind=ring", "topology.peers=3", *changes])
    ended = timeless(live(experiment, MemoryTransport(), names=["peer0", "peer1"]))
    samples = sum(len(end.peer.plan.federation.train[name]) for name, end in ended.items())
    assert {int(end.peer.statistics.samples[0]) for end in ended.values()} == {samples}


async def test_a_device_that_comes_after_the_statistics_learns_that_the_next_run_agrees_on_them_again():
    resolved = plan(read(SMALL, changes=["data.scale=true"]), only=["peer0"])
    with pytest.raises(RunError, match=r"begin the next one for all \(p2pfl deploy --apply, p2pfl next\)"):
        await ModelAgreement(resolved, "peer0").open(None, first=3, earlier=None)


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize(
    "masks", [[], ["privacy.mode=pairwise", "privacy.partners=1", "privacy.departures=go_on"]], ids=["bare", "masks"]
)
def test_without_somebody_the_majority_agrees_on_one_model_and_on_its_score_where_no_masks_forbid_it(masks):
    changes = ["learning.consensus=true", "transport.gather={ seconds = 1.0, quorum = 0.3 }", "transport.patience=2.0"]
    experiment = read(SMALL, changes=["topology.kind=ring", "topology.peers=3", *changes, *masks])
    ended = timeless(live(experiment, MemoryTransport(), names=["peer0", "peer1"]))
    one, other = ended.values()
    assert (one.peer.ended.common is None) == bool(masks)  # a total under masks needs all peers
    assert one.peer.ended.common == other.peer.ended.common
    assert torch.equal(one.state.rows, other.state.rows)
