"""Data that the peers of a simulation read again between rounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace

import torch

from p2pfl.algorithms import State
from p2pfl.core.errors import InputError
from p2pfl.experiment import Experiment
from p2pfl.experiment.growing_data import TABLE, GrowingData
from p2pfl.learning import Learner
from p2pfl.results import Run
from p2pfl.results.notices.kinds import DataRead, DataUnreadable
from p2pfl.results.spending.meter import Meter
from p2pfl.simulation.best_models import ModelJudge
from p2pfl.simulation.evaluation_size import Evaluator, MeanModel
from p2pfl.simulation.own_state import unpacked


class DataReader:
    """Reader of the data of all peers, who takes those who train, evaluate and account along.

    Parameters
    ----------
    data
        Plan of the run, and when the data are read.
    evaluator, meter, run, judge
        Evaluation, meter of the privacy cost, if there is one, the run that takes notices, and the judge of models.
    first
        First round; before a later one than 0 the peers read what they had read before it.

    Attributes
    ----------
    average
        Evaluation of the mean of all models.
    """

    def __init__(
        self,
        data: GrowingData,
        evaluator: Evaluator,
        *,
        meter: Meter | None,
        run: Run,
        judge: ModelJudge,
        first: int = 0,
    ) -> None:
        self.data, self.evaluator, self.meter, self.run, self.judge = data, evaluator, meter, run, judge
        self.average = MeanModel(data.plan, evaluator.shard, evaluator.scope)
        if first and data.due(first - 1):
            self.data = replace(data.again(first - 1)[0], judged={})  # the best models are those on these rows
            self._take()

    @property
    def function(self) -> Callable[[int, State], Learner] | None:
        """Function :meth:`read`; ``None`` where data are read once."""
        return None if self.data.plan.experiment.data.refresh is None else self.read

    def read(self, round: int, state: State) -> Learner:
        """Return the learner on the data before a round, which are read again if that is due."""
        before = self.data
        if before.due(round):
            self.data, failed = before.again(round)
            self.run.log([DataUnreadable(peer=peer, round=round, message=text) for peer, text in failed.items()])
            if self.data.read != before.read:
                self._take()
                every = unpacked(state, peers=len(self.data.peers))
                changes = self.data.changes(before, every.rows)
                self.run.log([DataRead(peer=peer, round=round, **asdict(change)) for peer, change in changes.items()])
        return self.data.plan.learner

    def _take(self) -> None:
        """Evaluate on these data from here on."""
        plan = self.evaluator.plan = self.data.plan
        self.average = MeanModel(plan, self.evaluator.shard, self.evaluator.scope)
        if self.meter is not None:
            self.meter.samples.follow(plan.learner)
        self.judge.since = torch.tensor([self.data.judged.get(peer, 0) for peer in self.data.peers])


def check_resumption(experiment: Experiment) -> None:
    """Refuse to go on with a simulation whose features are scaled by rows of the beginning that nobody knows.

    Raises
    ------
    InputError
        Its peers read tables again, whose rows of now would give another scale.
    """
    data = experiment.data
    if data.refresh is not None and data.scale and data.name == TABLE:
        raise InputError(
            "a simulation with data.scale and data.refresh cannot go on, because its tables may have grown and its "
            "checkpoints do not keep the mean and deviation of the beginning; simulate it anew"
        )
