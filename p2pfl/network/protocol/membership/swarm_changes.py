"""The change of its swarm that a peer holds: a pure decision about each one that arrives, from any sender."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from p2pfl.core.errors import DecodeError, InputError, PeerError
from p2pfl.experiment.swarm_change import SwarmChange
from p2pfl.privacy.keys import Roster

MAX_ORDERS = 8
"""Largest number of orders among which a peer looks for that by which the others have gone on."""


@dataclass
class HeldChange:
    """The change that a peer holds, and which neighbours are known to hold it.

    Only the operator's signature decides, so a change may come from the broker or from any neighbour. An order, which
    names the last round, is final: no other change of this run replaces it, or two halves of a swarm could end their
    run after different rounds. A proposal gives way to one with a larger number, and to its order.

    Parameters
    ----------
    operator
        Public key of the operator.
    swarm, run
        Name of the swarm, and digest of its run.
    least
        Largest number of an order that this device has followed, or by which its run began; a change has a larger one.
    change
        Change that an earlier incarnation of the peer held.
    peer
        Name of the peer.
    installed
        Roster of a device that has played no round of its run, which its owner installed; ``None`` for any other.

    Attributes
    ----------
    round, begun
        Round that the peer plays, counted from 0, and whether it plays.
    reason
        Why the peer cannot follow the change; empty if it can.
    confirmed
        Neighbours that hold it.
    orders
        Orders of the operator for any run of the swarm, by :attr:`SwarmChange.start`.
    """

    operator: bytes
    swarm: str
    run: str
    least: int = 0
    change: SwarmChange | None = None
    peer: str = ""
    installed: Roster | None = None
    round: int = 0
    begun: bool = False
    reason: str = ""
    confirmed: set[str] = field(default_factory=set)
    orders: dict[str, SwarmChange] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.change is None:
            return
        if self.change.last is not None:
            self.orders[self.change.start] = self.change
        if self.change.run != self.run:  # by which this peer left the run
            self.change = None

    def collect(self, data: bytes) -> None:
        """Keep what arrived if it is an order of the operator for any run: the others may have gone on by it."""
        try:
            change = SwarmChange.decode(data)
            change.check(self.operator, swarm=self.swarm, run=None)
        except (DecodeError, PeerError):
            return
        if change.last is not None and change.number > self.least:
            self.orders[change.start] = change
        while len(self.orders) > MAX_ORDERS:
            del self.orders[min(self.orders, key=lambda start: self.orders[start].number)]

    def moved(self, starts: Mapping[str, str]) -> SwarmChange | None:
        """Return the order by which the neighbours have gone on with another run; ``None`` as long as it is not sure.

        Most neighbours must show it. Otherwise one insider who shows an order early, or one for another run, takes a
        peer out of its run. A peer that plays and holds the order itself plays to the last round.

        A new device has played no round, and most of its neighbours may be as new, each waiting for the others. So it
        follows what one neighbour shows, if the order names it with its key and nobody else whose key the roster that
        its owner installed lacks or revokes. Whoever replays an older order thus brings no such key back, and the
        next order, with a larger number, still counts. A new device never follows an order of another run that does
        not name it with its key: that order is older than the one which brings it in.

        Parameters
        ----------
        starts
            By neighbour, what it announces that its run begins with; empty if it is not there.
        """
        if self.begun and self.last is not None:
            return None
        counts = Counter(starts.values())
        newest = sorted(self.orders.values(), key=lambda order: order.number, reverse=True)
        return next((order for order in newest if counts[order.start] >= self._needed(order, len(starts))), None)

    def _needed(self, order: SwarmChange, neighbours: int) -> int:
        """Return how many of the neighbours must show an order before this peer follows it."""
        most = neighbours // 2 + 1
        if self.installed is None or self.begun or order.run == self.run:
            return most
        try:
            roster = order.next_roster
        except InputError:
            return neighbours + 1
        known, mine = self.installed, roster.peers.get(self.peer)
        if mine is None or mine != known.peers.get(self.peer):
            return neighbours + 1
        valid = {each for each in known.peers.items() if each[1] not in known.revoked}
        return 1 if {*roster.peers.items()} <= valid else most

    def judge(self, data: bytes) -> tuple[Literal["new", "known", "refused"], str, SwarmChange | None]:
        """Return the verdict on a change that arrived, the reason if it is refused, and the change; nothing is kept.

        The change is ``None`` where it concerns no present run of this peer, such as one that a broker retains.

        Parameters
        ----------
        data
            Bytes of any sender.
        """
        try:
            change = SwarmChange.decode(data)
            change.check(self.operator, swarm=self.swarm, run=self.run)
        except (DecodeError, PeerError) as error:
            return "refused", str(error), None
        held = self.change
        if held is not None and change.content == held.content and change.last in {None, held.last}:
            return "known", "", change
        if change.number <= self.least:
            return "refused", f"this device has followed change {self.least} already", None
        if held is not None and (reason := self._outdated(change, held)):
            return "refused", reason, change
        if change.last is not None and change.last <= self.round:
            return "refused", f"it ends the run after round {change.last}, and this peer has played that round", change
        return "new", "", change

    @staticmethod
    def _outdated(change: SwarmChange, held: SwarmChange) -> str:
        """Return why a change does not replace that which the peer holds; empty if it does."""
        if held.last is not None:
            return f"the run ends after round {held.last} already, by change {held.number}"
        if change.number < held.number:
            return f"it has the number {change.number}, and the operator has proposed change {held.number} since"
        if change.number == held.number and change.content != held.content:
            return f"the operator has proposed another change {held.number}"
        return ""

    def hold(self, change: SwarmChange, *, reason: str) -> None:
        """Take a change that is new.

        Parameters
        ----------
        change
            The change.
        reason
            Why the peer cannot follow it; empty if it can.
        """
        self.change, self.reason = change, reason
        self.confirmed.clear()

    @property
    def last(self) -> int | None:
        """Number of rounds after which the run ends; ``None`` without an order that the peer follows."""
        return None if self.change is None or self.reason else self.change.last

    def confirm(self, peer: str, digest: bytes) -> None:
        """Note the digest of what a neighbour holds."""
        if self.change is not None and digest == self.change.digest:
            self.confirmed.add(peer)
        else:
            self.confirmed.discard(peer)

    def lacking(self, present: Collection[str]) -> list[str]:
        """Return the present neighbours that are not known to hold the change, sorted."""
        return [] if self.change is None else sorted({*present} - self.confirmed)
