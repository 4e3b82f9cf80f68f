"""Scores of all peers by round, in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from p2pfl.results.records import Record

MAX_RECORDS = 100_000
"""Largest number of records that are kept; beyond it, or twice the points of a curve, every second round is dropped."""

MAX_CURVE_POINTS = 400
"""Largest number of points of a curve."""

MAX_SINGLE_CURVES = 8
"""Largest number of peers whose curves are shown one by one."""


@dataclass(frozen=True)
class ScoreCurves:
    """A score over rounds.

    Attributes
    ----------
    rounds
        Rounds, counted from 1.
    median, low, high
        Median over the peers, and their tenth and ninetieth percentile.
    peers
        Score by peer, for few peers or those that were asked for; ``None`` where a peer has none.
    """

    rounds: list[int]
    median: list[float]
    low: list[float]
    high: list[float]
    peers: dict[str, list[float | None]]


class History:
    """Scores by round and peer.

    Examples
    --------
    >>> history = History()
    >>> history.names
    []
    """

    def __init__(self) -> None:
        self._rounds: dict[int, dict[str, dict[str, float]]] = {}
        self._names: dict[str, None] = {}
        self._count = 0
        self._stride = 1

    def add(self, record: Record) -> None:
        """Keep the scores of a round; a round that runs again replaces its scores."""
        if record.round % self._stride:
            return
        self._names |= dict.fromkeys(record.scores)
        peers = self._rounds.setdefault(record.round, {})
        self._count += record.peer not in peers
        peers[record.peer] = {name: value for name, value in record.scores.items() if math.isfinite(value)}
        while (self._count > MAX_RECORDS or len(self._rounds) > 2 * MAX_CURVE_POINTS) and len(self._rounds) > 2:
            self._stride *= 2
            self._rounds = {number: scores for number, scores in self._rounds.items() if not number % self._stride}
            self._count = sum(map(len, self._rounds.values()))

    @property
    def names(self) -> list[str]:
        """Names of the scores, in the order in which they came."""
        return list(self._names)

    def curves(self, score: str, *, peers: Sequence[str] = ()) -> ScoreCurves:
        """Return a score over rounds.

        Parameters
        ----------
        score
            Name of the score.
        peers
            Peers whose own curves are asked for; by default all, if there are few.
        """
        import numpy as np  # noqa: PLC0415 (a page opens before it is there)

        values_by_round = {
            number: values
            for number, by_peer in sorted(self._rounds.items())
            if (values := {peer: scores[score] for peer, scores in by_peer.items() if score in scores})
        }
        numbers = list(values_by_round)
        step = max(1, math.ceil(len(numbers) / MAX_CURVE_POINTS))
        numbers = sorted({*numbers[::step], *numbers[-1:]})
        bands = [np.quantile([*values_by_round[number].values()], (0.5, 0.1, 0.9)).tolist() for number in numbers]
        everyone = sorted({peer for by_peer in values_by_round.values() for peer in by_peer})
        shown = [peer for peer in peers if peer in everyone] or (everyone if len(everyone) <= MAX_SINGLE_CURVES else [])
        return ScoreCurves(
            rounds=[number + 1 for number in numbers],
            median=[band[0] for band in bands],
            low=[band[1] for band in bands],
            high=[band[2] for band in bands],
            peers={peer: [values_by_round[number].get(peer) for number in numbers] for peer in shown},
        )
