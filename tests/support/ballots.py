"""Messages of agreements on releases, from the names and numbers that are in them."""

import msgspec

from p2pfl.network.protocol.agreement.agreement_effects import BLANK, VerdictRecord
from p2pfl.network.protocol.wire.verdict_messages import Ballot, Decision, Prepare, Promise, Release, Vote

COUNTED = b"copy"
"""Verdict that the only copy of a release counts."""


def cast(  # noqa: PLR0917 (in the order of the fields)
    peer, incarnation, round, member, number, proposer, value, signature=bytes(64), voter=0, *, final=True
):
    """A vote on a release; for an acceptance, ``final`` is false."""
    return Vote(Release(peer, incarnation, round, 0), member, Ballot(number, proposer), value, signature, voter, final)


def prepare(sender, peer, incarnation, round, number):
    """The request of its sender for promises."""
    return Prepare(Release(peer, incarnation, round, 0), Ballot(number, sender))


def promised(peer, incarnation, round, member, number, proposer, voter=0):  # noqa: PLR0917 (as above)
    """An unsigned promise of a member that has not voted."""
    release, ballot = Release(peer, incarnation, round, 0), Ballot(number, proposer)
    return Promise(release, member, ballot, signature=bytes(64), incarnation=voter)


def proven(promise, proof=()):
    """The same promise with the proof of its vote."""
    return msgspec.structs.replace(promise, proof=proof)


def decision(*votes):
    """The decision that votes prove."""
    return Decision(votes[0].subject, votes[0].value, votes)


def kept(peer, incarnation, round, *, attempt=0, **record):
    """What a journal holds of a release."""
    return VerdictRecord(Release(peer, incarnation, round, attempt), msgspec.structs.replace(BLANK, **record))
