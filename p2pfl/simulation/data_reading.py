"""Data that the peers of a simulation read again between rounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from p2pfl.algorithms import State
from p2pfl.experiment.growing_data import GrowingData
from p2pfl.learning import Learner
from p2pfl.results import Run
from p2pfl.results.notices.kinds import DataRead
from p2pfl.results.spending.meter import Meter
from p2pfl.simulation.evaluation_size import Evaluator, MeanModel


class DataReader:
    """Reader of the data of all peers, who takes those who train, evaluate and account along.

    Parameters
    ----------
    data
        Plan of the run, and when the data are read.
    evaluator, meter, run
        Evaluation, meter of the privacy cost, if there is one, and the run that takes notices.

    Attributes
    ----------
    average
        Evaluation of the mean of all models.
    """

    def __init__(self, data: GrowingData, evaluator: Evaluator, *, meter: Meter | None, run: Run) -> None:
        self.data, self.evaluator, self.meter, self.run = data, evaluator, meter, run
        self.average = MeanModel(data.plan, evaluator.shard, evaluator.scope)

    @property
    def function(self) -> Callable[[int, State], Learner] | None:
        """Function :meth:`read`; ``None`` where data are read once."""
        return None if self.data.plan.experiment.data.refresh is None else self.read

    def read(self, round: int, state: State) -> Learner:
        """Return the learner on the data before a round, which are read again if that is due.

        A simulation that goes on from a checkpoint reads in its first round what the peers had read before it.
        """
        before = self.data
        if before.due(round):
            self.data = before.again(round)
            plan = self.evaluator.plan = self.data.plan
            self.average = MeanModel(plan, self.evaluator.shard, self.evaluator.scope)
            if self.meter is not None:
                self.meter.samples.follow(plan.learner)
            changes = self.data.changes(before, state.rows)
            self.run.log([DataRead(peer=peer, round=round, **asdict(change)) for peer, change in changes.items()])
        return self.data.plan.learner
