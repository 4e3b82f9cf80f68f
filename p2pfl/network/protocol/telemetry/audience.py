"""The observers that look at a peer: who may, who does, and what each of them is sent."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from p2pfl.core.errors import DecodeError
from p2pfl.network.protocol.incoming.rate_limit import Allowance
from p2pfl.network.protocol.telemetry.observer_messages import (
    CHALLENGE_BYTES,
    ENTRIES,
    Body,
    Grant,
    Request,
    UnusedError,
    decode,
    encode,
    key_between,
    room,
    seal,
)
from p2pfl.network.protocol.wire.messages import Announcement
from p2pfl.privacy.keys import KEY_BYTES, ExchangeKey, Identity, SenderKey, Source

PERIOD = 1.0
"""Seconds from one frame to the next."""

LEASE = 30.0
"""Seconds for which a peer publishes after a fresh request."""

RENEW = 10.0
"""Seconds after which a peer draws a new challenge, and an observer repeats its request."""

MOST = 8
"""Largest number of observers that look at a peer at once."""

EACH = 3
"""Largest number of keys of one observer: it may open several pages, and open one again."""

KEPT = 256
"""Largest number of entries that wait for an observer; beyond it, the oldest is dropped."""

RATE, BURST = 0.5, 4.0
"""Requests a second, and at once, in the name of an observer that are looked at."""

Past = Callable[[], Iterable[tuple[float, bytes]]]
"""Returns time and bytes of the entries that describe the present state of the peer."""


@dataclass
class ObserverLease:
    """One observer that looks, with one of its keys.

    Attributes
    ----------
    observer, identity
        Name and public key of the observer.
    pair
        X25519 key pair that the peer drew for this observer.
    key
        Key of the frames.
    number
        Number of the last request.
    challenge, before
        Present challenge, and the one before.
    drawn
        Time at which the present challenge was drawn.
    since, until
        Beginning and end of the lease; ``None`` before the first fresh request.
    frames
        Number of frames sent.
    sent
        Time of the last frame; ``None`` before the first.
    waiting
        Time and bytes of entries that are not yet sent.
    dropped
        Number of entries that were dropped.
    """

    observer: str
    identity: bytes
    pair: ExchangeKey
    key: SenderKey
    number: int
    challenge: bytes
    drawn: float
    before: bytes = b""
    since: float = 0.0
    until: float | None = None
    frames: int = 0
    sent: float | None = None
    waiting: deque[tuple[float, bytes]] = field(default_factory=deque)
    dropped: int = 0

    def looks(self, now: float) -> bool:
        """Return whether the last fresh request is still valid."""
        return self.until is not None and now < self.until

    def add(self, entry: tuple[float, bytes]) -> None:
        """Take an entry to be sent."""
        if len(self.waiting) == KEPT:
            self.waiting.popleft()
            self.dropped += 1
        self.waiting.append(entry)

    def body(self, now: float) -> Body:
        """Return the plaintext of the next frame, with the oldest entries that fit; one that never fits is dropped."""
        found: list[tuple[float, bytes]] = []
        body = Body(self.challenge, self.dropped)
        while self.waiting and len(found) < ENTRIES:
            at, data = self.waiting[0]
            longer = Body(self.challenge, self.dropped, (*found, (max(0.0, now - at), data)))
            if room(longer) < 0 and found:
                break
            self.waiting.popleft()
            if room(longer) < 0:
                self.dropped += 1
            else:
                found.append(longer.entries[-1])
                body = longer
        return body


class Audience:
    """Observers of one peer.

    Parameters
    ----------
    swarm
        Name of the swarm.
    me, identity
        Announcement and identity of the peer.
    source
        Source of keys and challenges.
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
        me: Announcement,
        identity: Identity,
        source: Source,
        observers: Mapping[str, bytes],
        past: Past,
    ) -> None:
        self.observers = observers
        self.refused: Counter[str] = Counter()
        self._swarm, self._me, self._identity, self._source, self._past = swarm, me, identity, source, past
        self._leases: dict[tuple[str, bytes], ObserverLease] = {}
        self._drawn = 0
        self._allowance = Allowance(rate=RATE, burst=BURST)

    def watched(self, now: float) -> bool:
        """Return whether anybody looks."""
        return any(lease.looks(now) for lease in self._leases.values())

    def receive(self, observer: str, payload: bytes | memoryview, *, now: float) -> bytes | None:
        """Take a request.

        Parameters
        ----------
        observer
            Name of the observer in the topic.
        payload
            The request as it arrived.
        now
            Time in seconds.

        Returns
        -------
        bytes or None
            Grant to publish for the observer; ``None`` if there is nothing to answer.
        """
        try:
            return self._received(self._admitted(observer, payload, now=now), now=now)
        except UnusedError as error:
            self.refused[str(error)] += 1
            return None

    def _received(self, request: Request, *, now: float) -> bytes | None:
        observer = request.observer
        lease = self._leases.get((observer, request.key))
        if lease is None:
            lease = self._met(request, now=now)
        elif request.number <= lease.number:
            raise UnusedError("repeated")
        lease.number = request.number
        if now - lease.drawn < LEASE and request.challenge and request.challenge in {lease.challenge, lease.before}:
            self._begin(lease, now=now)
            return None
        if not lease.looks(now):
            lease.challenge, lease.before, lease.drawn = self._challenge(observer), b"", now
        grant = Grant.to(request, key=lease.pair.public, challenge=lease.challenge)
        return encode(grant.signed(self._identity, swarm=self._swarm))

    def add(self, at: float, entry: bytes) -> None:
        """Take an entry for all who look now."""
        for lease in self._leases.values():
            if lease.until is not None and at >= lease.since:  # else it is in the past that was sent
                lease.add((at, entry))

    def frames(self, now: float) -> list[tuple[str, bytes]]:
        """Return the frames that are due, each with the name of its observer."""
        self._forget(now)
        found = []
        for lease in self._leases.values():
            if not lease.looks(now) or (lease.sent is not None and now - lease.sent < PERIOD):
                continue
            if now - lease.drawn >= RENEW:
                lease.before, lease.challenge, lease.drawn = lease.challenge, self._challenge(lease.observer), now
            lease.frames, lease.sent = lease.frames + 1, now
            found.append((lease.observer, seal(lease.body(now), key=lease.key, number=lease.frames)))
        return found

    def _admitted(self, observer: str, payload: bytes | memoryview, *, now: float) -> Request:
        """Return the request of a listed observer to this start of the peer; the cheapest checks come first."""
        if observer not in self.observers:
            raise UnusedError("not listed")
        if not self._allowance.take(observer, now=now):
            raise UnusedError("too many")
        try:
            request = decode(payload, Request)
        except DecodeError:
            raise UnusedError("no request") from None
        if request.observer != observer or request.identity != self.observers[observer]:
            raise UnusedError("not listed")
        if not request.names(self._me):
            raise UnusedError("another run")
        if not request.authentic(swarm=self._swarm):
            raise UnusedError("not signed")
        return request

    def _met(self, request: Request, *, now: float) -> ObserverLease:
        """Return the state of an observer that asks for the first time with this key."""
        self._forget(now)
        name = request.observer
        if not self._spare(name, now=now):
            raise UnusedError("too many observers")
        pair = ExchangeKey(self._draw(KEY_BYTES, purpose="telemetry", observer=name))
        grant = Grant.to(request, key=pair.public, challenge=b"")
        try:
            key = key_between(pair, request.key, grant=grant, peer=self._identity.public, swarm=self._swarm)
        except DecodeError:
            raise UnusedError("weak key") from None
        lease = ObserverLease(name, request.identity, pair, key, request.number, self._challenge(name), now)
        self._leases[name, request.key] = lease
        return lease

    def _spare(self, observer: str, *, now: float) -> bool:
        """Return whether there is room for one more; requests that were never repeated make room."""
        own = [key for key in self._leases if key[0] == observer]
        crowded = own if len(own) >= EACH else self._leases if len(self._leases) >= MOST else ()
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
            if over or self.observers.get(lease.observer) != lease.identity:
                del self._leases[key]

    def _challenge(self, observer: str) -> bytes:
        return self._draw(CHALLENGE_BYTES, purpose="challenge", observer=observer)

    def _draw(self, size: int, *, purpose: str, observer: str) -> bytes:
        self._drawn += 1
        return self._source.bytes(size, purpose=purpose, peer=observer, round=self._drawn)
