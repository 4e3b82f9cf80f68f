"""The page of several runs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from p2pfl.results.comparisons import comparison_tables, figures, wording
from p2pfl.results.comparisons.comparison import Comparison
from p2pfl.results.facts import Block, BlockGroup, FactTable, Figure, Note, Section
from p2pfl.results.pages.rendering import fragment, page
from p2pfl.results.pages.run_page import provenance
from p2pfl.results.run import Run


@dataclass(frozen=True)
class ComparedRun:
    """A run and the place of its setting in the comparison."""

    run: Run
    setting: int


def comparison_page(comparison: Comparison, runs: Sequence[ComparedRun], *, name: str) -> str:
    """Return the page of a comparison.

    Parameters
    ----------
    comparison
        The comparison.
    runs
        The runs that it is made of, as far as they ended.
    name
        Title of the page.
    """
    first = "The first run has these keys; the others differ from it in the columns of the tables above."
    sections: list[Section] = [
        ("settings", "Scores", _settings(comparison)),
        ("curves", "Curves", _curves(comparison, runs)),
        ("costs", "What a run costs", [comparison_tables.costs(comparison)]),
        ("privacy", "Privacy", [_privacy(comparison, runs)]),
        ("seeds", "Every run", [comparison_tables.scores_by_seed(comparison)]),
        ("repeat", "How to repeat it", [first, *provenance(runs[0].run, whose="its")] if runs else []),
    ]
    count = sum(len(each.by_seed) for each in comparison.settings)
    about = f"Comparison of {len(comparison.settings)} settings in {count} p2pfl runs."
    warned = [Note(sentence, style="warning") for sentence in wording.warnings(comparison)]
    return page(name, sections, head=[Note(about, style="small"), Note(verdict(comparison), style="verdict"), *warned])


def comparison_fragment(comparison: Comparison) -> str:
    """Return the scores, differences and costs of a comparison as a part of a page, for notebooks."""
    warned = [f"Warning: {sentence}" for sentence in wording.warnings(comparison)]
    note = Note(verdict(comparison), style="strong")
    return fragment([note, *warned, *_settings(comparison), comparison_tables.costs(comparison)])


def verdict(comparison: Comparison) -> str:
    """Return the result of a comparison in a sentence or two."""
    best = [each for each in comparison.settings if each.best]
    if not best:
        return "No run has a score."
    if len(best) > 1:
        tested = [each.significant for each in comparison.differences if each.adjusted is not None]
        return f"{sum(tested)} of {len(tested)} settings differ significantly from their reference."
    [one] = best
    count = f"over {len(one.by_seed)} seeds" if len(one.by_seed) > 1 else "over one seed"
    sentence = (
        f"{wording.setting(one.values)} has the best mean, {comparison.metric} {wording.number(one.score)} {count}."
    )
    index = comparison.settings.index(one)
    mine = [each for each in comparison.differences if index in {each.setting, each.reference}]
    tested = [each.significant for each in mine if each.adjusted is not None]
    clear = f" It differs significantly from {sum(tested)} of the {len(tested)} that it is compared with."
    return sentence + (clear if tested else "")


def _settings(comparison: Comparison) -> list[Block | None]:
    notes = (wording.bold(comparison), *wording.notes(comparison))
    return [comparison_tables.scores(comparison), *(Note(sentence, style="small") for sentence in notes)]


def _curves(comparison: Comparison, runs: Sequence[ComparedRun]) -> list[Block | None]:
    """Return the score over rounds and over bytes, a line for each setting."""
    parts = [(part.setting, part.run) for part in runs]
    if not any(each.by_seed for each in comparison.settings) or not parts:
        return []
    ends = " ".join(
        f"{wording.setting(each.values)} ends at {each.score.mean:.3f}." for each in comparison.settings if each.score
    )
    about = figures.caption(comparison)
    drawn = [
        Figure(
            f"{comparison.metric} by {by}",
            f"{about} {ends}",
            partial(figures.figure, comparison, parts, by=by),
        )
        for by in figures.AXES
    ]
    return [BlockGroup(drawn, "figures"), Note(about, style="small")]


def _privacy(comparison: Comparison, runs: Sequence[ComparedRun]) -> Block | None:
    """Return each statement, with the settings that it is true of."""
    statements: dict[str, list[int]] = {}
    for part in runs:
        statement = part.run.summary.get("privacy", {}).get("statement")
        if statement is not None and part.setting not in statements.setdefault(statement, []):
            statements[statement].append(part.setting)
    if len(statements) == 1:
        return Note(next(iter(statements)), style="verdict")
    rows = [
        ["; ".join(wording.setting(comparison.settings[index].values) for index in settings), statement]
        for statement, settings in statements.items()
    ]
    caption = "statement of the runs of each setting"
    return FactTable(caption, ("setting", "statement"), rows, text=2) if statements else None
