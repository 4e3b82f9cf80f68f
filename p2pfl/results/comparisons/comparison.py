"""Comparison of settings over seeds: scores with intervals, paired differences, costs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from p2pfl.results.comparisons.intervals import Estimate, compare_paired, estimate, holm
from p2pfl.results.notices.kinds import SCHEMA

SIGNIFICANCE_LEVEL: Final = 0.05
"""Adjusted p-value below which a difference is significant."""

MAX_COST_RATIO: Final = 1.1
"""Ratio of two costs beyond which a comparison of the scores alone is unfair."""

SCORE_DIGITS: Final = 3
"""Digits after the point of a printed score; scores that agree in these are tied."""

LOWER_IS_BETTER: Final = frozenset({"loss", "error", "mse", "mae", "rmse", "mape", "brier", "nll", "ece", "perplexity"})
"""Last words of the names of scores of which smaller ones are better; of all others larger ones are."""


class RunOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Results and costs of one run.

    Attributes
    ----------
    values
        Settings that differ between the runs, by key.
    seed
    score
        Of the models learned together.
    rounds
        Rounds that ran.
    bytes_sent
        By all peers.
    gradients
        Gradients that all peers computed.
    seconds
        Of all rounds.
    folder
        Run directory, relative to the sweep.
    failure
        Why there is no result.
    """

    values: dict[str, str]
    seed: int
    score: float | None = None
    rounds: int = 0
    bytes_sent: int = 0
    gradients: int | None = None
    seconds: float = 0.0
    folder: str = ""
    failure: str | None = None


class ComparedSetting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting over all its seeds.

    Attributes
    ----------
    values
        The setting, by key, as text.
    score
        Mean score over the seeds; null if no run has a score.
    by_seed
        Score by seed, of the runs that have one.
    rounds, bytes_sent, gradients, seconds
        Means over these runs of the fields of the same name of a run.
    failed
        Number of runs without a score.
    best
        True if no other setting of its block has a better mean.
    leading
        True for the best setting of its block and for those that are tied with it, which tables show in bold: their
        means agree in the printed digits, or the paired t-test does not distinguish them from the best after Holm's
        correction for the block.
    """

    values: dict[str, str]
    score: Estimate | None
    by_seed: dict[int, float]
    rounds: float
    bytes_sent: float
    gradients: float | None
    seconds: float
    failed: int
    best: bool = False
    leading: bool = False


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Paired difference of a setting and its reference over the seeds that both have.

    Attributes
    ----------
    setting, reference
        Places in the list of settings.
    difference
        Mean difference of the scores, setting minus reference.
    p
        Two-sided p-value of the paired t-test; null for a single seed, and where all seeds have the same difference.
    adjusted
        The same by Holm's method, over all differences of the comparison.
    costs
        By cost, ``bytes_sent`` or ``gradients``, the ratio of setting to reference, where they differ.
    """

    setting: int
    reference: int
    difference: Estimate
    p: float | None
    adjusted: float | None
    costs: dict[str, float] = {}

    @property
    def significant(self) -> bool:
        """True if the difference is significant after the correction."""
        return self.adjusted is not None and self.adjusted < SIGNIFICANCE_LEVEL


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Settings side by side.

    Attributes
    ----------
    schema
        Version of the format.
    metric
        Name of the score.
    keys
        Keys of the experiment file that differ.
    settings
        All settings.
    differences
        Differences to the references, one for each setting that has one.
    chosen
        True if the reference is the setting with the best mean, chosen by these same runs.
    budget
        Cost at which every run ends, such as ``bytes=60MB``; null without one.
    """

    schema: Literal[1] = SCHEMA
    metric: str
    keys: tuple[str, ...]
    settings: tuple[ComparedSetting, ...]
    differences: tuple[Difference, ...]
    chosen: bool = False
    budget: str | None = None

    @property
    def lower(self) -> bool:
        """True if smaller scores are better."""
        return lower_is_better(self.metric)


def lower_is_better(metric: str) -> bool:
    """Return whether smaller values of a score are better, by the last word of its name.

    Examples
    --------
    >>> [lower_is_better(name) for name in ("loss", "validation_mean_absolute_error", "own:log_loss", "accuracy")]
    [True, True, True, False]
    """
    return re.split(r"[^A-Za-z0-9]+", metric.lower())[-1] in LOWER_IS_BETTER


def compare(
    outcomes: Sequence[RunOutcome],
    *,
    metric: str,
    against: Mapping[str, str] | None = None,
    budget: str | None = None,
) -> Comparison:
    """Compare the settings of runs.

    Each setting is compared with the one that differs from it in the keys of ``against`` alone, so that a grid of
    algorithms and splits compares algorithms on the same split.

    Parameters
    ----------
    outcomes
        All runs; of two with the same setting and seed the last one counts.
    metric
        Name of their score.
    against
        Values of the reference, by key. By default each setting is compared with the one of the best mean.
    budget
        Cost at which every run ends, as text.

    Returns
    -------
    Comparison
        Settings in the order in which they first occur.

    Examples
    --------
    >>> runs = [RunOutcome(values={"rate": rate}, seed=seed, score=score) for rate, seed, score in
    ...         [("0.1", 0, 0.8), ("0.1", 1, 0.7), ("0.2", 0, 0.9), ("0.2", 1, 0.85)]]
    >>> comparison = compare(runs, metric="accuracy", against={"rate": "0.1"})
    >>> round(comparison.differences[0].difference.mean, 3), comparison.differences[0].significant
    (0.125, False)
    """
    groups: dict[tuple[tuple[str, str], ...], dict[int, RunOutcome]] = {}
    for outcome in outcomes:
        groups.setdefault(tuple(outcome.values.items()), {})[outcome.seed] = outcome
    settings = [_summarise_setting(dict(values), list(runs.values())) for values, runs in groups.items()]
    pairs = _references(settings, against) if against else _pairs_with_best(settings, metric)
    differences = [_difference(settings, index, reference) for index, reference in pairs]
    comparable = [difference for difference in differences if difference is not None]
    adjusted = holm([difference.p for difference in comparable])
    blocks = _blocks(settings, against or {})
    best = {_best(settings, block, metric) for block in blocks}
    leading = {index for block in blocks for index in _find_leading(settings, block, metric)}
    return Comparison(
        metric=metric,
        keys=tuple(settings[0].values) if settings else (),
        settings=tuple(
            msgspec.structs.replace(each, best=index in best, leading=index in leading)
            for index, each in enumerate(settings)
        ),
        differences=tuple(
            msgspec.structs.replace(each, adjusted=value) for each, value in zip(comparable, adjusted, strict=True)
        ),
        chosen=not against,
        budget=budget,
    )


def _summarise_setting(values: dict[str, str], runs: Sequence[RunOutcome]) -> ComparedSetting:
    scored = {run.seed: run for run in runs if run.score is not None}
    kept = list(scored.values())
    counted = [run.gradients for run in kept if run.gradients is not None]
    return ComparedSetting(
        values=values,
        score=estimate([run.score or 0.0 for run in kept]) if kept else None,
        by_seed={seed: run.score or 0.0 for seed, run in sorted(scored.items())},
        rounds=_mean([run.rounds for run in kept]),
        bytes_sent=_mean([run.bytes_sent for run in kept]),
        gradients=_mean(counted) if kept and len(counted) == len(kept) else None,
        seconds=_mean([run.seconds for run in kept]),
        failed=len(runs) - len(kept),
    )


def _blocks(settings: Sequence[ComparedSetting], against: Mapping[str, str]) -> list[list[int]]:
    """Return the places of the settings that differ in the keys of ``against`` alone, or all without one."""
    blocks: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for index, each in enumerate(settings):
        rest = tuple((key, value) for key, value in each.values.items() if against and key not in against)
        blocks.setdefault(rest, []).append(index)
    return list(blocks.values())


def _references(settings: Sequence[ComparedSetting], against: Mapping[str, str]) -> list[tuple[int, int]]:
    """Return the place of each setting and of its reference, which differs in the keys of ``against`` alone."""
    indices = {tuple(each.values.items()): index for index, each in enumerate(settings)}
    pairs = []
    for index, each in enumerate(settings):
        wanted = {**each.values, **{key: value for key, value in against.items() if key in each.values}}
        reference = indices.get(tuple(wanted.items()))
        if reference is not None and reference != index:
            pairs.append((index, reference))
    return pairs


def _pairs_with_best(settings: Sequence[ComparedSetting], metric: str) -> list[tuple[int, int]]:
    best = _best(settings, range(len(settings)), metric)
    return [] if best is None else [(index, best) for index in range(len(settings)) if index != best]


def _best(settings: Sequence[ComparedSetting], indices: Sequence[int], metric: str) -> int | None:
    means = {index: score.mean for index in indices if (score := settings[index].score) is not None}
    if not means:
        return None
    return (min if lower_is_better(metric) else max)(means, key=means.__getitem__)


def _find_leading(settings: Sequence[ComparedSetting], block: Sequence[int], metric: str) -> Iterator[int]:
    """Yield the place of the best setting of a block and those of settings that are tied with it."""
    best = _best(settings, block, metric)
    if best is None:
        return
    yield best
    rivals = [index for index in block if index != best and settings[index].score is not None]
    differences = [_difference(settings, index, best) for index in rivals]
    adjusted = holm([None if each is None else each.p for each in differences])
    printed = _format_mean(settings[best])
    for index, p in zip(rivals, adjusted, strict=True):
        if _format_mean(settings[index]) == printed or (p is not None and p >= SIGNIFICANCE_LEVEL):
            yield index


def _format_mean(setting: ComparedSetting) -> str:
    return "" if setting.score is None else f"{setting.score.mean:.{SCORE_DIGITS}f}"


def _difference(settings: Sequence[ComparedSetting], index: int, reference: int) -> Difference | None:
    """Return the difference of two settings without the correction; ``None`` if they have no seed in common."""
    one, other = settings[index], settings[reference]
    seeds = sorted(one.by_seed.keys() & other.by_seed.keys())
    if not seeds:
        return None
    difference, p = compare_paired([one.by_seed[seed] for seed in seeds], [other.by_seed[seed] for seed in seeds])
    costs = {
        name: mine / theirs
        for name, mine, theirs in (
            ("bytes_sent", one.bytes_sent, other.bytes_sent),
            ("gradients", one.gradients, other.gradients),
        )
        if mine and theirs and not 1 / MAX_COST_RATIO <= mine / theirs <= MAX_COST_RATIO
    }
    return Difference(setting=index, reference=reference, difference=difference, p=p, adjusted=None, costs=costs)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0
