"""Advice from the records of a run: what is clearly wrong and what to change; empty if nothing is."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

from p2pfl.results.records import Record
from p2pfl.results.swarm.pace_setter import find_pace_setter
from p2pfl.results.swarm.state import RECENT_ROUNDS

MIN_ADVICE_ROUNDS = 5
"""Smallest number of rounds for advice."""

MAX_DISAGREEMENT = 4.0
"""Ratio of disagreement to a round's training beyond which models are too far apart to learn from each other.

Enough gossip steps leave a hundredth. 600 peers with 4 gossip steps reached 2.1 and lost nothing against 20 steps; with
one they reached 9.5 and lost 0.07 of accuracy; a ring of 32 with one step reached 5.8 and lost 0.23.
"""

STUCK_LOSS_SHARE = 0.99
"""Share of its first value above which the test loss counts as not fallen."""

SLOW_LOSS_SHARE = 0.95
"""Share above which it counts as hardly fallen."""

STEADY_ROUND_SHARE = 0.8
"""Share of rounds with a falling loss above which steps are too small, not too large."""

RISING_GAIN = 0.03
"""Gain of a score in the last quarter of the rounds that suggests more rounds."""

MAX_NAMED_PEERS = 3
"""Largest number of peers that advice names."""

LATE_SHARE = 0.02
"""Share of missed models that is no accident."""

Means = list[float]


def advice(
    records: Sequence[Record],
    *,
    steps: int = 1,
    noise: float = 0.0,
    attack: str = "none",
    rule: str = "none",
    masked: bool = False,
    totals: bool = False,
    finished: bool = False,
    guess: float = math.inf,
) -> list[str]:
    """Return sentences for the user, each with an observation and what to change.

    Parameters
    ----------
    records
        All records of a run.
    steps
        Gossip steps per round.
    noise
        Deviation of the private noise, which stays in the models.
    attack, rule
        Attack of Byzantine peers, and the aggregation rule of the others.
    masked
        True if pairwise masks are on: then the distance of the last gossip step does not reflect training.
    totals
        True if models follow from totals: then there is no ``learning.rate`` to change.
    finished
        True if further rounds change nothing, as those of a regression.
    guess
        Loss of a model that guesses, ``log(C)`` for the cross-entropy of C classes; infinite if unknown.

    Returns
    -------
    list of str
        Sentences; empty if nothing is clearly wrong.

    Examples
    --------
    >>> facts = {"peer": "ada", "distance": 0.0, "bytes_out": 0, "bytes_in": 0, "received": 2, "update": 1.0}
    >>> facts |= {"seconds_training": 0.0, "seconds_waiting": 0.0, "training_loss": 1.0, "disagreement": 0.0}
    >>> losses = [2.0, 3.0, 5.0, 9.0, 17.0, 33.0]
    >>> print(*advice([Record(round=t, scores={"loss": loss}, **facts) for t, loss in enumerate(losses)]))
    the test loss went from 2 to 33 in 6 rounds; lower learning.rate, to a tenth at first
    """
    rounds: dict[int, list[Record]] = {}
    for record in records:
        rounds.setdefault(record.round, []).append(record)
    turns = [rounds[number] for number in sorted(rounds)]
    late = _late(records) or _report_pace(turns)
    if len(turns) < MIN_ADVICE_ROUNDS:
        return late
    # Each of these can cause the next, so only the first is reported.
    sentences = (
        _report_disagreement(turns, steps=steps, masked=masked)
        or _loss(turns, noise=noise, totals=totals, guess=guess)
        or ([] if finished else _report_unfinished(turns, noise=noise))
    )
    if sentences and attack != "none":  # the attack may cause any of these
        cure = "set a robustness.rule" if rule == "none" else f"compare with other rules than {rule}"
        sentences = [
            f"some peers attack by {attack}, which disturbs the learning of the others; {cure}, or better edges"
        ]
    return late + sentences


def _late(records: Sequence[Record]) -> list[str]:
    missed = sum(len(record.missed) for record in records)
    expected = missed + sum(record.received for record in records)
    if not expected or missed <= LATE_SHARE * expected:
        return []
    senders = Counter(name for record in records for name in record.missed)
    first = [f"{count} of {name}" for name, count in senders.most_common(MAX_NAMED_PEERS)]
    more = ", ..." * (len(senders) > MAX_NAMED_PEERS)
    seen = f"{missed} of {expected} models did not arrive in time: {', '.join(first)}{more}"
    return [f"{seen}; find out whether these peers disappeared or are slow, or raise transport.patience"]


def _report_pace(turns: Sequence[Sequence[Record]]) -> list[str]:
    """Report a peer for which all others wait."""
    recent: dict[str, list[Record]] = {}
    for record in (each for turn in turns[-RECENT_ROUNDS:] for each in turn):
        recent.setdefault(record.peer, []).append(record)
    setter = find_pace_setter(recent)
    return [] if setter is None else [f"{setter.peer} {setter.sentence}"]


def _report_disagreement(turns: list[list[Record]], *, steps: int, masked: bool) -> list[str]:
    """Report models that gossip does not hold together."""
    half = turns[len(turns) // 2 :]
    moved = _overall(half, lambda record: record.update or None)
    if not moved:
        return []
    cure = f"raise gossip.steps, now {steps}, or lower gossip.tolerance, or choose a better connected topology"
    apart = _overall(half, lambda record: record.disagreement)
    if apart is not None:
        seen = "the models of the peers are {:.1f} times as far from their mean as a round of training moves them"
    elif not masked:  # else it measures the masks
        apart = _overall(half, lambda record: record.distance)
        seen = "the last gossip step of a round still moves the models {:.1f} times as far as training does"
    if apart is None or apart <= MAX_DISAGREEMENT * moved:
        return []
    return [f"{seen.format(apart / moved)}; {cure}"]


def _loss(turns: list[list[Record]], *, noise: float, totals: bool, guess: float) -> list[str]:
    """Report a test loss that does not fall, or wavers above that of guessing."""
    losses = _each(turns, "loss")
    if not losses:
        return []
    first, last, count = losses[0], losses[-1], len(losses)
    falls = sum(after < before for before, after in pairwise(losses)) / (count - 1)
    went = f"the test loss went from {first:.3g} to {last:.3g} in {count} rounds"
    wavers = falls < STEADY_ROUND_SHARE and last > guess
    if not wavers and (
        last <= SLOW_LOSS_SHARE * first or (last <= STUCK_LOSS_SHARE * first and falls < STEADY_ROUND_SHARE)
    ):
        return []
    went += f", where guessing has {guess:.3g}" if wavers else ""
    if noise:
        need = "run p2pfl privacy to see how many peers or what epsilon learning together needs"
        return [f"{went}, under private noise; {need}"]
    if totals:
        return []
    if falls >= STEADY_ROUND_SHARE:
        return [f"{went}, falling in nearly every round; raise learning.rate, tenfold at first"]
    peers = len(turns[-1])
    diversity = _overall(turns[count // 2 :], lambda record: record.diversity)
    if diversity is not None and peers > 1 and diversity > 2 * peers:
        cancels = f"cancels out in the mean (diversity {diversity:.0f}, where {peers} means nothing in common)"
        return [f"{went}, and what the peers learn {cancels}; lower learning.rate, to a tenth at first, or the epochs"]
    return [f"{went}; lower learning.rate, to a tenth at first"]


def _report_unfinished(turns: list[list[Record]], *, noise: float) -> list[str]:
    """Report a score that still rises at the end; more rounds would cost epsilon, or more noise at the same epsilon."""
    if noise:
        return []
    name = next((each for each in ("accuracy", "r2") if each in turns[-1][0].scores), None)
    values = _each(turns, name) if name else []
    if len(values) < 2 * MIN_ADVICE_ROUNDS:
        return []
    before = values[-1 - len(values) // 4]
    if values[-1] - before <= RISING_GAIN:
        return []
    quarter = len(values) // 4
    return [
        (
            f"{name} rose by {values[-1] - before:.3f} in the last {quarter} rounds alone; raise rounds, now "
            f"{len(values)}"
        )
    ]


def _each(turns: list[list[Record]], name: str) -> Means:
    """Return the mean of a score over the peers by round; a loss that is NaN counts as infinite."""
    means = []
    for records in turns:
        values = [record.scores[name] for record in records if name in record.scores]
        if not values:
            return []
        mean = sum(values) / len(values)
        means.append(mean if math.isfinite(mean) else math.inf)
    return means


def _overall(turns: list[list[Record]], value: Callable[[Record], float | None]) -> float | None:
    """Return the mean over peers and rounds of the known values."""
    values = [number for records in turns for record in records if (number := value(record)) is not None]
    return sum(values) / len(values) if values else None
