"""Rows and masks of live peers that do not hear each other: what is moved is moved at both ends, or at none.

One round is played, in which every peer is heard too late by a neighbour; without loss the mean of the rows after
any number of exchanges is the mean of what was released, which the simulation knows.
"""

import asyncio
from functools import cache

import pytest
import torch
from swarms import SMALL, live

from p2pfl.experiment import plan, read
from p2pfl.identity import SeededSource
from p2pfl.transport import MemoryTransport
from p2pfl.wire.envelope import SEALED

LOSSY = ["rounds=1", "gossip.steps=6", "transport.patience=0.4", "topology.kind=ring", "topology.peers=4"]
ROUNDING = 1e-12
MASKS = ["privacy.mode=pairwise", "privacy.mask=30.0"]


def deaf(alive, *, listener, sender, until):
    """Lose all that a listener should get from a sender, but accounts, until it is in a later exchange."""

    def lose(client, message):
        here = alive.get(listener)
        stream = f"/{sender}/pub/" in message.topic and client.split("-")[1] == listener
        return stream and message.data[:1] == bytes([SEALED]) and here is not None and here.mailbox.exchange < until

    return lose


def played(changes, *, until, transport=None):
    """The rows of all peers where peer1 hears nothing of peer0 at first, and the peers."""
    experiment, alive = read(SMALL, changes=[*LOSSY, *changes]), {}
    lose = deaf(alive, listener="peer1", sender="peer0", until=until)
    running = live(experiment, transport or MemoryTransport(lose=lose), source=SeededSource(5), alive=alive)
    ended = asyncio.run(asyncio.wait_for(running, 40))
    rows = torch.cat([ended[f"peer{number}"].state.rows for number in range(4)])  # [4, P]
    return rows, {name: end.peer for name, end in ended.items()}, {name: end.records for name, end in ended.items()}


@cache
def released():
    """The mean of what all peers release in the first round: of their rows after training."""
    learner = plan(read(SMALL, changes=LOSSY)).learner
    peers = tuple(f"peer{number}" for number in range(4))
    return learner.fit(learner.start(peers), peers=peers, round=0).rows.mean(0)


@pytest.mark.parametrize("until", [(0, 1), (0, 2), (0, 6)], ids=["first", "first two", "never"])
@pytest.mark.parametrize("acceleration", ["none", "chebyshev"])
def test_the_mean_of_the_rows_is_what_was_released_whoever_did_not_hear_whom(until, acceleration):
    changes = ["learning.weighted=false", f"gossip.acceleration={acceleration}"]
    rows, _, records = played(changes, until=until)
    assert "peer0" in records["peer1"][0].missed
    assert torch.allclose(rows.mean(0), released(), rtol=0, atol=ROUNDING)


def test_masks_cancel_although_a_neighbour_did_not_hear_us():
    rows, peers, records = played(["learning.weighted=false", *MASKS], until=(0, 2))
    assert "peer0" in records["peer1"][0].missed
    assert torch.allclose(rows.mean(0), released(), rtol=0, atol=1e-5)  # rounding to the grid, of 2 ** -20
    assert all(not peer.link.books.masks.uncancelled() for peer in peers.values())
