"""Proof that a peer has said two different things, which convinces whoever knows its key."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from p2pfl.errors import DecodeError, InputError
from p2pfl.identity import verify
from p2pfl.protocol.agreement.messages import Promise, Release, Vote, stated
from p2pfl.protocol.agreement.proofs import contradict
from p2pfl.protocol.wire.messages import about_sum
from p2pfl.protocol.wire.rows import said_head
from p2pfl.protocol.wire.trailer import Said


@dataclass(frozen=True)
class Proof:
    """Two different statements on one matter, both signed by one peer in one life: nobody else could have made it.

    Attributes
    ----------
    one, other
        What was signed, and the signatures.
    domain
        Of what kind: a ``row`` of an exchange, a ``roll`` of those whose terms are in a sum, or a ``vote``: two votes
        in one ballot on a release, or a vote and a later promise that hides it.

    Examples
    --------
    >>> Proof(Said(b"", b""), Said(b"x", b"")).holds(bytes(32))
    False
    """

    one: Said
    other: Said
    domain: Literal["row", "roll", "vote"] = "row"

    @property
    def exchange(self) -> tuple[int, int]:
        """The round and the step.

        Raises
        ------
        DecodeError
            What was signed is none of the kind.
        """
        *_, round, step = self._about(self.one)
        return int(round), int(step)

    def holds(self, public: bytes) -> bool:
        """Whether this convicts the owner of a key; for third parties, who need nothing but this."""
        said = self.one, self.other
        try:
            matter, other = map(self._about, said)
        except DecodeError:
            return False
        signed = all(verify(public, each.statement, each.signature, domain=self.domain) for each in said)
        if self.domain == "vote":
            return signed and matter == other and _contradict(*said)
        return signed and matter == other and self.one.statement != self.other.statement

    def _about(self, said: Said) -> tuple[str | int, ...]:
        if self.domain == "roll":
            return about_sum(said.statement)
        if self.domain == "vote":
            context, vote = _voted(said)
            release = vote.subject
            assert isinstance(release, Release)  # noqa: S101 (of no other kind is a vote read)
            return context, release.peer, release.incarnation, release.attempt, vote.incarnation, release.round, 0
        head = said_head(said)
        return said.context, head.round, head.step

    def written(self) -> bytes:
        """As a file, which :meth:`read` takes."""
        return msgspec.json.format(msgspec.json.encode(self))

    @staticmethod
    def read(path: str | Path) -> Proof:
        """Read what a peer has kept in its run directory.

        Raises
        ------
        InputError
            It cannot be read, or is no proof.
        """
        try:
            return msgspec.json.decode(Path(path).read_bytes(), type=Proof)
        except OSError as error:
            raise InputError(f"{path}: expected a proof that can be read, got: {error.strerror}: name one") from None
        except msgspec.DecodeError:
            raise InputError(f"{path}: expected a proof as a peer keeps it, got something else: name one") from None


def _voted(said: Said) -> tuple[str, Vote | Promise]:
    """Return the swarm and the statement on a release that was signed."""
    swarm, _, statement = said.statement.partition(b"/")
    return swarm.decode(errors="replace"), stated(statement)


def _contradict(one: Said, other: Said) -> bool:
    """Return whether nobody that follows the protocol signs both."""
    (_, first), (_, second) = _voted(one), _voted(other)
    return isinstance(first, Vote) and contradict(first, second)
