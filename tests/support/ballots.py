"""Messages of agreements on attempts, from the names and numbers that are in them."""

import msgspec

from p2pfl.network.protocol.agreement.agreement_effects import BLANK, VerdictRecord
from p2pfl.network.protocol.wire.verdict_messages import (
    Ballot,
    Decision,
    Place,
    Prepare,
    Promise,
    Report,
    Reports,
    Vote,
)

COUNTS = b"\1\xff\xff"
"""Outcome of an attempt that counts."""

AGAIN = b"\0\xff\xff"
"""Outcome of an attempt that all play again."""


def cast(member, number, proposer, value, *, place=(0, 0), signature=bytes(64), voter=0, final=True):
    """A vote of a member; for an acceptance, ``final`` is false."""
    return Vote(Place(*place), member, Ballot(number, proposer), value, signature, voter, final)


def prepare(sender, number, *, place=(0, 0)):
    """The request of its sender for promises."""
    return Prepare(Place(*place), Ballot(number, sender))


def promised(member, number, proposer, *, place=(0, 0), voter=0):
    """An unsigned promise of a member that has not voted."""
    return Promise(Place(*place), member, Ballot(number, proposer), signature=bytes(64), incarnation=voter)


def proven(promise, proof=()):
    """The same promise with the proof of its vote."""
    return msgspec.structs.replace(promise, proof=proof)


def decision(*votes):
    """The decision that votes prove."""
    return Decision(votes[0].subject, votes[0].value, votes)


def reported(member, value, *, place=(0, 0), voter=0):
    """A message with an unsigned report of a member."""
    return Reports(Place(*place), (Report(Place(*place), member, value, bytes(64), voter),))


def kept(round, *, attempt=0, **record):
    """What a journal holds of an attempt."""
    return VerdictRecord(Place(round, attempt), msgspec.structs.replace(BLANK, **record))
