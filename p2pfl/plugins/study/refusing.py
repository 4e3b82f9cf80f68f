"""Refusals of settings: which ones cannot run, why, and how a study leaves them out."""

from __future__ import annotations

import itertools
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from p2pfl.core.errors import ExperimentError

MAX_COMBINATION = 3
"""Keys of a combination that may stand for all settings that have it."""

MAX_LISTED = 12
"""Combinations that a refusal lists."""


def refuse(reasons: Sequence[tuple[Mapping[str, str], str | None]]) -> None:
    """Raise an error that lists the refused settings, each with its reason, and says how to leave them out.

    Parameters
    ----------
    reasons
        All settings of a study, by key, as text, and why each of them is refused, or ``None``.

    Raises
    ------
    ExperimentError
        A setting is refused.
    """
    refused = [(values, reason) for values, reason in reasons if reason is not None]
    if not refused:
        return
    if len(reasons) == 1:
        raise ExperimentError(str(refused[0][1]))
    everything = [values for values, _ in reasons]
    listed: dict[str, list[Mapping[str, str]]] = {}
    for values, reason in refused:
        listed.setdefault(str(reason), []).append(values)
    lines = list[str]()
    options = list[str]()
    for reason, settings in listed.items():
        for combination in _combinations(settings, everything, [values for values, _ in refused]):
            lines.append(f"{named(combination)}: {reason}" if combination else reason)
            options += [f"--without {shlex.quote(named(combination))}"] if combination else []
    more = f"; and {len(lines) - MAX_LISTED} more" if len(lines) > MAX_LISTED else ""
    remedy = (
        f", or leave them out with {' '.join(dict.fromkeys(options))}"
        if options and len(refused) < len(reasons)
        else ""
    )
    raise ExperimentError(
        f"{len(refused)} of {len(reasons)} settings cannot run, so nothing was started: "
        f"{'; '.join(lines[:MAX_LISTED])}{more}; correct these settings{remedy}"
    )


def _combinations(
    settings: Sequence[Mapping[str, str]], everything: Sequence[Mapping[str, str]], refused: Sequence[Mapping[str, str]]
) -> Iterator[dict[str, str]]:
    """Yield combinations of few values that the settings have and only refused settings have."""
    rest = [*settings]
    for keys in _subsets([*settings[0]]):
        have, bad = (Counter(tuple(each[key] for key in keys) for each in some) for some in (everything, refused))
        for values in dict.fromkeys(tuple(each[key] for key in keys) for each in rest):
            if have[values] == bad[values]:
                yield dict(zip(keys, values, strict=True))
                rest = [each for each in rest if tuple(each[key] for key in keys) != values]
        if not rest:
            return


def _subsets(keys: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield sets of keys, small ones first, and all keys last."""
    for size in range(min(MAX_COMBINATION, len(keys)) + 1):
        yield from itertools.combinations(keys, size)
    yield tuple(keys)


def named(values: Mapping[str, str]) -> str:
    """Return a setting as one line.

    Examples
    --------
    >>> named({"learning.algorithm": "fedavg", "data.split": "iid"})
    'learning.algorithm=fedavg data.split=iid'
    """
    return " ".join(f"{key}={value}" for key, value in values.items()) or "the experiment as it is"
