"""One sentence about a swarm: what it does, and who blocks the others."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from p2pfl.results.formats import count_of, duration, join_names
from p2pfl.results.swarm.blockages import Blockage, blockages, urgent_first, waits_of
from p2pfl.results.swarm.state import ABSENT_ACTIVITIES, Activity, PeerState, Swarm

Tone = Literal["quiet", "good", "waiting", "blocked", "failed"]
"""Urgency of a headline."""

MIN_BLOCKAGE_SECONDS = 10.0
"""Seconds below which no wait counts as a blockage."""

USUAL_RATIO = 4.0
"""Ratio of a wait to the usual duration of a round from which it counts as a blockage."""


ACTIVITY_SENTENCES: Mapping[Activity, str] = {
    "offline": "cannot reach the broker",
    "silent": "gives no sign of life",
    "unseen": "has not been seen yet",
    "present": "is present, and nothing more is known of it here",
    "joining": "has not begun to learn",
    "gathering": "has not begun to learn",
    "paused": "pauses before its next round",
    "asleep": "sleeps until it takes part again",
    "leaving": "has ended its rounds and leaves",
    "finished": "has finished",
    "gone": "is gone",
}
"""Activity of a peer of which nothing else is known."""


@dataclass(frozen=True)
class Headline:
    """Sentence about a swarm.

    Attributes
    ----------
    tone
        Urgency.
    sentence
        The sentence.
    peers
        Peers that it is about: those that block or have failed.
    """

    tone: Tone
    sentence: str
    peers: tuple[str, ...] = ()


def headline(swarm: Swarm, *, now: float) -> Headline:
    """Return the most urgent sentence about a swarm.

    Parameters
    ----------
    swarm
        State of the swarm.
    now
        Seconds since the start of the run.
    """
    peers = swarm.peers.values()
    doing = Counter(peer.activity for peer in peers)
    failed = [peer for peer in peers if peer.activity == "failed"]
    if failed:
        names, first = tuple(peer.name for peer in failed), failed[0]
        verb = "has failed:" if len(names) == 1 else f"have failed; {first.name}:"
        return Headline("failed", f"{join_names(names)} {verb} {first.failure}", names)
    offline = [peer for peer in peers if peer.activity == "offline"]
    if offline:
        since = min(peer.waiting_since for peer in offline if peer.waiting_since is not None)
        return _name_peers(offline, "has not reached the broker", "have not reached the broker", since, now=now)
    blocked = urgent_first(blockages(waits_of(swarm)), swarm)
    if blocked and _pressing(swarm, blocked[0], now=now):
        return _blocked_headline(swarm, blocked, now=now)
    silent = [peer for peer in peers if peer.activity == "silent"]
    if silent:
        since = min(peer.silent_since for peer in silent if peer.silent_since is not None)
        return _name_peers(silent, "gives no sign of life", "give no sign of life", since, now=now)
    if blocked and not doing["gone"]:  # a short wait, which each round may have, does not hide that a peer is gone
        return _blocked_headline(swarm, blocked, now=now)
    return _course_headline(swarm, doing, now=now)


def blocked_since(swarm: Swarm, blockage: Blockage) -> float:
    """Return the time since which the longest of the waits behind a blockage lasts."""
    names = (*blockage.waiting, *(blockage.blockers if blockage.cycle else ()))
    return min(peer.waiting_since for name in names if (peer := swarm.peers[name]).waiting_since is not None)


def patience(swarm: Swarm) -> float:
    """Return the seconds of waiting from which a swarm counts as blocked: some usual rounds, and not below ten."""
    usual = [peer.usual for peer in swarm.peers.values() if peer.usual is not None]
    return max(MIN_BLOCKAGE_SECONDS, USUAL_RATIO * statistics.median(usual)) if usual else MIN_BLOCKAGE_SECONDS


def estimate_remaining(swarm: Swarm) -> float | None:
    """Return the seconds that the rounds of a swarm will still take at their usual duration.

    It is ``None`` if nobody learns, or while fewer than three rounds have a duration.

    Examples
    --------
    >>> from p2pfl.results.swarm.state import Setting
    >>> estimate_remaining(Swarm(Setting(peers=("ada",), rounds=10))) is None
    True
    """
    learning = [peer for peer in swarm.peers.values() if peer.activity in {"learning", "waiting", "paused"}]
    usual = [peer.usual for peer in learning if peer.usual is not None]
    left = swarm.rounds - min((peer.rounds for peer in learning), default=swarm.rounds)
    return left * statistics.median(usual) if usual and left > 0 else None


def seconds(value: float) -> str:
    """Return a duration for people.

    Examples
    --------
    >>> seconds(3.14), seconds(41.3), seconds(200.0)
    ('3.1 s', '41 s', '3 min 20 s')
    """
    return f"{value:.1f} s" if value < 10 else duration(round(value))


def describe_activity(peer: PeerState, *, now: float) -> str:
    """Return the activity of a peer, as the end of a sentence that begins with "it".

    Examples
    --------
    >>> describe_activity(PeerState("ada"), now=3.0)
    'has not been seen yet'
    """
    match peer.activity:
        case "learning":
            since = "" if peer.since is None else f" for {seconds(max(0.0, now - peer.since))}"
            usual = "" if peer.usual is None else f" (usually {seconds(peer.usual)})"
            return f"has worked on round {peer.rounds + 1}{since}{usual}"
        case "waiting":
            return f"waits for {join_names(peer.waits_for)}"
        case "failed":
            return f"has failed: {peer.failure}"
        case other:
            return ACTIVITY_SENTENCES[other]


def _pressing(swarm: Swarm, blockage: Blockage, *, now: float) -> bool:
    """Return whether a blockage lasts for long, or will because nothing comes from the peer behind it."""
    absent = any(swarm.peers[name].activity in ABSENT_ACTIVITIES for name in blockage.blockers)
    return absent or now - blocked_since(swarm, blockage) >= patience(swarm)


def _name_peers(peers: Sequence[PeerState], one: str, more: str, since: float, *, now: float) -> Headline:
    """Return a headline about peers that are cut off: with the verb for one or more of them, and for how long."""
    names = tuple(peer.name for peer in peers)
    verb = one if len(names) == 1 else more
    return Headline("blocked", f"{join_names(names)} {verb} for {seconds(now - since)}", names)


def why_blocked(swarm: Swarm, blockage: Blockage, *, tone: Tone, now: float) -> str:
    """Return which peers a blockage is about, and for how long others have waited for them."""
    lasted = seconds(now - blocked_since(swarm, blockage))
    if blockage.cycle:
        behind = f", and {join_names(blockage.waiting)} for them" if blockage.waiting else ""
        return f"{join_names(blockage.blockers)} wait for each other{behind}, for {lasted}"
    [name] = blockage.blockers
    waits = f"{join_names(blockage.waiting)} {'waits' if len(blockage.waiting) == 1 else 'wait'} for it"
    directly = all(name in swarm.peers[each].waits_for for each in blockage.waiting)
    chain = "" if directly else ", some through others"
    blocks = f"{'blocks' if tone == 'blocked' else 'holds up'} {count_of(len(blockage.waiting), 'peer')}"
    return f"{name} {blocks}: it {describe_activity(swarm.peers[name], now=now)}; {waits}{chain}, for {lasted}"


def _blocked_headline(swarm: Swarm, blocked: Sequence[Blockage], *, now: float) -> Headline:
    tone: Tone = "blocked" if now - blocked_since(swarm, blocked[0]) >= patience(swarm) else "waiting"
    others = [name for each in blocked[1:] for name in each.blockers]
    more = f". Others wait for {join_names(others)}" if others else ""
    return Headline(tone, f"{why_blocked(swarm, blocked[0], tone=tone, now=now)}{more}", blocked[0].blockers)


def _course_headline(swarm: Swarm, counts: Counter[Activity], *, now: float) -> Headline:
    """Return a sentence about a swarm in which nobody waits for long."""
    total, seen = len(swarm.peers), sum(counts.values()) - counts["unseen"] - counts["present"]
    own = [peer for peer in swarm.peers.values() if peer.phase is not None]  # a device knows of its own peer alone
    if not seen or not own:
        return Headline("quiet", "no peer has begun yet")
    ended = [peer for peer in own if peer.activity == "finished"]
    whose = count_of(len(own), "peer") if len(own) > 1 else own[0].name
    if len(ended) == len(own):
        return Headline("good", f"{whose} {_have(own)} finished{_score(swarm, own)}")
    gone = [peer.name for peer in swarm.peers.values() if peer.activity == "gone"]
    if gone:
        return Headline(
            "waiting",
            f"{join_names(gone)} {'is' if len(gone) == 1 else 'are'} gone; the others learn without",
            tuple(gone),
        )
    if counts["gathering"] + counts["joining"]:
        missing = [peer.name for peer in swarm.peers.values() if peer.activity in {"unseen", "joining"}]
        waits = (
            f"; {join_names(missing)} {'is' if len(missing) == 1 else 'are'} missing" if missing and total > 1 else ""
        )
        return Headline("quiet", f"peers gather: {seen - counts['joining']} of {total} are there{waits}")
    resting = [peer for peer in own if peer.activity in {"paused", "asleep"}]
    if len(resting) == len(own):
        slept = all(peer.activity == "asleep" for peer in own)
        verb = "sleep" if slept else "pause"
        rounds = max(peer.rounds for peer in own)
        until = "until it takes part again" if len(own) == 1 else "until they take part again"
        when = until if slept else f"before round {rounds + 1}"
        return Headline("quiet", f"{whose} {verb if len(own) > 1 else f'{verb}s'} {when}{_score(swarm, own)}")
    silence = now - swarm.at
    if silence >= patience(swarm):
        usual = f"; {pace}" if (pace := _pace(own)) else ""
        return Headline("waiting", f"no peer has reported anything for {seconds(silence)}{usual}")
    return Headline("good", _learning(swarm, own, whose))


def _learning(swarm: Swarm, own: Sequence[PeerState], whose: str) -> str:
    rounds, horizon = sorted(peer.rounds for peer in own), swarm.rounds
    of = f" of {horizon}" if horizon else ""
    low, high = min(rounds[0] + 1, horizon or rounds[0] + 1), rounds[-1]
    done = f"round {low}{of}" if high <= low else f"rounds {low} to {high}{of}"
    pace = f"; {usual}" if (usual := _pace(own)) else ""
    if own[0].since is None or all(peer.activity == "leaving" for peer in own):
        return f"{whose} {_have(own)} ended the rounds and {'leave' if len(own) > 1 else 'leaves'}"
    return f"{whose} {'learn' if len(own) > 1 else 'learns'} in {done}{pace}{_score(swarm, own)}"


def _pace(peers: Sequence[PeerState]) -> str:
    usual = [peer.usual for peer in peers if peer.usual is not None]
    return f"a round takes {seconds(statistics.median(usual))}" if usual else ""


def _have(peers: Sequence[PeerState]) -> str:
    return "have" if len(peers) > 1 else "has"


def _score(swarm: Swarm, peers: Sequence[PeerState]) -> str:
    name = swarm.metric
    values = [peer.scores[name] for peer in peers if name is not None and name in peer.scores]
    if not values:
        return ""
    return f"; {'median ' if len(values) > 1 else ''}{name} {statistics.median(values):.3f}"
