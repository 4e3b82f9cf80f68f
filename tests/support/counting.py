"""Sums and totals of honest peers, up to the message that comes next."""

from copy import deepcopy
from functools import cache

import numpy as np

from known_peers import IDENTITIES, LARGEST, NAMES, NOW, SECRETS, SWARM, announcement, membership, seal
from p2pfl.network.peer.neighbourhoods.sum_relay import SumRelay, common_sums
from p2pfl.network.protocol.incoming.mailbox import Mailbox
from p2pfl.network.protocol.interface.effects import Publish
from p2pfl.network.protocol.interface.events import Subscribed
from p2pfl.network.protocol.interface.requests import Contribute, Convene
from p2pfl.network.protocol.membership.edges import Edges
from p2pfl.network.protocol.session.session import Session
from p2pfl.network.protocol.session.session_totals import PLACE, RECEIPT
from p2pfl.network.protocol.wire.message_codec import MessageCodec
from p2pfl.network.protocol.wire.total_messages import OfTotals
from p2pfl.network.secagg.receiver import SumReceiver
from p2pfl.network.secagg.sender import SumSender
from p2pfl.privacy.secagg.protocol import SumSlot
from p2pfl.topology import Topology, complete, metropolis
from sessions import arrived

SUMS = common_sums(metropolis(complete(5).named(NAMES)), size=6, width=64, colluders=1)


def part(name):
    """One peer's part in sums; the one that it makes is open."""
    sum_sender = SumSender(name, sums=SUMS, seal=seal(name))
    sum_sender.acquaint(SECRETS)
    sum_receiver = SumReceiver(name, sums=SUMS, seal=seal(name), heaviest=10.0)
    sum_receiver.open(NOW, weighted=False)
    return SumRelay(
        bits=32, sum_sender=sum_sender, sum_receiver=sum_receiver, lacking=lambda: None, lacked=lambda _: None
    )


def summed(receiver, upto):
    """All parts after the sum of one peer has come up to a kind of message, and the messages of that kind, by sender.

    In order: "ready", the participant set ("roll"), and the terms ("term").
    """
    parts = {name: part(name) for name in NAMES}
    mine, givers = parts[receiver].sum_receiver, [name for name in NAMES if name != receiver]
    slot = SumSlot(receiver, *NOW)
    words = {name: parts[name].sum_sender.prepare(slot, mass=None) for name in givers}
    if upto == "ready":
        return parts, words
    for name, ready in words.items():
        mine.take(name, ready)
    call = mine.close()
    if upto == "roll":
        return parts, {receiver: call}
    pieces = {}
    for name in givers:
        sender = parts[name].sum_sender
        sender.take(receiver, call)
        (pieces[name],) = sender.give(slot, sender.mask(slot, np.arange(6)), piece=LARGEST)
    return parts, pieces


SUMMED = {"Ready": ("bob", "ready"), "RollCall": ("ada", "roll")}
"""Whose sum it is of which ada says this to bob, and how far it is then."""


@cache
def _adding(kind):
    return summed(*SUMMED[kind])[0]["bob"]


def adding(kind):
    """Return bob's part, which expects a message of this kind from ada next: a copy, except for the keys."""
    made = _adding(kind)
    return deepcopy(made, {id(each): each for each in (made.sum_sender.seal, made.sum_receiver.seal, SUMS, SECRETS)})


THREE = ("ada", "bob", "cleo")


STARS = {
    "ada": Topology(THREE, (("ada", "bob"), ("ada", "cleo"))),
    "bob": Topology(THREE, (("ada", "bob"), ("bob", "cleo"))),
}
"""Graphs of three peers, by who is in the middle, and so at the root of the tree."""


def totalling(name, middle):
    """A session that is to take part in a total."""
    given = {
        "mailbox": Mailbox(),
        "edges": Edges(name, STARS[middle]),
        "row_bytes": LARGEST,
        "chunk": LARGEST,
        "commits": True,
    }
    return Session(
        MessageCodec(SWARM, announcement(name), IDENTITIES[name]), membership=membership(name), patience=10.0, **given
    )


def totalled(middle, upto):
    """The session of bob when a kind of message of ada's comes next to it, and that message."""
    sessions = {name: totalling(name, middle) for name in THREE}
    queue = []

    def ask(name, event):
        for each in sessions[name].handle(event, now=0.0):
            if isinstance(each, Publish) and isinstance(each.message, OfTotals):
                others = STARS[middle].neighbours(name) if each.place == PLACE else [each.place[3:]]
                queue.extend((name, other, each.message) for other in others)

    for step in (Convene(1), Subscribed(RECEIPT), None):
        for name in THREE:
            ask(name, Contribute(np.arange(6, dtype=np.uint64)) if step is None else step)
        while queue:
            sender, to, message = queue.pop(0)
            if (sender, to, type(message).__name__) == ("ada", "bob", upto):
                return sessions["bob"], message
            ask(to, arrived(sender, message, swarm=SWARM))
    return sessions["bob"], None


TOTALLED = {"Here": "bob", "Subtotal": "bob", "AgreedParticipants": "ada", "Total": "ada"}
"""Who is in the middle where ada sends this to bob."""


def totals(kind):
    """Return the totals part of bob, which receives a message of this kind from ada next."""
    return totalled(TOTALLED.get(kind, "bob"), kind)[0].totals
