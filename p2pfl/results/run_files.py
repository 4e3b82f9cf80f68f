"""Read the files of a run."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from p2pfl.core.errors import InputError
from p2pfl.core.explanations import Explained
from p2pfl.experiment import Experiment, plain
from p2pfl.experiment.file.own_code import references
from p2pfl.results.content import Evaluated
from p2pfl.results.notices.kinds import SCHEMA, LossRose, Notice, kind_of, kinds
from p2pfl.results.records import Record
from p2pfl.results.spending.stated import BudgetStop

DELETION_FILE = "deleted.json"
"""Name of the list of what ``p2pfl forget`` has deleted of a run."""

SCORE_FIELDS = {"scores", "before", "now"}
"""Fields of records and notices that hold scores by name, in which NaN is written as null."""


def restore(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record or a notice as JSON has it, with NaN for each score that is null.

    Examples
    --------
    >>> restore({"round": 3, "scores": {"loss": None}})
    {'round': 3, 'scores': {'loss': nan}}
    """
    nullable = {key: table[key] for key in SCORE_FIELDS & table.keys() if isinstance(table[key], dict)}
    whole = {
        key: {name: math.nan if score is None else score for name, score in scores.items()}
        for key, scores in nullable.items()
    }
    return {**table, **whole}


def records_of(path: Path) -> list[Record]:
    """Return all records of a file except an incomplete last line.

    Raises
    ------
    InputError
        The file cannot be read, or a line is no record of this version.
    """
    return [_convert(table, Record, position, what="a record") for position, table in _tables(path, what="a record")]


def events_of(path: Path) -> list[Notice]:
    """Return all notices of a file except an incomplete last line; none if the run has no such file.

    Raises
    ------
    InputError
        The file cannot be read, or a line is no notice of this version.
    """
    if not path.exists():
        return []
    union: Any = functools.reduce(operator.or_, kinds().values())
    return [_convert(table, union, position, what="an event") for position, table in _tables(path, what="an event")]


def _tables(path: Path, *, what: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the place and the object of each complete line."""
    lines = _read(path).splitlines(keepends=True)
    if lines and not lines[-1].endswith(b"\n"):
        lines.pop()
    for number, line in enumerate(lines, start=1):
        position = f"{path}, line {number}"
        try:
            table = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            raise InputError(f"{position}: the line is not {what} ({error}); delete it to read the others") from None
        check_schema(table, position)
        yield position, restore(table)


def _convert(table: dict[str, Any], kind: Any, position: str, *, what: str) -> Any:
    try:
        return msgspec.convert(table, kind)
    except msgspec.MsgspecError as error:
        raise InputError(f"{position}: the line is not {what} ({error}); delete it to read the others") from None


def check_schema(table: Mapping[str, Any], source: str | Path) -> None:
    """Refuse what another release has written in a format that this one does not read.

    Raises
    ------
    InputError
        The table names another version of its format.
    """
    theirs = table.get("schema", SCHEMA)
    if theirs != SCHEMA:
        raise InputError(
            f"{source}: the schema is version {theirs!a:.20}, and this release of p2pfl reads version {SCHEMA}; use "
            "the release that wrote it"
        )


def table_of(path: Path, *, what: str) -> dict[str, Any]:
    """Return the JSON object of a file; empty if the run did not get that far or is older.

    Raises
    ------
    InputError
        The file cannot be read, or is no object of this version.
    """
    if not path.exists():
        return {}
    try:
        table = msgspec.json.decode(_read(path), type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise InputError(f"{path}: the file is not {what} ({error}); delete it to read the rest") from None
    check_schema(table, path)
    return table


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: the file cannot be read ({error.strerror}); check its permissions") from None


def stop_of(summary: Mapping[str, Any]) -> BudgetStop | None:
    """Return the stop of a run by the budget, as read from ``summary.json``; ``None`` if there was none."""
    return msgspec.convert(summary.get("stopped"), BudgetStop | None)


def evaluation_of(summary: Mapping[str, Any]) -> str:
    """Return in a sentence how much a simulation evaluated, as read from ``summary.json``; empty if that was all.

    Examples
    --------
    >>> evaluation_of({"peers": 4000, "evaluation": {"every": 5, "peers": 77}})
    'scores of one in 5 rounds are those of 77 of 4000 peers; the last round is evaluated in full'
    """
    evaluated = msgspec.convert(summary.get("evaluation"), Evaluated | None)
    if evaluated is None:
        return ""
    every = "each round" if evaluated.every == 1 else f"one in {evaluated.every} rounds"
    of = "all peers" if evaluated.peers == summary["peers"] else f"{evaluated.peers} of {summary['peers']} peers"
    return f"scores of {every} are those of {of}; the last round is evaluated in full"


def explanation_of(summary: Mapping[str, Any]) -> Explained | None:
    """Return the explanation of a model, as read from ``summary.json``; ``None`` if it has none."""
    return msgspec.convert(summary.get("explained"), Explained | None)


def apart_by_masks(summary: Mapping[str, Any], experiment: Experiment) -> bool:
    """Return whether masks dominate the last gossip step of a round, so that distances show nothing of consensus.

    The number of gossip steps is that of the summary of all peers, or else follows from the experiment. Masks count as
    dominant where the topology cannot be read.
    """
    from p2pfl.experiment.catalogue import mode_traits  # noqa: PLC0415 (only some commands need it)
    from p2pfl.experiment.composition import Composition  # noqa: PLC0415
    from p2pfl.experiment.parts.gossip_parts import mixing_weights, steps_of_round  # noqa: PLC0415
    from p2pfl.experiment.parts.peer_graph import built  # noqa: PLC0415 (imports networkx)

    if "steps" not in summary and references(plain(experiment)):  # a run directory may name anybody's code
        return True
    masked = summary["privacy"]["mask"] > 0 if "privacy" in summary else mode_traits(experiment.privacy.mode).masks
    if not masked or "steps" in summary:
        return masked and summary["steps"] == 1
    try:
        topology = built(experiment)
        return steps_of_round(Composition.of(experiment), topology, mixing_weights(experiment, topology))[0] == 1
    except InputError:
        return True


def scored_peers(summary: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the scores of the peers that have one by name; of columns at different peers only one has."""
    scored = {name: each for name, each in summary["per_peer"].items() if each["together"] is not None}
    return scored or dict(summary["per_peer"])


def scores_alone(summary: Mapping[str, Any]) -> dict[str, float]:
    """Return the scores of the model that one peer has trained alone, as read from its ``summary.json``.

    There are none in the summary of all peers, whose ``alone`` is the mean of one score.
    """
    scores = summary.get("alone") if "scores" in summary else None
    return {name: score for name, score in (scores or {}).items() if score is not None}


def alarms_of(summary: Mapping[str, Any]) -> list[LossRose]:
    """Return the alarms that a summary lists, as read from ``summary.json``."""
    listed = [restore(alarm) for alarm in summary.get("alarms", ()) if alarm["kind"] == kind_of("LossRose")]
    return msgspec.convert(listed, list[LossRose])
