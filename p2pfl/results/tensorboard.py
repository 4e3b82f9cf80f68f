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

MEAN = "mean"
"""Name of the curves of the mean over the peers; beside it each peer has its own."""

FIELDS = ("training_loss", "distance", "update", "privacy_spent")
"""Fields of a record that are curves besides its scores."""

LONGEST = 100
"""Largest number of characters of the name of a directory."""

EVENTS = "events.out.tfevents.*"
"""Names of event files."""


def write(runs: Mapping[str, Run], folder: Path, *, peers: bool) -> list[Path]:
    """Write the rounds of runs for TensorBoard.

    Each curve has a directory of its own below that of its run, as TensorBoard expects. A step is a round, counted from
    1. The time of a round is that of its last record; that of a simulation follows from its start and the seconds of
    its rounds.

    Parameters
    ----------
    runs
        Runs by name.
    folder
        Directory, as for ``tensorboard --logdir``.
    peers
        True if each peer has curves besides the mean over the peers that do not attack.

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
        import tensorboardX  # noqa: F401, PLC0415 (an extra)
    except ImportError:
        raise InputError(
            "event files need tensorboardX, which is not installed; run "
            '`pip install "p2pfl-mqtt[tensorboard]"`, or use --csv'
        ) from None
    places: dict[Path, tuple[Run, Sequence[Sequence[Record]]]] = {}
    for name, run in runs.items():
        if not run.metrics:
            raise InputError(f"the run in {run.folder} has no records; let it run longer")
        places |= {folder / _safe(name) / part: (run, records) for part, records in _parts(run, peers=peers)}
    for place in places:
        if any(place.glob(EVENTS)):
            raise InputError(f"{place} has event files already, to which TensorBoard would add; choose another place")
    for place, (run, records) in places.items():
        _written(place, records, began=run.provenance.get("began"))
    return [*places]


def _parts(run: Run, *, peers: bool) -> Iterator[tuple[str, Sequence[Sequence[Record]]]]:
    """Yield the name of each directory of a run, and its records by round."""
    rounds = by_round(run.honest)
    yield MEAN, [*rounds.values()]
    for peer in sorted({record.peer for record in run.metrics}) if peers else ():
        yield peer, [[record] for record in run.metrics if record.peer == peer]


def _written(place: Path, rounds: Sequence[Sequence[Record]], *, began: str | None) -> None:
    """Write the event file of one directory."""
    from tensorboardX import SummaryWriter  # noqa: PLC0415 (an extra)

    now = 0.0 if began is None else datetime.fromisoformat(began).timestamp()
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)  # only its owner reads scores and losses
        with SummaryWriter(str(place)) as writer:
            for records in rounds:
                known = [record.time.timestamp() for record in records if record.time is not None]
                spent = max(record.seconds_training + record.seconds_waiting for record in records)
                now = max(known) if known else now + spent
                for name, value in _scalars(records):
                    writer.add_scalar(name, value, records[0].round + 1, walltime=now)
    except OSError as error:
        raise InputError(f"{place} cannot be written ({error.strerror}); choose another directory") from None


def _scalars(records: Sequence[Record]) -> Iterator[tuple[str, float]]:
    """Yield the mean of each score and field that all records have; of the bytes their sum."""
    found: list[tuple[str, list[Any]]] = [
        (f"scores/{name}", [record.scores.get(name) for record in records])
        for name in dict.fromkeys(name for record in records for name in record.scores)
    ]
    found += [(f"training/{name}", [getattr(record, name) for record in records]) for name in FIELDS]
    for name, values in found:
        known = [value for value in values if value is not None]
        if known:
            yield name, sum(known) / len(known)
    yield "cost/bytes_sent", float(sum(record.bytes_out for record in records))


def _safe(name: str) -> str:
    """Return a name for a directory.

    Examples
    --------
    >>> _safe("fedavg, rate 0.1, seed 3"), _safe("../a")
    ('fedavg, rate 0.1, seed 3', '_a')
    """
    return re.sub(r"[^\w.,= -]", "_", name).lstrip(".")[:LONGEST] or "run"
