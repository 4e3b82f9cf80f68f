"""Results as tables."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from p2pfl.cli import terminal
from p2pfl.experiment.catalogue import model_traits
from p2pfl.results.comparisons import comparison_tables
from p2pfl.results.comparisons import wording as comparing
from p2pfl.results.facts import FactTable, Styled
from p2pfl.results.formats import describe_exchange, number, size
from p2pfl.results.notices.notice_groups import group_notices
from p2pfl.results.pages.features import coefficient_table, fit_facts, importance_table, proportionality_table
from p2pfl.results.pages.gains import INTERVAL_HEAD, gain_table, lossless_note
from p2pfl.results.records import by_round, mean_scores
from p2pfl.results.run_files import alarms_of, apart_by_masks, evaluation_of, explanation_of, stop_of
from p2pfl.results.saved_models import SavedModels
from p2pfl.results.swarm.timeline import alerts_of_run

if TYPE_CHECKING:
    from p2pfl.core.explanations import FeatureImportance, FittedRegression
    from p2pfl.results import Run  # what it prints need not be imported twice
    from p2pfl.results.comparisons.comparison import Comparison
    from p2pfl.results.models import Evaluation
    from p2pfl.results.models.model_evaluation import Score

MOST_PENALTIES = 20
"""Penalties of a path that are printed."""

MAX_LISTED_PEERS = 16
"""Peers that a summary lists."""

STYLES = {"good": "green", "bad": "red", "best": "bold"}
"""Styles of a terminal for those of facts."""


def grid(first: str, *others: str) -> Table:
    """Return a table without rules, with its numbers aligned to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 1), caption_justify="left", title_justify="left")
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="left" if name == "doing" else "right", no_wrap=True)
    return table


def render(facts: FactTable) -> Table:
    """Return a table of facts for a terminal."""
    table = grid(*facts.heads)
    for position, column in enumerate(table.columns):
        column.justify = "left" if position < facts.text or not facts.heads[position] else "right"
        column.no_wrap = position >= facts.text
    for position, row in enumerate(facts.rows):
        cells = [Text(str(each), STYLES.get(each.style, "") if isinstance(each, Styled) else "") for each in row]
        table.add_row(*cells, style="bold" if position in facts.bold else None)
    return table


def summary(result: Mapping[str, Any], folder: Path, *, console: Console | None = None) -> None:
    """Print what learning together gave, to standard error if nothing else is said."""
    console = console or terminal.console(stderr=True)
    gains: list[RenderableType] = [Text(), _gains(result)] if result.get("metric") else []  # a statistic has no scores
    lines = [] if "together" not in result else [*gains, Text(), *_facts(result)]
    if "scores" in result:  # of one peer
        scores = ", ".join(f"{name} {number(value)}" for name, value in result["scores"].items())
        lines.append(Text(f"{result['peer']} has learned: {scores}" if scores else f"{result['peer']} has the result"))
        lines += [Text(sentence) for sentence in comparing.describe_gain(result)]
        lines += [Text(sentence) for sentence in (*_computing(result), *_written(result))]
        lines += [*_stop_lines(result), *_account_lines(result), *_alarms(result)]
    explanation = explanation_of(result)
    if explanation is not None and explanation.regression is not None:
        lines.append(Text(f"regression of {explanation.regression.size}"))
    lines.append(Text(f"run directory: {folder}"))
    if (folder / "model.json").is_file():
        lines += [Text(sentence) for sentence in _usable(folder)]
    console.print(Group(*lines), soft_wrap=not console.is_terminal)


def history(run: Run) -> None:
    """Print the rounds of a run and its summary; scores and distances are means over the peers that do not attack.

    Distances are left out where they measure the masks.
    """
    attackers = run.attackers
    metrics = list(dict.fromkeys(name for record in run.metrics for name in record.scores))
    distance = [] if apart_by_masks(run.summary, run.experiment) else ["distance"]
    table = grid("round", *metrics, *distance, "training", "waiting", "sent", "missed")
    sent: dict[str, int] = {}
    for round, peers in by_round(run.metrics).items():
        honest = [record for record in peers if record.peer not in attackers] or peers
        means = mean_scores(honest)
        sent |= {record.peer: record.bytes_out for record in peers}  # those of peers that are gone stay
        table.add_row(
            str(round + 1) if len(peers) == len(sent) else f"{round + 1} ({len(peers)} peers)",
            *(number(means[name]) if name in means else "" for name in metrics),
            *(f"{_mean([record.distance for record in honest]):.2g}" for _ in distance),
            f"{_mean([record.seconds_training for record in peers]):.2f} s",
            f"{_mean([record.seconds_waiting for record in peers]):.2f} s",
            size(sum(sent.values())),
            str(sum(len(record.missed) for record in peers)),
        )
    console = terminal.console()
    if run.metrics:
        console.print(table)
    else:
        console.print("no round was completed")
    if run.summary and run.folder is not None:
        summary(run.summary, run.folder, console=console)
    else:
        for alert in reversed(alerts_of_run(run)):  # the newest is next to the prompt
            style = "bold red" if alert.severity == "alarm" and not alert.over else "yellow"
            console.print(Text(f"{alert.peer}: {alert.sentence}", style=style), soft_wrap=True)
        console.print("the run is not finished, so there is no summary")


def facts(pairs: Mapping[str, str]) -> None:
    """Print facts, one a line."""
    table = Table.grid(padding=(0, 2))
    for name, value in pairs.items():
        table.add_row(Text(name, style="dim"), value)
    terminal.console().print(table)


def _usable(folder: Path) -> Iterator[str]:
    """Yield how to use the models of a run directory."""
    about = json.loads((folder / "model.json").read_text())
    traits = model_traits(about["model"]["name"])
    models = SavedModels(folder / "peers")
    peers = [peer for peer in models if models.describes_inputs(peer)]
    if about.get("private"):
        if len(models) > 1:
            yield "each file in peers/ has the part of its peer; p2pfl predict takes the run if all are there"
        elif traits.predicts:
            table = "TABLE" if peers else "-"  # a helper has none
            yield f"p2pfl predict {folder} {table} --live predicts with the other peers, which run the same"
    elif traits.predicts:
        yield "model.json there says how raw values become inputs of the models in peers/"
    if traits.command and peers:
        what = "the coefficients" if traits.predicts else "the result"
        whose = f" of {peers[0]}" if about.get("private") else ""
        yield f"p2pfl {traits.command} {folder / 'peers' / peers[0]}.safetensors prints {what}{whose}"


def _gains(result: Mapping[str, Any]) -> Table:
    table = render(gain_table(result, most=MAX_LISTED_PEERS).without("samples", INTERVAL_HEAD))
    table.title, table.title_style = f"What learning together gave ({result['metric']})", "bold"
    table.caption = lossless_note(result)
    return table


def _rounds(result: Mapping[str, Any]) -> str:
    """Return how many rounds of what a run took."""
    count = result["rounds"]
    return f"{count} round{'' if count == 1 else 's'} of {describe_exchange(result['steps'])}"


def _computing(result: Mapping[str, Any]) -> list[str]:
    """Return the share of the time in which peers train, if it is known."""
    return [] if result.get("computing") is None else [f"{result['computing']:.1%} of the time training"]


def _written(result: Mapping[str, Any]) -> list[str]:
    """Return what a peer writes, if it is known."""
    written = result.get("bytes_written")
    return [] if written is None else [f"{size(written)} written by a peer in a round since its last start"]


def _facts(result: Mapping[str, Any]) -> list[RenderableType]:
    """Return what a run cost, and what went wrong in it."""
    when = f"{result['wall_s']:.1f} s{', as predicted' if result.get('predicted') else ''}"
    parts = [
        f"{_rounds(result)} in {when}, {result['start_s']:.1f} s to start",
        *_computing(result),
        f"{size(result['bytes_sent'])} sent by {result['peers']} peers",
    ]
    if result["peer_memory"] is not None:
        parts.append(f"{size(result['peer_memory'])} of private memory a peer")
    parts += _written(result)
    lines: list[RenderableType] = [Text(", ".join(parts)), *_stop_lines(result)]
    if sentence := evaluation_of(result):
        lines.append(Text(sentence))
    if result["missed"]:
        lines.append(Text(f"{result['missed']} models did not arrive in time", style="yellow"))
    lines += [*_account_lines(result), *_alarms(result)]
    lines.append(Text(f"privacy: {result['privacy']['statement']}"))
    return [*lines, *(Text(f"advice: {sentence}", style="yellow") for sentence in result.get("advice", ()))]


def _stop_lines(result: Mapping[str, Any]) -> list[Text]:
    stop = stop_of(result)
    return [] if stop is None else [Text(f"stopped after {stop}", style="yellow")]


def _account_lines(result: Mapping[str, Any]) -> list[Text]:
    """Return that the run is missing in the account of its data, if it is; earlier runs do not say."""
    sentence = "the account of the data does not count this run: it ran with --unaccounted"
    return [] if result.get("accounted", True) else [Text(sentence, style="bold red")]


def _alarms(result: Mapping[str, Any]) -> list[Text]:
    """Return what harmed the result, for whoever did not watch."""
    alarms = group_notices(alarms_of(result))
    return [Text(f"{alarm.peer}: {alarm}{more}", style="bold red") for alarm, more in alarms]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def comparison(outcome: Comparison, *, console: Console) -> None:
    """Print settings, differences, costs and what one must know to read them."""
    if not console.is_terminal:
        console = terminal.console(stderr=console.stderr, quiet=console.quiet, wide=True)
    console.print()
    console.print(render(comparison_tables.scores(outcome)))
    console.print()
    console.print(render(comparison_tables.costs(outcome)))
    console.print()
    for sentence in (*([comparing.bold(outcome)] if console.is_terminal else []), *comparing.notes(outcome)):
        console.print(Text(sentence, style="dim"), soft_wrap=not console.is_terminal)
    for sentence in comparing.warnings(outcome):
        console.print(Text(f"WARNING: {sentence}", style="yellow"), soft_wrap=not console.is_terminal)


def regression(fitted: FittedRegression) -> None:
    """Print the coefficients, as statistics software does."""
    console = terminal.console(wide=True)
    console.print(render(_fitting(coefficient_table(fitted), console)))
    if fitted.tests:
        tests = proportionality_table(fitted)
        console.print()
        console.print(tests.caption)
        console.print(render(tests))
    if fitted.path:
        console.print()
        console.print(_penalties(fitted))
    for note in fitted.notes():
        console.print()
        console.print(Text(note), soft_wrap=not console.is_terminal)
    console.print()
    facts(fit_facts(fitted))


def _fitting(table: FactTable, console: Console) -> FactTable:
    """Return a table of coefficients without the columns for which a terminal is too narrow."""
    left_out = ((), ("z", "t"), ("z", "t", "std. error"))
    choices = [table.without(*heads) for heads in left_out]
    fitting = (each for each in choices if max(map(len, each.lines())) <= console.width)
    return next(fitting, choices[-1])


def importances(ranking: Sequence[FeatureImportance]) -> None:
    """Print the importances of the features of trees, the most important first."""
    terminal.console().print(render(importance_table(ranking)))


def _penalties(fitted: FittedRegression) -> Table:
    """Return the penalties of a path, of many every few and the chosen one."""
    validated = "validation" in fitted.path[0]
    table = grid("lambda", "features", "deviance", *(["validation"] if validated else []))
    table.columns[0].justify = "right"
    chosen, every = int(fitted.facts["chosen"] or 0), max(1, len(fitted.path) // MOST_PENALTIES)
    for position, each in enumerate(fitted.path):
        if position % every == 0 or position == chosen:
            cells = [f"{each['lambda']:.4g}", str(each["features"]), f"{each['deviance']:.5g}"]
            cells += [f"{each['validation']:.5g}"] if validated else []
            table.add_row(*cells, style="bold" if position == chosen else None)
    return table


def evaluation(result: Evaluation) -> None:
    """Print the scores of all samples, and below them those of each group."""
    console = terminal.console()
    table = grid("score", "value", "95 % interval")
    for name, score in result.whole.scores.items():
        table.add_row(name.replace("_", " "), number(score.value, unknown="-"), _interval(score))
    left_out = f", {result.left_out} rows left out because a cell is missing" if result.left_out else ""
    console.print(f"{result.whole.samples} samples{left_out}")
    console.print(table)
    if (test := result.goodness) is not None:
        statistic = f"statistic {number(test.statistic)} with {test.groups} degrees of freedom, p = {test.p:.4f}"
        console.print(f"\nHosmer-Lemeshow test, {test.groups} groups by probability: {statistic}.")
    if result.by is not None:
        first = "auc" if "auc" in result.whole.scores else "r2"
        groups = grid(result.by, "samples", "loss", "95 % interval", first, "95 % interval")
        for group in result.groups:
            cells = [cell for name in ("loss", first) for cell in _cells(group.scores[name])]
            groups.add_row(Text(group.name), str(group.samples), *cells)
        console.print()
        console.print(groups)
    console.print(f"\nIntervals are percentiles of {result.draws} bootstrap samples, drawn with seed {result.seed}.")


def _cells(score: Score) -> tuple[str, str]:
    return number(score.value, unknown="-"), _interval(score)


def _interval(score: Score) -> str:
    return "-" if math.isnan(score.low) else f"{number(score.low)} to {number(score.high)}"
