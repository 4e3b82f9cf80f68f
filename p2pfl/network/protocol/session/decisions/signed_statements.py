"""Signed statements on attempts: those that this peer signs, and checks of those that it receives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from p2pfl.core.errors import DecodeError
from p2pfl.network.protocol.agreement.proofs import follows
from p2pfl.network.protocol.session.shared import Shared
from p2pfl.network.protocol.wire.verdict_messages import (
    Committee,
    Decision,
    Message,
    Prepare,
    Promise,
    Proposal,
    Report,
    Statement,
    Vote,
)
from p2pfl.privacy.keys import verify

PLACE = "account"
"""Topic of statements for all neighbours."""

KNOWN = 4096
"""Statements of which this peer remembers that it has verified their signatures."""


@dataclass
class Statements:
    """Signatures of the members of a swarm on votes and promises.

    Statements of incarnations from before those that this peer has met are not believed: they may be of an earlier run
    from the same checkpoints, which numbered its attempts in the same way. Those that others repeat may be of a later
    incarnation than the announced one: this peer takes no announcement of a member that it has excluded, and has to
    believe all the same what another one has counted.

    Parameters
    ----------
    shared
        State that the parts of the session share.
    """

    shared: Shared
    _first: dict[str, int] = field(default_factory=dict)  # by member, the first incarnation that was met
    _verified: set[tuple[bytes, ...]] = field(default_factory=set)  # keys, statements and signatures
    _unsigned: set[str] = field(default_factory=set)  # members that have tagged what they have not signed

    def meet(self, incarnations: Mapping[str, int]) -> None:
        """Note the incarnations that take part in an attempt; what they state is believed after they have restarted."""
        for peer in incarnations.keys() & self.shared.membership.proven:
            self._first.setdefault(peer, incarnations[peer])

    def text(self, statement: bytes) -> bytes:
        """Return a statement as its member signs it in this swarm."""
        return self.shared.codec.swarm.encode() + b"/" + statement

    def sign(self, statement: bytes) -> bytes:
        """Return this peer's signature of a statement."""
        identity, text = self.shared.codec.identity, self.text(statement)
        if identity is None:
            return bytes(64)
        signature = identity.sign(text, domain="vote")
        self._note(self.shared.me.identity, text, signature)
        return signature

    def check(self, message: Message, *, committee: Committee) -> None:
        """Check what a message states, and verify its signatures last, because they take the most time.

        Raises
        ------
        DecodeError
            The message states what cannot be, or a member has not signed what it states in its name.
        """
        own, others = _statements_of(message)
        for each in (*own, *others):
            if each.subject != message.subject or each.member not in committee.members:
                raise DecodeError(f"expected statements of the committee of {message.subject}, got others")
        if not _possible(message, committee):
            raise DecodeError(f"expected a message that its statements prove, got a {type(message).__name__}")
        for each in (*own, *others):
            if not self.has_signed(each):
                raise DecodeError(f'expected a statement that "{each.member}" has signed, got another')
        for each in (*own, *others):
            if not self._current(each, direct=each in own):
                raise DecodeError(f'expected a statement of the announced incarnation of "{each.member}", got another')

    def tag(self, statement: bytes, *, to: Iterable[str]) -> bytes:
        """Return this peer's tags of a statement for others."""
        envelope = self.shared.codec.envelope
        return b"" if envelope is None else envelope.tags(self.text(statement), to=to)

    def believes(self, report: Report, *, sender: str, tagged: bool = False) -> bool:
        """Return whether a member can have made a report, and has signed it; or tagged it, where that is enough."""
        if not self._current(report, direct=report.member == sender):
            return False
        enough = tagged and report.member not in self._unsigned
        return (enough and self._has_tagged(report)) or self.has_signed(report)

    def proves(self, report: Report) -> bool:
        """Return whether a member has signed a report, and believe no tag of one that has not."""
        signed = self.has_signed(report)
        self._unsigned |= set() if signed else {report.member}
        return signed

    def _has_tagged(self, report: Report) -> bool:
        envelope = self.shared.codec.envelope
        if envelope is None or not report.tags:
            return False
        return envelope.has_tagged(report.member, self.text(report.statement), report.tags)

    def _current(self, stated: Statement, *, direct: bool) -> bool:
        """Return whether a member can have made a statement: now if it sends it itself, or else in this run."""
        me = self.shared.me
        announcement = me if stated.member == me.peer else self.shared.membership.up.get(stated.member)
        if announcement is None:
            return False
        if stated.member == me.peer or stated.member in self.shared.membership.proven:
            self._first.setdefault(stated.member, announcement.incarnation)
        least = self._first.get(stated.member, announcement.incarnation)
        return stated.incarnation == announcement.incarnation if direct else least <= stated.incarnation

    def has_signed(self, stated: Statement) -> bool:
        """Return whether a member has signed a statement."""
        me = self.shared.me
        if self.shared.codec.identity is None:
            return True
        announcement = me if stated.member == me.peer else self.shared.membership.up.get(stated.member)
        if announcement is None:
            return False
        signed = announcement.identity, self.text(stated.statement), stated.signature
        if signed in self._verified:
            return True
        if not verify(signed[0], signed[1], signed[2], domain="vote"):
            return False
        self._note(*signed)
        return True

    def _note(self, *signed: bytes) -> None:
        """Remember the key, the text and the signature of a statement that need not be verified again."""
        if len(self._verified) >= KNOWN:
            self._verified.clear()
        self._verified.add(signed)


def _statements_of(message: Message) -> tuple[tuple[Vote | Promise, ...], tuple[Vote | Promise, ...]]:
    """Return the statements of the sender in a message, and those that it repeats."""
    match message:
        case Vote():
            return (message,), ()
        case Promise():
            return (message,), message.proof
        case Proposal():
            return (message.vote,), (*message.promises, *message.proof)
        case Decision():
            return (), message.votes
        case Prepare():
            return (), ()


def _possible(message: Message, committee: Committee) -> bool:
    """Return whether the statements in a message prove it, at most one of each member of each kind."""
    match message:
        case Vote():
            return committee.owns(message.ballot)
        case Promise():
            return committee.owns(message.ballot) and _distinct(message.proof)
        case Proposal():
            return _distinct(message.proof) and follows(message, committee=committee)
        case Decision():
            return _distinct(message.votes) and message.holds(committee)
        case Prepare():
            return True


def _distinct(votes: tuple[Vote, ...]) -> bool:
    """Return whether each vote is of another member."""
    return len({vote.member for vote in votes}) == len(votes)
