"""Participants in the totals of a round, who agree along a spanning tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from p2pfl.core.errors import DecodeError
from p2pfl.network.protocol.wire.total_messages import AgreedParticipants, Here, participants_statement
from p2pfl.privacy.keys import Identity, verify
from p2pfl.topology import Schedule, Topology, Tree, spanning


@dataclass(frozen=True)
class ParticipantSet:
    """Set of the peers that take part in the totals of an attempt at a round.

    Parameters
    ----------
    round, attempt
        See :class:`p2pfl.privacy.total_masks.TotalSlot`.
    members
        Incarnation that takes part, by peer (:func:`p2pfl.network.protocol.wire.messages.mark_of`).
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


class Participation:
    """Part of one peer in the agreement on the participants of an attempt at a round.

    Along a spanning tree of the expected peers their names move up, and the signed set moves down. There is agreement
    only if all expected peers take part, and those that obtain a set for a round and attempt obtain the same one. A
    peer that does not know the key of the root believes the key that its parent forwards: for it, the set is as
    authentic as the edges of the tree.

    Parameters
    ----------
    graph, expected
        Graph of the neighbours, or schedule, and names of the peers that are expected to take part.
    me, mark
        Name and incarnation of the peer.
    round, attempt
        See :class:`ParticipantSet`.
    swarm, identity
        Swarm for which the set is signed, and identity that signs; without an identity, nothing is signed or verified.
    known
        Incarnations and public keys of the peers whose announcements are known.

    Raises
    ------
    TopologyError
        The expected peers are not connected.
    """

    def __init__(
        self,
        graph: Topology | Schedule,
        expected: tuple[str, ...],
        *,
        me: str,
        mark: bytes,
        round: int,
        attempt: int,
        swarm: str = "",
        identity: Identity | None = None,
        identities: Known | None = None,
    ) -> None:
        self.tree = spanning(graph, among=expected)
        self.me, self.round, self.attempt = me, round, attempt
        self.agreed: ParticipantSet | None = None
        self._swarm, self._identity = swarm, identity
        self._known = identities or Known({}, {})
        self._members = {me: mark}
        self._came: set[str] = set()  # children whose subtree is complete
        self._begun = False
        self._said: AgreedParticipants | None = None

    @property
    def lacking(self) -> frozenset[str]:
        """Neighbours that must send a message before there is agreement."""
        if self.agreed is not None:
            return frozenset()
        parent = self.tree.parent(self.me)
        return frozenset({*self.tree.children(self.me)} - self._came | ({parent} if parent is not None else set()))

    def begin(self) -> list[Here | AgreedParticipants]:
        """Take part; return the messages to send to the parent or to all children."""
        self._begun = True
        return self._go_on()

    def receive(self, sender: str, message: Here | AgreedParticipants) -> list[Here | AgreedParticipants]:
        """Handle a message of a neighbour in the tree; return the messages to send. Other neighbours use other parents.

        Raises
        ------
        DecodeError
            The message is not credible.
        """
        if isinstance(message, AgreedParticipants):
            return self._take(message) if sender == self.tree.parent(self.me) else []
        if sender not in self.tree.children(self.me):
            return []
        if message.members.keys() != {*self.tree.subtree(sender)}:
            raise DecodeError(f'"{sender}" does not name the participants below it')
        self._known.check_members(message.members)
        if sender in self._came:
            return []
        self._came.add(sender)
        self._members |= message.members
        return self._go_on()

    def again(self) -> list[Here | AgreedParticipants]:
        """Return this peer's message to its parent until there is agreement, then the set for its children."""
        if self._said is not None:
            return [self._said] if self.tree.children(self.me) else []
        return self._go_on()

    def _go_on(self) -> list[Here | AgreedParticipants]:
        """Report to the parent once the subtree is complete; the root decides."""
        if not self._begun or self._came != {*self.tree.children(self.me)} or self._said is not None:
            return []
        if self.tree.parent(self.me) is not None:
            return [Here(self.round, self.attempt, self._members)]
        key = b"" if self._identity is None else self._identity.public
        agreed = AgreedParticipants(self.round, self.attempt, dict(sorted(self._members.items())), self.me, key)
        if self._identity is not None:
            statement = participants_statement(agreed, swarm=self._swarm)
            agreed = msgspec.structs.replace(agreed, signature=self._identity.sign(statement, domain="participants"))
        return self._accept(agreed)

    def _take(self, message: AgreedParticipants) -> list[Here | AgreedParticipants]:
        """Accept the participant set if it is the root's, complete, and names the incarnations known to this peer."""
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

    def _accept(self, message: AgreedParticipants) -> list[Here | AgreedParticipants]:
        self._said = message
        self.agreed = ParticipantSet(self.round, self.attempt, message.members, self.tree)
        return [message] if self.tree.children(self.me) else []


@dataclass(frozen=True)
class Known:
    """Incarnations and keys of other peers that a peer knows beforehand.

    Parameters
    ----------
    marks
        Current incarnation, by peer.
    keys
        Public key that verifies signatures, by peer.
    """

    marks: Mapping[str, bytes]
    keys: Mapping[str, bytes]

    def check_members(self, members: Mapping[str, bytes]) -> None:
        """Refuse participants in other incarnations.

        Raises
        ------
        DecodeError
            An incarnation differs.
        """
        other = sorted(peer for peer, mark in self.marks.items() if members.get(peer, mark) != mark)
        if other:
            raise DecodeError(f"a participant set names another incarnation of {', '.join(other)}")

    def check(self, message: AgreedParticipants) -> None:
        """Refuse a participant set with other incarnations, or from a root with another key.

        Raises
        ------
        DecodeError
            The set names another incarnation, or the key of the root differs.
        """
        self.check_members(message.members)
        if self.keys.get(message.root, message.key) != message.key:
            raise DecodeError(f'a participant set is signed with another key than that of "{message.root}"')
