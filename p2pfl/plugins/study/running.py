"""A sweep in its directory: runs that are there already are used, the others are made.

cells/DIGEST/     a run directory for each content
.partial/NAME/   what one running sweep has begun
sweep.json        the study and what each run gave
sweep.csv         one line per run
comparison.csv    one line per setting
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from p2pfl.core.errors import InputError, RunError
from p2pfl.core.files import OWNER_ONLY, replace
from p2pfl.experiment import write
from p2pfl.plugins.study.cell import Job
from p2pfl.plugins.study.contents import digest
from p2pfl.plugins.study.refusing import refuse
from p2pfl.plugins.study.study import NAMED, Cell, Study, cells, parse_budget
from p2pfl.plugins.study.sweep_workers import refused, results
from p2pfl.results.comparing.comparison import RunOutcome
from p2pfl.results.comparing.exports import comparison_csv, outcomes_csv
from p2pfl.results.comparing.outcomes import FILE, SweepFile, common_metric, outcome
from p2pfl.results.formats import shown
from p2pfl.results.run import Run

UNFINISHED = ".partial"
"""Directory of unfinished runs; its name is one that no user gives."""

Observe = Callable[[RunOutcome, int, int], object]
"""Called with what a run gave, the number of runs that are done, and that of all runs."""


def sweep(study: Study, folder: Path, *, processes: int, observe: Observe | None = None) -> SweepFile:
    """Make all runs of a study that are not in the directory yet, and compare them.

    Parameters
    ----------
    study
        What varies.
    folder
        Directory of the sweep, new or of an earlier sweep.
    processes
        Number of processes.
    observe
        Called after each run, those of an earlier sweep first.

    Returns
    -------
    SweepFile
        All runs; those that failed say why.

    Raises
    ------
    InputError
        The study is wrong, a setting cannot run, or the directory cannot be written; nothing has run.
    RunError
        All runs failed.
    """
    found = cells(study)
    budget = None if study.budget is None else parse_budget(study.budget)
    keys = [digest(cell.experiment, baselines=study.baselines, budget=budget) for cell in found]
    outcomes: dict[int, RunOutcome] = {}

    def job(cell: Cell, key: str, place: Path) -> Job:
        return Job(key, write(cell.experiment), place / key, study.baselines, budget)

    first: dict[tuple[tuple[str, str], ...], Job | None] = {tuple(cell.values.items()): None for cell in found}
    for cell, key in zip(found, keys, strict=True):
        setting = tuple(cell.values.items())
        if first[setting] is None and not _made(folder, key):
            first[setting] = job(cell, key, folder)
    _check(first, processes=processes)
    with _place(folder) as partial:

        def ended(key: str, failure: str | None = None) -> None:
            """Read what the runs of a digest gave, and say so."""
            for place in [place for place, each in enumerate(keys) if each == key]:
                outcomes[place] = _outcome(folder, found[place], key, metric=study.metric, failure=failure)
                if observe is not None:
                    observe(outcomes[place], len(outcomes), len(found))

        missing = {
            key: job(cell, key, partial) for cell, key in zip(found, keys, strict=True) if not _made(folder, key)
        }
        for key in dict.fromkeys(key for key in keys if key not in missing):
            ended(key)
        for made, failure in results(list(missing.values()), processes=processes) if missing else ():
            if failure is None:
                _keep(made.folder, folder / "cells" / made.digest)
            ended(made.digest, failure)
        return _kept(study, found, [outcomes[place] for place in range(len(found))], folder)


def _check(first: Mapping[tuple[tuple[str, str], ...], Job | None], *, processes: int) -> None:
    """Refuse the settings whose first missing run would be refused, before any run has begun."""
    jobs = {job.digest: job for job in first.values() if job is not None}
    reasons = refused([*jobs.values()], processes=processes) if jobs else {}
    refuse([(dict(values), None if job is None else reasons[job.digest]) for values, job in first.items()])


def against(study: Study) -> dict[str, str]:
    """Return the reference of a study: as it states, else the first value of the first key that has several.

    It is empty, which stands for the setting of the best mean, where no key has several values.
    """
    if study.against:
        return {key: shown(value) for key, value in study.against.items()}
    for key, values in study.over.items():
        if len({shown(value) for value in values}) > 1:
            return {key: shown(values[0])}
    return {NAMED: next(iter(study.settings))} if len(study.settings) > 1 else {}


def _kept(study: Study, found: Sequence[Cell], outcomes: Sequence[RunOutcome], folder: Path) -> SweepFile:
    """Write the results."""
    scored = [each for each in outcomes if each.score is not None]
    if not scored:
        raise RunError(f"all {len(outcomes)} runs failed, the first because: {outcomes[0].failure}")
    metric = study.metric or common_metric([Run.load(folder / scored[0].folder), Run.load(folder / scored[-1].folder)])
    table: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(study))  # as it will be read
    result = SweepFile(
        name=found[0].experiment.name,
        study=table,
        metric=metric,
        against=against(study),
        budget=study.budget,
        outcomes=tuple(outcomes),
    )
    replace(folder / FILE, msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n", mode=OWNER_ONLY)
    replace(folder / "sweep.csv", outcomes_csv(result.outcomes, metric=metric).encode(), mode=OWNER_ONLY)
    replace(folder / "comparison.csv", comparison_csv(result.comparison).encode(), mode=OWNER_ONLY)
    return result


def _made(folder: Path, key: str) -> bool:
    return (folder / "cells" / key / "summary.json").is_file()


def _outcome(folder: Path, cell: Cell, key: str, *, metric: str | None, failure: str | None) -> RunOutcome:
    if failure is not None:
        return RunOutcome(values=cell.values, seed=cell.experiment.seed, failure=failure)
    return outcome(Run.load(folder / "cells" / key), cell.values, metric=metric, folder=f"cells/{key}")


def _keep(made: Path, place: Path) -> None:
    """Move a finished run to its place, unless another sweep has made the same one in the meantime."""
    try:
        made.rename(place)
    except OSError:
        if not (place / "summary.json").is_file():
            raise
        shutil.rmtree(made)


@contextmanager
def _place(folder: Path) -> Iterator[Path]:
    """Make the directory and yield an empty one in it for unfinished runs; remove those of sweeps that were killed.

    Each sweep locks its own, so that several can work in one directory at once.
    """
    try:
        (folder / "cells").mkdir(parents=True, exist_ok=True)
        (folder / UNFINISHED).mkdir(exist_ok=True)
        with _locked(folder / UNFINISHED, wait=True):  # for a moment: nobody removes a directory before it is locked
            for other in (folder / UNFINISHED).iterdir():
                with suppress(BlockingIOError), _locked(other):
                    shutil.rmtree(other)
            own = Path(tempfile.mkdtemp(dir=folder / UNFINISHED))
            mine = _lock(own)
    except OSError as error:
        raise InputError(
            f"{folder} cannot be written ({error.strerror}); choose another directory with --out"
        ) from None
    try:
        yield own
    finally:
        shutil.rmtree(own, ignore_errors=True)
        os.close(mine)


@contextmanager
def _locked(folder: Path, *, wait: bool = False) -> Iterator[None]:
    descriptor = _lock(folder, wait=wait)
    try:
        yield
    finally:
        os.close(descriptor)


def _lock(folder: Path, *, wait: bool = False) -> int:
    """Lock a directory until the returned descriptor is closed, or its process ends."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
