"""Rows that wait for credit, and neighbours that come back meanwhile."""

import asyncio

import torch

from p2pfl.peer.line import Line
from p2pfl.peer.link import Link
from p2pfl.protocol.edges import Edges
from p2pfl.protocol.mailbox import Mailbox
from p2pfl.protocol.membership import Membership
from p2pfl.protocol.wire.messages import Ack, Hello
from p2pfl.protocol.wire.rows import encode_row, row_bytes
from p2pfl.protocol.wire.stream import INITIAL
from p2pfl.topology import complete
from p2pfl.transport import MemoryTransport

LENGTH = 16
GRAPH = complete(2).named(("ada", "bob"))
LARGEST = row_bytes(LENGTH, torch.float32)


def sender(channel):
    """Ada's link to bob, who has come, in her first round."""
    me = Hello("ada", 1, "up")
    link = Link(
        Line(channel, swarm="s", me=me),
        membership=Membership(me, frozenset({"bob"})),
        mailbox=Mailbox(),
        edges=Edges("ada", GRAPH),
        row_bytes=LARGEST,
        chunk=LARGEST,
        patience=60.0,
    )
    link.presence.heard(Hello("bob", 1, "up"))
    link.membership.begun = True
    return link


def row(step):
    return encode_row(torch.full((LENGTH,), float(step)), round=0, step=step, grid=None, mass=None)


def test_a_row_that_waits_for_credit_is_not_said_again_before_it_has_gone():
    """Bob comes back while ada's last row waits: all that went is said again, and the one that waits is said once."""

    async def main():
        async with MemoryTransport().join("ada") as channel, asyncio.TaskGroup() as tasks:
            link = sender(channel)
            link.desk.tasks = tasks
            outbox = link.streams.outboxes[0]
            rows = INITIAL + 1  # of one chunk each: for the last there is no credit
            for step in range(rows):
                link.open((0, step), ["bob"])
                await link.send(row(step), phase=0)
            assert (outbox.head, outbox.unsent) == (INITIAL, 1)
            link.open((0, rows), ["bob"])
            waiting = tasks.create_task(link.send(row(rows), phase=0))
            await asyncio.sleep(0)
            link.streams.again()
            assert outbox.unsent == 1 + rows
            link.streams.acknowledged("bob", Ack(1, 0, INITIAL, INITIAL + 20), present=True)
            await waiting
            return outbox.head

    assert asyncio.run(main()) == 2 * (INITIAL + 1) + 1
