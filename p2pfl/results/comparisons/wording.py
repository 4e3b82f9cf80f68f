"""The sentences of comparisons: the only place that words them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from p2pfl.results import formats
from p2pfl.results.comparisons.comparison import (
    SCORE_DIGITS,
    SIGNIFICANCE_LEVEL,
    Comparison,
    Difference,
    lower_is_better,
)
from p2pfl.results.comparisons.intervals import Estimate
from p2pfl.results.formats import count_of
from p2pfl.results.run_files import scores_alone

MAX_UNEQUAL = 3
"""Unequal costs that have a sentence each."""

COST_NAMES = {"bytes_sent": "bytes", "gradients": "gradients"}
"""Unit of a cost."""


def setting(values: Mapping[str, str]) -> str:
    """Return a setting in a few words: values alone, with their keys where they do not speak for themselves.

    Examples
    --------
    >>> setting({"learning.algorithm": "fedavg", "learning.rate": "0.1"})
    'fedavg, rate 0.1'
    """
    parts = [_value(key, value) for key, value in values.items()]
    return ", ".join(parts) or "the experiment"


def _value(key: str, value: str) -> str:
    name = key.rpartition(".")[2]
    speaks = value[:1].isalpha() and value not in {"true", "false", "none", "all"}
    return value if speaks else f"{name} {value}"


def heads(keys: Sequence[str]) -> list[str]:
    """Return the names of keys for a table: without their sections where that leaves them different.

    Examples
    --------
    >>> heads(["learning.algorithm", "data.split"]), heads(["data.options", "model.options"])
    (['algorithm', 'split'], ['data.options', 'model.options'])
    """
    short = [key.rpartition(".")[2] for key in keys]
    return short if len(set(short)) == len(short) else list(keys)


def number(value: Estimate | None, *, sign: bool = False) -> str:
    """Return an estimate with its interval.

    Examples
    --------
    >>> number(Estimate(0.9213, 0.0123, 5)), number(Estimate(-0.25, None, 1), sign=True)
    ('0.921 ± 0.012', '-0.250')
    """
    if value is None:
        return ""
    mean = f"{value.mean:{'+' if sign else ''}.{SCORE_DIGITS}f}"
    return mean if value.half is None else f"{mean} ± {value.half:.{SCORE_DIGITS}f}"


def probability(value: float | None) -> str:
    """Return a p-value.

    Examples
    --------
    >>> probability(0.0316), probability(1e-7), probability(None)
    ('0.032', '< 0.001', '')
    """
    if value is None:
        return ""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def verdict(comparison: Comparison, each: Difference) -> str:
    """Return whether a setting is better than its reference, in a word or two."""
    if each.difference.count == 1:
        return "one seed"
    if each.adjusted is None:
        return "no test" if each.difference.mean else "equal"
    if not each.significant:
        return "not significant"
    return "better" if (each.difference.mean > 0) != comparison.lower else "worse"


def notes(comparison: Comparison) -> Iterator[str]:
    """Yield the notes that readers of the table need."""
    settings = comparison.settings
    if any(each.difference.count > 1 for each in comparison.differences):
        pairs = {each.difference.count for each in comparison.differences}
        yield (
            f"± is half of a 95 % interval of Student's t over the seeds; differences are paired by seed "
            f"({_span(pairs)} each), and p is that of the paired t-test after Holm's correction for "
            f"{count_of(len(comparison.differences), 'comparison')}: a difference is significant "
            f"below {SIGNIFICANCE_LEVEL}."
        )
    if any(each.difference.count > 1 and each.p is None for each in comparison.differences):
        yield (
            "Where all seeds have the same difference there is neither an interval nor a test: the seeds do not show "
            "how far the difference varies."
        )
    if comparison.chosen and comparison.differences:
        best = setting(settings[comparison.differences[0].reference].values)
        yield (
            f"The reference, {best}, has the best mean of these very runs, so its lead is optimistic: repeat it "
            "and its nearest rivals with new seeds."
        )
    if comparison.budget is not None:
        yield f"Every run had as many rounds as {comparison.budget} pays for."
        for sentence in _unequal(comparison):
            yield f"Even so, {sentence}."


def bold(comparison: Comparison) -> str:
    """Return which means a table shows in bold."""
    several = len([each for each in comparison.settings if each.best]) > 1
    what = "the best mean of each group that is compared" if several else "the best mean"
    tied = f"Bold is {what}, and each mean that agrees with it in the printed digits"
    if not any(len(each.by_seed) > 1 for each in comparison.settings):
        return f"{tied}."
    return (
        f"{tied} or that the paired t-test does not tell from it (p of at least {SIGNIFICANCE_LEVEL} after Holm's "
        "correction)."
    )


def warnings(comparison: Comparison) -> Iterator[str]:
    """Yield warnings of an unfair or weak comparison."""
    settings = comparison.settings
    for sentence in _unequal(comparison) if comparison.budget is None else ():
        yield f"{sentence}; compare them at equal cost with --budget."
    if len(settings) > 1 and not comparison.differences and sum(bool(each.by_seed) for each in settings) > 1:
        yield "No setting is compared with another, as none differs from the reference in its keys alone; name another."
    if any(each.difference.count == 1 for each in comparison.differences):
        yield "Differences over one seed have no interval; add seeds."
    failed = sum(each.failed for each in settings)
    if failed:
        left = "is left out" if failed == 1 else "are left out"
        yield f"{count_of(failed, 'run')} failed or had no score and {left}; the sweep's table names each."
    seeds = {tuple(each.by_seed) for each in settings if each.by_seed}
    if len(seeds) > 1:
        yield "Not all settings have the same seeds; differences use those that both have."


def describe_gain(summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield the gain of one peer by learning together, from its summary; nothing if it has not trained alone.

    Examples
    --------
    >>> [*describe_gain({"scores": {"loss": 0.2, "accuracy": 0.93}, "alone": {"loss": 0.3, "accuracy": 0.9}})]
    ['Alone it reaches accuracy 0.900, so learning together gained 0.030.']
    """
    alone = scores_alone(summary)
    name = next((each for each in alone if each != "loss"), "loss")
    together = summary["scores"].get(name)
    if name not in alone or together is None:
        return
    gain = together - alone[name]
    better = gain < 0 if lower_is_better(name) else gain > 0
    what = "changed nothing" if not gain else f"{'gained' if better else 'lost'} {formats.number(abs(gain))}"
    yield f"Alone it reaches {name} {formats.number(alone[name])}, so learning together {what}."


def _unequal(comparison: Comparison) -> list[str]:
    """Return sentences on the costs of settings and their references, each difference once, or many in one sentence."""
    unequal = [each for each in comparison.differences if each.costs]
    sentences = list(dict.fromkeys(_dearer(comparison, each) for each in unequal))
    if len(sentences) <= MAX_UNEQUAL:
        return sentences
    ratios = [ratio for each in unequal for ratio in each.costs.values()]
    span = f"{min(ratios):.2g} to {_times(max(ratios))} the bytes or gradients of their references"
    return [f"{len(unequal)} of {len(comparison.differences)} settings cost {span}"]


def _dearer(comparison: Comparison, each: Difference) -> str:
    """Return a sentence on the costs of a setting and its reference, named by the keys in which they differ."""
    mine, theirs = (comparison.settings[index].values for index in (each.setting, each.reference))
    keys = [key for key in mine if mine[key] != theirs[key]]
    one, other = (setting({key: values[key] for key in keys}) for values in (mine, theirs))
    ratios = " and ".join(f"{_times(ratio)} the {COST_NAMES[name]}" for name, ratio in each.costs.items())
    return f"{one} cost {ratios} of {other}"


def _times(ratio: float) -> str:
    return f"{ratio:.2g} times" if ratio < 10 else f"{ratio:.0f} times"


def _span(counts: set[int]) -> str:
    low, high = min(counts), max(counts)
    return count_of(high, "pair") if low == high else f"{low} to {high} pairs"
