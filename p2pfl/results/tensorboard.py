"""Rounds of runs as event files, which TensorBoard reads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from p2pfl.core.errors import InputError
from p2pfl.results.records import Record, by_round
from p2pfl.results.run import Run

FIELDS = ("training_loss", "distance", "update", "privacy_spent")
"""Fields of a record that are curves besides its scores."""

MAX_NAME = 100
"""Largest number of characters of the name of a directory."""


def write(runs: Mapping[str, Run], folder: Path) -> list[Path]:
    """Write the rounds of runs for TensorBoard: means over the peers that do not attack.

    Each run has a directory, as TensorBoard expects. A step is a round, counted from 1. The time of a round is that of
    its last record; that of a simulation follows from its start and the seconds of its rounds.

    Parameters
    ----------
    runs
        Runs by name.
    folder
        Directory, as for ``tensorboard --logdir``.

    Returns
    -------
    list of pathlib.Path
        Directories with event files.

    Raises
    ------
    InputError
        tensorboardX is not installed, a run has no records, or a directory has event files or cannot be written.
    """
    try:
        from tensorboardX import SummaryWriter  # noqa: PLC0415 (an extra)
    except ImportError:
        raise InputError(
            "event files need tensorboardX, which is not installed; run "
            '`pip install "p2pfl-mqtt[tensorboard]"`, or use --csv'
        ) from None
    folders = {folder / _safe(name): run for name, run in runs.items()}
    for target, run in folders.items():
        if not run.metrics:
            raise InputError(f"the run in {run.folder} has no records; let it run longer")
        if any(target.glob("events.out.tfevents.*")):
            raise InputError(f"{target} has event files already, to which TensorBoard would add; choose another place")
    for target, run in folders.items():
        began = run.provenance.get("began")
        now = 0.0 if began is None else datetime.fromisoformat(began).timestamp()
        try:
            target.mkdir(mode=0o700, parents=True, exist_ok=True)  # only its owner reads scores and losses
            with SummaryWriter(str(target)) as writer:
                for round, records in by_round(run.honest).items():
                    times = [record.time.timestamp() for record in records if record.time is not None]
                    spent = max(record.seconds_training + record.seconds_waiting for record in records)
                    now = max(times) if times else now + spent
                    for name, value in _scalars(records):
                        writer.add_scalar(name, value, round + 1, walltime=now)
        except OSError as error:
            raise InputError(f"{target} cannot be written ({error.strerror}); choose another directory") from None
    return [*folders]


def _scalars(records: Sequence[Record]) -> Iterator[tuple[str, float]]:
    """Yield the mean of each score and field that all records have; of the bytes their sum."""
    columns: list[tuple[str, list[Any]]] = [
        (f"scores/{name}", [record.scores.get(name) for record in records])
        for name in dict.fromkeys(name for record in records for name in record.scores)
    ]
    columns += [(f"training/{name}", [getattr(record, name) for record in records]) for name in FIELDS]
    for name, values in columns:
        numbers = [value for value in values if value is not None]
        if numbers:
            yield name, sum(numbers) / len(numbers)
    yield "cost/bytes_sent", float(sum(record.bytes_out for record in records))


def _safe(name: str) -> str:
    """Return a name for a directory.

    Examples
    --------
    >>> _safe("fedavg, rate 0.1, seed 3"), _safe("../a")
    ('fedavg, rate 0.1, seed 3', '_a')
    """
    return re.sub(r"[^\w.,= -]", "_", name).lstrip(".")[:MAX_NAME] or "run"
