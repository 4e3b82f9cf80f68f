"""A neighbour with a key of its own may say anything; the others learn on."""

import asyncio

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import MANY
from p2pfl.errors import DecodeError
from p2pfl.peer.line import Line
from p2pfl.peer.link import Link
from p2pfl.protocol.edges import Edges
from p2pfl.protocol.ledgers.books import Books, heaviest
from p2pfl.protocol.mailbox import Mailbox
from p2pfl.protocol.membership import Membership
from p2pfl.protocol.rate_limit import Allowance
from p2pfl.protocol.wire.codec import decode, encode
from p2pfl.protocol.wire.messages import Account, Ack, Chunk, Claim, Hello, Masked, Moved, Pulse
from p2pfl.protocol.wire.rows import encode_row, pieces, row_bytes
from p2pfl.topology import complete
from p2pfl.transport import MemoryTransport

GRAPH = complete(3).named(("ada", "bob", "eve"))
LENGTH = 64
ROW = torch.arange(LENGTH, dtype=torch.float32)
LIFE = 7
LARGEST = row_bytes(LENGTH, torch.float32)

number = st.one_of(
    st.integers(0, 12), st.sampled_from([LIFE, LARGEST, 2**31, 2**53, 2**63 - 1]), st.integers(0, 2**63 - 1)
)
place = st.lists(number, max_size=4).map(tuple)
point = st.tuples(number, number)
name = st.sampled_from(["ada", "bob", "eve", "x"])
life = st.one_of(st.just(LIFE), number)
phase = st.one_of(st.just(0), number)
moved = st.builds(
    Moved, place, place, st.lists(place, max_size=4).map(tuple), st.lists(place, max_size=4).map(tuple), place
)
masked = st.builds(
    Masked, point, point, st.lists(st.tuples(number, number, number), max_size=4).map(tuple), point, point
)
message = st.one_of(
    st.builds(Hello, name, life, st.sampled_from(["up", "left", "dead"]), st.just({}), st.binary(max_size=32)),
    st.builds(Claim, life, st.binary(max_size=32)),
    st.builds(Pulse, life, phase, number, number, number, number, st.booleans()),
    st.builds(Ack, life, phase, number, number, st.lists(number, max_size=6)),
    st.builds(
        Account, life, number, st.lists(st.tuples(moved, st.lists(name, max_size=2)), max_size=3),
        st.dictionaries(name, masked, max_size=2),
    ),
    st.builds(Chunk, life, phase, number, number, number, number, st.binary(max_size=300).map(memoryview)),
)  # fmt: skip


def chunks(length, *, round, sequence=0):
    """An honest row as it travels."""
    parts = encode_row(ROW[:length] + round, round=round, step=0, grid=None, mass=None)
    total, offset = sum(map(len, parts)) + 16, 0
    for count, piece in enumerate(pieces(parts, size=200)):
        yield Chunk(LIFE, 0, sequence + count, sequence, offset, total, memoryview(bytes(piece)))
        offset += len(piece)


def listener(channel):
    """The link of bob, who has met ada and eve and is in round 1."""
    me = Hello("bob", LIFE, "up")
    link = Link(
        Line(channel, swarm="s", me=me),
        membership=Membership(me, frozenset({"ada", "eve"})),
        mailbox=Mailbox(),
        edges=Edges("bob", GRAPH),
        row_bytes=LARGEST,
        chunk=1024,
        patience=60.0,
    )
    link.books = Books("bob", gossip=["ada", "eve"], masks=["ada", "eve"], heaviest=heaviest(3))
    for peer in ("ada", "eve"):
        link.presence.heard(Hello(peer, LIFE, "up"))
    link.membership.begun = True
    row = np.zeros(LENGTH, np.float32)
    for round in (0, 1):
        link.books.open((round, 0), row, weights={"ada": 1 / 3, "eve": 1 / 3}, chain=0)
        if round == 0:
            link.books.masks.release(0, partners={"ada", "eve"})
            link.books.apply("ada", (0, 0), row + 1)
            link.books.apply("eve", (0, 0), row + 2)
            link.books.close(omega=1.0)
    link.open((1, 0), ["ada", "eve"])
    return link


async def besieged(barrage):
    """Bob's link after what eve said."""
    async with MemoryTransport().join("bob") as channel, asyncio.TaskGroup() as tasks:
        link = listener(channel)
        link.desk.tasks = tasks
        for each in barrage:
            try:
                await link._dispatch("eve", decode(encode(each)), state=isinstance(each, Hello) and each.peer == "eve")
            except DecodeError:
                continue
        for chunk in chunks(LENGTH, round=1):
            await link._dispatch("ada", chunk, state=False)
        return link


@settings(MANY)
@given(st.lists(message, max_size=8))
def test_whatever_an_insider_says_raises_nothing_else_and_holds_up_nobody(barrage):
    link = asyncio.run(besieged(barrage))
    delivery = link.mailbox.take("ada")
    assert torch.equal(delivery.row, ROW + 1)
    assert "ada" in link.membership.present
    for inbox in link.streams.inboxes.values():
        assert inbox.reserved <= 2 * LARGEST + inbox.window * inbox.widest
    ledger = link.books.flows
    assert len(ledger.unsettled()) <= 2 * 16
    assert np.isfinite(ledger.own((1, 0))).all()


def test_the_honest_row_of_this_siege_would_not_arrive_from_another_life():
    async def other():
        async with MemoryTransport().join("bob") as channel, asyncio.TaskGroup() as tasks:
            link = listener(channel)
            link.desk.tasks = tasks
            for chunk in chunks(LENGTH, round=1):
                await link._dispatch("ada", of_another_life(chunk), state=False)
            return link

    assert asyncio.run(other()).mailbox.take("ada") is None


def of_another_life(chunk):
    return Chunk(LIFE + 1, chunk.phase, chunk.sequence, chunk.first, chunk.offset, chunk.total, chunk.data)


def test_a_flood_of_one_neighbour_is_cut_short_unread_and_the_round_goes_on():
    async def flooded():
        transport = MemoryTransport()
        async with transport.join("bob") as channel, transport.join("eve") as eve, transport.join("ada") as ada:
            async with asyncio.TaskGroup() as tasks:
                link = listener(channel)
                link.desk.tasks, link.desk.allowance = tasks, Allowance(rate=0.0, burst=100.0)
                await link.line.listen("+/pub/0")
                for _ in range(1000):
                    await eve.publish("p2pfl/v1/s/peer/eve/pub/0", b"nonsense")
                for chunk in chunks(LENGTH, round=1):
                    await ada.publish("p2pfl/v1/s/peer/ada/pub/0", encode(chunk))
                reader = tasks.create_task(link._read())
                while (delivery := link.mailbox.take("ada")) is None:
                    await link.news.wait()
                reader.cancel()
            return link, delivery

    link, delivery = asyncio.run(flooded())
    assert torch.equal(delivery.row, ROW + 1)
    assert link.desk.refused == {"eve: not a message": 100, "eve: too much": 900}
