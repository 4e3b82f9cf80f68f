"""Present peers, and whether they run the same experiment."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from p2pfl.core.errors import PeerError
from p2pfl.network.protocol.membership.refusals import (
    NotSigned,
    NotTrusted,
    OtherExperiment,
    Refusal,
    differences,
    escape,
    text,
)
from p2pfl.network.protocol.wire.messages import Announcement
from p2pfl.privacy.keys import FirstUse, Roster, Trust, epoch_of


@dataclass
class Membership:
    """Announcements of neighbours: who is present, gone, lost or excluded.

    Parameters
    ----------
    me
        Announcement of this peer.
    neighbours
        Peers that share an edge with this one in any gossip step.
    swarm
        Name of the run, which signed announcements contain.
    trust
        Decides which key belongs to which name; without it, announcements are accepted unsigned.
    up, proven, gone
        Last announcement of each neighbour; neighbours that have shown that they are alive, because anyone can replay
        the signed announcement of an earlier incarnation; neighbours that left or were excluded.
    lost
        Neighbours in ``gone`` whose Last Will the broker published; it may be wrong, and then they return.
    returning
        Neighbours that restarted before this peer noticed that they were gone, and have not reported their round.
    excluded
        Neighbours that contradicted themselves; they cannot return.
    done
        Neighbours in ``gone`` that have played all rounds; the others have their models, and need no path around them.
    refused
        Reason why the last announcement of a neighbour was refused.
    begun
        True once learning has begun.
    namesake
        Key of another peer under this peer's name, which neighbours refuse because they know this peer's key.
    unanswered
        Neighbours that were asked to show that they are alive, and have not answered.
    """

    me: Announcement
    neighbours: frozenset[str]
    swarm: str = ""
    trust: Trust | None = None
    refused: dict[str, Refusal] = field(default_factory=dict)
    up: dict[str, Announcement] = field(default_factory=dict)
    proven: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    returning: set[str] = field(default_factory=set)
    excluded: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)
    begun: bool = False
    namesake: bytes = b""
    unanswered: set[str] = field(default_factory=set)
    _sure: dict[str, Announcement] = field(default_factory=dict)  # the last that was found genuine

    def receive(self, announcement: Announcement) -> bool:
        """Take an announcement; return whether a neighbour came or went.

        Raises
        ------
        PeerError
            If it has our name, came first and answers us, and neighbours may believe it; or as
            :meth:`prove`, which is left to others under a trust.
        """
        if not self.trusts(announcement):
            return False
        if announcement.peer == self.me.peer:
            return self._namesake(announcement)
        if announcement.peer not in self.neighbours:
            return False
        if announcement.status == "up":
            return self._came(announcement)
        previous = self.up.get(announcement.peer)
        if previous is None or previous.incarnation != announcement.incarnation or announcement.peer in self.gone:
            return False  # the will of an earlier incarnation
        if self.trust is not None and previous.identity != announcement.identity:
            return False  # somebody else's
        self.gone.add(announcement.peer)
        if announcement.status == "dead":
            self.lost.add(announcement.peer)
        elif announcement.done:
            self.done.add(announcement.peer)
        self.returning.discard(announcement.peer)
        return True

    def exclude(self, peer: str) -> None:
        """Have nothing to do with a neighbour any more; others may not know why, so it stays in the view."""
        self.excluded.add(peer)

    def _namesake(self, announcement: Announcement) -> bool:
        answer = (
            self.trust is None or announcement.answers == self.me.key
        )  # or else repeated from an earlier incarnation
        if announcement.status == "up" and announcement.incarnation < self.me.incarnation and answer and not self.begun:
            if not self._recognised or announcement.identity == self.me.identity:
                raise PeerError(
                    f'peer name "{self.me.peer}" is already in use on this broker; stop the other peer or choose '
                    "another --name"
                )
            self.namesake = announcement.identity
        return False

    @property
    def _recognised(self) -> bool:
        """True if neighbours refuse another key under our name: we have met one of them, and so it has met us."""
        return isinstance(self.trust, FirstUse) and not self.neighbours.isdisjoint(self.trust.seen)

    def _came(self, announcement: Announcement) -> bool:
        previous = self.up.get(announcement.peer)
        if announcement.peer in self.excluded:
            return False
        if (
            previous is not None
            and previous.incarnation >= announcement.incarnation
            and not self._may_be_usurped(previous, announcement)
        ):
            return self._take_back(previous, announcement)
        if announcement.peer in self.present:
            self.returning.add(announcement.peer)
        self.proven.discard(announcement.peer)  # this incarnation has to show that it is alive, too
        self.unanswered.discard(announcement.peer)
        self.lost.discard(announcement.peer)
        self.up[announcement.peer] = announcement
        self.gone.discard(announcement.peer)
        self.done.discard(announcement.peer)
        if self.trust is None:
            self.prove(announcement.peer)
        elif difference := self._difference(announcement):  # reported if it never shows that it is alive
            self.refused[announcement.peer] = difference
        return True

    def _may_be_usurped(self, previous: Announcement, announcement: Announcement) -> bool:
        """Return whether the last announcement may be a stranger's, and this one that of the peer itself.

        Without a roster anybody can announce themselves under any name and with any number. Where the owner of that key
        does not show that it is alive, its number counts for nothing against another key.
        """
        return announcement.peer in self.unanswered - self.proven and previous.identity != announcement.identity

    def _take_back(self, previous: Announcement, announcement: Announcement) -> bool:
        """Take back a neighbour that was lost; its former announcements do not count, as anybody can repeat them."""
        same = (announcement.announced, announcement.key, announcement.identity) == (
            previous.announced,
            previous.key,
            previous.identity,
        )
        if not same or announcement.turn <= previous.turn:
            return False
        self.up[announcement.peer] = announcement
        return self.alive(announcement.peer)

    def alive(self, peer: str) -> bool:
        """Restore a neighbour whose incarnation has sent a sealed message; return whether it was lost."""
        back = peer in self.lost and peer not in self.excluded
        self.lost.discard(peer)
        self.gone -= {peer} if back else set()
        return back

    def prove(self, peer: str) -> None:
        """Take it that a neighbour's announcement is of its present incarnation.

        Raises
        ------
        PeerError
            If its experiment is another.
        """
        announcement = self.up[peer]
        if difference := self._difference(announcement):
            raise PeerError(text(difference), refused=[difference])
        if self._remembers(announcement):
            self.proven.add(peer)

    def _remembers(self, announcement: Announcement) -> bool:
        """Return whether the key of a peer is its own, or the first under that name, which makes it its own."""
        if isinstance(self.trust, FirstUse):
            try:
                self.trust.remember(announcement.peer, announcement.identity)
            except PeerError as error:  # it has been met under another name
                self.refused[announcement.peer] = NotTrusted(announcement.peer, str(error))
                return False
        return True

    def _difference(self, announcement: Announcement) -> OtherExperiment | None:
        """Return how its experiment differs; ``None`` if it does not."""
        return differences(announcement.peer, theirs=announcement.facts, ours=self.me.facts)

    def trusts(self, announcement: Announcement) -> bool:
        """Return whether an announcement is signed by the peer of that name; the reason is kept if not."""
        if self.trust is None or announcement.peer not in {self.me.peer, *self.neighbours}:
            return True
        if announcement == self._sure.get(announcement.peer):
            return True  # a repetition
        why = self._doubt(announcement, self.trust)
        if why is not None:
            self.refused[announcement.peer] = why
        else:
            self.refused.pop(announcement.peer, None)
            self._sure[announcement.peer] = announcement
        return why is None

    def _doubt(self, announcement: Announcement, trust: Trust) -> Refusal | None:
        """Return why an announcement is not to be believed; ``None`` if it is."""
        if not announcement.authentic(swarm=self.swarm):
            return NotSigned(announcement.peer, theirs=escape(announcement.version), ours=self.me.version)
        if announcement.peer == self.me.peer and not isinstance(trust, Roster):
            return None  # a namesake by mistake has another key
        try:
            trust.check(announcement.peer, announcement.identity)
        except PeerError as error:
            return NotTrusted(announcement.peer, str(error))
        return None

    def epoch(self, peer: str) -> bytes:
        """Return the epoch of the edge to a neighbour: of its present incarnation and this one."""
        return epoch_of(self.me.announced, self.up[peer].announced)

    def incarnations(self, peers: Iterable[str]) -> bytes:
        """Return a digest of 29 bytes of the incarnations of peers that this peer knows."""
        announcements = {self.me.peer: self.me, **self.up}
        announced = [announcements[peer].announced if peer in announcements else None for peer in sorted(peers)]
        return hashlib.blake2b(msgspec.msgpack.encode(announced), digest_size=29).digest()

    @property
    def changeable(self) -> bool:
        """True if an operator may change the run, so that a neighbour may still be in the one before."""
        return isinstance(self.trust, Roster) and bool(self.trust.operator)

    @property
    def greeted(self) -> frozenset[str]:
        """Neighbours that have announced themselves and have not gone."""
        return frozenset(self.up) - self.gone - self.excluded

    @property
    def present(self) -> frozenset[str]:
        """Neighbours that came, have shown that they live, and have not gone."""
        return frozenset(self.proven) - self.gone - self.excluded

    @property
    def finished(self) -> frozenset[str]:
        """Neighbours that were met in their last incarnation, played the last round and left.

        A broker can replay the announcements and goodbyes of an earlier run, so those of neighbours that never answered
        prove nothing.
        """
        return self.neighbours & self.done & self.proven

    @property
    def over(self) -> bool:
        """True if all neighbours have finished."""
        return bool(self.neighbours) and self.finished == self.neighbours

    @property
    def absent(self) -> list[str]:
        """Neighbours that have not come yet."""
        return sorted(self.neighbours - self.proven)

    def complete(self, *, quorum: float) -> bool:
        """Return whether at least this share of the neighbours is there."""
        return len(self.present) >= quorum * len(self.neighbours)


def absence_error(membership: Membership, *, within: float) -> PeerError:
    """Return the error that names the neighbours that are not there, and why as far as that is known.

    Parameters
    ----------
    membership
        Of the peer that waited.
    within
        Seconds that it waited.
    """
    absent = membership.absent
    gone = sorted(membership.neighbours - membership.present - {*absent})
    ways = ((absent, "did not come"), (gone, "left again"))
    who = [f"{', '.join(peers)} {problem}" for peers, problem in ways if peers]
    refused = list(membership.refused.values())
    why = "".join(f"; {text(refusal)}" for refusal in refused)
    return PeerError(
        f"{' and '.join(who)} within {within:g} s; start them, or lower transport.gather.quorum{why}",
        absent=absent,
        gone=gone,
        refused=refused,
    )
