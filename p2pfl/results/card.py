"""Model card of a run, as Markdown: what was trained, on which columns, its scores, and what protects the data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from p2pfl.core.errors import InputError
from p2pfl.experiment.catalogue import model_traits
from p2pfl.results.exact_statistics import without_exact
from p2pfl.results.facts import FactTable
from p2pfl.results.formats import number
from p2pfl.results.notices.notice_groups import group_notices
from p2pfl.results.pages.rendering import markdown
from p2pfl.results.run import Run
from p2pfl.results.run_files import alarms_of, scored_peers, scores_alone

COLUMN_HEADS = ("column", "values", "a missing cell becomes", "an unknown text becomes")
"""Heads of the table of columns."""

MAX_LISTED_PEERS = 16
"""Peers whose scores a card lists."""


def card(run: Run, *, exact: bool = False) -> str:
    """Return the model card of a run that has ended.

    A card contains no sample. Its scores are statistics of the peers' test data, see its own section on limits.
    It does not name the seed of a run with private noise.

    Parameters
    ----------
    run
        Run, as :meth:`p2pfl.results.run.Run.load` gives it.
    exact
        Whether to print exact statistics of the training data, such as what a missing cell becomes, for data that are
        public; see :mod:`p2pfl.results.exact_statistics`.

    Returns
    -------
    str
        Markdown with the front matter of the Hugging Face hub.

    Raises
    ------
    InputError
        The run has not ended, or p2pfl does not know its model.

    References
    ----------
    Mitchell et al. Model cards for model reporting. FAccT 2019, arXiv:1810.03993.
    """
    if not run.summary:
        raise InputError(f"the run in {run.folder} has not ended; resume it, then write its card")
    if not run.description:
        raise InputError(
            f"the run in {run.folder} has no model.json, as with a learner of your own; describe it yourself"
        )
    about, summary = run.description, run.summary
    traits, privacy, listed = model_traits(about["model"]["name"]), summary["privacy"], about["inputs"]["columns"]
    shown = about if exact else without_exact(about)
    columns = (
        None if listed is None else FactTable("", COLUMN_HEADS, [*map(_column, listed, shown["inputs"]["columns"])])
    )
    facts = {
        "about": about,
        "outputs": about["outputs"],
        "experiment": run.experiment,
        "summary": summary,
        "traits": traits,
        "privacy": privacy,
        "columns": columns,
        "scores": _scores(summary) if traits.predicts else None,
        "most": MAX_LISTED_PEERS,
        "noisy": bool(privacy["noise"])
        or privacy["participation"] < 1
        or privacy["examples"] is not None,  # a seed shows it
        "hidden": not exact and not about["inputs"].get("declared"),
        "alarms": [f"Alarm of {alarm.peer}: {alarm}{more}." for alarm, more in group_notices(alarms_of(summary))],
    }
    return markdown("card.md", facts)


def _column(column: Mapping[str, Any], shown: Mapping[str, Any]) -> list[str]:
    """Return the cells of a column, with what may be shown of it; "left out" in place of the rest."""
    kind = "whole numbers" if column.get("integer") else "numbers"
    text = column["levels"] is not None
    values = kind if not text else "texts" if shown["levels"] is None else ", ".join(shown["levels"])
    if column.get("since"):
        values = f"days since {column['since']}"
    if column.get("codes"):
        values += f"; missing: {', '.join(column['codes'])}"
    if column.get("range"):
        values += f"; from {column['range'][0]:g} to {column['range'][1]:g}"
    rules = [_rule(column.get(key), shown.get(key)) for key in ("missing", "unknown")]
    if column.get("drop"):
        rules[0] = "an error; not in training"
    return [column["name"], values, rules[0], rules[1] if text else "-"]


def _rule(value: object, shown: object) -> str:
    return "an error" if value is None else "left out" if shown is None else str(shown)


def _scores(summary: Mapping[str, Any]) -> FactTable:
    if "scores" in summary:  # of one peer
        alone = scores_alone(summary)
        rows = [[name, _score(value), _score(alone.get(name), "")] for name, value in summary["scores"].items()]
        return FactTable("", ("score", "together", "alone"), rows).dense()
    scored = scored_peers(summary).items()
    rows = [[peer, _score(each["alone"]), _score(each["together"])] for peer, each in scored]
    mean = [["mean", _score(summary["alone"]), _score(summary["together"])]] if len(rows) > 1 else []
    return FactTable("", ("peer", "alone", "together"), [*rows[:MAX_LISTED_PEERS], *mean])


def _score(value: float | None, unknown: str = "-") -> str:
    return number(value, unknown=unknown)
