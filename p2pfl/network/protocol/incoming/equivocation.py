"""Evidence that a peer has signed two different statements, which anyone who knows its key can check."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from p2pfl.core.errors import DecodeError, InputError
from p2pfl.network.protocol.agreement.proofs import contradict
from p2pfl.network.protocol.wire.sum_messages import about_sum
from p2pfl.network.protocol.wire.trailer import SignedStatement
from p2pfl.network.protocol.wire.verdict_messages import Statement, parse_statement
from p2pfl.network.protocol.wire.wire_rows import head_of
from p2pfl.privacy.keys import verify


@dataclass(frozen=True)
class Proof:
    """Two different statements on one matter, both signed by one incarnation of a peer; nobody else can make them.

    Attributes
    ----------
    one, other
        Signed statements.
    domain
        Kind of the statements: ``row`` for the model of a gossip step, ``roll`` for the participants of a secure sum,
        ``vote`` for two reports on an attempt, two votes in one ballot, or a vote and a later promise that hides it.

    Examples
    --------
    >>> Proof(SignedStatement(b"", b""), SignedStatement(b"x", b"")).holds(bytes(32))
    False
    """

    one: SignedStatement
    other: SignedStatement
    domain: Literal["row", "roll", "vote"] = "row"

    @property
    def gossip_step(self) -> tuple[int, int]:
        """Round and step of the statements.

        Raises
        ------
        DecodeError
            The statements are not of the kind that ``domain`` names.
        """
        *_, round, step = self._about(self.one)
        return int(round), int(step)

    def holds(self, public: bytes) -> bool:
        """Return whether this convicts the owner of a public key; third parties need nothing else."""
        statements = self.one, self.other
        try:
            matter, other = map(self._about, statements)
        except DecodeError:
            return False
        signed = all(verify(public, each.statement, each.signature, domain=self.domain) for each in statements)
        if self.domain == "vote":
            return signed and matter == other and _contradict(*statements)
        return signed and matter == other and self.one.statement != self.other.statement

    def _about(self, signed: SignedStatement) -> tuple[str | int, ...]:
        if self.domain == "roll":
            return about_sum(signed.statement)
        if self.domain == "vote":
            context, vote = _read_vote(signed)
            round, attempt = vote.subject
            return context, vote.member, vote.incarnation, attempt, round, 0
        head = head_of(signed)
        return signed.context, head.round, head.step

    def to_bytes(self) -> bytes:
        """Return the content of a file that :meth:`read` reads."""
        return msgspec.json.format(msgspec.json.encode(self))

    @staticmethod
    def read(path: str | Path) -> Proof:
        """Read evidence that a peer has kept in its run directory.

        Raises
        ------
        InputError
            The file cannot be read, or contains no evidence.
        """
        try:
            return msgspec.json.decode(Path(path).read_bytes(), type=Proof)
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror}); name the file of a proof") from None
        except msgspec.DecodeError:
            raise InputError(f"{path} is no proof of equivocation; name a file that a peer has written") from None


def _read_vote(signed: SignedStatement) -> tuple[str, Statement]:
    """Return the swarm and the statement on an attempt that was signed."""
    swarm, _, statement = signed.statement.partition(b"/")
    return swarm.decode(errors="replace"), parse_statement(statement)


def _contradict(one: SignedStatement, other: SignedStatement) -> bool:
    """Return whether nobody that follows the protocol signs both."""
    (_, first), (_, second) = _read_vote(one), _read_vote(other)
    return contradict(first, second)
