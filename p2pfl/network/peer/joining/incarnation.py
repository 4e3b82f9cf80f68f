"""Number the starts of a peer so that neighbours accept the newest, even where the clock is behind."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from p2pfl.core.errors import DecodeError, PeerError, ResumeError
from p2pfl.network.peer.storage.journal import Journal
from p2pfl.network.protocol.wire.message_codec import MessageCodec
from p2pfl.network.protocol.wire.messages import Announcement, Claim
from p2pfl.network.transport import Channel, Transport
from p2pfl.privacy.keys import KEY_BYTES, Identity, Roster, Source, Trust, fingerprint
from p2pfl.results.notices.kinds import AnnouncementAhead, ClockBehind, Notice

SECOND = 10**9
"""Nanoseconds, in which starts are numbered."""

MAX_LEAD = 80 * 365 * 24 * 3600 * SECOND
"""Maximum lead of an announcement over the clock, in nanoseconds.

A clock that starts in 1970 is behind by less, and 2^63, which no number may reach, is further away.
"""

CLAIM_INTERVAL = 1.0
"""Seconds after which a claim is repeated: brokers acknowledge and then drop, or restart."""

MAX_CLAIMS = 10
"""Claims after which the broker counts as one that returns none; joining tells what to do about it."""


@dataclass(frozen=True)
class Start:
    """The number of a peer's start, and what people should know about it.

    Attributes
    ----------
    incarnation
        Neighbours accept an announcement only if its number is above all that they have seen of that peer.
    warning
        Notice that the number is not the clock's or may be too small, if so.
    """

    incarnation: int
    warning: Notice | None = None


def number_start(
    *,
    clock: int,
    journal: int | None,
    announced: Announcement | None,
    identity: Identity,
    trust: Trust,
    swarm: str,
    peer: str,
    charged: bool = False,
) -> Start:
    """Return a number above the clock, the journal and the announcement that neighbours would believe.

    An announcement under the peer's own key is its own last start. Without a roster neighbours also believe one under
    another key, as after a start that had a fresh key: the peer numbers its start above that, too, which concerns
    nobody else. An announcement that neighbours refuse counts for nothing.

    Parameters
    ----------
    clock
        Nanoseconds since 1970, by the clock of this device.
    journal
        The number of the last start that this run directory knows; ``None`` without one.
    announced
        Announcement that the broker retains under the peer's name; ``None`` without one.
    identity, trust
        The peer's own key pair, and what decides whose key is whose.
    swarm, peer
        What announcements are signed for, and the peer's name.
    charged
        Whether the journal has used mask slots or privacy budget: then it must be that of the last start.

    Raises
    ------
    ResumeError
        The peer has started since the journal was copied, so what it used and spent then is not in the journal.
    PeerError
        The peer's own announcement is above the journal and more than ``MAX_LEAD`` nanoseconds above the clock.

    Examples
    --------
    >>> from p2pfl.privacy.keys import FirstUse, SeededSource
    >>> ada = Identity.generate(SeededSource(7), peer="ada")
    >>> last = Announcement("ada", 3600 * SECOND, "dead").sign(ada, swarm="clinic")
    >>> start = number_start(
    ...     clock=0, journal=None, announced=last, identity=ada, trust=FirstUse(), swarm="clinic", peer="ada"
    ... )
    >>> start.incarnation == 3600 * SECOND + 1
    True
    >>> start.warning.seconds
    3600
    """
    least = clock if journal is None else max(clock, journal + 1)
    if announced is None or not _is_credible(announced, trust, swarm=swarm, peer=peer):
        return Start(least, _behind(least - clock, peer=peer))
    other = None if announced.identity == identity.public else fingerprint(announced.identity)
    if other is None and charged and journal is not None and announced.incarnation > journal:
        raise ResumeError(
            f'the run directory of "{peer}" is a copy from before its last start, so privacy budget that it has spent '
            "since could be spent again; resume the newest run directory, or begin a new run without --resume"
        )
    if announced.incarnation < least:
        return Start(least, _behind(least - clock, peer=peer))
    if announced.incarnation - clock <= MAX_LEAD:
        return Start(announced.incarnation + 1, _behind(announced.incarnation - clock, peer=peer, key=other))
    topic = f"p2pfl/v1/{swarm}/peer/{peer}/state"
    if other is None:
        raise PeerError(
            f'the broker retains an announcement of peer "{peer}" that is more than 80 years ahead of the clock of '
            f"this device; set the clock, or clear the retained message on {topic}"
        )
    return Start(least, AnnouncementAhead(peer=peer, key=other, topic=topic))


def _is_credible(announced: Announcement, trust: Trust, *, swarm: str, peer: str) -> bool:
    """Return whether neighbours may believe an announcement of this peer."""
    if announced.peer != peer or not announced.authentic(swarm=swarm):
        return False
    if not isinstance(trust, Roster):
        return True
    try:
        trust.check(peer, announced.identity)
    except PeerError:
        return False
    return True


def _behind(nanoseconds: int, *, peer: str, key: str | None = None) -> ClockBehind | None:
    """Return the notice that the clock is behind the last start, if it is so by a second."""
    if nanoseconds < SECOND:
        return None
    return ClockBehind(peer=peer, seconds=round(nanoseconds / SECOND), key=key)


async def fetch_announcement(
    transport: Transport, *, swarm: str, peer: str, client: str, source: Source
) -> Announcement | None:
    """Return the announcement that the broker retains under a peer's name, ``None`` if there is none.

    The peer publishes a claim to its own inbox and reads until it is back: what is retained arrives before. A peer that
    is up does not answer the claim, because its number is 0.

    Parameters
    ----------
    transport
        Transport to the broker.
    swarm, peer
        Name of the peer.
    client
        Name of the connection, which is closed before the function returns.
    source
        Draws the key by which the claim is recognised.

    Raises
    ------
    AccessError, BrokerError, TransportError
        As :meth:`~p2pfl.network.transport.channel.Transport.join` and subscriptions raise.
    """
    key, last = source.bytes(KEY_BYTES, purpose="claim", peer=peer), None
    async with transport.join(client) as channel:
        codec = MessageCodec(swarm, Announcement(peer, 0, "up", key=key))
        inbox = f"in/{peer}"
        await channel.subscribe(codec.topic("state"), codec.topic(inbox))
        for _ in range(MAX_CLAIMS):
            await channel.publish(codec.topic(inbox), codec.seal(inbox, Claim(0, key)))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLAIM_INTERVAL):
                    async for received in _announcements(channel, codec):
                        if received is None:
                            return last
                        last = received
    return last


async def _announcements(channel: Channel, codec: MessageCodec) -> AsyncGenerator[Announcement | None]:
    """Yield announcements under a peer's name, and ``None`` once its own claim is back."""
    async for arrived in channel:
        address = codec.address(arrived.topic)
        try:
            message = codec.open(address.sender, arrived.data)
        except DecodeError:
            continue  # also what was cleared
        if isinstance(message, Claim) and message.key == codec.me.key:
            yield None
        if isinstance(message, Announcement) and address.state:
            yield message


async def number_next_start(
    transport: Transport,
    *,
    swarm: str,
    peer: str,
    identity: Identity,
    trust: Trust,
    journal: Journal | None,
    source: Source,
    clock: Callable[[], int],
) -> Start:
    """Return the number of a start of a peer, from its clock, its journal and the broker; see :func:`number_start`.

    ``clock`` returns nanoseconds since 1970 and is read once; other parameters and errors are those of
    :func:`number_start` and :func:`fetch_announcement`.
    """
    now = clock()
    last = await fetch_announcement(transport, swarm=swarm, peer=peer, client=f"{swarm}-{peer}-{now:x}", source=source)
    return number_start(
        clock=now,
        journal=None if journal is None else journal.incarnation,
        announced=last,
        identity=identity,
        trust=trust,
        swarm=swarm,
        peer=peer,
        charged=journal is not None and journal.released >= 0,
    )
