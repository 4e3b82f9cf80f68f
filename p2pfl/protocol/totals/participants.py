"""Who takes part in the totals of a round: :class:`Participation`, and an agreement along a spanning tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec

from p2pfl.errors import DecodeError
from p2pfl.identity import Identity, verify
from p2pfl.protocol.wire.messages import Here, Participants, participants_statement
from p2pfl.topology import Topology, Tree, spanning


@dataclass(frozen=True)
class ParticipantSet:
    """Peers that take part in the totals of an attempt at a round.

    Parameters
    ----------
    round, attempt
        As of :class:`p2pfl.privacy.totals.Slot`.
    members
        By peer, the incarnation that takes part (:func:`p2pfl.protocol.wire.messages.mark_of`).
    tree
        Spanning tree of the members.
    """

    round: int
    attempt: int
    members: Mapping[str, bytes]
    tree: Tree

    @property
    def peers(self) -> tuple[str, ...]:
        """Names of the members, sorted."""
        return self.tree.peers


class Participation(Protocol):
    """Agreement on the participants of one attempt at a round, as one peer takes part in it.

    All peers that are given a participant set for a round and attempt are given the same one.
    """

    @property
    def agreed(self) -> ParticipantSet | None:
        """The participant set, once it is agreed."""
        ...

    @property
    def lacking(self) -> frozenset[str]:
        """Neighbours of which a message must come before there is agreement."""
        ...

    def begin(self) -> list[Here | Participants]:
        """Take part; return what is to be sent, to the parent or to all neighbours."""
        ...

    def hear(self, sender: str, message: Here | Participants) -> list[Here | Participants]:
        """Take a message of a neighbour; return what is to be sent.

        Raises
        ------
        DecodeError
            The message is not to be believed.
        """
        ...

    def again(self) -> list[Here | Participants]:
        """Return what may have been lost, to be sent again."""
        ...


class TreeParticipation:
    """Agreement along a spanning tree of the peers that are expected: their names go up, the signed set comes down.

    It is reached only if all of them take part.

    Parameters
    ----------
    graph, expected
        Who shares an edge with whom, and who is expected to take part.
    me, mark
        Name and incarnation of the peer.
    round, attempt
        As of :class:`ParticipantSet`.
    swarm, identity
        What is signed for, and what signs; without an identity nothing is signed or verified.
    known
        By peer whose announcement is known, its incarnation; and by peer, its public key.

    Raises
    ------
    TopologyError
        The expected peers are not connected, or the graph is directed.
    """

    def __init__(
        self,
        graph: Topology,
        expected: tuple[str, ...],
        *,
        me: str,
        mark: bytes,
        round: int,
        attempt: int,
        swarm: str = "",
        identity: Identity | None = None,
        known: Known | None = None,
    ) -> None:
        self.tree = spanning(graph, among=expected)
        self.me, self.round, self.attempt = me, round, attempt
        self.agreed: ParticipantSet | None = None
        self._swarm, self._identity = swarm, identity
        self._known = known or Known({}, {})
        self._members = {me: mark}
        self._came: set[str] = set()  # children whose subtree is there
        self._begun = False
        self._said: Participants | None = None

    @property
    def lacking(self) -> frozenset[str]:
        """Neighbours of which a message must come before there is agreement."""
        if self.agreed is not None:
            return frozenset()
        parent = self.tree.parent(self.me)
        return frozenset({*self.tree.children(self.me)} - self._came | ({parent} if parent is not None else set()))

    def begin(self) -> list[Here | Participants]:
        """Take part."""
        self._begun = True
        return self._go_on()

    def hear(self, sender: str, message: Here | Participants) -> list[Here | Participants]:
        """Take a message of a neighbour in the tree; others send theirs to somebody else."""
        if isinstance(message, Participants):
            return self._take(message) if sender == self.tree.parent(self.me) else []
        if sender not in self.tree.children(self.me):
            return []
        if message.members.keys() != {*self.tree.subtree(sender)}:
            raise DecodeError(f'"{sender}" does not name the participants below it')
        if sender in self._came:
            return []
        self._came.add(sender)
        self._members |= message.members
        return self._go_on()

    def again(self) -> list[Here | Participants]:
        """Return the own message to the parent as long as there is no agreement, then the set for the children."""
        if self._said is not None:
            return [self._said] if self.tree.children(self.me) else []
        return self._go_on()

    def _go_on(self) -> list[Here | Participants]:
        """Tell the parent once the subtree is there; the root decides."""
        if not self._begun or self._came != {*self.tree.children(self.me)} or self._said is not None:
            return []
        if self.tree.parent(self.me) is not None:
            return [Here(self.round, self.attempt, self._members)]
        key = b"" if self._identity is None else self._identity.public
        found = Participants(self.round, self.attempt, dict(sorted(self._members.items())), self.me, key)
        if self._identity is not None:
            statement = participants_statement(found, swarm=self._swarm)
            found = msgspec.structs.replace(found, signature=self._identity.sign(statement, domain="participants"))
        return self._accept(found)

    def _take(self, message: Participants) -> list[Here | Participants]:
        """Take the participant set, once it is the root's, complete, and of the incarnations that are known here."""
        if self._said is not None:
            if message != self._said:
                raise DecodeError(f'"{message.root}" has signed two participant sets of one attempt')
            return []
        if not self._begun or self._came != {*self.tree.children(self.me)}:
            raise DecodeError("a participant set came before this peer took part")
        if message.root != self.tree.root or message.members.keys() != {*self.tree.peers}:
            raise DecodeError("a participant set is not the one that is expected")
        self._known.check(message)
        if any(message.members[peer] != mark for peer, mark in self._members.items()):
            raise DecodeError("a participant set names other incarnations than those that take part")
        if self._identity is not None:
            statement = participants_statement(message, swarm=self._swarm)
            if not verify(message.key, statement, message.signature, domain="participants"):
                raise DecodeError(f'"{message.root}" has not signed the participant set')
        return self._accept(message)

    def _accept(self, message: Participants) -> list[Here | Participants]:
        self._said = message
        self.agreed = ParticipantSet(self.round, self.attempt, message.members, self.tree)
        return [message] if self.tree.children(self.me) else []


@dataclass(frozen=True)
class Known:
    """What a peer knows of others beforehand.

    Parameters
    ----------
    marks
        By peer, its present incarnation.
    keys
        By peer, its public key, which signs.
    """

    marks: Mapping[str, bytes]
    keys: Mapping[str, bytes]

    def check(self, message: Participants) -> None:
        """Refuse a participant set of other incarnations, or of a root with another key.

        Raises
        ------
        DecodeError
            It is one.
        """
        other = sorted(peer for peer, mark in self.marks.items() if message.members.get(peer, mark) != mark)
        if other:
            raise DecodeError(f"a participant set names another incarnation of {', '.join(other)}")
        if self.keys.get(message.root, message.key) != message.key:
            raise DecodeError(f'a participant set is signed with another key than that of "{message.root}"')
