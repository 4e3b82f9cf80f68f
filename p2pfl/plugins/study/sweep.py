"""A sweep in its directory: runs that are there already are used, the others are made.

cells/DIGEST/     a run directory for each content
.partial/DIGEST/  an unfinished run
sweep.json        the study and what each run gave
sweep.csv         one line per run
comparison.csv    one line per setting
"""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import msgspec

from p2pfl.core.errors import InputError, RunError
from p2pfl.core.files import OWNER_ONLY, replace
from p2pfl.experiment import write
from p2pfl.experiment.approval import consent_problems
from p2pfl.experiment.parts.peer_graph import peers_of
from p2pfl.network.peer.launch import fork_server
from p2pfl.plugins.study.study import NAMED_SETTINGS, Cell, Study, cells, name_setting, parse_budget, refuse, trust_none
from p2pfl.plugins.study.sweep_job import Job, check_job, digest, explain, run_job
from p2pfl.results.comparisons.comparison import RunOutcome
from p2pfl.results.comparisons.exports import comparison_csv, outcomes_csv
from p2pfl.results.comparisons.outcomes import SWEEP_FILE, SweepFile, common_metric, outcome
from p2pfl.results.formats import format_value
from p2pfl.results.run import Run

PARTIAL_SUFFIX = ".partial"
"""Directory of unfinished runs; its name is one that no user gives."""

SECONDS_TO_END = 5.0
"""Seconds that a process may take to end before it is killed."""

Observe = Callable[[RunOutcome, int, int], object]
"""Called with what a run gave, the number of runs that are done, and that of all runs."""


def sweep(
    study: Study,
    folder: Path,
    *,
    processes: int,
    observe: Observe | None = None,
    trusts: Callable[[Sequence[str]], bool] = trust_none,
) -> SweepFile:
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
    trusts
        Function that returns whether the code that the experiment names with changes of its keys may run.

    Returns
    -------
    SweepFile
        All runs; those that failed have their reason.

    Raises
    ------
    InputError
        The study is wrong, a setting cannot run, the policy of the data refuses one, or the directory cannot be
        written; nothing has run.
    RunError
        All runs failed.
    """
    runs = cells(study, trusts=trusts)
    budget = None if study.budget is None else parse_budget(study.budget)
    keys = [digest(cell.experiment, baselines=study.baselines, budget=budget) for cell in runs]
    outcomes: dict[int, RunOutcome] = {}

    def job(cell: Cell, key: str, parent: Path) -> Job:
        return Job(key, write(cell.experiment), parent / key, study.baselines, budget)

    settings = {name_setting(cell.values): cell.values for cell in runs}
    first = dict[str, Job]()  # missing run of each setting
    problems = dict[str, str | None]()
    for cell, key in zip(runs, keys, strict=True):
        if not _made(folder, key):
            name = name_setting(cell.values)
            first.setdefault(name, job(cell, key, folder))
            problems[name] = problems.get(name) or _consent_problem(cell)
    refuse([(values, problems.get(name)) for name, values in settings.items()])
    reasons = {job.digest: reason for job, reason in in_processes([*first.values()], check_job, processes=processes)}
    refuse([(values, reasons[first[name].digest] if name in first else None) for name, values in settings.items()])
    with _lock_folder(folder) as partial:

        def ended(key: str, failure: str | None = None) -> None:
            """Read the results of the runs of a digest, and report them."""
            for index in [index for index, each in enumerate(keys) if each == key]:
                outcomes[index] = _outcome(folder, runs[index], key, metric=study.metric, failure=failure)
                if observe is not None:
                    observe(outcomes[index], len(outcomes), len(runs))

        missing = {key: job(cell, key, partial) for cell, key in zip(runs, keys, strict=True) if not _made(folder, key)}
        for key in dict.fromkeys(key for key in keys if key not in missing):
            ended(key)
        for made, failure in in_processes([*missing.values()], run_job, processes=processes):
            if failure is None:
                made.folder.rename(folder / "cells" / made.digest)
            ended(made.digest, failure)
        return _write_results(study, runs, [outcomes[number] for number in range(len(runs))], folder)


def _consent_problem(cell: Cell) -> str | None:
    """Return why the policy of the data does not allow a run; ``None`` if it does."""
    today = datetime.now(UTC).date()
    problems = consent_problems(cell.experiment, peers_of(cell.experiment), today=today)
    return f"seed {cell.experiment.seed}: {problems[0]}" if problems else None


def in_processes(
    jobs: Sequence[Job], function: Callable[[Job], None], *, processes: int
) -> Iterator[tuple[Job, str | None]]:
    """Call a function for each job in a process of one thread; yield why it failed, or ``None``, when it has ended.

    A job that fails is a line of the table and not the end of the sweep, whatever the cause.

    Parameters
    ----------
    jobs
        Runs to make or to check.
    function
        Function of a job.
    processes
        Number of processes at a time.
    """
    if not jobs:
        return
    context = fork_server.start("p2pfl.plugins.study.sweep_preload")
    pending, running = deque(jobs), dict[Connection, tuple[Job, ForkServerProcess]]()
    try:
        while pending or running:
            while pending and len(running) < processes:
                ours, theirs = context.Pipe()
                process = context.Process(target=_work, args=(theirs, pending[0], function))
                process.start()
                theirs.close()
                running[ours] = pending.popleft(), process
            for ready in wait([*running]):
                assert isinstance(ready, Connection)  # noqa: S101 (it waits for nothing else)
                job, process = running.pop(ready)
                try:
                    failure: str | None = ready.recv()
                except (EOFError, ConnectionResetError):
                    process.join(SECONDS_TO_END)
                    failure = f"its process ended with status {process.exitcode}; it may have run out of memory"
                ready.close()
                yield job, failure
    finally:
        for _, process in running.values():
            process.terminate()
        for _, process in running.values():
            process.join(SECONDS_TO_END)
            process.kill()


def _work(result: Connection, job: Job, function: Callable[[Job], None]) -> None:
    """Call a function for a job and send the reason of a failure; end with the process that waits for it."""
    from p2pfl.core.process import set_threads  # noqa: PLC0415 (the fork server has imported it)

    def end_with_parent() -> None:
        result.poll(None)
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    set_threads(1)  # each run has a core of its own
    result.send(attempt(job, function))


def attempt(job: Job, function: Callable[[Job], None]) -> str | None:
    """Call a function for a job; return why it failed, or ``None``."""
    try:
        function(job)
    except Exception as error:  # noqa: BLE001 (code of the user's own may raise anything)
        return explain(error)
    return None


def against(study: Study) -> dict[str, str]:
    """Return the reference of a study: as it states, else the first value of the first key that has several.

    It is empty, which stands for the setting of the best mean, where no key has several values.
    """
    if study.against:
        return {key: format_value(value) for key, value in study.against.items()}
    for key, values in study.over.items():
        if len({format_value(value) for value in values}) > 1:
            return {key: format_value(values[0])}
    return {NAMED_SETTINGS: next(iter(study.settings))} if len(study.settings) > 1 else {}


def _write_results(study: Study, runs: Sequence[Cell], outcomes: Sequence[RunOutcome], folder: Path) -> SweepFile:
    """Write the results."""
    scored = [each for each in outcomes if each.score is not None]
    if not scored:
        raise RunError(f"all {len(outcomes)} runs failed, the first because: {outcomes[0].failure}")
    metric = study.metric or common_metric([Run.load(folder / scored[0].folder), Run.load(folder / scored[-1].folder)])
    table: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(study))  # as it will be read
    result = SweepFile(
        name=runs[0].experiment.name,
        study=table,
        metric=metric,
        against=against(study),
        budget=study.budget,
        outcomes=tuple(outcomes),
    )
    replace(folder / SWEEP_FILE, msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n", mode=OWNER_ONLY)
    replace(folder / "sweep.csv", outcomes_csv(result.outcomes, metric=metric).encode(), mode=OWNER_ONLY)
    replace(folder / "comparison.csv", comparison_csv(result.comparison).encode(), mode=OWNER_ONLY)
    return result


def _made(folder: Path, key: str) -> bool:
    return (folder / "cells" / key / "summary.json").is_file()


def _outcome(folder: Path, cell: Cell, key: str, *, metric: str | None, failure: str | None) -> RunOutcome:
    if failure is not None:
        return RunOutcome(values=cell.values, seed=cell.experiment.seed, failure=failure)
    return outcome(Run.load(folder / "cells" / key), cell.values, metric=metric, folder=f"cells/{key}")


@contextmanager
def _lock_folder(folder: Path) -> Iterator[Path]:
    """Make and lock the directory, and yield an empty one in it for unfinished runs."""
    partial = folder / PARTIAL_SUFFIX
    try:
        (folder / "cells").mkdir(parents=True, exist_ok=True)
        lock = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise InputError(
            f"{folder} cannot be written ({error.strerror}); choose another directory with --out"
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until it is closed, or the process ends
    except BlockingIOError:
        os.close(lock)
        raise InputError(f"another sweep works in {folder}; wait for it, or choose another with --out") from None
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        yield partial
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        os.close(lock)
