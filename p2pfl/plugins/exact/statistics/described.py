"""Description of each column of a table, in the units of the table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from p2pfl.core.encodings import Floats
from p2pfl.data.data_description import Description as Meaning
from p2pfl.data.data_description import Field
from p2pfl.plugins.exact.columns import labels_of, located
from p2pfl.plugins.exact.design_cells import LEFT_OUT
from p2pfl.plugins.exact.statistics.column_statistics import QUANTILES, Description, suppressed
from p2pfl.plugins.exact.statistics.group_comparison import compared_groups
from p2pfl.plugins.exact.statistics.private_description import PrivateDescription
from p2pfl.plugins.exact.statistics.stratified_odds import PEERS, stratified_odds

MAX_EXACT = 2**24
"""Largest magnitude up to which single precision has every whole number."""

MIN_DISTINCT_VALUES = 100
"""Smallest number of values among which whole numbers that are all different are no coincidence."""


def described(
    tensors: Mapping[str, Floats], model: Description | PrivateDescription, meaning: Meaning
) -> dict[str, Any]:
    """Return what the tensors of a description say, as JSON values; ``None`` for what concerns too few samples.

    ``samples`` and ``least`` are the number of samples, and the smallest number that anything is stated of.
    ``columns`` are in the order of the table, the target last. ``names`` are those of all features and targets, and
    ``correlations`` Pearson's of each pair, empty if they were not counted. ``private`` says whether everything is
    with private noise; then quantiles interpolate the histogram, and ends are public bounds. ``warnings`` are sentences
    on columns that look like identifiers or timestamps.

    A column of the ``kind`` ``number`` has ``count`` and ``missing``; ``mean`` and ``deviation`` (n - 1 degrees of
    freedom); ``low`` and ``high``, which at least ``least`` samples lie at or beyond; ``quantiles`` by share; and
    ``edges`` and ``counts`` of a histogram, whose first and last bin have the values beyond them. One of ``levels`` has
    its samples by level. ``groups`` has them by group if the description has ``by``, see :func:`compared_groups`;
    with ``strata`` it has ``stratified`` odds ratios in them.

    Parameters
    ----------
    tensors, model
        The description.
    meaning
        Names and units of the columns.
    """
    private = isinstance(model, PrivateDescription)
    plain = model.plain if isinstance(model, PrivateDescription) else model
    width = plain.features
    middle, scale = plain.units(meaning)
    fields = [*(field for field, _ in located(width, meaning.columns)), *_targets(plain, meaning)]
    columns, warnings, hidden = list[dict[str, Any]](), list[str](), list[int]()
    samples = int(tensors["samples"][0])
    levels_left = np.array(tensors.get("levels", np.arange(plain.width)))
    for field, where in located(plain.width, fields):
        if (levels_left[where] == LEFT_OUT).all():
            warnings.append(
                f'column "{field.name}" is left out, because some of its values have fewer than {plain.least} samples'
            )
        if field.levels is None:
            index = where.start
            columns.append(_number(tensors, field.name, index, scale=scale[index], middle=middle[index]))
            warnings += filter(None, [_doubt(tensors, index, field.name)])
            continue
        counts = np.rint((tensors["mean"][where] * scale[where] + middle[where]) * samples)  # the mean is the share
        if private:  # noise hides what follows from the others
            counts = np.where((counts > 0) & (counts < plain.least), np.nan, counts)
        else:
            counts = suppressed(counts, least=plain.least, total=samples)
        hidden += [where.start + number for number in np.flatnonzero(np.isnan(counts)).tolist()]
        levels = dict(zip(_merged(field.levels, where, tensors), _counts(counts), strict=True))
        levels.pop("", None)
        columns.append({"name": field.name, "count": samples, "levels": levels, "kind": "levels"})
    correlations = np.array(tensors["correlation"] if plain.correlations else np.zeros((0, 0)))
    if plain.correlations:  # with a correlation, the share of a hidden level follows from another level
        correlations[hidden], correlations[:, hidden] = np.nan, np.nan
    groups = {}
    if plain.groups is not None:
        named = [
            (field, where, () if field.levels is None else _merged(field.levels, where, tensors))
            for field, where in located(plain.width, fields)
        ]
        compared = compared_groups(tensors, plain.groups, columns=named, middle=middle, scale=scale, least=plain.least)
        groups = {"groups": compared}
        if (strata := plain.stratification) is not None:
            compared["stratified"] = stratified_odds(tensors, strata, named, stated=plain.strata or PEERS)
            warnings += [
                f'column "{field.name}" has no stratified odds ratio, because a cell of a stratum has fewer than '
                f"{plain.least} samples"
                for field, where, _ in named
                if where.start in strata.places and not tensors["odds_kept"][strata.places.index(where.start)]
            ]
    return {
        "samples": samples,
        "least": plain.least,
        "columns": columns,
        "names": labels_of([_named_together(field, where, tensors) for field, where in located(plain.width, fields)]),
        "correlations": [[_known(value) for value in row] for row in correlations.tolist()],
        "private": private,
        "warnings": warnings,
    } | groups


def _targets(model: Description, meaning: Meaning) -> tuple[Field, ...]:
    name = meaning.target or "target"
    if model.classes is not None:
        return (Field(name, tuple(map(str, meaning.classes or range(model.classes)))),)
    return (Field(name), Field("event", ("yes",))) if model.event else (Field(name),)


def _merged(levels: Sequence[str], where: slice, tensors: Mapping[str, Floats]) -> list[str]:
    """Return the names of levels with those that are merged into them; nothing for the latter."""
    if "levels" not in tensors:
        return [*levels]
    into = tensors["levels"][where].astype(np.int64) - where.start
    return [
        "+".join(level for level, other in zip(levels, into.tolist(), strict=True) if other == index)
        if into[index] == index
        else ""
        for index in range(len(levels))
    ]


def _named_together(field: Field, where: slice, tensors: Mapping[str, Floats]) -> Field:
    """Return a column whose levels are named with those that are merged into them."""
    if field.levels is None:
        return field
    merged = zip(_merged(field.levels, where, tensors), field.levels, strict=True)
    return Field(field.name, tuple(together or level for together, level in merged))


def _number(tensors: Mapping[str, Floats], name: str, index: int, *, scale: float, middle: float) -> dict[str, Any]:
    """Return the statistics of a column in the units of the table."""

    def raw(value: float) -> float | None:
        return _known(value * scale + middle)

    present, edges = int(tensors["present"][index]), tensors["edges"][index]
    used = int((edges[:-1] <= tensors["high"][index]).sum())  # bins of whole numbers go beyond the last one
    return {
        "name": name,
        "count": present,
        "missing": int(tensors["samples"][0]) - present,
        "mean": raw(float(tensors["mean"][index])),
        "deviation": _known(float(tensors["deviation"][index]) * scale),
        "low": raw(float(tensors["low"][index])),
        "high": raw(float(tensors["high"][index])),
        "quantiles": {
            f"{each:g}": raw(value) for each, value in zip(QUANTILES, tensors["quantiles"][index], strict=True)
        },
        "edges": (edges[: used + 1] * scale + middle).tolist(),
        "counts": _counts(tensors["counts"][index, :used]),
        "kind": "number",
    }


def _counts(counts: Floats) -> list[int | None]:
    return [None if math.isnan(count) else int(count) for count in counts.tolist()]


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _doubt(tensors: Mapping[str, Floats], index: int, name: str) -> str | None:
    """Return a sentence on a column that looks like an identifier or a timestamp; ``None`` for any other.

    Examples
    --------
    >>> alike = {"whole": np.ones(1), "present": np.array([200.0]), "distinct": np.array([200.0])}
    >>> _doubt(alike | {"quantiles": np.array([[2.0, 3, 5, 7, 9]])}, 0, "code")
    'column "code" looks like an identifier, because all values of each peer differ; leave it out'
    """
    if not tensors["whole"][index]:
        return None
    middle = float(np.abs(tensors["quantiles"][index]).max(initial=0.0))
    if middle > MAX_EXACT:
        return (
            f'column "{name}" looks like an identifier or a timestamp, and models in single precision are exact up to '
            f"{MAX_EXACT:,} only; leave it out, or give a difference of times"
        )
    present = float(tensors["present"][index])
    if present >= MIN_DISTINCT_VALUES and tensors["distinct"][index] == present:
        return f'column "{name}" looks like an identifier, because all values of each peer differ; leave it out'
    return None
