"""One run of a sweep."""

from __future__ import annotations

import shutil
import sys
import tomllib
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from p2pfl.core.errors import InputError, P2PFLError
from p2pfl.experiment import Experiment, check, plain, plan
from p2pfl.plugins.study.study import CostBudget

if TYPE_CHECKING:  # it imports torch
    from p2pfl.experiment import Plan

Outcomes = dict[str, str | None]
"""Reasons why runs failed, or ``None``, by digest."""


@dataclass(frozen=True)
class Job:
    """A run to make.

    Attributes
    ----------
    digest
        Name of its directory.
    experiment
        Resolved experiment in TOML.
    folder
        Folder to write it to.
    baselines
        True to train each peer alone, and one model on all data, for comparison.
    budget
        Cost at which it ends; ``None`` without one.
    """

    digest: str
    experiment: str
    folder: Path
    baselines: bool
    budget: CostBudget | None


def attempt(job: Job) -> str | None:
    """Make a run; return why it failed, or ``None``.

    A run that fails is a line of the table and not the end of the sweep, whatever the cause.
    """
    try:
        make(job)
    except Exception as error:  # noqa: BLE001 (code of the user's own may raise anything)
        return explained(error)
    return None


def explained(error: Exception) -> str:
    """Return why a run failed; the traceback of an exception that p2pfl does not know goes to standard error."""
    if isinstance(error, P2PFLError):
        return str(error)
    traceback.print_exception(error, file=sys.stderr)
    return f"{type(error).__name__}: {error}"


def make(job: Job) -> None:
    """Simulate an experiment and write its run directory."""
    from p2pfl.simulation import simulate  # noqa: PLC0415

    shutil.rmtree(job.folder, ignore_errors=True)  # of a process that died when it made several runs
    experiment = check(tomllib.loads(job.experiment))
    if job.budget is not None:
        experiment = _with_rounds(experiment, affordable(experiment, job.budget))
    simulate(experiment, folder=job.folder, baselines=job.baselines)


def refusals(jobs: Sequence[Job]) -> Outcomes:
    """Return why each run would be refused before its first round, or ``None``; nothing is trained.

    Parameters
    ----------
    jobs
        Runs with the same data, which are read once.
    """
    found: Outcomes = {}
    former: Plan | None = None
    for job in jobs:
        try:
            former = _planned(job, former)
            found[job.digest] = None
        except Exception as error:  # noqa: BLE001 (code of the user's own may raise anything)
            found[job.digest] = explained(error)
    return found


def _planned(job: Job, former: Plan | None) -> Plan | None:
    """Plan a run with the data of a former one; return whose data the next one can use, which no attack has changed."""
    from p2pfl.experiment.parts.learner_parts import takes_data  # noqa: PLC0415 (it imports torch)
    from p2pfl.simulation.memory_estimate import check_memory  # noqa: PLC0415

    experiment = check(tomllib.loads(job.experiment))
    if job.budget is not None:
        _check_free(experiment)
    resolved = plan(experiment, data=None if former is None else former.federation)
    check_memory(resolved, baselines=job.baselines)
    return resolved if takes_data(experiment) and resolved.attack is None else former


def affordable(experiment: Experiment, budget: CostBudget) -> int:
    """Return the number of rounds that a budget pays for, by the cost of the first two rounds.

    Raises
    ------
    InputError
        It does not pay for one round, or trying two rounds would spend from a privacy budget.
    """
    _check_free(experiment)
    one, two = (_cost(_with_rounds(experiment, rounds), budget) for rounds in (1, 2))
    each = two - one
    rounds = (budget.amount - one) // each + 1 if each > 0 else 0
    if rounds < 1:
        raise InputError(f"the budget {budget.what}={budget.amount} does not pay for one round, which takes {one}")
    return rounds


def _check_free(experiment: Experiment) -> None:
    """Refuse a cost budget where the rounds that find out the cost of a round would themselves cost privacy."""
    from p2pfl.results.spending.budget import beside  # noqa: PLC0415 (it imports torch)

    if beside(experiment) is not None:
        raise InputError(
            "trying two rounds to find out their cost would spend from the privacy budget of the data; set rounds "
            "instead of a budget"
        )


def _cost(experiment: Experiment, budget: CostBudget) -> int:
    from p2pfl.simulation import simulate  # noqa: PLC0415

    summary = simulate(experiment, baselines=False).summary
    return int(summary["bytes_sent"] if budget.what == "bytes" else summary["gradients"])


def _with_rounds(experiment: Experiment, rounds: int) -> Experiment:
    return check(plain(experiment) | {"rounds": rounds})
