r"""Canaries: updates planted in whole rounds, which an observer tries to detect.

In each round a coin decides whether a peer releases no update or an update of a random
direction and the largest norm that clipping permits, with real clipping and real mixing between rounds.
The observer scores the direction :math:`v_k` of each canary by
:math:`\langle v_k, (\Sigma^{-1} z)_k \rangle / \sqrt{(\Sigma^{-1})_{kk}}` and guesses. One run of m
canaries bounds :math:`\varepsilon` from below, without any assumption on the noise.

References
----------
T. Steinke, M. Nasr, M. Jagielski, "Privacy auditing with one (1) training run", NeurIPS 2023.
G. Andrew et al., "One-shot empirical privacy estimation for federated learning", ICLR 2024.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.stats import binom

from p2pfl.core.draws import draw
from p2pfl.core.neighbourhood import run_without_loop
from p2pfl.plugins.audit.claims import bounds, number, verdict_of
from p2pfl.plugins.audit.pipeline import Floats, Observer, Target, numbers, release
from p2pfl.plugins.audit.statistical_tests import BOUND_CONFIDENCE, BOUNDS_PER_OBSERVER, Bools, auc, separation, tpr
from p2pfl.privacy.accounting import divergence

CANARY_COUNT = 1000
"""Approximate number of canaries."""

REPORTED_SIGNIFICANCE = 0.05
"""Probability that a bound that is only reported is too high."""

BREAKING_SIGNIFICANCE = 1 - BOUND_CONFIDENCE
"""Probability that any bound that breaks a guarantee is too high."""

DELTA_SHARE = 1e-3
"""Largest share of the significance of a bound that breaks a guarantee that its delta may use up."""

GUESSED_SHARE = 0.2
"""Share of the canaries that the observer guesses: half of them with the highest scores, half with the lowest."""

_MAX_BOUND = 100.0
"""Largest bound that is searched for."""


@dataclass(frozen=True)
class Guesses(ABC):
    r"""Result of one observer: how well it distinguishes what was planted from what was not.

    Parameters
    ----------
    observer
        Name of the observer.
    count
        m, the number of coins.
    auc, tpr_percent, tpr_permille
        Area under the ROC curve, and true positives at false positive rates of 1 % and 0.1 %.
    measured, lower
        :math:`\hat\mu` of the scores and its lower confidence bound.
    accounted
        The accountant's :math:`\mu`; infinite where there is none.
    epsilon, ceiling, bound, delta
        Lower bound of :math:`\varepsilon` from the guesses with a confidence of 95 %, the one that they would prove if
        all were right, the accountant's bound, and the delta of all three.
    certain, certain_ceiling, certain_bound, certain_delta
        The same for the verdict: with the confidence of the whole audit, at a delta that hardly uses it up.
    """

    observer: str
    count: int
    auc: float
    tpr_percent: float
    tpr_permille: float
    measured: float
    lower: float
    accounted: float
    epsilon: float
    ceiling: float
    bound: float
    delta: float
    certain: float
    certain_ceiling: float
    certain_bound: float
    certain_delta: float

    @property
    def broken(self) -> bool:
        """True if the observer learns more than the guarantee permits."""
        return self.lower > self.accounted or self.certain > self.certain_bound

    @property
    def tested(self) -> bool:
        """True if the guarantee would be broken if all guesses were right."""
        return math.isfinite(self.accounted) or self.certain_ceiling > self.certain_bound

    @property
    @abstractmethod
    def fault(self) -> str:
        """Sentence for a broken guarantee."""

    @property
    def excess(self) -> str:
        """Sentence on what exceeds the guarantee."""
        if self.lower > self.accounted:
            return f"mu is above {self.lower:.3g} instead of at most {self.accounted:.3g}"
        return (
            f"epsilon is above {self.certain:.3g} instead of at most {self.certain_bound:.3g} "
            f"at delta {self.certain_delta:.1g}"
        )

    @property
    def proof(self) -> str:
        """Sentence on what the guesses prove."""
        return (
            f"one run proves with a confidence of {100 * (1 - REPORTED_SIGNIFICANCE):.0f} % that epsilon is above "
            f"{self.epsilon:.2f}, and could prove {self.ceiling:.2f} at most"
        )

    @property
    def figures(self) -> dict[str, str]:
        """Row of a table."""
        rates = {"AUC": self.auc, "TPR at 1 %": self.tpr_percent, "at 0.1 %": self.tpr_permille}
        return {
            "observer": self.observer,
            "canaries": str(self.count),
            **{name: f"{rate:.3f}" for name, rate in rates.items()},
            **bounds(self.measured, self.lower, self.accounted),
            "epsilon above": f"{self.epsilon:.2f}",
            "provable": f"{self.ceiling:.2f}",
            "at most": number(self.bound),
            "verdict": verdict_of(self, bounded=math.isfinite(self.bound), tested=self.tested),
        }


@dataclass(frozen=True)
class Canaries(Guesses):
    """Result of one observer of planted updates."""

    @property
    def fault(self) -> str:
        """Sentence for a broken guarantee."""
        return f"{self.observer} distinguishes canaries too well: {self.excess}"

    @property
    def sentence(self) -> str:
        """Result in words."""
        return (
            f"Of {self.count} updates, planted or not, the observer orders {100 * self.auc:.0f} % of pairs correctly "
            f"and finds {100 * self.tpr_percent:.0f} % at one false alarm in a hundred; {self.proof}."
        )


def plant(
    target: Target, observers: Sequence[Observer], *, size: int, delta: float, count: int = CANARY_COUNT
) -> list[Canaries]:
    """Run rounds of canaries and let every observer guess.

    Parameters
    ----------
    target
        Release that is attacked.
    observers
        Observers that guess.
    size
        P, the number of parameters.
    delta
        The delta of guarantees.
    count
        Approximate number of canaries.

    Returns
    -------
    list of Canaries
        Result of each observer.
    """
    peers = len(target.graph.peers)
    pipeline = target.with_settings(participation=1.0).run(0)
    since = np.zeros((peers, size))  # [N, P]
    scores: list[list[Floats]] = [[] for _ in observers]
    truth: list[list[Bools]] = [[] for _ in observers]
    for round in range(max(2, math.ceil(count / peers))):
        rng = draw(target.seed, "audit canaries", round=round)
        directions = rng.standard_normal((peers, size))  # [N, P]
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        coins = rng.random(peers) < 0.5  # [N]
        net = pipeline.round(round)
        change = observers[0].length * (coins - (0.5 if observers[0].adjacency == "replace" else 0.0))  # [N]
        released = release(net, since + change[:, None] * directions, since=since)
        for observer, sums, cases in zip(observers, scores, truth, strict=True):
            z = observer.sees(pipeline, released, round=round) - since[observer.watched]  # [H, P]
            whitened = observer.combination @ z  # [H, P]
            sums.append((whitened * directions[observer.watched]).sum(1) / np.sqrt(observer.combination.diagonal()))
            cases.append(coins[observer.watched])
        since = numbers(run_without_loop(net.mix(released)))
    return [
        _canaries(
            observer,
            np.concatenate(sums),
            np.concatenate(cases),
            delta=delta,
            tests=BOUNDS_PER_OBSERVER * len(observers),
        )
        for observer, sums, cases in zip(observers, scores, truth, strict=True)
    ]


def one_run(
    count: int, *, guesses: int, correct: int, delta: float = 0.0, significance: float = REPORTED_SIGNIFICANCE
) -> float:
    r"""Return the lower bound of :math:`\varepsilon` that guesses in one run prove.

    With :math:`B \sim \mathrm{Bin}(r, e^\varepsilon / (1 + e^\varepsilon))` the probability of v or more
    correct among r guesses about m canaries is at most

    .. math:: \beta + 2 m \delta \alpha, \qquad \beta = P[B \ge v], \quad
              \alpha = \max_{1 \le i \le v} P[v - i \le B < v] / i

    and the bound is the :math:`\varepsilon` at which this equals the significance.

    Parameters
    ----------
    count, guesses, correct
        m, r and v.
    delta, significance
        As in the formula.

    References
    ----------
    Steinke et al. 2023, theorem 5.2.

    Examples
    --------
    >>> round(one_run(1000, guesses=1000, correct=600, delta=1e-5), 6)
    0.297227
    """

    def chance(epsilon: float) -> float:
        right = 1 / (1 + math.exp(-epsilon))
        beta = float(binom.sf(correct - 1, guesses, right))
        below = np.cumsum(binom.pmf(np.arange(correct - 1, -1, -1), guesses, right))  # [v]
        alpha = float((below / np.arange(1, correct + 1)).max(initial=0.0))
        return beta + 2 * count * delta * alpha - significance

    if chance(0.0) >= 0:
        return 0.0
    return float(brentq(chance, 0.0, _MAX_BOUND)) if chance(_MAX_BOUND) > 0 else _MAX_BOUND


def count_guesses(
    scores: Floats,
    truth: Bools,
    *,
    promised: float,
    bound: Callable[[float], float],
    delta: float,
    tests: int,
    share: float = GUESSED_SHARE,
) -> dict[str, float]:
    r"""Return the figures of :class:`Guesses` for scores and what was really planted.

    Parameters
    ----------
    scores, truth
        ``[m]``.
    promised, bound
        The accountant's :math:`\mu`, and its :math:`\varepsilon` at a delta; infinite where there is none.
    delta
        The delta of the guarantee.
    tests
        Number of bounds of the audit that hold together.
    share
        Share of the canaries that the observer guesses.
    """
    measured = separation(scores, truth)
    half = max(1, int(share * len(scores) / 2))
    order = np.argsort(scores, kind="stable")
    correct = int(truth[order[-half:]].sum() + (~truth[order[:half]]).sum())
    count, guesses, certain = len(scores), 2 * half, certain_delta(len(scores), delta=delta, tests=tests)
    ordinary: Any = {"guesses": guesses, "delta": delta}
    strict: Any = {"guesses": guesses, "delta": certain, "significance": BREAKING_SIGNIFICANCE / tests}
    return {
        "count": count,
        "auc": auc(scores, truth),
        "tpr_percent": tpr(scores, truth, fpr=0.01),
        "tpr_permille": tpr(scores, truth, fpr=0.001),
        "measured": measured.mu,
        "lower": measured.lower(tests=tests),
        "accounted": promised,
        "epsilon": one_run(count, correct=correct, **ordinary),
        "ceiling": one_run(count, correct=guesses, **ordinary),
        "bound": bound(delta),
        "delta": delta,
        "certain": one_run(count, correct=correct, **strict),
        "certain_ceiling": one_run(count, correct=guesses, **strict),
        "certain_bound": bound(certain),
        "certain_delta": certain,
    }


def certain_delta(count: int, *, delta: float, tests: int) -> float:
    r"""Return the delta of a bound that breaks a guarantee.

    At the stated delta, the probability :math:`2 m \delta \alpha` of :func:`one_run` may exceed the significance, and
    no guesses would prove anything.

    Parameters
    ----------
    count
        m, the number of canaries.
    delta
        The delta of the guarantee, which is the largest.
    tests
        Number of bounds of the audit that hold together.

    Examples
    --------
    >>> f"{certain_delta(256, delta=1e-5, tests=5):.1e}"
    '3.9e-10'
    """
    return min(delta, DELTA_SHARE * BREAKING_SIGNIFICANCE / tests / (2 * count))


def _canaries(observer: Observer, scores: Floats, truth: Bools, *, delta: float, tests: int) -> Canaries:
    promised = observer.promised

    def bound(delta: float) -> float:
        return divergence.epsilon(promised, delta=delta)

    figures: Any = count_guesses(scores, truth, promised=promised, bound=bound, delta=delta, tests=tests)
    return Canaries(observer=observer.name, **figures)
