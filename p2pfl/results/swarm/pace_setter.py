"""The peer for which all others wait round by round, because it trains for long or its link is slow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median_high, median_low

from p2pfl.results.notices.kinds import STALLED_REMEDY
from p2pfl.results.records import Record
from p2pfl.results.swarm.blockages import blockages

MIN_EFFORTS = 10
"""Rounds of a peer from which the time that it trains is compared."""

MIN_ARRIVALS = 3
"""Rounds of a peer from which the neighbours that it awaits are compared."""

MIN_COMPARED_PEERS = 3
"""Peers from which one of them can be slow."""

SLOW_FACTOR = 3.0
"""Multiple of the training time of others from which a peer is slow."""


@dataclass(frozen=True)
class PaceSetter:
    """Peer that sets the pace of all.

    Attributes
    ----------
    peer
        Its name.
    sentence
        What it does, and the remedy, without its name.
    """

    peer: str
    sentence: str


def find_pace_setter(records: Mapping[str, Iterable[Record]]) -> PaceSetter | None:
    """Return the peer that sets the pace of all; ``None`` if no peer does.

    Parameters
    ----------
    records
        Those of the recent rounds of each peer that takes part.

    Examples
    --------
    >>> facts = {"scores": {}, "training_loss": None, "distance": 0.0, "bytes_out": 0, "bytes_in": 0, "received": 2}
    >>> facts |= {"seconds_training": 0.1, "seconds_waiting": 12.0}
    >>> awaited = {"ada": ["cy"], "bob": ["cy"], "cy": []}
    >>> setter = find_pace_setter(
    ...     {
    ...         peer: [Record(peer=peer, round=round, awaited=late, **facts) for round in range(3)]
    ...         for peer, late in awaited.items()
    ...     }
    ... )
    >>> print(f"{setter.peer} {setter.sentence}")  # doctest: +ELLIPSIS
    cy holds up the others for 12 s a round: its models are later than its training explains; check its link, ...
    """
    rounds = {peer: tuple(each) for peer, each in records.items()}
    return _find_slow_trainer(rounds) or _find_slow_link(rounds)


def _find_slow_trainer(rounds: Mapping[str, Sequence[Record]]) -> PaceSetter | None:
    """Return the peer that trains while all others wait."""
    means = _means(rounds, least=MIN_EFFORTS)
    if len(means) < MIN_COMPARED_PEERS:
        return None
    slowest = max(means, key=means.__getitem__)
    trains, waits = means.pop(slowest)
    training, waiting = zip(*means.values(), strict=True)
    usual, idle = median_high(training), median_low(waiting)  # two others must agree
    if not (trains > SLOW_FACTOR * usual and idle > trains / 2 > waits):
        return None
    return PaceSetter(
        slowest,
        f"trains for {trains:.2g} s a round and the others for {usual:.2g} s, so all wait for it; give it less to "
        "train, or set transport.hurry below 1",
    )


def _find_slow_link(rounds: Mapping[str, Sequence[Record]]) -> PaceSetter | None:
    """Return the peer at the end of the waits of most others, which its training does not explain."""
    means = _means(rounds, least=MIN_ARRIVALS)
    if len(means) < MIN_COMPARED_PEERS:
        return None
    waits = {peer: [name for name in _awaited(rounds[peer]) if name in means] for peer in means}
    if (centre := _find_centre({peer: rounds[peer] for peer in means})) is not None:
        late = waits[centre]
        if len(late) != 1:
            return None  # the link of the centre is slow, or those of several leaves
        waits = {peer: [] if peer in late else [centre] for peer in means} | {centre: late}
    first = next(iter(blockages(waits)), None)
    if first is None or 2 * (len(first.waiting) + len(first.blockers)) <= len(means):
        return None
    # A slow link also delays what the peer behind it receives, so that it and its neighbours wait for each other.
    degree = Counter(name for peer in first.blockers for name in waits[peer])
    ends = [name for name in first.blockers if degree[name] == max(degree.values(), default=0)]
    if len(ends) > 2:
        return None
    outside = {name: sum(name in names for peer, names in waits.items() if peer not in ends) for name in ends}
    if min(outside.values()) == 0 and max(outside.values()) > 1:  # two others must agree
        ends = [max(outside, key=outside.__getitem__)]  # only this one awaits the other end
    witnesses = [peer for peer, names in waits.items() if ends[0] in names]
    if len(ends) == len(witnesses) == 1:
        ends += witnesses  # either of the two may be slow, or lie
    others = [mean for peer, mean in means.items() if peer not in ends]
    usual, idle = (median_low(column) for column in zip(*others, strict=True))
    if idle - max(0.0, max(means[name][0] for name in ends) - usual) <= max(STALLED_REMEDY, usual / 2):
        return None
    if len(ends) > 1:
        models, between = f"models between it and {ends[1]} are late", "check the link between them"
    else:
        models, between = "its models are later than its training explains", "check its link"
    return PaceSetter(
        ends[0],
        f"holds up the others for {idle:.2g} s a round: {models}; {between}, send less (compression.name), or set "
        "transport.hurry below 1",
    )


def _find_centre(rounds: Mapping[str, Sequence[Record]]) -> str | None:
    """Return the centre of a star, the only neighbour of all others, which can name nobody else; ``None`` if none is.

    Of n peers, one that is to receive n - 1 times as many models as another has n - 1 neighbours, and the other one.
    """
    models = {peer: fmean(each.received + len(each.missed) for each in records) for peer, records in rounds.items()}
    centre = max(models, key=models.__getitem__)
    leaves = [count for peer, count in models.items() if peer != centre]
    return centre if 0 < max(leaves) * len(leaves) <= models[centre] else None


def _means(rounds: Mapping[str, Sequence[Record]], *, least: int) -> dict[str, tuple[float, float]]:
    """Return the mean seconds of training and of waiting, of each peer with enough rounds."""
    return {
        peer: (fmean(record.seconds_training for record in each), fmean(record.seconds_waiting for record in each))
        for peer, each in rounds.items()
        if len(each) >= least
    }


def _awaited(records: Sequence[Record]) -> list[str]:
    """Return the neighbours that a peer awaits in most rounds."""
    counts = Counter(name for record in records for name in record.awaited)
    return sorted(name for name, count in counts.items() if 2 * count > len(records))
