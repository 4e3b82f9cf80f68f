"""Read the files of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from p2pfl.report.notices.damage import LossRose, MasksUncancelled
from p2pfl.report.results import BudgetStop

SCORES = {"scores", "before", "now"}
"""Fields of records and notices that hold scores by name, in which NaN is written as null."""


def restored(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record or a notice as JSON has it, with NaN for each score that is null.

    Examples
    --------
    >>> restored({"round": 3, "scores": {"loss": None}})
    {'round': 3, 'scores': {'loss': nan}}
    """
    found = {key: table[key] for key in SCORES & table.keys() if isinstance(table[key], dict)}
    whole = {
        key: {name: math.nan if score is None else score for name, score in scores.items()}
        for key, scores in found.items()
    }
    return {**table, **whole}


def stop_of(summary: Mapping[str, Any]) -> BudgetStop | None:
    """Return how the budget stopped a run, as read from ``summary.json``; ``None`` if it did not."""
    return msgspec.convert(summary.get("stopped"), BudgetStop | None)


def alone_of(summary: Mapping[str, Any]) -> dict[str, float]:
    """Return the scores of the model that one peer has trained alone, as read from its ``summary.json``.

    There are none in the summary of all peers, whose ``alone`` is the mean of one score.
    """
    found = summary.get("alone") if "scores" in summary else None
    return {name: score for name, score in (found or {}).items() if score is not None}


def alarms_of(summary: Mapping[str, Any]) -> list[MasksUncancelled | LossRose]:
    """Return the alarms that a summary lists, as read from ``summary.json``."""
    listed = [restored(alarm) for alarm in summary.get("alarms", ())]
    return msgspec.convert(listed, list[MasksUncancelled | LossRose])
