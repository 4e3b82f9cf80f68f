"""Training of several runs of one experiment as one stack of rows.

Runs that differ only in their seeds have models of the same shape. Each draws its own batches, as alone; the stack
then takes their steps at once, so that rows of small models, in which calls take longer than products, share the calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import numpy as np
import torch

from p2pfl.core.rows import Layout, Rows
from p2pfl.data import IntArray, Orders
from p2pfl.learning.evaluation import evaluate
from p2pfl.learning.learner import Fitted, Fitting, Learner, Report
from p2pfl.learning.steps import training
from p2pfl.learning.steps.batching import BatchSchedule, DeviceSamples, Footprint
from p2pfl.learning.steps.kernels import Kernels
from p2pfl.learning.steps.optimisers import Recipe
from p2pfl.learning.steps.round_batches import scheduled
from p2pfl.learning.torch_learner import TorchLearner
from p2pfl.learning.trials.engine_proof import EngineProof

PARAMETERS = 2**17
"""Most parameters of all models of a run: with more of them, a run keeps a core busy on its own.

Five seeds of FedAvg on the digits (8 peers, batch of 32) took, as one stack, .62 of the processor time of five runs
with 39,000 parameters a run, .76 with 77,000, .87 with 154,000 and .97 with 307,000.
"""

PRODUCTS = 2**20
"""Most products of a weight and a number in an evaluation of a run that is stacked.

Alone, a run multiplies a test part that all peers share once for all of its models; a stack does so for each of them.
"""

SAMPLES = 64 * 2**20
"""Most bytes of the samples of runs that train as one stack, which holds them once more."""


@dataclass(frozen=True)
class Training:
    """Rows that a run wants to train.

    Attributes
    ----------
    learner
        Learner of the run.
    rows, how
        Arguments of its ``fit``.
    """

    learner: Learner
    rows: Rows
    how: Fitting


@dataclass(frozen=True)
class Evaluation:
    """Rows that a run wants to evaluate on the test part.

    Attributes
    ----------
    learner
        Learner of the run.
    rows, peers
        Arguments of its ``evaluate``.
    """

    learner: Learner
    rows: Rows
    peers: tuple[str, ...]

    @property
    def small(self) -> bool:
        """True if products take little of the time: at most :data:`PRODUCTS` for all models and samples."""
        learner = self.learner
        if not isinstance(learner, TorchLearner):
            return False
        return learner.products * sum(len(learner.federation.test[peer]) for peer in self.peers) <= PRODUCTS


def stacks(learner: Learner, *, peers: int) -> bool:
    """Return whether runs with so many peers train faster as one stack; it follows from shapes and kinds alone.

    The model consists of layers with kernels of their own, has no dropout and trains on samples as they are; all models
    of a run have at most
    :data:`PARAMETERS` parameters.
    """
    return (
        type(learner) is TorchLearner
        and isinstance(learner.engine, Kernels)
        and not learner.dropouts
        and learner.augment is None
        and not learner.divided.constants
        and learner.layout == learner.trained
        and peers * learner.layout.size <= PARAMETERS
    )


@dataclass
class Stack:
    """Samples of several runs in one data set.

    Parameters
    ----------
    learners
        Learners of the runs, with models of the same shape and the same settings, but other seeds.
    """

    learners: Sequence[TorchLearner]
    features: torch.Tensor = field(init=False)
    targets: torch.Tensor = field(init=False)
    _parts: dict[str, tuple[list[DeviceSamples], DeviceSamples]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        first = self.learners[0]
        self.layout: Layout = first.layout
        self.trained: Layout = first.trained
        self.recipe: Recipe = first.recipe
        self.epochs, self.steps, self.clock = first.epochs, first.steps, first.clock
        self.dropouts, self.seed = first.dropouts, first.seed  # there is no dropout, so no seed matters
        self.loss, self.metrics, self.whole, self.r2 = first.loss, first.metrics, first.whole, first.r2
        self.order = first.order
        self.footprint: Footprint = first.footprint
        self.products: int = first.products
        self.augment = first.augment
        self.proof = EngineProof(first.plain, first.initial, first.proof.tolerance)
        self.features = torch.cat([each.features for each in self.learners])
        self.targets = torch.cat([each.targets for each in self.learners])
        self.starts = [0, *accumulate(len(each.features) for each in self.learners)]

    def fit(self, asked: Sequence[Training]) -> list[Fitted]:
        """Train the rows of all runs in the same round.

        Losses are not checked, so that one run that diverges does not end the others.
        """
        spans = list(pairwise([0, *accumulate(len(each.rows) for each in asked)]))
        round, kept = asked[0].how["round"], [each.how.get("memory") or {} for each in asked]
        work = training.Work(
            rows=torch.cat([each.rows for each in asked]).to(self.features.device, self.learners[0].dtype),
            memory={name: torch.cat([memory[name] for memory in kept]) for name in kept[0]},
            schedule=self._schedule(asked, round=round),
            peers=tuple(peer for each in asked for peer in each.how["peers"]),
            round=round,
        )
        first = self.learners[0]
        engine = first.stepper(work)
        if not self.proof.holds(work, learner=self, engine=engine):
            engine = first.plain
        first.model.train()
        training.train(work, learner=self, engine=engine, correction=None)
        steps = torch.from_numpy(work.counts)
        return [
            Fitted(
                rows=work.rows[low:high].to(each.rows),
                memory={name: value[low:high] for name, value in work.memory.items()},
                report=Report(work.loss[low:high].to(each.rows.device), steps[low:high]),
                owned=True,
            )
            for each, (low, high) in zip(asked, spans, strict=True)
        ]

    def evaluate(self, asked: Sequence[Evaluation]) -> list[dict[str, torch.Tensor]]:
        """Return the scores of the rows of all runs."""
        pairs = zip(self.learners, asked, strict=True)
        part = self._samples("test", [learner.parts["test"].of(each.peers) for learner, each in pairs])
        rows = torch.cat([each.rows for each in asked]).to(self.features.device, self.learners[0].dtype)
        found = evaluate(self, rows, part, engine=self.learners[0].engine)
        pieces = {name: torch.split(scores, [len(each.rows) for each in asked]) for name, scores in found.items()}
        return [{name: scores[number] for name, scores in pieces.items()} for number in range(len(asked))]

    def _schedule(self, asked: Sequence[Training], *, round: int) -> BatchSchedule:
        """Return the batches that the runs draw, as those of one stack."""
        drawn = [
            scheduled(learner, each.how["peers"], round=round, active=each.how.get("active"))
            for learner, each in zip(self.learners, asked, strict=True)
        ]
        flat = [each.orders.flat for each in drawn]
        orders = Orders(
            torch.cat(flat),
            _shifted([each.orders.base for each in drawn], by=[len(each) for each in flat]),
            np.concatenate([each.orders.stride for each in drawn]),
        )
        widths, counts = (np.concatenate([getattr(each, name) for each in drawn]) for name in ("widths", "counts"))
        return BatchSchedule(self._samples("train", [each.part for each in drawn]), widths, counts, 0, orders)

    def _samples(self, name: str, parts: list[DeviceSamples]) -> DeviceSamples:
        """Return the samples of all rows in a part; they are gathered again only for other peers."""
        before, whole = self._parts.get(name, ([], None))
        if whole is None or any(one is not other for one, other in zip(before, parts, strict=True)):
            pairs = zip(self.starts, parts, strict=False)
            whole = DeviceSamples([begin + mine for begin, part in pairs for mine in _each(part)], self.features.device)
            self._parts[name] = parts, whole
        return whole


def _each(part: DeviceSamples) -> list[IntArray]:
    """Return the positions of the samples of each row."""
    samples = part.samples.cpu().numpy()
    return [samples] * len(part.counts) if part.shared else np.split(samples, np.cumsum(part.counts)[:-1])


def _shifted(parts: Sequence[IntArray], *, by: Sequence[int]) -> IntArray:
    """Return positions in successive sequences of some lengths as those in all of them."""
    starts = [0, *accumulate(by)][:-1]
    return np.concatenate([part + start for part, start in zip(parts, starts, strict=True)])
