"""Scores of a peer's earlier rounds for observers that come late, in bounded memory and bounded messages."""

from __future__ import annotations

from collections.abc import Iterator

from p2pfl.results.notices.observing import ScoresRecalled
from p2pfl.results.records import Record

POINTS = 64
"""Largest number of rounds that are kept; beyond it, every second one is dropped."""

EACH = 16
"""Rounds of one score in a notice, of which several fit into a frame of telemetry."""

SCORES = 8
"""Largest number of scores."""


class Curves:
    """Scores of a peer by round, thinned out evenly as the run grows."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._stride = 1
        self._scores: dict[int, dict[str, float]] = {}

    def add(self, record: Record) -> None:
        """Keep the scores of a round; a round that runs again replaces its scores."""
        if record.round % self._stride or not record.scores:
            return
        self._scores[record.round] = {name: record.scores[name] for name in [*record.scores][:SCORES]}
        while len(self._scores) > POINTS:
            self._stride *= 2
            self._scores = {round: found for round, found in self._scores.items() if not round % self._stride}

    def notices(self) -> Iterator[ScoresRecalled]:
        """Yield the scores, in parts that fit into frames; the newest rounds come first."""
        names = dict.fromkeys(name for found in self._scores.values() for name in found)
        rounds = sorted(self._scores)
        for start in range((len(rounds) - 1) // EACH * EACH, -1, -EACH):
            for name in names:
                part = [round for round in rounds[start : start + EACH] if name in self._scores[round]]
                values = tuple(self._scores[round][name] for round in part)
                if part:
                    yield ScoresRecalled(peer=self._peer, score=name[:40], rounds=tuple(part), values=values)
