"""Exact statistics of training data in what a run leaves: one list of what they are, where, and who may see them.

No guarantee covers them. Only their owner can read the files that hold them (:data:`p2pfl.core.files.OWNER_ONLY`), and
a card leaves them out unless it is asked for them. A test compares
docs/protection.md with the list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class ExactStatistic:
    """Statistic that is computed from training data or test data, without noise.

    Attributes
    ----------
    what
        Statistic, in words.
    files
        Files that hold it, which only their owner can read.
    card
        What a model card does with it.
    keys
        Places in ``model.json``, for what a card might print; ``columns`` stands for each column.
    """

    what: str
    files: tuple[str, ...]
    card: Literal["left out", "left out unless declared", "not in it", "printed"]
    keys: tuple[str, ...] = ()


MODELS = ("model.json", "peers/*.safetensors", "exported models")
"""Files with the description of a model."""

EXACT_STATISTICS = (
    ExactStatistic(
        "mean and deviation of each feature",
        (*MODELS, "summary.json (data.scale)"),
        "left out",
        ("inputs.mean", "inputs.deviation"),
    ),
    ExactStatistic(
        "what a missing cell becomes: the mean of a column, or its most frequent level",
        MODELS,
        "left out unless declared",
        ("inputs.columns.missing",),
    ),
    ExactStatistic(
        "the levels of a text column that occur, and what an unknown text becomes",
        MODELS,
        "left out unless declared",
        ("inputs.columns.levels", "inputs.columns.unknown"),
    ),
    ExactStatistic(
        "mean and deviation of a predicted target", MODELS, "left out", ("outputs.mean", "outputs.deviation")
    ),
    ExactStatistic("names of the classes that occur", MODELS, "printed"),
    ExactStatistic(
        "the parameters of a model from exact totals, and what it says of features",
        ("peers/*.safetensors", "peers/*.state", "exported models", "summary.json"),
        "not in it",
    ),
    ExactStatistic(
        "enciphered digests of the cells of a table that totals had, and the number of people of each run",
        ("*.budget.jsonl beside the table",),
        "not in it",
    ),
    ExactStatistic("the totals that all peers received", ("peers/*.evidence*.jsonl",), "not in it"),
    ExactStatistic(
        "losses, scores and numbers of samples, also of test data",
        ("metrics.jsonl", "events.jsonl", "summary.json", "sweep.json", "sweep.csv", "comparison.csv"),
        "printed",
    ),
)
"""All of them."""


def without_exact(description: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of ``model.json`` without exact statistics; a left-out value is ``None``.

    Examples
    --------
    >>> inputs = {"columns": [{"name": "age", "missing": 41.5}], "mean": [41.5]}
    >>> without_exact({"inputs": inputs})
    {'inputs': {'columns': [{'name': 'age', 'missing': None}], 'mean': None}}
    >>> without_exact({"inputs": inputs | {"declared": True}})["inputs"]["columns"]
    [{'name': 'age', 'missing': 41.5}]
    """
    stripped = dict(description)
    declared = bool(stripped.get("inputs", {}).get("declared"))
    for statistic in EXACT_STATISTICS:
        if not (declared and statistic.card == "left out unless declared"):
            for key in statistic.keys:
                stripped = _without(stripped, key.split("."))
    return stripped


def _without(table: Mapping[str, Any], path: list[str]) -> dict[str, Any]:
    first, *rest = path
    if table.get(first) is None:
        return dict(table)
    if not rest:
        return {**table, first: None}
    inner = table[first]
    cut = [_without(each, rest) for each in inner] if isinstance(inner, list) else _without(inner, rest)
    return {**table, first: cut}
