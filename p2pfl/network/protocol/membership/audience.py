"""The observers that look at a peer: who may, who does, and what each of them is sent.

An observer is a member of the swarm without edges. It announces itself to a peer as peers do to each other, and the
peer answers with a challenge. An observer that repeats the last challenge looks for some seconds more, so a broker that
replays what an observer once sent wins nothing. All but the announcement is sealed for the other end alone, under a key
that names this start of both (:meth:`~p2pfl.network.protocol.wire.envelope.Envelope.seal_for`), so no observer can read
or forge what another receives.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from p2pfl.core.errors import AuthenticityError, DecodeError
from p2pfl.network.protocol.incoming.rate_limit import Allowance
from p2pfl.network.protocol.wire.envelope import MAX_SEAL_BYTES, PRIVATE, Envelope
from p2pfl.network.protocol.wire.messages import ENTRIES, FRAME, Announcement, Look, Telemetry
from p2pfl.network.protocol.wire.wire_codec import decode, encode
from p2pfl.privacy.keys import Source

PERIOD = 1.0
"""Seconds from one frame to the next."""

LEASE = 30.0
"""Seconds for which a peer publishes after a fresh request."""

RENEW = 10.0
"""Seconds after which a peer draws a new challenge."""

MAX_OBSERVERS = 8
"""Largest number of observers that look at a peer at once."""

MAX_STARTS = 3
"""Largest number of starts of one observer: it may open several pages, and open one again."""

MAX_WAITING = 256
"""Largest number of entries that wait for an observer; beyond it, the oldest is dropped."""

RATE, BURST = 0.5, 4.0
"""Messages a second, and at once, in the name of an observer that are looked at."""

CHALLENGE_BYTES = 16
"""Length of a challenge."""


class UnusedError(Exception):
    """A message is not used; the text of the error is one of few reasons, to be counted."""


Past = Callable[[], Iterable[tuple[float, bytes]]]
"""Returns time and bytes of the entries that describe the present state of the peer."""


@dataclass
class ObserverLease:
    """One start of an observer that looks.

    Attributes
    ----------
    announcement
        Its announcement.
    envelope
        Seals messages for it.
    challenge, before
        Present challenge, and the one before.
    drawn
        Time at which the present challenge was drawn.
    since, until
        Beginning and end of the lease; ``None`` before the first fresh request.
    sent
        Time of the last frame; ``None`` before the first.
    waiting
        Time and bytes of entries that are not yet sent.
    dropped
        Number of entries that were dropped.
    """

    announcement: Announcement
    envelope: Envelope
    challenge: bytes
    drawn: float
    before: bytes = b""
    since: float = 0.0
    until: float | None = None
    sent: float | None = None
    waiting: deque[tuple[float, bytes]] = field(default_factory=deque)
    dropped: int = 0

    def looks(self, now: float) -> bool:
        """Return whether the last fresh request is still valid."""
        return self.until is not None and now < self.until

    def add(self, entry: tuple[float, bytes]) -> None:
        """Take an entry to be sent."""
        if len(self.waiting) == MAX_WAITING:
            self.waiting.popleft()
            self.dropped += 1
        self.waiting.append(entry)

    def frame(self, now: float) -> Telemetry:
        """Return the next message, with the oldest entries that fit; one that never fits is dropped."""
        frame = Telemetry(self.challenge, self.dropped)
        while self.waiting and len(frame.entries) < ENTRIES:
            at, data = self.waiting[0]
            longer = replace(frame, entries=(*frame.entries, (max(0.0, now - at), data)))
            if not fits(longer) and frame.entries:
                break
            self.waiting.popleft()
            if fits(longer):
                frame = longer
            else:
                self.dropped += 1
                frame = replace(frame, dropped=self.dropped)
        return frame


def fits(frame: Telemetry) -> bool:
    """Return whether a message is not larger than all are."""
    return len(encode(frame)) <= FRAME


def observer_swarm(swarm: str) -> str:
    """Return the name for which observers sign their announcements, so that none passes for that of a peer."""
    return f"{swarm}/telemetry"


class Audience:
    """Observers of one peer.

    Parameters
    ----------
    swarm
        Name of the swarm.
    envelope
        Envelope of the peer, whose keys of this incarnation are used for observers as well.
    source
        Source of challenges.
    observers
        Public key of each observer that may look, by name. It may be replaced at any time.
    past
        Returns what an observer that begins to look is sent first.

    Attributes
    ----------
    observers
        As given.
    refused
        Number of requests that were not used, by reason.
    """

    def __init__(
        self,
        swarm: str,
        *,
        envelope: Envelope,
        source: Source,
        observers: Mapping[str, bytes],
        past: Past,
    ) -> None:
        self.observers = observers
        self.refused: Counter[str] = Counter()
        self._swarm, self._envelope, self._source, self._past = swarm, envelope, source, past
        self._leases: dict[tuple[str, bytes], ObserverLease] = {}
        self._drawn = 0
        self._sealed = 0  # messages so far; a lease that ends and comes back goes on to number them
        self._allowance = Allowance(rate=RATE, burst=BURST)

    def is_watched(self, now: float) -> bool:
        """Return whether anybody looks."""
        return any(lease.looks(now) for lease in self._leases.values())

    def receive(self, observer: str, payload: bytes | memoryview, *, now: float) -> bytes | None:
        """Take what an observer published.

        Parameters
        ----------
        observer
            Name of the observer in the topic.
        payload
            The announcement or request as it arrived.
        now
            Time in seconds.

        Returns
        -------
        bytes or None
            Challenge to publish for the observer; ``None`` if there is nothing to answer.
        """
        try:
            return self._receive(observer, payload, now=now)
        except UnusedError as error:
            self.refused[str(error)] += 1
            return None

    def _receive(self, observer: str, payload: bytes | memoryview, *, now: float) -> bytes | None:
        """Handle a message of a listed observer; the cheapest checks come first."""
        if observer not in self.observers:
            raise UnusedError("not listed")
        if not self._allowance.take(observer, now=now):
            raise UnusedError("too many")
        if len(payload) > FRAME + MAX_SEAL_BYTES:
            raise UnusedError("no request")
        if payload[:1] == bytes([PRIVATE]):
            lease, challenge = self._open(observer, payload)
            if now - lease.drawn < LEASE and challenge and challenge in {lease.challenge, lease.before}:
                self._begin(lease, now=now)
                return None
        else:
            lease = self._meet(observer, payload, now=now)
        if not lease.looks(now):
            lease.challenge, lease.before, lease.drawn = self._challenge(observer), b"", now
        return self._seal(lease, Telemetry(lease.challenge, lease.dropped))

    def add(self, at: float, entry: bytes) -> None:
        """Take an entry for all who look now."""
        for lease in self._leases.values():
            if lease.until is not None and at >= lease.since:  # else it is in the past that was sent
                lease.add((at, entry))

    def frames(self, now: float) -> list[tuple[str, bytes]]:
        """Return the frames that are due, each with the name of its observer."""
        self._forget(now)
        frames = []
        for lease in self._leases.values():
            observer = lease.announcement.peer
            if not lease.looks(now) or (lease.sent is not None and now - lease.sent < PERIOD):
                continue
            if now - lease.drawn >= RENEW:
                lease.before, lease.challenge, lease.drawn = (
                    lease.challenge,
                    self._challenge(lease.announcement.peer),
                    now,
                )
            lease.sent = now
            frames.append((observer, self._seal(lease, lease.frame(now))))
        return frames

    def _seal(self, lease: ObserverLease, frame: Telemetry) -> bytes:
        """Return the payload of a message, which has one size whatever it contains."""
        self._sealed += 1
        padding = memoryview(bytes(FRAME - len(encode(frame))))
        return lease.envelope.seal_for(lease.announcement.peer, replace(frame, data=padding))

    def _open(self, observer: str, payload: bytes | memoryview) -> tuple[ObserverLease, bytes]:
        """Return which start of an observer has sealed a request, and the challenge that it repeats."""
        for lease in [lease for (name, _), lease in self._leases.items() if name == observer]:
            try:
                message = lease.envelope.open_from(observer, payload)
            except AuthenticityError:
                continue
            except DecodeError:
                raise UnusedError("repeated") from None
            if isinstance(message, Look):
                return lease, message.challenge
        raise UnusedError("no request")

    def _meet(self, observer: str, payload: bytes | memoryview, *, now: float) -> ObserverLease:
        """Return the state of the start of an observer that announces itself."""
        try:
            announcement = decode(payload, plain=True)
        except DecodeError:
            raise UnusedError("no request") from None
        if not isinstance(announcement, Announcement):
            raise UnusedError("no request")
        if announcement.peer != observer or announcement.identity != self.observers[observer]:
            raise UnusedError("not listed")
        if not announcement.authentic(swarm=observer_swarm(self._swarm)):
            raise UnusedError("not signed")
        start = observer, announcement.nonce + announcement.key
        if start not in self._leases:
            self._forget(now)
            if not self._spare(observer, now=now):
                raise UnusedError("too many observers")
            own = self._envelope
            envelope = Envelope(
                own.me, own.incarnation, own.exchange, own.sender, observer_swarm(self._swarm), own.nonce, self._sealed
            )
            try:
                envelope.meet(announcement)
            except DecodeError:
                raise UnusedError("weak key") from None
            self._leases[start] = ObserverLease(announcement, envelope, self._challenge(observer), now)
        return self._leases[start]

    def _spare(self, observer: str, *, now: float) -> bool:
        """Return whether there is room for one more; requests that were never repeated make room."""
        own = [key for key in self._leases if key[0] == observer]
        crowded = own if len(own) >= MAX_STARTS else self._leases if len(self._leases) >= MAX_OBSERVERS else ()
        idle = next((key for key in crowded if not self._leases[key].looks(now)), None)
        if idle is not None:
            del self._leases[idle]
        return not crowded or idle is not None

    def _begin(self, lease: ObserverLease, *, now: float) -> None:
        if not lease.looks(now):
            lease.waiting, lease.since = deque(self._past()), now
        lease.until = now + LEASE

    def _forget(self, now: float) -> None:
        """Forget observers that look no longer, and those that are not listed any more."""
        for key, lease in [*self._leases.items()]:
            over = now - lease.drawn >= LEASE if lease.until is None else now >= lease.until
            if over or self.observers.get(lease.announcement.peer) != lease.announcement.identity:
                del self._leases[key]

    def _challenge(self, observer: str) -> bytes:
        self._drawn += 1
        return self._source.bytes(CHALLENGE_BYTES, purpose="challenge", peer=observer, round=self._drawn)
