"""Rows and masks of live peers that do not hear each other: what is moved is moved at both ends, or at none.

One round is played, in which every peer is heard too late by a neighbour; without loss the mean of the rows after
any number of exchanges is the mean of what was released, which the simulation knows.
"""

import asyncio
from functools import cache

import msgspec
import numpy as np
import pytest
import torch

from p2pfl.core.errors import DecodeError
from p2pfl.experiment import plan, read
from p2pfl.network.protocol.ledgers import flows
from p2pfl.network.protocol.ledgers.peer_ledgers import PeerLedgers
from p2pfl.network.protocol.wire.envelope import SEALED
from p2pfl.network.protocol.wire.messages import Account, FlowStatement
from p2pfl.network.transport import MemoryTransport
from p2pfl.privacy.keys import SeededSource
from swarms import SMALL, live, timeless
from waiting import wait_until

LOSSY = ["rounds=1", "gossip.steps=6", "transport.patience=0.4", "topology.kind=ring", "topology.peers=4"]
ROUNDING = 1e-12


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


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("until", [(0, 1), (0, 2), (0, 6)], ids=["first", "first two", "never"])
def test_the_mean_of_the_rows_is_what_was_released_whoever_did_not_hear_whom(until):
    rows, _, records = played(["learning.weighted=false"], until=until)
    assert "peer0" in records["peer1"][0].missed
    assert torch.allclose(rows.mean(0), released(), rtol=0, atol=ROUNDING)


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


def test_an_old_account_is_overlooked():
    ledgers = PeerLedgers("ada", gossip=["bob"], heaviest=4.0)
    never = Account(1, 2, [(FlowStatement((0,), (1, 0), (), (), (0,)), [])], incarnations={"ada": 1})
    ledgers.open((0, 0), np.zeros(2), weights={"bob": 0.5}, chain=0)
    assert ledgers.apply("bob", (0, 0), np.ones(2)).tolist() == [0.5, 0.5]
    ledgers.receive("bob", Account(1, 1, []), incarnation=1)
    ledgers.receive("bob", msgspec.structs.replace(never, number=1), incarnation=1)
    assert ledgers.flows.list_unsettled() == [("bob", (0, 0))]
    ledgers.receive("bob", never, incarnation=1)
    assert ledgers.flows.list_unsettled() == []
    assert ledgers.close().tolist() == [-0.5, -0.5]


def test_an_account_of_an_earlier_life_of_ours_is_not_believed_by_the_next():
    bob = PeerLedgers("bob", gossip=["ada"])
    bob.begin("ada", incarnation=1)
    assert bob.account(1).incarnations == {"ada": 1}
    bob.begin("ada", incarnation=2)
    assert bob.account(1).incarnations == {"ada": 1}  # she has not said yet where she goes on
    bob.revive("ada", 0)
    assert bob.account(1).incarnations == {"ada": 2}
    ada = PeerLedgers("ada", gossip=["bob"])
    done = (FlowStatement((0,), flows.END, ((0, 0),), (), (0,)), [])
    ada.receive("bob", Account(1, 1, [done], incarnations={"ada": 1}), incarnation=2)
    assert ada.flows.finished == frozenset()
    ada.receive("bob", Account(1, 2, [done], incarnations={"ada": 2}), incarnation=2)
    assert ada.flows.finished == {"bob"}
