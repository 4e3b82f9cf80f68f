"""Record of one round of one peer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from p2pfl.core.errors import InputError
from p2pfl.results.notices.kinds import SCHEMA, STALLED_REMEDY

LATE_FACTOR = 3.0
"""Multiple of the time of others after which a model arrives by far last."""


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Round of one peer, a line of ``metrics.jsonl``.

    Attributes
    ----------
    schema
    time
        In UTC.
    peer
    round
        Counted from 0.
    scores
        On the test part: the score of ``summary.json`` and ``loss``; empty where the peer was not evaluated.
    training_loss
        Mean of the last local epoch.
    distance
        By which the last gossip step moved the model (L2); zero at consensus.
    update
        By which local training moved it, likewise.
    disagreement
        Of the release from the mean of all peers, likewise. Simulations only.
    diversity
        Mean squared norm of all updates over the squared norm of their mean: 1 where all agree. Simulations only.
    mixed
        Whether the scores are those after the last gossip step.
    mean_model
        Scores of the mean of all models. Simulations only.
    bytes_out
        Sent since the start of the run.
    bytes_in
        Received, likewise.
    seconds_training
        Of this round.
    seconds_waiting
        Likewise.
    received
        Models used in this round.
    missed
        Neighbours whose model did not arrive in time.
    awaited
        Neighbours whose models arrived by far last, where the peer waited for them for more than a second.
    privacy_spent
        Epsilon so far against the broker and ``privacy.colluders`` peers.
    counted
        With ``simulation.devices``: whether an invited client counts, or is late.
    clock
        With ``simulation.devices``: virtual seconds from the start of the run to the end of the round.
    """

    schema: Literal[1] = SCHEMA
    time: datetime | None = None
    peer: str
    round: int
    scores: dict[str, float]
    training_loss: float | None
    distance: float
    bytes_out: int
    bytes_in: int
    seconds_training: float
    seconds_waiting: float
    received: int
    missed: list[str] = []
    awaited: list[str] = []
    privacy_spent: float | None = None
    update: float | None = None
    disagreement: float | None = None
    diversity: float | None = None
    mixed: bool | None = None
    mean_model: dict[str, float] = {}
    counted: bool | None = None
    clock: float | None = None


def late_senders(waits: Mapping[str, float]) -> list[str]:
    """Return the neighbours whose models arrived by far last; none where all were late, as over one's own slow link.

    Parameters
    ----------
    waits
        Seconds until the models of a round arrived, by neighbour.

    Examples
    --------
    >>> late_senders({"ada": 9.0, "bob": 0.2}), late_senders({"ada": 9.0, "bob": 8.0}), late_senders({"ada": 0.9})
    (['ada'], [], [])
    """
    last = max(waits.values(), default=0.0)
    late = sorted(name for name, seconds in waits.items() if seconds > last / LATE_FACTOR)
    return late if last > STALLED_REMEDY and len(late) < len(waits) else []


def by_round(records: Sequence[Record]) -> dict[int, list[Record]]:
    """Return the records of each round, in order."""
    rounds: dict[int, list[Record]] = {}
    for record in records:
        rounds.setdefault(record.round, []).append(record)
    return dict(sorted(rounds.items()))


def mean_scores(records: Sequence[Record]) -> dict[str, float]:
    """Return the mean of each score over the records that have it; a simulation may not evaluate every peer.

    Examples
    --------
    >>> some = {"training_loss": None, "distance": 0.0, "bytes_out": 0, "bytes_in": 0, "received": 0}
    >>> some |= {"round": 0, "seconds_training": 0.0, "seconds_waiting": 0.0}
    >>> mean_scores([Record(peer="ada", scores={"loss": 0.5}, **some), Record(peer="bob", scores={}, **some)])
    {'loss': 0.5}
    """
    values_by_name: dict[str, list[float]] = {}
    for record in records:
        for name, value in record.scores.items():
            values_by_name.setdefault(name, []).append(value)
    return {name: sum(values) / len(values) for name, values in values_by_name.items()}


def columns_of(records: Sequence[Record]) -> dict[str, list[Any]]:
    """Return the fields of records as columns of a table, with a column for each score; ``None`` where there is none.

    A score whose name is that of a field has ``score`` before it, and one of the mean model has ``mean_model_``.
    Simulations have no column of times.
    """
    apart = {"schema", "time", "scores", "missed", "awaited", "mean_model"}
    fields = [name for name in Record.__struct_fields__ if name not in apart]
    columns = {name: [getattr(record, name) for record in records] for name in fields}
    for name in dict.fromkeys(name for record in records for name in record.scores):
        column = f"score {name}" if name in {*fields, "time", "missed"} else name
        columns[column] = [record.scores.get(name) for record in records]
    for name in dict.fromkeys(name for record in records for name in record.mean_model):
        columns[f"mean_model_{name}"] = [record.mean_model.get(name) for record in records]
    columns |= {"missed": [" ".join(record.missed) for record in records]}
    timed = any(record.time is not None for record in records)
    return columns | ({"time": [record.time for record in records]} if timed else {})


def frame(columns: Mapping[str, Any], *, of: str, instead: str) -> Any:
    """Return columns as a pandas data frame.

    Parameters
    ----------
    columns
        Values by name.
    of
        Attribute that needs pandas, for an error.
    instead
        Attribute that has the same without pandas, likewise.

    Raises
    ------
    InputError
        Pandas is not installed.
    """
    try:
        import pandas as pd  # noqa: PLC0415 (an extra)
    except ImportError:
        raise InputError(
            f'{of} needs pandas, which is not installed; run pip install "p2pfl-mqtt[pandas]", or use {instead}'
        ) from None
    return pd.DataFrame(columns)
