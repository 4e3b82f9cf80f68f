"""A listener in a process of its own, for test_burst.py: counts what arrives and prints the count.

python listener.py URL plain|link COUNT LENGTH QOS [CA]
"""

import asyncio
import sys
from pathlib import Path

import torch

from p2pfl.network.peer.connection import Connection
from p2pfl.network.protocol.incoming.mailbox import Mailbox
from p2pfl.network.protocol.interface.effects import Deliver
from p2pfl.network.protocol.interface.requests import Close, Expect, Gather, Offer, Open
from p2pfl.network.protocol.membership.edges import Edges
from p2pfl.network.protocol.membership.membership import Membership
from p2pfl.network.protocol.session.session import Session
from p2pfl.network.protocol.wire.message_codec import MessageCodec
from p2pfl.network.protocol.wire.messages import Announcement
from p2pfl.network.protocol.wire.wire_rows import Encoded, encode_row, row_bytes
from p2pfl.network.transport.mqtt import MqttTransport
from p2pfl.topology import Topology

GRAPH = Topology(("ada", "bob"), (("ada", "bob"),), directed=True)


def connected(channel, name, life, *, length):
    """One end of the edge from ada to bob, along which models of so many numbers pass."""
    other = {"ada": "bob", "bob": "ada"}[name]
    me = Announcement(name, life, "up")
    session = Session(
        MessageCodec("burst", me),
        membership=Membership(me, frozenset({other})),
        mailbox=Mailbox(),
        edges=Edges(name, GRAPH),
        row_bytes=row_bytes(length, dtype=torch.float32),
        chunk=min(256 * 1024, channel.limit),
        patience=60.0,
    )
    return Connection(channel, session)


async def send(end, round, *, length):
    """Send a model that says its round."""
    parts = encode_row(torch.full((length,), float(round)), round=round, step=0)
    await end.ask(Offer(Encoded(parts), phase=0))


async def plain(transport, _count, _length):
    """Count messages until the last word."""
    seen = 0
    async with transport.join("listener") as channel:
        await channel.subscribe("burst/#")
        print("ready", flush=True)
        async for message in channel:
            if message.topic == "burst/end":
                break
            seen += 1
    print(seen, flush=True)


async def reliable(transport, count, length):
    """Count rows in the order of exchanges; every one must come."""
    seen = 0
    async with transport.join("burst-bob-1") as channel, asyncio.TaskGroup() as tasks:
        end = connected(channel, "bob", 1, length=length)
        await end.enter(tasks)
        print("ready", flush=True)
        await end.ask(Gather(quorum=1.0, within=20.0))
        for round in range(count):
            end.submit(Open((round, 0), ("ada",), since=0))
            answer = await end.ask(Expect("ada"))
            seen += int(isinstance(answer, Deliver) and answer.model.row[0] == round)
            end.submit(Close())
        await end.leave()
        end.close()
    print(seen, flush=True)


if __name__ == "__main__":
    url, kind, count, length, qos, *ca = sys.argv[1:]
    transport = MqttTransport(url, qos=int(qos), ca=Path(ca[0]) if ca else None)
    asyncio.run({"plain": plain, "link": reliable}[kind](transport, int(count), int(length)))
