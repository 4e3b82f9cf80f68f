"""Admission of peers that come back while the members of a run go on: who asks, and who becomes a member when.

A peer that restarts has no part in the attempt that is played, and the members drop it. It asks to be a member again
until it is admitted. Members name in their reports the first such peer that they have met. If all reports of an attempt
that counts name the same one, it is a member from the next round on, and each member tells it so. As the reports are
agreed, all members know the same members. The peer believes what more than half of the other members tell it alike.
Members answer each request, so that a peer that gets no answer knows that nobody plays any more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from msgspec.structs import replace

from p2pfl.core.errors import DecodeError
from p2pfl.network.protocol.interface.effects import Admitted, Undecided
from p2pfl.network.protocol.session.decisions.signed_statements import PLACE
from p2pfl.network.protocol.session.shared import PULSE, Shared
from p2pfl.network.protocol.wire.verdict_messages import Admission, JoinRequest


@dataclass
class Admissions:
    """Part of a session that admits peers, or waits to be admitted.

    Parameters
    ----------
    shared
        State that the parts of the session share.

    Attributes
    ----------
    incarnations
        By member of the attempt, the incarnation that takes part in it.
    admitted
        Attempt with which this peer has become a member again; ``None`` if it is a member from the beginning.
    """

    shared: Shared
    incarnations: dict[str, int] = field(default_factory=dict)
    admitted: Admitted | None = None
    _requests: dict[str, int] = field(default_factory=dict)  # by peer that asks, its incarnation
    _granted: dict[str, Admission] = field(default_factory=dict)  # by new member of the next or the present round
    _told: dict[str, Admission] = field(default_factory=dict)  # by member, what it has told this peer
    _asking: bool = False
    _again: float = math.inf  # time to ask again
    _answered: float = 0.0  # time of the last answer

    # ------------------------------------------------------------------ at members

    def begin(self, round: int, attempt: int, members: tuple[str, ...]) -> None:
        """Begin an attempt with the present incarnations of its members."""
        up = self.shared.membership.up
        self.incarnations = {peer: up[peer].incarnation for peer in members if peer in up}
        self._granted = {
            peer: each for peer, each in self._granted.items() if (each.round, each.attempt) == (round, attempt)
        }
        self._requests = {peer: each for peer, each in self._requests.items() if peer not in members}

    def receive_request(self, sender: str, request: JoinRequest, present: Admission) -> bool:
        """Note that a peer asks to be a member, and answer with the present attempt or with its first one.

        Returns
        -------
        bool
            True if the peer is a member of the attempt, and has no part in it any more because it has restarted.

        Raises
        ------
        DecodeError
            The request is of another incarnation than the announced one.
        """
        if request.incarnation != self.shared.membership.up[sender].incarnation:
            raise DecodeError(f'expected a request of the announced incarnation of "{sender}", got one of another')
        if not present.members:
            return False
        others = tuple(peer for peer in present.members if peer != sender)
        self.shared.publish(f"in/{sender}", self._granted.get(sender, replace(present, members=others)))
        if sender in self._granted:
            return False
        self._requests[sender] = request.incarnation
        return self.incarnations.get(sender, request.incarnation) != request.incarnation

    def candidate(self, members: tuple[str, ...]) -> int | None:
        """Return the place among all peers of the first one that asks to be a member; ``None`` if nobody does."""
        membership, peers = self.shared.membership, self.shared.edges.topology.peers
        asking = {
            peer
            for peer, incarnation in self._requests.items()
            if peer in membership.present and membership.up[peer].incarnation == incarnation
        }
        return next((place for place, peer in enumerate(peers) if peer in asking - {*members}), None)

    def admit(self, peer: str, round: int, attempt: int, members: tuple[str, ...]) -> None:
        """Tell a peer that it is a member from an attempt on."""
        self._granted[peer] = Admission(round, attempt, members)
        self.shared.publish(f"in/{peer}", self._granted[peer])

    # ------------------------------------------------------------------ at a peer that asks

    def ask(self) -> None:
        """Begin to ask to be a member."""
        self._asking, self._again, self._answered = True, self.shared.now, self.shared.now
        self.shared.active.add("commits")

    def receive(self, sender: str, admission: Admission) -> None:
        """Note what a member tells this peer."""
        if self._asking:
            self._told[sender], self._answered = admission, self.shared.now

    @property
    def active(self) -> bool:
        """True if this peer waits to be a member."""
        return self._asking

    @property
    def wake(self) -> float:
        """Time of the next decision if no event arrives before it."""
        return min(self._again, self._answered + self.shared.patience)

    def decide(self) -> None:
        """Answer once most members admit this peer, or none of them has answered for the timeout."""
        shared = self.shared
        agreed = [each for each in {*self._told.values()} if self._is_agreed(each)]
        if agreed:
            latest = max(agreed, key=lambda each: (each.round, each.attempt))
            self._asking, self.admitted = False, Admitted(latest.round, latest.attempt, latest.members)
            shared.do(self.admitted)
            return
        if shared.now >= self._answered + shared.patience:
            self._asking = False
            shared.do(Undecided(shared.membership.neighbours))
        elif shared.now >= self._again:
            self._again = shared.now + 2 * PULSE
            shared.publish(PLACE, JoinRequest(shared.me.incarnation))

    def _is_agreed(self, admission: Admission) -> bool:
        """Return whether more than half of the other members that an admission names have told it."""
        others = {*admission.members} - {self.shared.me.peer}
        tellers = {peer for peer, each in self._told.items() if each == admission}
        return self.shared.me.peer in admission.members and 2 * len(tellers & others) > len(others)
