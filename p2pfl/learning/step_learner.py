""":class:`StepLearner`, the base of learners whose rows an engine trains and evaluates by gradient steps."""

from __future__ import annotations

import contextlib
import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import compress
from typing import Any, Literal, Self, TypeVar

import numpy as np

from p2pfl.core.errors import ModelError
from p2pfl.core.rows import Layout, Rows, to_device
from p2pfl.core.tensors import torch
from p2pfl.data import Federation, IntArray, LazyFederation, gather
from p2pfl.data.peer_data import redraw_tests
from p2pfl.learning.data_checks import check_losses, check_whole, finite, inputs
from p2pfl.learning.evaluation import evaluate, predict_row, tally_rows
from p2pfl.learning.histograms import score_histograms
from p2pfl.learning.learner import Correction, Fitted, Learner, Memory, Report
from p2pfl.learning.losses import LOSSES, PerSample, binary_cross_entropy, cross_entropy, name_loss, squared_error
from p2pfl.learning.set_scores import SET_SCORES, SetScore, choose_metrics, choose_score, choose_usual, r2, scores_of
from p2pfl.learning.steps import training
from p2pfl.learning.steps.augmentation import Augmentation
from p2pfl.learning.steps.batching import Footprint, PeerSamples
from p2pfl.learning.steps.optimisers import Factor, Recipe
from p2pfl.privacy.keys import Source

Result = TypeVar("Result")

MAX_POOLED_STEPS = 20_000
"""Steps that the model on pooled data takes at most: enough for what it is compared with."""

TEST_SHARE = 0.2
"""Share of the samples of each peer that are held out, where a learner is given the data by peer."""


class StepLearner(ABC):
    """Base of learners that take gradient steps on stacks of rows.

    Parameters
    ----------
    federation, seed, optimizer, rate, options, schedule, schedule_options, schedule_by, warmup, max_norm
        As in :class:`p2pfl.learning.TorchLearner`.
    batch, epochs, steps, stragglers, loss, metrics
        As in :class:`p2pfl.learning.TorchLearner`.
    device, dtype
        Device and number type of the parameters.
    """

    layout: Layout
    trained: Layout  # the beginning of the layout, without running statistics
    initial: torch.Tensor
    products: int
    footprint: Footprint
    augment: Augmentation | None
    engine: Any = None
    perceptrons: Any = None
    proof: Any = None
    models: str | None = None  # file of each peer's model to begin with
    dropouts: dict[str, Any]

    def __init__(
        self,
        federation: Federation | Mapping[str, Any],
        *,
        seed: int | None,
        optimizer: str | type[torch.optim.Optimizer],
        rate: float,
        options: Mapping[str, object] | None,
        schedule: str | Factor | None,
        schedule_options: Mapping[str, object] | None,
        schedule_by: Literal["round", "step"],
        warmup: int,
        max_norm: float | None,
        batch: int | Literal["all"] | None,
        epochs: int,
        steps: int | None,
        stragglers: float,
        loss: PerSample | str | None,
        metrics: Mapping[str, PerSample | SetScore | str] | None,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.gathered: Federation | None = None  # from data by peer
        if not isinstance(federation, Federation):
            federation = self.gathered = gather(federation, seed=seed or 0, test=TEST_SHARE)
        self.federation, self.seeded = federation, seed is not None
        self.seed, self.dtype, self.device = check_whole(seed or 0, key="seed", least=0), dtype, device
        self.batch = None if batch in (None, "all") else check_whole(batch, key="learning.batch")
        self.epochs = check_whole(epochs, key="learning.epochs")
        self.steps = None if steps is None else check_whole(steps, key="learning.steps")
        self.stragglers = finite(stragglers, key="learning.stragglers")
        rate = finite(rate, key="learning.rate")
        max_norm = None if max_norm is None else finite(max_norm, key="learning.max_norm")
        if options is not None and not isinstance(options, Mapping):
            raise ModelError(
                f"learning.options is a {type(options).__name__}; give a dict of arguments of the optimiser"
            )
        self.recipe = Recipe(
            optimizer,
            rate,
            dict(options or {}),
            schedule,
            dict(schedule_options or {}),
            schedule_by=schedule_by,
            warmup=warmup,
            max_norm=max_norm,
        )
        self.clock: int | None = None  # a schedule by step counts the steps of each peer
        self.recipe.attempt(dtype)
        dataset = self.federation.dataset
        self.features, self.targets = inputs(dataset, device=self.device, dtype=dtype)
        own = squared_error if dataset.classes is None else cross_entropy
        self.loss = own if loss is None else name_loss(choose_score(loss, key="learning.loss", choices=LOSSES))
        wanted: Mapping[str, PerSample | SetScore]
        wanted = choose_usual(dataset, loss=self.loss) if metrics is None else choose_metrics(metrics)
        self.metrics: Mapping[str, PerSample]
        self.whole: Mapping[str, SetScore]
        self.metrics, self.whole = scores_of(wanted)
        self.order: Sequence[str] = ("loss", *wanted, "r2")  # of the scores
        self.r2 = metrics is None and dataset.classes is None and self.loss is not binary_cross_entropy
        self.parts = self._samples_of_parts(self.federation)

    @abstractmethod
    def on(self, federation: Federation) -> Self:
        """Return the same learner on other data of the same shape."""

    @abstractmethod
    def begin(self, peers: Sequence[str]) -> Rows | None:
        """Return the models ``[R, P]`` with which peers begin, where each has a file of its own; else ``None``."""

    @abstractmethod
    def _engine(self, rows: Rows) -> Any:
        """Return the engine for outputs of some rows."""

    @abstractmethod
    def _train(
        self, start: training.Work, *, correction: Correction | None = None, slope: training.Slope | None = None
    ) -> training.Work:
        """Return a copy of rows and memory after all steps of a round."""

    @abstractmethod
    def _score(
        self, compute: Callable[[], Result], *, part: str, numbers: Callable[[Result], Sequence[torch.Tensor]]
    ) -> Result:
        """Return the scores of models in evaluation."""

    def _samples_of_parts(self, federation: Federation) -> dict[str, PeerSamples]:
        """Return the samples of all peers in each part."""
        parts = {"train": federation.train, "validation": federation.validation, "test": federation.test}
        return {name: PeerSamples(each, self.device) for name, each in parts.items()}

    @property
    def bare(self) -> Self:
        """The learner itself."""
        return self

    @property
    def home(self) -> torch.device:
        """Device of the rows of a simulation."""
        return self.device

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings of the learner, as keys of ``[learning]``."""
        recipe, schedule = self.recipe, self.recipe.schedule
        if schedule is not None and not isinstance(schedule, str):  # neighbours compare its name
            schedule = f"{schedule.__module__}:{getattr(schedule, '__qualname__', type(schedule).__qualname__)}"
        named = {} if schedule is None else {"name": schedule, "options": dict(recipe.schedule_options)}
        return {
            "schedule": named | {"by": recipe.schedule_by, "warmup": recipe.warmup},
            "max_norm": recipe.max_norm,
            "optimizer": recipe.optimizer if isinstance(recipe.optimizer, str) else recipe.optimizer.__name__.lower(),
            "rate": recipe.rate,
            "options": dict(recipe.options),
            "batch": "all" if self.batch is None else self.batch,
            "epochs": self.epochs,
            "steps": self.steps,
            "stragglers": self.stragglers,
            "dtype": "float64" if self.dtype == torch.float64 else "float32",
        }

    def adjusted(
        self, *, seed: int, epochs: int | None = None, steps: int | None = None, full_batch: bool = False
    ) -> Self:
        """Return the same learner with a seed where it has none, and with epochs or steps where they are given."""
        made = copy.copy(self)
        if not self.seeded:
            if self.gathered is self.federation:
                made = self.on(redraw_tests(self.federation, seed=seed, fraction=TEST_SHARE))
            made.seed, made.seeded = seed, True
        if epochs is not None or steps is not None:
            made.epochs, made.steps = self.epochs if epochs is None else epochs, steps
        if full_batch:
            made.batch, made.epochs, made.steps = None, 1, None
        return made

    def pooled(self, federation: Federation, *, peers: int, rounds: int) -> Self:
        """Return the learner of one peer that does in a round what ``peers`` do together, and waits for nobody.

        A schedule by step counts the steps of a peer of mean size, so that it is as far in a round as those of the
        peers.
        """
        made = self.on(federation)
        made.stragglers = 0.0
        begun = self.begin(self.federation.peers)
        if begun is not None:
            made.models, made.initial = None, begun.mean(0)
        size = int(federation.samples(federation.peers)[0])
        mean = math.ceil(size / peers)
        if self.steps is None:
            made.clock = self.epochs * math.ceil(mean / (self.batch or mean))
            steps = self.epochs * math.ceil(size / (self.batch or size))
        else:
            made.clock, steps = self.steps, self.steps * peers
        if steps * rounds > MAX_POOLED_STEPS and (self.batch is not None or self.steps is not None):
            made.steps = max(1, MAX_POOLED_STEPS // rounds)
        elif self.steps is not None:
            made.steps = steps
        return made

    def drawing(self, source: Source) -> Self:
        """Return the learner itself, as it draws no secrets."""
        del source
        return self

    def start(self, peers: Sequence[str]) -> Rows:
        """Return the trained values of the model for every peer, ``[R, P]``."""
        return self.initial.repeat(len(peers), 1)  # [R, P]

    def samples(self, peers: Sequence[str]) -> torch.Tensor:
        """Return the number of training samples of each peer, ``[R]`` int64."""
        return self.federation.samples(peers)

    def samples_a_round(self, peers: Sequence[str]) -> int:
        """Return the number of samples in all batches of a round, if every peer takes part."""
        samples = self.samples(peers).numpy()  # [R]
        if self.steps is None:
            return int(self.epochs * samples.sum())
        return int(self.steps * (samples if self.batch is None else np.minimum(samples, self.batch)).sum())

    @contextlib.contextmanager
    def _loaded(self, peers: Sequence[str], active: torch.Tensor | None = None) -> Iterator[Self]:
        """Load the samples of the active peers of a lazy federation, for as long as a learner of them is in use."""
        assert isinstance(self.federation, LazyFederation)  # noqa: S101 (asked by the caller)
        awake = peers if active is None else [*compress(peers, active.tolist())]
        near = self.on(self.federation.gathered(awake, idle=peers))
        near.proof = self.proof
        yield near
        self.perceptrons, self.engine = near.perceptrons, near.engine  # plain torch, where others were wrong

    def fit(
        self,
        rows: Rows,
        *,
        peers: Sequence[str],
        round: int,
        memory: Memory | None = None,
        active: torch.Tensor | None = None,
        correction: Correction | None = None,
    ) -> Fitted:
        """Train each row on the data of its peer; rows that are not ``active`` do not move.

        Parameters
        ----------
        rows
            Parameters ``[R, P]``; they are not changed.
        peers
            Names of the R peers.
        round
            Round number, which keys batches and dropout and sets the rate of a schedule.
        memory
            Memory of the last round's :class:`Fitted`; ``None`` for a fresh optimiser.
        active
            ``[R]`` bool; ``None`` for all.
        correction
            Function whose result is added to the gradients at every step.

        Raises
        ------
        LearningError
            A loss or a row is no longer finite.
        """
        self._check_rows(rows, peers)
        if self.federation.lazy:
            with self._loaded(peers, active) as near:
                return near.fit(rows, peers=peers, round=round, memory=memory, active=active, correction=correction)
        schedule = training.schedule_batches(self, peers, round=round, active=active)
        start = training.Work(
            rows=rows.to(self.device, self.dtype),
            memory={name: value.to(self._home(value)) for name, value in (memory or {}).items()},
            schedule=schedule,
            peers=tuple(peers),
            round=round,
        )
        work = self._train(start, correction=correction)
        back = rows.device
        loss = work.loss.to(back)  # [R]
        if back.type == "cpu":
            check_losses(loss, peers=peers, round=round)
        return Fitted(
            rows=work.rows.to(back),
            memory={name: value.to(back) if value.dim() > 1 else value for name, value in work.memory.items()},
            report=Report(loss, torch.from_numpy(work.counts)),
            owned=True,
        )

    def _home(self, value: torch.Tensor) -> torch.device:
        """Return the device of a tensor of the optimiser: one number for each row is read on the CPU."""
        return self.device if value.dim() > 1 else torch.device("cpu")

    def gradient(
        self,
        rows: Rows,
        *,
        peers: Sequence[str],
        round: int,
        step: int = 0,
        whole: bool = False,
        active: torch.Tensor | None = None,
    ) -> Rows:
        r"""Return :math:`\nabla F_k(x_k; \xi)` of each row, ``[R, P]``, zero where a row is not ``active``.

        Parameters
        ----------
        rows, peers, active
            Arguments as in :meth:`fit`.
        round
            Round number, which keys the batch and dropout.
        step
            Number of the batch :math:`\xi` in the round, counted from 0; epochs follow each other.
        whole
            True if :math:`\xi` is the whole training part instead.
        """
        self._check_rows(rows, peers)
        if self.federation.lazy:
            with self._loaded(peers, active) as near:
                return near.gradient(rows, peers=peers, round=round, step=step, whole=whole, active=active)
        schedule = training.schedule_batches(self, peers, round=round, active=active, only=step, whole=whole)
        start = training.Work(rows.to(self.device, self.dtype), {}, schedule, tuple(peers), round, first=step)
        work = self._train(start, slope=training.Slope())
        if rows.device.type == "cpu":
            check_losses(work.loss.cpu(), peers=peers, round=round)
        awake = to_device(torch.from_numpy(work.counts > 0), self.device).unsqueeze(-1)  # [R, 1]
        work.rows[:, self.trained.size :] = 0  # running statistics have no gradient
        return torch.where(awake, work.rows, 0).to(rows.device)

    def rate(self, round: int) -> float:
        """Return the step size of a round.

        Raises
        ------
        ModelError
            The rate changes within a round.
        """
        if self.recipe.paced:
            raise ModelError(
                "this algorithm needs one learning rate in a round, but learning.schedule changes it at each "
                "step; leave them out, or take another algorithm"
            )
        return float(self.recipe.settings(round)["lr"])  # type: ignore[arg-type]

    def check_schedule(self, rounds: int) -> None:
        """Check the learning rates of ``rounds`` rounds, see :meth:`p2pfl.learning.steps.optimisers.Recipe.check`."""
        samples = self.federation.largest
        each = 1 if self.batch is None else -(-samples // self.batch)
        self.recipe.check(rounds, steps=self.epochs * each if self.steps is None else self.steps)

    def _check_rows(self, rows: Rows, peers: Sequence[str]) -> None:
        expected = (len(peers), self.layout.size)
        if tuple(rows.shape) != expected:
            raise ModelError(
                f"the rows have shape {tuple(rows.shape)}, not {expected}, for {len(peers)} peers; take them from start"
            )

    def evaluate(self, rows: Rows, *, peers: Sequence[str], part: str = "test") -> dict[str, torch.Tensor]:
        """Return by name the mean loss and metrics of each row on the samples of its peer, each ``[R]`` float64.

        ``part`` is ``train``, ``validation`` or ``test``; a peer without samples in it scores NaN.
        """
        self._check_rows(rows, peers)
        if part == "train" and self.federation.lazy:
            with self._loaded(peers) as near:
                return near.evaluate(rows, peers=peers, part=part)
        stack, samples = rows.to(self.device, self.dtype), self.parts[part].of(tuple(peers))
        compute = partial(evaluate, self, stack, samples, engine=self._engine(rows))
        scores = self._score(compute, part=part, numbers=lambda scores: [*scores.values()])
        return {name: score.to(rows.device) for name, score in scores.items()}

    @property
    def scoring(self) -> Mapping[str, PerSample | SetScore]:
        """Scores by name, as functions of outputs and targets; of whole sets only those of p2pfl."""
        scores: dict[str, PerSample | SetScore] = {"loss": self.loss, **self.metrics}
        scores |= {name: metric for name, metric in self.whole.items() if metric in SET_SCORES.values()}
        return scores | ({"r2": r2} if self.r2 else {})

    def outputs(self, row: torch.Tensor, *, peer: str, part: str = "test") -> tuple[torch.Tensor, torch.Tensor]:
        """Return the outputs ``[n, *outputs]`` of a model ``[P]`` on a peer's samples and their targets, on the CPU."""
        if part == "train" and self.federation.lazy:
            with self._loaded((peer,)) as near:
                return near.outputs(row, peer=peer, part=part)
        stack, samples = row.unsqueeze(0).to(self.device, self.dtype), self.parts[part].of((peer,))
        compute = partial(predict_row, self, stack, samples, engine=self._engine(stack))
        return self._score(compute, part=part, numbers=lambda both: both[:1])

    def tallies(self, rows: Rows, *, peers: Sequence[str]) -> torch.Tensor:
        """Return histograms of what each row predicts for the test part of its peer, ``[R, T]`` int64.

        Sums of them over peers give the scores of :func:`p2pfl.learning.histograms.score_histograms`. T is 0 unless the
        model is a classifier of single samples under the cross-entropy.
        """
        classes = self.federation.dataset.classes
        if classes is None or self.loss is not cross_entropy or self.targets.dim() > 1:
            return torch.zeros(len(rows), 0, dtype=torch.int64)
        self._check_rows(rows, peers)
        stack, samples = rows.to(self.device, self.dtype), self.parts["test"].of(tuple(peers))
        compute = partial(tally_rows, self, stack, samples, engine=self._engine(rows), classes=classes)
        return self._score(compute, part="test", numbers=lambda counts: [counts.double()]).cpu()

    def tallied(self, row: torch.Tensor, total: IntArray, *, copies: int) -> dict[str, float]:
        """Return the scores of a model ``[P]`` that follow from the sum of its :meth:`tallies` over all peers."""
        del row
        return score_histograms(total, copies=copies)


def home(learner: Learner) -> torch.device:
    """Return the device of the rows of a simulation: that on which the learner trains.

    Norms and sums are taken in double precision, so a device without it (``mps``) trains and the CPU does the rest. The
    rows of a learner without an attribute ``home`` stay on the CPU.
    """
    device = getattr(learner.bare, "home", None)
    return device if isinstance(device, torch.device) and device.type != "mps" else torch.device("cpu")
