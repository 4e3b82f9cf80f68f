"""The other peers: whether they are present, and whether they have the same experiment."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Mapping

import p2pfl
from p2pfl.core.errors import BrokerError, DecodeError, PeerError, TransportError, VersionError
from p2pfl.network.protocol.membership.refusals import (
    NotReadable,
    NotSigned,
    NotTrusted,
    OtherWireFormat,
    differences,
    escape,
    text,
)
from p2pfl.network.protocol.timing.timeouts import WAIT_PULSE
from p2pfl.network.protocol.wire.messages import Announcement, Claim
from p2pfl.network.transport import Channel
from p2pfl.plugins.operate.checks.finding import Finding, Report, ok, problem, warning
from p2pfl.plugins.operate.checks.round_trip import ANSWER_TIMEOUT, Probe
from p2pfl.privacy.keys import KEY_BYTES, Roster

SILENCE_SECONDS = WAIT_PULSE + 2.0
"""Seconds in which a peer that is up sends a heartbeat, also while it waits for its neighbours."""

NANOSECONDS = 10**9
"""Nanoseconds in a second; the number of a start is its time in nanoseconds."""


async def check_neighbours(
    report: Report, probe: Probe, neighbours: Iterable[str], *, facts: Mapping[str, str] | None, roster: Roster | None
) -> None:
    """Read the announcements of the neighbours, and listen whether those who are up send anything.

    Parameters
    ----------
    report
        Report that gains a finding for each neighbour, and when they started.
    probe
        Transport to the broker.
    neighbours
        Names of the peers.
    facts
        Facts in which peers must agree, of this peer; ``None`` if its experiment cannot be resolved.
    roster
        Roster of the owners' keys; ``None`` without one.
    """
    names = sorted(neighbours)
    try:
        async with asyncio.timeout(2 * ANSWER_TIMEOUT + SILENCE_SECONDS), probe.join() as channel:
            announced = await _read_announcements(channel, probe, names)
            up = [name for name in names if announced.get(name, b"")]
            received = await _find_active(channel, probe, up) if up else set()
    except (BrokerError, TransportError, TimeoutError) as error:
        reason = str(error) or "the broker does not deliver them; check its access list"
        report.add(problem("peers", f"announcements cannot be read: {reason}"))
        return
    for name in names:
        announcement = _read(name, announced.get(name, b""), probe=probe, roster=roster)
        if isinstance(announcement, Finding):
            report.add(announcement)
        elif report.add(_check_presence(announcement, facts=facts, received=name in received)):
            report.latest[f"the last start of {name}"] = announcement.incarnation / NANOSECONDS


async def _read_announcements(channel: Channel, probe: Probe, names: list[str]) -> dict[str, bytes]:
    """Return the announcements that the broker retains; they arrive before a message that is published afterwards."""
    codec = probe.codec
    inbox = codec.topic(f"in/{probe.peer}")
    own = codec.seal(inbox, Claim(0, secrets.token_bytes(KEY_BYTES)))
    await channel.subscribe(inbox, *(f"{codec.root}/{name}/state" for name in names))
    await channel.publish(inbox, own)
    announcements: dict[str, bytes] = {}
    async with asyncio.timeout(ANSWER_TIMEOUT):
        async for message in channel:
            if message.topic == inbox:
                if bytes(message.data) == own:
                    return announcements
            else:
                announcements[codec.address(message.topic).owner] = bytes(message.data)
    return announcements


async def _find_active(channel: Channel, probe: Probe, names: list[str]) -> set[str]:
    """Return the peers among these that send anything within :data:`SILENCE_SECONDS` seconds."""
    codec, received = probe.codec, set[str]()
    await channel.subscribe(*(f"{codec.root}/{name}/pub/#" for name in names))
    try:
        async with asyncio.timeout(SILENCE_SECONDS):
            async for message in channel:
                if not message.retained:
                    received.add(codec.address(message.topic).owner)
                if received >= {*names}:
                    break
    except TimeoutError:
        pass  # not all of them have sent anything
    return received


def _read(name: str, data: bytes, *, probe: Probe, roster: Roster | None) -> Announcement | Finding:
    """Return an announcement if the peer has signed it, or what is wrong with it."""
    check = f"peer {name}"
    if not data:
        return warning(check, f"{name} has announced nothing on this broker; start it, or look at its own doctor")
    try:
        announcement = probe.codec.open(name, data)
    except VersionError as error:
        return problem(check, text(OtherWireFormat(name, theirs=error.theirs, ours=error.ours)))
    except DecodeError as error:
        return problem(check, f"{text(NotReadable(name, str(error)))}; install one version of p2pfl everywhere")
    if not isinstance(announcement, Announcement):
        return problem(check, text(NotSigned(name, theirs="", ours=p2pfl.__version__)))
    if announcement.peer != name or not announcement.authentic(swarm=probe.swarm):
        theirs = escape(announcement.version)
        return problem(check, text(NotSigned(name, theirs=theirs, ours=p2pfl.__version__)))
    try:
        if roster is not None:
            roster.check(name, announcement.identity)
    except PeerError as error:
        return problem(check, text(NotTrusted(name, str(error))))
    return announcement


def _check_presence(announcement: Announcement, *, facts: Mapping[str, str] | None, received: bool) -> Finding:
    """Return whether a peer takes part, by its announcement and by what it sends."""
    name, check = announcement.peer, f"peer {announcement.peer}"
    if announcement.status != "up":
        verb = "said goodbye" if announcement.status == "left" else "lost its connection"
        return warning(check, f"{name} {verb}; start it with --resume")
    if facts is not None and (other := differences(name, theirs=announcement.facts, ours=facts)) is not None:
        return problem(check, text(other))
    if not received:
        away = f"{name} is announced as up and sent nothing for {SILENCE_SECONDS:g} s"
        return warning(check, f"{away}, so it hangs, lost its connection, or stands still; look at its log")
    if announcement.version != p2pfl.__version__:
        theirs = escape(announcement.version) or "an unknown version"
        return warning(check, f"{name} runs p2pfl {theirs} and this is {p2pfl.__version__}; use one release")
    return ok(check, f"{name} is up, sends, and runs the same experiment")
