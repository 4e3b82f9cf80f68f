"""A neighbour with a key of its own may say anything; the others learn on."""

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import MANY
from model_messages import chunks_of
from p2pfl.network.protocol.incoming.mailbox import Mailbox
from p2pfl.network.protocol.incoming.rate_limit import Allowance
from p2pfl.network.protocol.interface.effects import Deliver
from p2pfl.network.protocol.interface.events import Received
from p2pfl.network.protocol.interface.requests import Expect, Open
from p2pfl.network.protocol.ledgers.peer_ledgers import PeerLedgers, heaviest
from p2pfl.network.protocol.membership.edges import Edges
from p2pfl.network.protocol.membership.membership import Membership
from p2pfl.network.protocol.session.session import Session
from p2pfl.network.protocol.wire.message_codec import MessageCodec
from p2pfl.network.protocol.wire.messages import Account, Ack, Announcement, Chunk, Claim, FlowStatement, Pulse
from p2pfl.network.protocol.wire.wire_codec import encode
from p2pfl.network.protocol.wire.wire_rows import encode_row, row_bytes
from p2pfl.topology import complete
from sessions import arrived

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
    FlowStatement, place, place, st.lists(place, max_size=4).map(tuple), st.lists(place, max_size=4).map(tuple), place
)
message = st.one_of(
    st.builds(Announcement, name, life, st.sampled_from(["up", "left", "dead"]), st.just({}), st.binary(max_size=32)),
    st.builds(Claim, life, st.binary(max_size=32)),
    st.builds(Pulse, life, phase, number, number, number, number, st.booleans()),
    st.builds(Ack, life, phase, number, number, st.lists(number, max_size=6)),
    st.builds(
        Account, life, number, st.lists(st.tuples(moved, st.lists(name, max_size=2)), max_size=3),
        st.booleans(),
    ),
    st.builds(
        Chunk, life, phase, number, number, number, number,
        trailer=st.binary(max_size=64), data=st.binary(max_size=300).map(memoryview),
    ),
)  # fmt: skip


def chunks(length, *, round, sequence=0):
    """An honest row as it travels."""
    parts = encode_row(ROW[:length] + round, round=round, step=0, grid=None, mass=None)
    yield from chunks_of(parts, size=200, incarnation=LIFE, sequence=sequence)


def listener():
    """The session of bob, who has met ada and eve and is in round 1."""
    me = Announcement("bob", LIFE, "up")
    session = Session(
        MessageCodec("s", me),
        membership=Membership(me, frozenset({"ada", "eve"})),
        mailbox=Mailbox(),
        edges=Edges("bob", GRAPH),
        ledgers=PeerLedgers("bob", gossip=["ada", "eve"], heaviest=heaviest(3)),
        row_bytes=LARGEST,
        chunk=1024,
        patience=60.0,
    )
    for peer in ("ada", "eve"):
        session.handle(arrived(peer, Announcement(peer, LIFE, "up"), state=True), now=0.0)
    session.membership.begun = True
    row, ledgers = np.zeros(LENGTH, np.float32), session.ledgers
    for round in (0, 1):
        ledgers.open((round, 0), row, weights={"ada": 1 / 3, "eve": 1 / 3}, chain=0)
        if round == 0:
            ledgers.apply("ada", (0, 0), row + 1)
            ledgers.apply("eve", (0, 0), row + 2)
            ledgers.close()
    session.handle(Open((1, 0), ("ada", "eve"), since=1), now=0.0)
    return session


def besieged(barrage):
    """Bob's session after what eve said."""
    session = listener()
    for each in barrage:
        place = "eve/state" if isinstance(each, Announcement) and each.peer == "eve" else "bob/in/eve"
        session.handle(Received(f"p2pfl/v1/s/peer/{place}", encode(each)), now=1.0)
    for chunk in chunks(LENGTH, round=1):
        session.handle(arrived("ada", chunk), now=2.0)
    return session


@pytest.mark.slow
@settings(MANY)
@given(st.lists(message, max_size=8))
def test_whatever_an_insider_says_raises_nothing_else_and_holds_up_nobody(barrage):
    session = besieged(barrage)
    (answer,) = [each for each in session.handle(Expect("ada"), now=2.0) if isinstance(each, Deliver)]
    assert torch.equal(answer.model.row, ROW + 1)
    assert "ada" in session.membership.present
    for inbox in session.streams.inboxes.values():
        assert inbox.reserved <= 2 * LARGEST + inbox.window * inbox.widest
    ledger = session.ledgers.flows
    assert len(ledger.list_unsettled()) <= 2 * 16
    assert np.isfinite(ledger.own((1, 0))).all()


def test_the_honest_row_of_this_siege_would_not_arrive_from_another_life():
    session = listener()
    for chunk in chunks(LENGTH, round=1):
        session.handle(arrived("ada", of_another_life(chunk)), now=1.0)
    assert session.mailbox.take("ada") is None


def of_another_life(chunk):
    return msgspec.structs.replace(chunk, incarnation=LIFE + 1)


def test_a_flood_of_one_neighbour_is_cut_short_unread_and_the_round_goes_on():
    session = listener()
    session.shared.allowance = Allowance(rate=0.0, burst=100.0)
    for _ in range(1000):
        session.handle(Received("p2pfl/v1/s/peer/eve/pub/0", b"nonsense"), now=1.0)
    for chunk in chunks(LENGTH, round=1):
        session.handle(Received("p2pfl/v1/s/peer/ada/pub/0", encode(chunk)), now=2.0)
    (answer,) = [each for each in session.handle(Expect("ada"), now=2.0) if isinstance(each, Deliver)]
    assert torch.equal(answer.model.row, ROW + 1)
    assert session.shared.refused == {"eve: not a message": 100, "eve: too much": 900}
