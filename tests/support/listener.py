"""A listener in a process of its own, for test_burst.py: counts what arrives and prints the count.

python listener.py URL plain|link COUNT
"""

import asyncio
import sys

import torch

from p2pfl.peer.connection import Connection
from p2pfl.protocol.incoming.mailbox import Mailbox
from p2pfl.protocol.interface.effects import Deliver
from p2pfl.protocol.interface.requests import Close, Expect, Gather, Offer, Open
from p2pfl.protocol.membership.edges import Edges
from p2pfl.protocol.membership.membership import Membership
from p2pfl.protocol.session.session import Session
from p2pfl.protocol.wire.messages import Announcement
from p2pfl.protocol.wire.rows import Encoded, encode_row, row_bytes
from p2pfl.protocol.wire.sealing import MessageCodec
from p2pfl.topology import Topology
from p2pfl.transport.mqtt import MqttTransport

GRAPH = Topology(("ada", "bob"), (("ada", "bob"),), directed=True)
LENGTH = 1000


def connected(channel, name, life):
    """One end of the edge from ada to bob."""
    other = {"ada": "bob", "bob": "ada"}[name]
    me = Announcement(name, life, "up")
    session = Session(
        MessageCodec("burst", me),
        membership=Membership(me, frozenset({other})),
        mailbox=Mailbox(),
        edges=Edges(name, GRAPH),
        row_bytes=row_bytes(LENGTH, dtype=torch.float32),
        chunk=min(256 * 1024, channel.limit),
        patience=60.0,
    )
    return Connection(channel, session)


async def send(end, round):
    """Send a model that says its round."""
    parts = encode_row(torch.full((LENGTH,), float(round)), round=round, step=0)
    await end.ask(Offer(Encoded(parts), phase=0))


async def plain(url, _):
    """Count messages until the last word."""
    seen = 0
    async with MqttTransport(url).join("listener") as channel:
        await channel.subscribe("burst/#")
        print("ready", flush=True)
        async for message in channel:
            if message.topic == "burst/end":
                break
            seen += 1
    print(seen, flush=True)


async def reliable(url, count):
    """Count rows in the order of exchanges; every one must come."""
    seen = 0
    async with MqttTransport(url).join("burst-bob-1") as channel, asyncio.TaskGroup() as tasks:
        end = connected(channel, "bob", 1)
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
    asyncio.run({"plain": plain, "link": reliable}[sys.argv[2]](sys.argv[1], int(sys.argv[3])))
