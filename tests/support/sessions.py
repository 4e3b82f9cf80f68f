"""Sessions without a network, for tests: what one says the others are told, when the test wants it."""

import torch

from model_messages import chunks_of
from p2pfl.network.protocol.incoming.mailbox import Mailbox
from p2pfl.network.protocol.interface.effects import Publish
from p2pfl.network.protocol.interface.events import Received, Stored
from p2pfl.network.protocol.interface.requests import Begin, Offer, Open
from p2pfl.network.protocol.ledgers.peer_ledgers import PeerLedgers, heaviest
from p2pfl.network.protocol.membership.edges import Edges
from p2pfl.network.protocol.membership.membership import Membership
from p2pfl.network.protocol.session.session import Session
from p2pfl.network.protocol.wire.message_codec import MessageCodec, root_of
from p2pfl.network.protocol.wire.messages import Announcement, Pulse
from p2pfl.network.protocol.wire.wire_codec import encode
from p2pfl.network.protocol.wire.wire_rows import Encoded, encode_row, row_bytes
from p2pfl.topology import complete

NAMES = ("ada", "bob", "eve")
LENGTH = 8
LIFE = 7


def session(name="ada", *, life=LIFE, patience=10.0, length=LENGTH, keeps=False, names=NAMES, **given):
    """One end of a triangle, or of another complete graph, with ledgers if it keeps any."""
    me, others = Announcement(name, life, "up"), [each for each in names if each != name]
    graph = complete(len(names)).named(names)
    ledgers = PeerLedgers(name, gossip=others if keeps else None, masks=(), heaviest=heaviest(len(names)))
    how = {"row_bytes": row_bytes(length, torch.float32), "chunk": 1024, "patience": patience} | given
    return Session(
        MessageCodec("s", me),
        membership=Membership(me, frozenset(others)),
        mailbox=Mailbox(),
        edges=Edges(name, graph),
        ledgers=ledgers,
        **how,
    )


def arrived(sender, message, *, state=False, swarm="s"):
    """The arrival of a message, which nobody has sealed, from a peer; ``state`` marks its retained announcement."""
    return Received(f"{root_of(swarm)}/{sender}/{'state' if state else 'account'}", encode(message))


def announced(name, status="up", *, life=LIFE, **given):
    """What the broker retains of a peer."""
    return arrived(name, Announcement(name, life, status, **given), state=True)


def met(name="ada", *, others=("bob", "eve"), first=0, **given):
    """A session that has begun, with neighbours of which it knows that they have."""
    made = session(name, **given)
    for other in others:
        made.handle(announced(other), now=0.0)
        made.handle(heartbeat(other), now=0.0)
    made.handle(Begin(first), now=0.0)
    return made


def heartbeat(name, *, life=LIFE, round=0, step=0, first=0, tail=0, head=0, waiting=False):
    return arrived(name, Pulse(life, 0, tail, head, round, step, waiting=waiting, first=first))


def model(round=0, *, value=1.0, length=LENGTH):
    """A model whose numbers are all the same."""
    return Encoded(encode_row(torch.full((length,), value), round=round, step=0))


def arrives(name, *, round=0, value=1.0, life=LIFE, sequence=0, length=LENGTH, size=1000):
    """The chunks of a model of a neighbour."""
    parts = model(round, value=value, length=length)
    return [arrived(name, chunk) for chunk in chunks_of(parts, size=size, incarnation=life, sequence=sequence)]


def offered(made, *, round=0, value=1.0, now=0.0):
    """Let a session send a model; return what follows once it may leave."""
    made.handle(Open((round, 0), tuple(sorted(made.membership.present)), since=round), now=now)
    made.handle(Offer(model(round, value=value), phase=0), now=now)
    return made.handle(Stored(), now=now)


def published(effects, kind=object):
    """The messages of a kind among effects, and where they go."""
    return [
        (each.place, each.message) for each in effects if isinstance(each, Publish) and isinstance(each.message, kind)
    ]
