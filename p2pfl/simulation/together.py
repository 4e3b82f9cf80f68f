"""Runs of one experiment with different seeds, which train as one stack.

Each run is a coroutine of its own, with its own algorithm, topology, protection and directory; all that the runs share
is training. When each of them waits for it, the rows of all are trained at once.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine, Generator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from p2pfl.errors import P2PFLError
from p2pfl.experiment import Experiment, Plan, plan
from p2pfl.identity import SeededSource
from p2pfl.learning import Fitted, Fitting, Learner
from p2pfl.learning.checks import check_losses
from p2pfl.learning.together import SAMPLES, Request, Stack, stacks
from p2pfl.learning.torch_learner import TorchLearner
from p2pfl.process import keep_freed_memory, one_thread
from p2pfl.report import Run
from p2pfl.report.spending.budget import beside, check_accounted
from p2pfl.rows import Rows
from p2pfl.simulation.engine import RunStart, simulating
from p2pfl.simulation.sharding import Shard

Trained = tuple[Fitted, float] | P2PFLError
"""Trained rows of a run and its seconds, or why they are missing."""

Running = Coroutine[Request, Trained, Run]
"""Run that waits for its training."""


@dataclass(frozen=True)
class Meeting:
    """What a run waits for: the training of its rows.

    Attributes
    ----------
    request
        Rows to train.
    """

    request: Request

    def __await__(self) -> Generator[Request, Trained, tuple[Fitted, float]]:
        """Wait until the rows of all runs are trained."""
        answer = yield self.request
        if isinstance(answer, P2PFLError):
            raise answer
        return answer


async def meet(learner: Learner, rows: Rows, how: Fitting) -> tuple[Fitted, float]:
    """Train rows together with those of other runs."""
    return await Meeting(Request(learner, rows, how))


@one_thread()
def simulate_together(
    experiments: Sequence[Experiment], *, folders: Sequence[Path], baselines: bool
) -> list[Run | Exception] | None:
    """Simulate experiments that differ in their seeds only, as one stack; ``None`` where that does not pay.

    The choice follows from shapes alone, see :func:`p2pfl.learning.together.stacks`. Models, records and summaries are
    those of separate simulations, to rounding; durations include those of the other runs.

    Parameters
    ----------
    experiments
        The experiments.
    folders
        Their run directories.
    baselines
        As in :func:`p2pfl.simulation.simulate`.

    Returns
    -------
    list or None
        The runs, or why they failed.
    """
    keep_freed_memory()
    first = plan(experiments[0])
    if not pays(first, runs=len(experiments)):
        return None
    begun = time.perf_counter(), datetime.now(UTC)

    def running(resolved: Plan | P2PFLError, folder: Path) -> Running:
        return _running(resolved, folder, baselines=baselines, begun=RunStart(*begun))

    plans = [first, *(_planned(experiment) for experiment in experiments[1:])]
    return driven([running(resolved, folder) for resolved, folder in zip(plans, folders, strict=True)])


def pays(resolved: Plan, *, runs: int) -> bool:
    """Return whether so many runs of an experiment are faster as one stack.

    The samples of all of them must be few, and no account of a privacy budget may depend on the order of releases.
    """
    learner = resolved.learner
    return (
        beside(resolved.experiment) is None
        and isinstance(learner, TorchLearner)
        and stacks(learner, peers=len(resolved.topology.peers))
        and runs * learner.features.nbytes <= SAMPLES
    )


def driven(running: Sequence[Running]) -> list[Run | Exception]:
    """Run coroutines to their ends, and train what they wait for; return their results or errors."""
    found: dict[int, Run | Exception] = {}
    answers: dict[int, Any] = dict.fromkeys(range(len(running)))
    trainer = _Trainer()
    try:
        while answers:
            asked: dict[int, Request] = {}
            for number, answer in answers.items():
                try:
                    asked[number] = running[number].send(answer)
                except StopIteration as stop:
                    found[number] = stop.value
                except Exception as error:  # noqa: BLE001 (code of the user's own may raise anything)
                    found[number] = error
            answers = trainer(asked)
    finally:
        for coroutine in running:
            coroutine.close()
    return [found[number] for number in range(len(running))]


class _Trainer:
    """Trains what runs ask for; it holds the samples of those that asked together last."""

    def __init__(self) -> None:
        self._numbers: tuple[int, ...] = ()
        self._stack: Stack | None = None

    def __call__(self, asked: dict[int, Request]) -> dict[int, Trained]:
        """Return the answer for each run: those in the same round train together."""
        groups: dict[Any, list[int]] = {}
        for number, request in asked.items():
            how = request.how
            apart = number if how.get("correction") is not None else None
            groups.setdefault((how["round"], *(how.get("memory") or {}), apart), []).append(number)
        found: dict[int, Trained] = {}
        for numbers in groups.values():
            found |= dict(zip(numbers, self._trained(numbers, [asked[number] for number in numbers]), strict=True))
        return {number: found[number] for number in asked}

    def _trained(self, numbers: Sequence[int], asked: Sequence[Request]) -> list[Trained]:
        begun = time.perf_counter()
        if len(asked) == 1:
            try:
                fitted = [asked[0].learner.fit(asked[0].rows, **asked[0].how)]
            except P2PFLError as error:
                return [error]
        else:
            fitted = self._stacked(tuple(numbers), asked).fit(asked)
        seconds = (time.perf_counter() - begun) / len(asked)
        return [_checked(request, each, seconds) for request, each in zip(asked, fitted, strict=True)]

    def _stacked(self, numbers: tuple[int, ...], asked: Sequence[Request]) -> Stack:
        if self._stack is None or numbers != self._numbers:
            self._stack = None
            learners = [each.learner for each in asked]
            self._numbers, self._stack = numbers, Stack([each for each in learners if isinstance(each, TorchLearner)])
        return self._stack


def _checked(request: Request, fitted: Fitted, seconds: float) -> Trained:
    """Return the answer for a run; an error where its training diverged."""
    if fitted.report.loss.device.type == "cpu":
        try:
            check_losses(fitted.report.loss, peers=request.how["peers"], round=request.how["round"])
        except P2PFLError as error:
            return error
    return fitted, seconds


def _planned(experiment: Experiment) -> Plan | P2PFLError:
    try:
        return plan(experiment)
    except P2PFLError as error:
        return error


async def _running(resolved: Plan | P2PFLError, folder: Path, *, baselines: bool, begun: RunStart) -> Run:
    """Simulate one run, as :func:`p2pfl.simulation.simulate` does."""
    if isinstance(resolved, P2PFLError):
        raise resolved
    begun = replace(begun, accounted=check_accounted(resolved))
    source, shard = SeededSource(resolved.experiment.seed), Shard(resolved.topology.peers)
    return await simulating(
        resolved,
        shard,
        source=source,
        begun=begun,
        baselines=baselines,
        resume=False,
        folder=folder,
        meet=meet,
        keeps=False,
    )
