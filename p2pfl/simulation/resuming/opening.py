"""Begin the run of a simulation, or go on with one, in a directory that no other process writes to meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from pathlib import Path

from p2pfl.core.errors import InputError
from p2pfl.experiment import Plan
from p2pfl.results import Run
from p2pfl.results.lock import SIMULATION, WITHIN, owned
from p2pfl.simulation.resuming.simulation_checkpoint import SimulationCheckpoint
from p2pfl.simulation.sharding import Shard
from p2pfl.simulation.sharding.keeping import loaded


@contextmanager
def opened_run(
    resolved: Plan, shard: Shard, *, folder: Path | None, resume: bool, began: datetime
) -> Iterator[tuple[Run, SimulationCheckpoint | None]]:
    """Return a run and, if it is resumed, the checkpoint with which it goes on; own its directory in the context.

    Parameters
    ----------
    resolved
        Plan of the run.
    shard
        Peers of this process, which has a directory where it leads.
    folder
        Run directory; ``None`` for a run in memory.
    resume
        Whether to go on with the run in ``folder``.
    began
        Start of a new run in UTC.

    Raises
    ------
    InputError
        The directory cannot be written or is in use, or the run in it cannot be resumed or is another one.
    """
    if resume:
        with _owned(folder, within=WITHIN):
            run, left = _resumed(resolved, folder, shard)
            with run:
                yield run, left
        return
    with Run(resolved.experiment, folder=folder, began=began) as run, _owned(folder, within=WITHIN):
        yield run, None


def _owned(folder: Path | None, *, within: float) -> AbstractContextManager[object]:
    """Return what owns a run directory, if there is one."""
    return nullcontext() if folder is None or not folder.is_dir() else owned(folder / SIMULATION, within=within)


def _resumed(resolved: Plan, folder: Path | None, shard: Shard) -> tuple[Run, SimulationCheckpoint]:
    """Return the run in a folder and its checkpoint, with which it goes on."""
    if folder is None and shard.leads:
        raise InputError("a run that was kept in memory cannot be resumed; pass its folder")
    if resolved.asynchronous:
        raise InputError(
            f"{resolved.experiment.learning.algorithm} keeps no checkpoints, as its models travel for several rounds; "
            "start the simulation again"
        )
    left = loaded(shard, folder, size=resolved.learner.layout.size)
    if folder is None:
        return Run(resolved.experiment), left
    if Run.load(folder).experiment != resolved.experiment:  # before any record is dropped
        raise InputError(f"{folder} holds another experiment; resume the one in its experiment.toml")
    return Run.resume(folder, first=dict.fromkeys(shard.everyone, left.facts.round + 1)), left
