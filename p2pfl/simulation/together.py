"""Runs of one experiment with different seeds, which train as one stack.

Each run is a coroutine of its own, with its own algorithm, topology, protection and directory; all that the runs share
is training, and evaluation where it is small. When each of them waits for it, the rows of all are trained at once.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine, Generator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from p2pfl.core.errors import P2PFLError
from p2pfl.core.process import keep_freed_memory, one_thread
from p2pfl.core.rows import Rows
from p2pfl.experiment import Experiment, Plan, plan
from p2pfl.learning import Fitted, Fitting, Learner
from p2pfl.learning.checks import check_losses
from p2pfl.learning.steps.together import SAMPLES, Evaluation, Stack, Training, stacks
from p2pfl.learning.torch_learner import TorchLearner
from p2pfl.results import Run
from p2pfl.results.spending.budget import beside
from p2pfl.simulation.engine import RunStart, simulating
from p2pfl.simulation.sharding import Shard
from p2pfl.simulation.sourcing import source_of

Request = Training | Evaluation
"""Request that a run waits for."""

Running = Coroutine[Request, Any, Run]
"""Run that waits for its training and its evaluation; it is sent the answer, or an error to raise."""


@dataclass(frozen=True)
class Asked:
    """Request of a run, which awaits the answer.

    Attributes
    ----------
    request
        What the run asks for.
    """

    request: Request

    def __await__(self) -> Generator[Request, Any, Any]:
        """Wait until the requests of all runs are answered."""
        answer = yield self.request
        if isinstance(answer, P2PFLError):
            raise answer
        return answer


class Together:
    """Training and evaluation with other runs."""

    async def fit(self, learner: Learner, rows: Rows, how: Fitting) -> tuple[Fitted, float]:
        """Return trained rows, and the seconds of this run's share."""
        found: tuple[Fitted, float] = await Asked(Training(learner, rows, how))
        return found

    async def evaluate(self, learner: Learner, rows: Rows, peers: tuple[str, ...]) -> dict[str, torch.Tensor]:
        """Return scores on the test part."""
        found: dict[str, torch.Tensor] = await Asked(Evaluation(learner, rows, peers))
        return found


@one_thread()
def simulate_together(
    experiments: Sequence[Experiment], *, folders: Sequence[Path], baselines: bool
) -> list[Run | Exception] | None:
    """Simulate experiments that differ in their seeds only, as one stack; ``None`` where that does not pay.

    The choice follows from shapes alone, see :func:`p2pfl.learning.steps.together.stacks`. Models, records and
    summaries are those of separate simulations, to rounding; durations include those of the other runs.

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
    if beside(experiments[0]) is not None:  # an account depends on the order of releases
        return None
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

    The samples of all of them must be few.
    """
    learner = resolved.learner
    return (
        isinstance(learner, TorchLearner)
        and stacks(learner, peers=len(resolved.topology.peers))
        and runs * learner.features.nbytes <= SAMPLES
    )


def driven(running: Sequence[Running]) -> list[Run | Exception]:
    """Run coroutines to their ends, and train what they wait for; return their results or errors."""
    found: dict[int, Run | Exception] = {}
    answers: dict[int, Any] = dict.fromkeys(range(len(running)))
    answering = _Answering()
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
            answers = answering(asked)
    finally:
        for coroutine in running:
            coroutine.close()
    return [found[number] for number in range(len(running))]


class _Answering:
    """Answers what runs ask for; it holds the samples of those that asked together last."""

    def __init__(self) -> None:
        self._numbers: tuple[int, ...] = ()
        self._stack: Stack | None = None

    def __call__(self, asked: dict[int, Request]) -> dict[int, Any]:
        """Return the answer for each run: those in the same round train together."""
        groups: dict[Any, list[int]] = {}
        for number, request in asked.items():
            groups.setdefault(_group(number, request), []).append(number)
        found: dict[int, Any] = {}
        for numbers in groups.values():
            found |= dict(zip(numbers, self._answered(numbers, [asked[number] for number in numbers]), strict=True))
        return {number: found[number] for number in asked}

    def _answered(self, numbers: Sequence[int], asked: Sequence[Request]) -> list[Any]:
        """Return the answers for runs that ask for the same."""
        if len(asked) == 1:
            return [_alone(asked[0])]
        stack = self._stacked(tuple(numbers), asked)
        evaluations = [each for each in asked if isinstance(each, Evaluation)]
        if evaluations:
            return list(stack.evaluate(evaluations))
        trainings = [each for each in asked if isinstance(each, Training)]
        begun = time.perf_counter()
        fitted = stack.fit(trainings)
        seconds = (time.perf_counter() - begun) / len(asked)
        return [_checked(each, found, seconds) for each, found in zip(trainings, fitted, strict=True)]

    def _stacked(self, numbers: tuple[int, ...], asked: Sequence[Request]) -> Stack:
        if self._stack is None or numbers != self._numbers:
            self._stack = None
            learners = [each.learner for each in asked]
            self._numbers, self._stack = numbers, Stack([each for each in learners if isinstance(each, TorchLearner)])
        return self._stack


def _group(number: int, request: Request) -> tuple[Any, ...]:
    """Return what requests have in common that are answered together; corrections and large evaluations are apart."""
    if isinstance(request, Evaluation):
        return ("evaluation", None if request.small else number)
    how = request.how
    apart = None if how.get("correction") is None else number
    return ("training", apart, how["round"], *(how.get("memory") or {}))


def _alone(request: Request) -> Any:
    """Return the answer for one run."""
    begun = time.perf_counter()
    try:
        if isinstance(request, Evaluation):
            return request.learner.evaluate(request.rows, peers=request.peers)
        fitted = request.learner.fit(request.rows, **request.how)
    except P2PFLError as error:
        return error
    return fitted, time.perf_counter() - begun


def _checked(request: Training, fitted: Fitted, seconds: float) -> tuple[Fitted, float] | P2PFLError:
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
    shard = Shard(resolved.topology.peers)
    source = source_of(resolved, shard, None)
    return await simulating(
        resolved,
        shard,
        source=source,
        begun=begun,
        baselines=baselines,
        resume=False,
        folder=folder,
        meet=Together(),
        keeps=False,
    )
