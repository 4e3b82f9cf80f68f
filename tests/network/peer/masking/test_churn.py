"""Rows and masks of live peers that do not hear each other: what is moved is moved at both ends, or at none.

One round is played, in which every peer is heard too late by a neighbour; without loss the mean of the rows after
any number of exchanges is the mean of what was released, which the simulation knows.
"""

import asyncio
import math
from functools import cache

import msgspec
import numpy as np
import pytest
import torch

from p2pfl.core.errors import DecodeError, TransportError
from p2pfl.experiment import plan, read
from p2pfl.network.peer import Peer
from p2pfl.network.peer.masking.mask_cover import Cover
from p2pfl.network.protocol.ledgers import flows
from p2pfl.network.protocol.ledgers.payments import Mask
from p2pfl.network.protocol.ledgers.peer_ledgers import PeerLedgers
from p2pfl.network.protocol.ledgers.slots import Slot
from p2pfl.network.protocol.wire.envelope import SEALED
from p2pfl.network.protocol.wire.messages import Account, FlowStatement, Masked
from p2pfl.network.transport import MemoryTransport
from p2pfl.privacy.keys import SeededSource
from p2pfl.results.notices.kinds import LearningStopped, MasksUnsettled, SettlementIncomplete
from p2pfl.results.spending.meter import Meter
from swarms import SMALL, live, timeless
from waiting import wait_until

LOSSY = ["rounds=1", "gossip.steps=6", "transport.patience=0.4", "topology.kind=ring", "topology.peers=4"]
ROUNDING = 1e-12
MASKS = ["privacy.mode=pairwise", "privacy.mask=30.0", "privacy.partners=1"]


def deaf(alive, *, listener, sender, until):
    """Lose all that a listener should get from a sender, but accounts, until it is in a later exchange."""

    def lose(client, message):
        here = alive.get(listener)
        stream = f"/{sender}/pub/" in message.topic and client.split("-")[1] == listener
        return stream and message.data[:1] == bytes([SEALED]) and here is not None and here.mailbox.gossip_step < until

    return lose


def played(changes, *, until, transport=None):
    """The rows of all peers where peer1 hears nothing of peer0 at first, and the peers."""
    experiment, alive = read(SMALL, changes=[*LOSSY, *changes]), {}
    lose = deaf(alive, listener="peer1", sender="peer0", until=until)
    running = live(experiment, transport or MemoryTransport(lose=lose), source=SeededSource(5), alive=alive)
    ended = timeless(running)
    rows = torch.cat([ended[f"peer{number}"].state.rows for number in range(4)])  # [4, P]
    return rows, {name: end.peer for name, end in ended.items()}, {name: end.records for name, end in ended.items()}


@cache
def released():
    """The mean of what all peers release in the first round: of their rows after training."""
    learner = plan(read(SMALL, changes=LOSSY)).learner
    peers = tuple(f"peer{number}" for number in range(4))
    return learner.fit(learner.start(peers), peers=peers, round=0).rows.mean(0)


@pytest.mark.sampled(fast=2)
@pytest.mark.parametrize("until", [(0, 1), (0, 2), (0, 6)], ids=["first", "first two", "never"])
def test_the_mean_of_the_rows_is_what_was_released_whoever_did_not_hear_whom(until):
    rows, _, records = played(["learning.weighted=false"], until=until)
    assert "peer0" in records["peer1"][0].missed
    assert torch.allclose(rows.mean(0), released(), rtol=0, atol=ROUNDING)


@pytest.mark.slow
def test_masks_cancel_although_a_neighbour_did_not_hear_us():
    rows, peers, records = played(["learning.weighted=false", *MASKS], until=(0, 2))
    assert "peer0" in records["peer1"][0].missed
    assert torch.allclose(rows.mean(0), released(), rtol=0, atol=1e-5)  # rounding to the grid, of 2 ** -20
    assert all(not peer.session.ledgers.masks.list_uncancelled() for peer in peers.values())


def blind(monkeypatch, *, peer, to, rounds):
    """Make a peer overlook a partner when it decides its masks."""
    partners = Cover.partners

    def overlook(cover, round, *, present, **given):
        overlooked = cover.ledger.peer == peer and round in rounds
        return partners(cover, round, present=present - {to} if overlooked else present, **given)

    monkeypatch.setattr(Cover, "partners", overlook)


@pytest.mark.slow
@pytest.mark.parametrize(("peer", "to"), [("peer1", "peer0"), ("peer0", "peer1")], ids=["follower", "leader"])
def test_a_mask_that_only_one_end_applied_is_paid_before_the_end(monkeypatch, peer, to):
    blind(monkeypatch, peer=peer, to=to, rounds=[0])
    rows, peers, _ = played(["learning.weighted=false", *MASKS, "gossip.steps=40"], until=(0, 0))
    assert torch.allclose(rows, released().expand(4, -1), rtol=0, atol=1e-4)
    assert all(not each.session.ledgers.masks.list_uncancelled() for each in peers.values())


@pytest.mark.slow
def test_on_a_directed_graph_a_row_missed_in_the_exchange_that_pays_masks_is_told(monkeypatch):
    blind(monkeypatch, peer="peer1", to="peer0", rounds=[0])
    graph = ["topology.kind=exponential", "topology.peers=4", "gossip.steps=1", "learning.algorithm=dpsgd"]
    experiment, alive, said = read(SMALL, changes=[*LOSSY, *MASKS, *graph]), {}, []

    def lose(client, message):
        sender = alive.get("peer0")  # not the listener, which may be behind: the model would wait in its mailbox
        stream = "/peer0/pub/" in message.topic and client.split("-")[1] == "peer1"
        settling = sender is not None and sender.mailbox.gossip_step >= (2, 0)
        return stream and message.data[:1] == bytes([SEALED]) and settling

    running = live(experiment, MemoryTransport(lose=lose), source=SeededSource(5), alive=alive, notice=said.append)
    ended = timeless(running)
    assert all(not end.records[-1].missed for end in ended.values())  # no record tells of it
    told = [notice for notice in said if isinstance(notice, SettlementIncomplete)]
    assert [(notice.peer, len(notice.neighbours)) for notice in told] == [("peer1", 1)]


def test_a_release_that_lacked_half_a_mask_is_charged_as_if_all_others_colluded(monkeypatch):
    blind(monkeypatch, peer="peer1", to="peer0", rounds=[0])
    charged = []
    monkeypatch.setattr(Meter, "charge", lambda meter, round, *, whole: charged.append((meter._peers, round, whole)))
    monkeypatch.setattr(Meter, "correct", lambda meter, round: charged.append((meter._peers, round, False)))
    played(["learning.weighted=false", *MASKS, "privacy.noise=0.1", "privacy.clip=1.0"], until=(0, 0))
    assert (("peer1",), 0, False) in charged
    assert sorted(each for each in charged if each[0] == ("peer0",)) == [(("peer0",), 0, False), (("peer0",), 0, True)]
    assert [each for each in charged if each[0] == ("peer2",)] == [(("peer2",), 0, True)]


@pytest.mark.slow
def test_what_a_peer_that_died_leaves_uncancelled_is_said():
    experiment = read(SMALL, changes=[*LOSSY, *MASKS, "rounds=3", "transport.patience=20"])
    notices, alive = [], {}

    class Dying:
        """Dies in training, once both neighbours have released the round under a mask that it will not apply."""

        def __init__(self, victim):
            self.victim, self.training, self.learner = victim, victim.training, victim.training.learner
            self.seconds, self.update = 0.0, None

        async def fit(self, rows, *, round, **settings):
            if round == 1:
                neighbours = [alive[name] for name in ("peer0", "peer2")]
                await wait_until(
                    lambda: min(each.mailbox.gossip_step for each in neighbours) >= (1, 0), "neighbours are in round 1"
                )
                self.victim.connection.channel.abort()
            return await self.training.fit(rows, round=round, **settings)

    async def main():
        transport = MemoryTransport()
        victim = Peer("peer3", plan(experiment, only=["peer3"]), transport=transport)
        victim.training = Dying(victim)

        async def dying():
            async with victim:
                with pytest.raises(TransportError):
                    await victim.run()

        names = ["peer0", "peer1", "peer2"]
        await asyncio.gather(live(experiment, transport, names=names, alive=alive, notice=notices.append), dying())

    timeless(main())
    told = {each.peer: each.masks for each in notices if isinstance(each, MasksUnsettled)}
    assert told == {"peer0": {"peer3": 1}, "peer2": {"peer3": 1}}
    masks = alive["peer0"].session.ledgers.masks.list_uncancelled()
    epoch = alive["peer0"].membership.epoch("peer3")
    assert masks == [Mask(("peer0", "peer3"), Slot(0, 1), epoch)]


@pytest.mark.slow
def test_an_account_of_another_life_changes_nothing():
    experiment = read(SMALL, changes=[*LOSSY, "gossip.steps=3"])
    alive = {}

    async def main():
        transport = MemoryTransport()
        running = asyncio.create_task(live(experiment, transport, alive=alive))
        await wait_until(
            lambda: "peer1" in alive and alive["peer1"].mailbox.gossip_step >= (0, 1), "peer1 is in its second step"
        )
        session = alive["peer1"].session
        old = Account(alive["peer0"].me.incarnation - 1, 99, [(FlowStatement((9,), (9,), (), (), (9,)), [])])
        with pytest.raises(DecodeError, match="current incarnation"):
            session.receiving._account("peer0", old)
        await running
        return session

    session = timeless(main())
    assert not session.ledgers.flows.list_unsettled()


def test_an_account_that_cannot_be_is_refused_and_an_old_one_overlooked():
    ledgers = PeerLedgers("ada", gossip=["bob"], masks=["bob"], heaviest=4.0)
    much = Masked((0, 0), (0, 2**40), ((0, 0, 2**40),), (0, 0), (0, 0))
    with pytest.raises(DecodeError, match='the account of "bob" is impossible'):
        ledgers.receive("bob", Account(1, 1, [], {"ada": much}), incarnation=1)
    never = Account(1, 2, [(FlowStatement((0,), (1, 0), (), (), (0,)), [])], incarnations={"ada": 1})
    ledgers.open((0, 0), np.zeros(2), weights={"bob": 0.5}, chain=0)
    assert ledgers.apply("bob", (0, 0), np.ones(2)).tolist() == [0.5, 0.5]
    ledgers.receive("bob", msgspec.structs.replace(never, number=1), incarnation=1)
    assert ledgers.flows.list_unsettled() == [("bob", (0, 0))]
    ledgers.receive("bob", never, incarnation=1)
    assert ledgers.flows.list_unsettled() == []
    assert ledgers.close().tolist() == [-0.5, -0.5]


def test_an_account_of_an_earlier_life_of_ours_is_not_believed_by_the_next():
    bob = PeerLedgers("bob", gossip=["ada"])
    bob.begin("ada", incarnation=1, key=b"")
    assert bob.account(1).incarnations == {"ada": 1}
    bob.begin("ada", incarnation=2, key=b"")
    assert bob.account(1).incarnations == {"ada": 1}  # she has not said yet where she goes on
    bob.revive("ada", 0)
    assert bob.account(1).incarnations == {"ada": 2}
    ada = PeerLedgers("ada", gossip=["bob"])
    done = (FlowStatement((0,), flows.END, ((0, 0),), (), (0,)), [])
    ada.receive("bob", Account(1, 1, [done], incarnations={"ada": 1}), incarnation=2)
    assert ada.flows.finished == frozenset()
    ada.receive("bob", Account(1, 2, [done], incarnations={"ada": 2}), incarnation=2)
    assert ada.flows.finished == {"bob"}


def test_a_peer_whose_last_mask_neighbour_left_keeps_what_it_has_learned():
    changes = [*LOSSY, *MASKS, "rounds=4", "topology.kind=path", "topology.peers=2", "transport.patience=20"]
    experiment, notices = read(SMALL, changes=changes), []

    async def main():
        transport = MemoryTransport()
        victim = Peer("peer1", plan(experiment, only=["peer1"]), transport=transport)

        async def leaving():
            async with victim:
                running = asyncio.create_task(victim.run())
                await victim.connection.until(lambda: victim.mailbox.gossip_step >= (2, 0), by=math.inf)
                victim.connection.channel.abort()
                with pytest.raises(TransportError):
                    await running

        ended, _ = await asyncio.gather(live(experiment, transport, names=["peer0"], notice=notices.append), leaving())
        return ended["peer0"]

    ended = timeless(main())
    assert 1 <= ended.records[-1].round < 3
    assert torch.isfinite(ended.state.rows).all()
    assert [notice.reason for notice in notices if isinstance(notice, LearningStopped)] == ["partners"]
