"""Admission of peers that come back while the members of a run go on: who asks, and who becomes a member when.

A peer that restarts has no part in the attempt that is played, and the members drop it. It asks to be a member again
until it is admitted. Members name in their reports the first such peer, in an order that rotates with the rounds. If
all reports of an attempt that counts name the same one, it is a member from the next round on, and each member sends it
an admission. As the reports are agreed, all members know the same members. The peer accepts an admission that it has
received from more than half of the others, and from two at least: a run has two members, so one Byzantine member admits
nobody alone. Members answer each request, so that a peer that fewer than two answer knows that the run has ended.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from msgspec.structs import replace

from p2pfl.core.errors import DecodeError
from p2pfl.network.protocol.incoming import plausible
from p2pfl.network.protocol.interface.effects import Admitted, Undecided
from p2pfl.network.protocol.ledgers.mask_slots import LEAP
from p2pfl.network.protocol.session.decisions.signed_statements import PLACE
from p2pfl.network.protocol.session.shared import PULSE, Shared
from p2pfl.network.protocol.wire.verdict_messages import Admission, JoinRequest

RESTARTED = -1
"""Incarnation, which no peer has, of a member of an attempt whose present incarnation has no part in it."""


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
    _received: dict[str, Admission] = field(default_factory=dict)  # by member, its last answer
    _answered: dict[str, float] = field(default_factory=dict)  # by member, the time of its last answer
    _asking: bool = False
    _since: float = 0.0
    _again: float = math.inf  # time to ask again

    # ------------------------------------------------------------------ at members

    def begin(self, round: int, attempt: int, members: tuple[str, ...]) -> None:
        """Begin an attempt with the present incarnations of its members.

        A member that asks to be one has restarted between two rounds, and has no part in this attempt.
        """
        up = self.shared.membership.up
        self._granted = {
            peer: each for peer, each in self._granted.items() if (each.round, each.attempt) == (round, attempt)
        }
        asking = {peer for peer, each in self._requests.items() if peer in up and up[peer].incarnation == each}
        asking -= self._granted.keys()
        self._requests = {peer: each for peer, each in self._requests.items() if peer in asking or peer not in members}
        self.incarnations = {
            peer: RESTARTED if peer in asking else up[peer].incarnation for peer in members if peer in up
        }

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
        restarted = self.incarnations.get(sender, request.incarnation) != request.incarnation
        granted = None if restarted else self._granted.get(sender)
        others = tuple(sorted({*present.members} - {sender}))
        self.shared.publish(f"in/{sender}", granted or replace(present, members=others))
        if granted is None:
            self._requests[sender] = request.incarnation
        return restarted

    def candidate(self, members: tuple[str, ...], *, round: int) -> int | None:
        """Return the place among all peers of one that asks to be a member; ``None`` if nobody does.

        The order rotates with the rounds, so that a peer that asks only some members does not keep out the others.
        """
        membership, peers = self.shared.membership, self.shared.edges.topology.peers
        asking = {
            peer
            for peer, incarnation in self._requests.items()
            if peer in membership.present and membership.up[peer].incarnation == incarnation
        }
        places = [place for place, peer in enumerate(peers) if peer in asking - {*members}]
        return min(places, key=lambda place: (place - round) % len(peers), default=None)

    def admit(self, peer: str, round: int, attempt: int, members: tuple[str, ...]) -> None:
        """Notify a peer that it is a member from an attempt on."""
        self._granted[peer] = Admission(round, attempt, members)
        self.shared.publish(f"in/{peer}", self._granted[peer])

    # ------------------------------------------------------------------ at a peer that asks

    def ask(self) -> None:
        """Begin to ask to be a member."""
        self._asking, self._again, self._since = True, self.shared.now, self.shared.now
        self.shared.active.add("commits")

    def receive(self, sender: str, admission: Admission) -> None:
        """Note the answer of a member.

        Raises
        ------
        DecodeError
            No member of this run can send it: of a round or an attempt that nobody plays, or with other members.
        """
        shared, members = self.shared, [*admission.members]
        plausible.playable(admission.round, last=shared.rounds - 1)
        if admission.attempt > shared.me.attempt + LEAP:
            raise DecodeError(f"attempt {admission.attempt} is too far ahead")
        if members != sorted({*members} & {*shared.edges.topology.peers}):
            raise DecodeError("expected peers of the topology as members, sorted and each once, got others")
        if self._asking:
            self._received[sender], self._answered[sender] = admission, shared.now

    @property
    def active(self) -> bool:
        """True if this peer waits to be a member."""
        return self._asking

    @property
    def wake(self) -> float:
        """Time of the next decision if no event arrives before it."""
        return min(self._again, self._deadline)

    @property
    def _deadline(self) -> float:
        """Time from which this peer waits no longer, because fewer than two others have answered for the timeout.

        A run has two members at least, so one Byzantine peer cannot prolong the wait after the others have ended.
        """
        answered = sorted(self._answered.values())
        return max([self._since, *answered[-2:-1]]) + self.shared.patience

    def decide(self) -> None:
        """Answer once most members admit this peer, or fewer than two of them have answered for the timeout."""
        shared = self.shared
        agreed = [each for each in {*self._received.values()} if self._is_agreed(each)]
        if agreed:
            latest = max(agreed, key=lambda each: (each.round, each.attempt))
            self._asking, self.admitted = False, Admitted(latest.round, latest.attempt, latest.members)
            shared.do(self.admitted)
            return
        if shared.now >= self._deadline:
            self._asking = False
            shared.do(Undecided(shared.membership.neighbours))
        elif shared.now >= self._again:
            self._again = shared.now + 2 * PULSE
            shared.publish(PLACE, JoinRequest(shared.me.incarnation))

    def _is_agreed(self, admission: Admission) -> bool:
        """Return whether more than half of the others, and two at least, have sent an admission.

        The others are the members that it names, and all peers that are present and have begun: a Byzantine member can
        choose which members it names.
        """
        shared = self.shared
        me, present = shared.me.peer, shared.membership.present
        others = ({*admission.members} | (present - shared.progress.gathering)) - {me}
        senders = {peer for peer, each in self._received.items() if each == admission} & {*admission.members} & present
        return me in admission.members and len(senders) > max(1, len(others) / 2)
