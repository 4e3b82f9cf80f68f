r"""The mechanism game: an observer has to decide whether a peer released an update or not.

A coin decides whether the victim adds a change; all else is fixed, and the observer knows it. (With masks alone, the
change is taken from a neighbour, because their sum is not secret.) Noise is
independent in every coordinate of a row, so P coordinates, each with its own coin, are P games played in
one release: a row of 20,000 numbers gives the same as 20,000 releases of one number. (The bound of the norm
is widened by :math:`\sqrt P` for this; :mod:`p2pfl.plugins.audit.claims` checks the clipping itself.)

There are two players. The *optimal* one knows the noise: :math:`e_u^\top \Sigma^{-1} z`. The *learned* one
assumes nothing. It watches three releases, two of them in one round, the optimal statistic of each, the
rows around the victim, and all that is mixed after them, learns Fisher's discriminant from half of the games
and plays the other half. It finds unforeseen leaks: a mask that is used twice, a row that was
mixed before it was masked.

Both measure :math:`\hat\mu`, the distance of the two cases in standard deviations. A guarantee is broken
if its lower confidence bound exceeds the :math:`\mu` of the accountant.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from p2pfl.core.draws import draw
from p2pfl.core.neighbourhood import Released, run_without_loop
from p2pfl.plugins.audit.claims import bounds, share, verdict_of
from p2pfl.plugins.audit.pipeline import Floats, Observer, Pipeline, Target, numbers, release
from p2pfl.plugins.audit.statistical_tests import BOUNDS_PER_OBSERVER, Bools, separation
from p2pfl.topology import Topology

GAME_TRIALS = 20_000
"""Number of games, which makes the standard error of the measured mu 0.014."""

RUN_COUNT = 4
"""Number of runs, each with its own keys, among which the games are divided."""

WATCHED_RELEASES = ((0, 1.0), (1, -1.0), (1, 1.0))
"""Round and sign of the change of each release that the learned player watches: the combination that cancels masks
adds changes."""

MAX_WATCHED = 24
"""Peers around the victim that the learned player watches."""

VARIANCE_RIDGE = 1e-10
"""Number that the learned player adds to the variances of its features, the largest of which is 1."""


@dataclass(frozen=True)
class GameResult:
    r"""Result of one player of one observer.

    Parameters
    ----------
    observer, colluders, victim
        Names of the observer, the peers that help it, and the victim.
    player
        ``"optimal"`` or ``"learned"``.
    question
        Question that the player answers.
    releases
        Number of releases that the player watches.
    accounted
        The accountant's :math:`\mu` of this many releases; infinite if nothing hides the change.
    measured, error, lower
        :math:`\hat\mu`, its standard error and its lower confidence bound.
    """

    observer: str
    colluders: tuple[str, ...]
    victim: str
    player: str
    question: str
    releases: int
    accounted: float
    measured: float
    error: float
    lower: float

    @property
    def broken(self) -> bool:
        """True if the player learns more than the guarantee permits."""
        return self.lower > self.accounted

    @property
    def fault(self) -> str:
        """Sentence for a broken guarantee."""
        times = "one release" if self.releases == 1 else f"{self.releases} releases"
        return (
            f"the {self.player} player of {self.observer} sees more of {self.victim} in {times} than the accountant "
            f"allows: mu is above {self.lower:.3g} instead of at most {self.accounted:.3g}"
        )

    @property
    def figures(self) -> dict[str, str]:
        """Row of a table."""
        names = {"observer": self.observer, "victim": self.victim, "player": self.player}
        mu = bounds(self.measured, self.lower, self.accounted)
        verdict = verdict_of(self, bounded=math.isfinite(self.accounted))
        return {**names, "releases": str(self.releases), **mu, "verdict": verdict}

    @property
    def sentence(self) -> str:
        """Result in words."""
        times = "one release" if self.releases == 1 else f"{self.releases} releases and their mixes"
        limit = "" if math.isinf(self.accounted) else f", the accountant's limit {share(self.accounted)}"
        if self.accounted < self.measured and not self.broken:
            limit += ", within the error of the measurement"
        warning = ": MORE THAN THE ACCOUNTANT ALLOWS" if self.broken else ""
        cases = f"about {share(self.measured)} of cases (a coin: 50 %{limit})"
        return f"From {times} the observer decides {self.question} correctly in {cases}{warning}."


def play(target: Target, observers: Sequence[Observer], *, trials: int = GAME_TRIALS) -> list[GameResult]:
    """Let both players of every observer play, and compare them with their bounds.

    Parameters
    ----------
    target
        Release that is attacked.
    observers
        Observers that play.
    trials
        Number of games of each player.

    Returns
    -------
    list of GameResult
        Result of each player.
    """
    size = max(2, math.ceil(trials / RUN_COUNT))
    # Every coordinate has a coin; whatever share of them is 1, nothing is clipped.
    wide = target.with_settings(clip=target.settings.clip * math.sqrt(size), participation=1.0)
    runs = [wide.run(number) for number in range(RUN_COUNT)]
    coins = [draw(target.seed, "audit coins", round=number).random(size) < 0.5 for number in range(RUN_COUNT)]
    truth = np.concatenate(coins)  # [T]
    games = []
    for observer in observers:
        views = [_view(run, observer, change=_change(observer, coin)) for run, coin in zip(runs, coins, strict=True)]
        optimal = np.concatenate([statistic for statistic, _ in views])  # [T]
        players = [("optimal", 1, optimal, truth)]
        learned, learned_truth = _score_by_discriminant(
            np.concatenate([features for _, features in views], axis=1), truth
        )
        players.append(("learned", len(WATCHED_RELEASES), learned, learned_truth))
        games += [
            _game(observer, name, releases, scores, cases, tests=BOUNDS_PER_OBSERVER * len(observers))
            for name, releases, scores, cases in players
        ]
    return games


def _game(observer: Observer, player: str, releases: int, scores: Floats, truth: Bools, *, tests: int) -> GameResult:
    measured = separation(scores, truth)
    return GameResult(
        observer=observer.name,
        colluders=observer.colluders,
        victim=observer.victim,
        player=player,
        question=observer.question,
        releases=releases,
        accounted=observer.bound * math.sqrt(releases),
        measured=measured.mu,
        error=measured.error,
        lower=measured.lower(tests=tests),
    )


def _view(pipeline: Pipeline, observer: Observer, *, change: Floats) -> tuple[Floats, Floats]:
    """Return the optimal player's statistic of the first release, ``[P]``, and the learned features, ``[F, P]``."""
    size = len(change)
    since = np.zeros((len(pipeline.peers), size))  # [N, P]
    near = _neighbours_watched(pipeline.graph, observer)
    statistics: list[Floats] = []
    features: list[Floats] = []
    nets = {round: pipeline.round(round) for round, _ in WATCHED_RELEASES}
    seen: dict[int, int] = {}
    for round, sign in WATCHED_RELEASES:
        attempt = seen.get(round, 0)
        seen[round] = attempt + 1
        rows = since.copy()
        rows[observer.watched] += sign * np.outer(observer.contrast, change)
        released = release(nets[round], rows, since=since)
        z = observer.sees(pipeline, released, round=round, attempt=attempt)  # [H, P]
        statistics.append(observer.statistic @ z)
        features += [statistics[-1][None], z[near]]
        mixed = run_without_loop(nets[round].mix(released))
        features.append(_beyond(pipeline, released, mixed, exchange=round + attempt)[observer.watched][near])
    together: Floats = np.concatenate(features)  # [F, P]
    return statistics[0], together


def _change(observer: Observer, coin: Bools) -> Floats:
    """Return the update or zero, ``[P]``; or the update and its opposite under the adjacency ``replace``."""
    start = -0.5 if observer.adjacency == "replace" else 0.0
    return np.asarray(observer.length * (coin + start))


def _beyond(pipeline: Pipeline, released: Released, mixed: Released, *, exchange: int) -> Floats:
    """Return mixed rows less the mix of the released ones, ``[N, P]``: rounding in a correct build."""
    matrix = pipeline.weights[exchange % len(pipeline.weights)].matrix
    left: Floats = numbers(mixed) - matrix @ numbers(released)
    return left


def _neighbours_watched(graph: Topology, observer: Observer) -> list[int]:
    """Return the places of the victim and the peers around it among the watched."""
    numbers = {graph.peers[row]: number for number, row in enumerate(observer.watched)}
    queue, group = deque([observer.victim]), {observer.victim}
    while queue and len(group) < MAX_WATCHED:
        for peer in graph.neighbours(queue.popleft()):
            if peer in numbers and peer not in group and len(group) < MAX_WATCHED:
                group.add(peer)
                queue.append(peer)
    return [numbers[peer] for peer in sorted(group)]


def _score_by_discriminant(features: Floats, truth: Bools) -> tuple[Floats, Bools]:
    """Return the scores of every second game by Fisher's discriminant, learned from the other ``[F, T]`` features."""
    teach, test = features[:, ::2], features[:, 1::2]
    cases = truth[::2]
    within = teach - np.where(cases, teach[:, cases].mean(1, keepdims=True), teach[:, ~cases].mean(1, keepdims=True))
    direction = teach[:, cases].mean(1) - teach[:, ~cases].mean(1)  # [F]
    spread = within.std(axis=1)
    scale = np.maximum(spread, 1e-9 * max(spread.max(), np.abs(direction).max(), np.finfo(np.float64).tiny))  # [F]
    within /= scale[:, None]
    covariance = within @ within.T / within.shape[1]  # [F, F]
    weights = np.linalg.solve(covariance + VARIANCE_RIDGE * np.eye(len(scale)), direction / scale) / scale
    scores: Floats = weights @ test
    return scores, truth[1::2]
