"""Messages through the broker: login, permissions, round trip, and the largest one that passes."""

from __future__ import annotations

import asyncio
import secrets
import statistics
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from p2pfl.core.errors import BrokerError, RefusedError, TransportError
from p2pfl.network.protocol.wire.bounds import HEAD
from p2pfl.network.protocol.wire.message_codec import MessageCodec, inbox, outlet, rights
from p2pfl.network.protocol.wire.messages import Announcement, Claim
from p2pfl.network.transport import Channel, Transport
from p2pfl.network.transport.channel import matches
from p2pfl.plugins.operate.checks.finding import Finding, Report, duration, ok, problem, size, warning
from p2pfl.privacy.keys import KEY_BYTES

ANSWER_TIMEOUT = 3.0
"""Seconds that a message has to come back."""

SLOW_ROUND_TRIP = 2.0
"""Seconds of a round trip above which gossip steps are slow."""

ROUND_TRIPS = 5
"""Messages that are sent to time the way."""

SMALLEST_MESSAGE = 1024
"""Bytes of the smallest message of the bisection, and its precision."""

LARGEST_NOTICE = 8192
"""Bytes of the largest message that does not grow with the model, such as an announcement."""


@dataclass(frozen=True)
class Probe:
    """A peer's address of the broker, and its topics.

    Parameters
    ----------
    joins
        Returns the transport for a version of MQTT.
    version
        The version of the experiment.
    swarm, peer
        Name of the run and of the peer.
    prefix
        Prefix that the transport adds to all topics.
    """

    joins: Callable[[int], Transport]
    version: int
    swarm: str
    peer: str
    prefix: str = ""

    @property
    def codec(self) -> MessageCodec:
        """Codec of an announcement that nobody sees, for topics and claims."""
        return MessageCodec(self.swarm, Announcement(self.peer, 0, "up"))

    @asynccontextmanager
    async def join(self, version: int | None = None) -> AsyncIterator[Channel]:
        """Connect under a name that disturbs no running peer."""
        client = f"{self.swarm}-{self.peer}-doctor-{secrets.token_hex(4)}"
        async with self.joins(self.version if version is None else version).join(client) as channel:
            yield channel

    def remedy(self, topic: str) -> str:
        """Return what to do if the broker does not let the peer use a topic: the lines of an access list for it."""
        filters = [
            (kind, each.replace("%u", self.peer))
            for kind, listed in rights(self.swarm, prefix=self.prefix).items()
            for each in listed
        ]
        lines = [f'"topic {kind} {each}"' for kind, each in filters if matches(each, f"{self.prefix}{topic}")]
        return (
            f"allow this peer {' and '.join(lines)} in the words of mosquitto, or set transport.prefix to the prefix "
            "of the topics that it may use"
        )


async def check_login(report: Report, probe: Probe, *, credentials: str | None = None) -> Probe | None:
    """Check that the broker lets the peer in; return how to reach it, with reasons for refusals if possible.

    Parameters
    ----------
    report
        Report that gains the finding.
    probe
        How to reach it.
    credentials
        File of user and password, or folder of such files; ``None`` if there is none.
    """
    try:
        async with probe.join():
            report.add(ok("login", f'the broker lets "{probe.peer}" in'))
    except (BrokerError, TransportError) as error:
        place = None if credentials is None else Path(credentials)
        file = place / f"{probe.peer}.toml" if place is not None and place.is_dir() else place
        report.add(problem("login", str(error) if file is None else f"{error}; this peer uses {file}"))
        return None
    try:
        async with probe.join(5):
            return replace(probe, version=5)
    except (BrokerError, TransportError):
        return probe  # it speaks an older version, which gives no reasons


async def check_permissions(report: Report, probe: Probe) -> bool:
    """Check that the peer may publish and read where p2pfl does, and may not publish in the name of others."""
    codec = probe.codec
    own = f"in/{probe.peer}"
    messages = {
        codec.topic(own): codec.seal(own, Claim(0, secrets.token_bytes(KEY_BYTES))),  # with 0 nobody answers it
        codec.topic("pub/doctor"): secrets.token_bytes(16),  # nobody subscribes
        codec.topic("state"): b"",  # not retained, and ignored
        codec.topic("account"): b"",  # ignored
    }
    answers = [await _carry(probe, topic, data) for topic, data in messages.items()]
    refused = [problem("topics", answer) for answer in answers if isinstance(answer, str)]
    if refused:
        return report.add(*refused)
    report.add(ok("topics", f"this peer may publish and read below {probe.prefix}{codec.root}/{probe.peer}"))
    stranger = f"{codec.root}/nobody-{secrets.token_hex(4)}/pub/doctor"
    if not isinstance(await _carry(probe, stranger, secrets.token_bytes(16)), str):
        text = "the broker lets this peer publish in the name of any other, so a device can disturb a run (it cannot"
        report.add(warning("access list", f"{text} forge models); use an access list as docs/brokers.md says"))
    return True


async def check_telemetry(probe: Probe) -> Finding:
    """Check that observers can reach the peer, and that it can answer: both topics that an access list may forget.

    The peer plays its own observer, with messages that neither a peer nor an observer uses.
    """
    ways = {
        inbox(probe.swarm, observer=probe.peer, peer=probe.peer): inbox(probe.swarm, peer=probe.peer),
        (answers := outlet(probe.swarm, observer=probe.peer, peer=probe.peer)): answers,
    }
    for topic, filter_ in ways.items():
        why = await _carry(probe, topic, secrets.token_bytes(16), through=filter_)
        if isinstance(why, str):
            return warning("telemetry", f"this peer can learn, and observers cannot look at it: {why}")
    return ok("telemetry", "observers can ask this peer over the broker, and receive its answers")


async def _carry(probe: Probe, topic: str, data: bytes, *, through: str = "") -> float | str:
    """Publish to a topic and read it, perhaps through a filter; return the seconds that it takes, or what is wrong."""
    wanted = through or topic
    shown, remedy = f"{probe.prefix}{topic}", probe.remedy(topic)
    try:
        async with asyncio.timeout(2 * ANSWER_TIMEOUT), probe.join() as channel:
            try:
                await channel.subscribe(wanted)
            except TransportError as error:
                return f"the broker refuses the subscription of {probe.prefix}{wanted} ({_short(error)}); {remedy}"
            began = time.perf_counter()
            try:
                await channel.publish(topic, data)
            except RefusedError as error:
                return f"the broker refuses to publish on {shown} ({_short(error)}); {remedy}"
            async with asyncio.timeout(ANSWER_TIMEOUT):
                async for message in channel:
                    if bytes(message.data) == data and not message.retained:
                        break
            return time.perf_counter() - began
    except TimeoutError:
        text = f"the broker takes what is published on {shown} and delivers nothing, so its access list forbids to"
        return f"{text} publish or to read there; {remedy}"
    except (BrokerError, TransportError) as error:
        return str(error)


def _short(error: Exception) -> str:
    """Return the reason in the brackets of an error of the transport."""
    return str(error).partition("(")[2].partition(")")[0] or str(error)


async def check_round_trip(probe: Probe) -> Finding:
    """Time a small message to the broker and back."""
    topic = probe.codec.topic("pub/doctor")
    seconds = list[float]()
    for _ in range(ROUND_TRIPS):
        taken = await _carry(probe, topic, secrets.token_bytes(16))
        if isinstance(taken, str):
            return problem("round trip", f"messages get lost on the way ({taken}); check the network and the broker")
        seconds.append(taken)
    middle = statistics.median(seconds)
    if middle > SLOW_ROUND_TRIP:
        text = f"a message takes {duration(middle)} to the broker and back, and each gossip step takes at least that"
        return warning("round trip", f"{text}; use a broker that is nearer")
    return ok("round trip", f"a message takes {duration(middle)} to the broker and back")


async def check_largest_message(probe: Probe, *, chunk: int, model: int | None) -> Finding:
    """Check that the messages of a model pass the broker; find the largest that does, if they do not.

    Parameters
    ----------
    probe
        Transport to the broker.
    chunk
        ``transport.chunk``.
    model
        Bytes of a model's message; ``None`` if it is unknown.
    """
    needed = min(chunk, max(LARGEST_NOTICE, chunk if model is None else model)) + HEAD
    if await _passes(probe, needed):
        return ok("largest message", f"messages of {size(needed)} pass, and this peer sends none that is larger")
    low, high = 0, needed
    while high - low > SMALLEST_MESSAGE:
        middle = (low + high) // 2
        low, high = (middle, high) if await _passes(probe, middle) else (low, middle)
    if low < SMALLEST_MESSAGE:
        return problem(
            "largest message", f"not even messages of {SMALLEST_MESSAGE} bytes pass; check the limits of the broker"
        )
    text = f"this peer sends messages of {size(needed)} and the broker passes none above {size(low)}"
    room = (low - HEAD) // SMALLEST_MESSAGE * SMALLEST_MESSAGE
    if room < SMALLEST_MESSAGE:
        return problem("largest message", f"{text}; raise the limit of the broker")
    return problem("largest message", f"{text}; set transport.chunk = {room} on all devices, or raise the limit")


async def _passes(probe: Probe, amount: int) -> bool:
    """Return whether a message of so many bytes comes back."""
    answer = await _carry(probe, probe.codec.topic("pub/doctor"), secrets.token_bytes(amount))
    return not isinstance(answer, str)
