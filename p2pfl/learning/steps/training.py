"""Execution of a round of local training: blocks of rows in an outer loop, steps in an inner one.

All steps of a block are taken before the next block, so that its rows, gradients and activations stay in the cache.
Blocks are independent of each other: threads take them from a queue, the longest first. How rows are divided into
blocks follows from shapes alone, so the number of threads changes no result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np

from p2pfl.core.draws import draw, keys, subkeys
from p2pfl.core.process import cores, one_at_a_time, spread
from p2pfl.core.rows import Layout, Rows, to_device
from p2pfl.core.tensors import torch
from p2pfl.data import IntArray, check_batch, orders
from p2pfl.learning.learner import Correction
from p2pfl.learning.losses import PerSample
from p2pfl.learning.set_scores import SetScore
from p2pfl.learning.steps.augmentation import Augmentation, step_keys
from p2pfl.learning.steps.batching import Batch, BatchSchedule, Footprint, PeerSamples, StepPlan
from p2pfl.learning.steps.optimisers import PlainUpdate, Recipe, StackedUpdate, StepClock
from p2pfl.learning.steps.perceptrons import Perceptrons

if TYPE_CHECKING:
    from p2pfl.learning.dropout import KeyedDropout


def straggles(peer: str, *, seed: int, round: int, share: float) -> bool:
    """Return whether a peer is a straggler in a round, with probability ``share``; every peer can compute it.

    Examples
    --------
    >>> [straggles("ada", seed=7, round=round, share=0.5) for round in range(4)]
    [False, False, True, True]
    """
    return bool(draw(seed, "straggler", peer, round).random() < share)


def straggler_work(peer: str, *, seed: int, round: int, share: float, most: int) -> int:
    r"""Return the number of epochs, or steps, of ``most`` that a peer does in a round.

    A straggler does :math:`e \sim U\{1, \dots, E\}`, every other peer E, as in Li et al., Federated
    optimization in heterogeneous networks, MLSys 2020, section 5.2.

    Examples
    --------
    >>> [straggler_work("ada", seed=7, round=round, share=0.5, most=20) for round in range(4)]
    [20, 20, 6, 5]
    """
    if not straggles(peer, seed=seed, round=round, share=share):
        return most
    return int(draw(seed, "straggler's work", peer, round).integers(1, most + 1))


NORM_EPSILON = 1e-6
"""Number that :func:`torch.nn.utils.clip_grad_norm_` adds to the norm before it divides."""


def clip(gradients: Sequence[torch.Tensor], *, max_norm: float) -> list[torch.Tensor]:
    r"""Return :math:`g \min(1, c / (\|g\| + 10^{-6}))` for the gradient of each model, as torch's ``clip_grad_norm_``.

    Parameters
    ----------
    gradients
        Gradients of each tensor, for K models: ``[K, *shape]`` each.
    max_norm
        Largest L2 norm c of the gradient of a model over all its tensors.

    Returns
    -------
    list of torch.Tensor
        Clipped gradients ``[K, *shape]``. A gradient that is not finite becomes NaN.

    Examples
    --------
    >>> weights, biases = clip([torch.tensor([[3.0], [0.3]]), torch.tensor([[4.0], [0.4]])], max_norm=1.0)
    >>> [[round(value, 4) for value in each.flatten().tolist()] for each in (weights, biases)]
    [[0.6, 0.3], [0.8, 0.4]]
    """
    each = [torch.linalg.vector_norm(part.unsqueeze(-1).flatten(1), dim=1) for part in gradients]  # [K] each
    norms = torch.linalg.vector_norm(torch.stack(each), dim=0)  # [K]
    shares = (max_norm / (norms + NORM_EPSILON)).clamp_max(1.0)  # [K]
    return [part * shares.view(-1, *[1] * (part.dim() - 1)) for part in gradients]


MAX_PIECES = 4
"""Most blocks into which rows are divided for the sake of several threads."""

MIN_BLOCK_SHARE = 1 / 8
"""Smallest part of a full block that a block of equally long rows may be.

In short calls two threads spend more time on handing over the interpreter than they save. Peer-steps of MLPs (64-32-10,
batches of 16) took, on two idle cores in one, two and four blocks, 12.4, 14.7 and 19.6 microseconds with 64 of them,
11.0, 10.5 and 13.8 with 128, and 10.2, 8.0 and 9.9 with 256; 895 are a full block.
"""

MIN_SHARED_PRODUCTS = 2**30
"""Fewest products of a weight and a number in the forward pass of a step that several intra-op threads share.

Such a step takes about a fifth of a second on one core, and ends in tens of barriers. A core that is busy with
something else delays each of them by milliseconds: steps of 3 to 20 ms took 4 to 15 times as long in two threads as in
one, on two cores that six processes shared.
"""


class Engine(Protocol):
    """Interface that computes gradients for a block of rows.

    Attributes
    ----------
    first_weight
        Place of the weights ``[K, O, I]`` among the parts, if the outputs follow from their product with the features
        of a sample; else ``None``.
    """

    first_weight: int | None

    def block(self, width: int) -> int:
        """Return the number of rows in a block when a batch has ``width`` samples."""
        ...

    def copies(self, count: int) -> Sequence[Self]:
        """Return so many engines of which each may run in a thread of its own; none if that is not possible."""
        ...

    def gradient(self, parts: Sequence[torch.Tensor], batch: Batch) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return mean losses ``[K]`` over the batch of each row, and their gradients, ``[K, *shape]`` each.

        There is a gradient for each trained tensor; running statistics come after them, and move in place.
        """
        ...

    def outputs(self, parts: Sequence[torch.Tensor], features: torch.Tensor, *, shared: bool) -> torch.Tensor:
        """Return ``[K, B, *outputs]`` for features ``[K, B, *shape]``, or ``[B, *shape]`` if all rows share them."""
        ...


class StackedLearner(Protocol):
    """Attributes of a torch learner that training and evaluation read."""

    features: torch.Tensor
    targets: torch.Tensor
    device: torch.device
    layout: Layout
    trained: Layout  # the beginning of the layout, without running statistics
    recipe: Recipe
    dropouts: dict[str, KeyedDropout]
    products: int  # of a weight and a number, for one sample
    seed: int
    batch: int | None
    epochs: int
    steps: int | None
    clock: int | None  # steps in a round that a schedule counts, if not those of each row
    stragglers: float
    augment: Augmentation | None
    parts: dict[str, PeerSamples]  # samples of all peers in each part
    loss: PerSample
    metrics: Mapping[str, PerSample]
    whole: Mapping[str, SetScore]
    order: Sequence[str]  # of the scores
    r2: bool
    footprint: Footprint


@dataclass
class Work:
    """Rows of one round, changed in place block by block, by several threads at once."""

    rows: Rows
    memory: dict[str, torch.Tensor]
    schedule: BatchSchedule
    peers: tuple[str, ...]
    round: int
    first: int = 0  # number of the first step in the round
    loss: torch.Tensor = field(init=False)
    counts: IntArray = field(init=False)
    alone: AbstractContextManager[object] = field(default_factory=one_at_a_time, init=False)

    def __post_init__(self) -> None:
        self.loss = torch.zeros(len(self.rows), dtype=torch.float64, device=self.rows.device)  # [R]
        self.counts = self.schedule.counts


def schedule_batches(
    learner: StackedLearner,
    peers: Sequence[str],
    *,
    round: int,
    active: torch.Tensor | None,
    only: int | None = None,
    whole: bool = False,
) -> BatchSchedule:
    """Return the batches of every peer in a round, or the one of number ``only``; idle peers have none.

    Parameters
    ----------
    learner, peers, round, active
        As in :meth:`p2pfl.learning.TorchLearner.fit`.
    only
        Number of the single batch to return.
    whole
        True if that batch is the whole training part instead.
    """
    check_batch(learner.batch)
    part = learner.parts["train"].of(tuple(peers))
    samples = part.counts  # [R]
    widths = np.minimum(samples, samples.max(initial=0) if whole or learner.batch is None else learner.batch)  # [R]
    each = -(-samples // np.maximum(widths, 1))  # [R]
    awake = np.full(len(peers), fill_value=True) if active is None else active.cpu().numpy()
    busy = awake & (samples > 0)  # [R]
    first = 0 if only is None or whole else only
    counts = np.where(busy, 1, 0) if only is not None else np.where(busy, _work(learner, peers, round, each), 0)
    epochs = np.where(widths < samples, -(-(first + counts) // np.maximum(each, 1)), 0) * (counts > 0)
    drawn = orders(samples, epochs, seed=learner.seed, peers=tuple(peers), round=round, device=learner.device)
    return BatchSchedule(part, widths, counts, first, drawn)


def _work(learner: StackedLearner, peers: Sequence[str], round: int, each: IntArray) -> IntArray:
    """Return the steps of every peer in a round, given those in an epoch, ``[R]``."""
    most = learner.epochs if learner.steps is None else learner.steps
    done = np.full(len(peers), most)
    if learner.stragglers:
        some = partial(straggler_work, seed=learner.seed, round=round, share=learner.stragglers, most=most)
        done = np.array([some(peer) for peer in peers])
    return done * each if learner.steps is None else done


class Slope:
    """Update that takes no step and puts the gradient of the last batch in place of the row."""

    def narrow(self, active: int) -> None:
        """Do nothing, as there is no state."""

    def pace(self, settings: Sequence[Mapping[str, object]]) -> None:
        """Do nothing, as there is no rate."""

    def step(self, parts: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]) -> None:
        """Put the gradients in place of the parameters."""
        for part, gradient in zip(parts, gradients, strict=True):
            part.copy_(gradient)

    def memory(self) -> dict[str, torch.Tensor]:
        """Return no state."""
        return {}


Update = PlainUpdate | StackedUpdate | Slope


def train(
    work: Work,
    *,
    learner: StackedLearner,
    engine: Engine | Perceptrons,
    correction: Correction | None,
    slope: Slope | None = None,
) -> None:
    """Take all steps of all rows, with ``slope`` in place of the learner's optimiser if given."""
    settings = learner.recipe.settings(work.round)
    labels = learner.recipe.groups(work.memory, len(work.rows))  # [R]
    if learner.recipe.paced:  # rows of a group have the same rate
        labels = np.unique(np.stack([labels, whole_steps(work, learner)]), axis=1, return_inverse=True)[1].reshape(-1)
    costs = work.counts  # [R]
    order = np.lexsort((labels, -costs))[: np.count_nonzero(costs)]  # rows by steps, most first
    if not len(order):
        return
    most = engine.block(int(work.schedule.widths[order].max()))
    here = work.rows.device.type == "cpu"
    blocks = divide_rows(costs[order], most=most, pieces=MAX_PIECES if here else 1)

    def some(engine: Engine | Perceptrons, rows: tuple[int, int]) -> None:
        chosen = order[slice(*rows)]
        block = _block(work, learner, chosen, engine)
        update = slope or block.update(settings, labels[chosen])
        block.run(update, correction)
        block.finish(update)

    if not here:
        for rows in blocks:
            some(engine, rows)
        return
    engines = engine.copies(cores()) or [engine]
    inner = intra_op(learner.products * int(work.schedule.widths.max()), workers=min(len(engines), len(blocks)))
    spread(lambda number, rows: some(engines[number], rows), blocks, workers=len(engines), inner=inner)


def first_step(
    work: Work, *, learner: StackedLearner, engine: Engine | Perceptrons, chosen: IntArray
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the losses ``[K]`` and the gradients ``[K, P]`` of the first step of some rows.

    They are computed as :func:`train` does, and nothing moves. Rows without a step are not among ``chosen``.
    """
    block = _block(work, learner, chosen, engine)
    block.run(Slope(), None)
    return block.losses[0], block.join()


def whole_steps(work: Work, learner: StackedLearner) -> IntArray:
    """Return the steps of each row in a whole round, ``[R]``, whether or not it takes all of them in this one."""
    each = work.schedule.epoch  # [R]
    return each * learner.epochs if learner.steps is None else np.full_like(each, learner.steps)


def intra_op(products: int, *, workers: int) -> int:
    """Return the number of intra-op threads of each worker: several share long steps where workers leave cores free.

    Parameters
    ----------
    products
        Products of a weight and a number in the forward pass of a model on one batch.
    workers
        Number of blocks that train at the same time.

    Examples
    --------
    >>> intra_op(2**20, workers=1)
    1
    """
    return 1 if products < MIN_SHARED_PRODUCTS else max(1, cores() // workers)


def divide_rows(costs: IntArray, *, most: int, pieces: int = MAX_PIECES) -> list[tuple[int, int]]:
    """Divide rows into blocks of consecutive rows, each from its first row to the one after its last.

    A block has at most ``most`` rows. Where there are enough rows for several threads, they make two or four blocks of
    the same cost, and more only if these would be too large. Few rows with many steps are worth a block of their own if
    they take half of the steps.

    Parameters
    ----------
    costs
        Steps of each row, or samples in all its steps, most first.
    most
        Largest number of rows.
    pieces
        Most blocks for the sake of several threads: one on an accelerator, which takes one block after the other.

    Examples
    --------
    >>> divide_rows(np.full(1000, 20), most=390)
    [(0, 250), (250, 500), (500, 750), (750, 1000)]
    >>> divide_rows(np.full(100, 20), most=390)
    [(0, 50), (50, 100)]
    >>> divide_rows(np.full(100, 20), most=390, pieces=1)
    [(0, 100)]
    >>> divide_rows(np.array([900, 100, 100, 1, 1, 1]), most=4)
    [(0, 1), (1, 5), (5, 6)]
    """
    least, total = MIN_BLOCK_SHARE * most, costs.sum()
    pieces = next((each for each in (pieces, pieces // 2) if each > 1 and len(costs) >= each * least), 1)
    bounds, low, done = [0], 0, 0
    for row, cost in enumerate(costs.tolist()):
        done += cost
        enough = total if pieces == 1 else max(total / pieces, min(least * costs[low], total / 2))
        if row + 1 - low == most or done >= enough:
            bounds.append(row + 1)
            low, done = row + 1, 0
    if bounds[-1] < len(costs):
        bounds.append(len(costs))
    return list(pairwise(bounds))


class _Block(ABC):
    """Rows that train together, from their first step to their last."""

    def __init__(self, work: Work, learner: StackedLearner, chosen: np.ndarray) -> None:
        self.work, self.learner, self.chosen = work, learner, chosen
        self.device = work.rows.device
        self.where = to_device(torch.from_numpy(chosen), self.device)  # [K]
        self.plan = StepPlan(work.schedule, chosen)
        self.rows = work.rows.index_select(0, self.where)  # [K, P]
        self.losses = torch.zeros(self.plan.sizes.shape, dtype=torch.float64, device=self.device)  # [T, K]
        self.clocks: list[StepClock] | None = None  # of each row, where rates change within the round
        if learner.recipe.paced:
            self.clocks = [StepClock(each, learner.clock) for each in whole_steps(work, learner)[chosen].tolist()]

    @abstractmethod
    def trained_tensors(self) -> tuple[list[torch.Tensor], Layout]:
        """Return the tensors that the optimiser moves, ``[K, *shape]`` each, and their places in a row."""

    @abstractmethod
    def run(self, update: Update, correction: Correction | None) -> None:
        """Take every step; rows without further steps drop out at the end of the stack."""

    def pace(self, update: Update, step: int, active: int) -> None:
        """Give the optimiser its settings at a step, where they change within the round."""
        if self.clocks is not None:
            clocks, recipe, round = self.clocks, self.learner.recipe, self.work.round
            settings = {clock: recipe.at(round, step, clock) for clock in set(clocks[:active])}
            update.pace([settings[clock] for clock in clocks[:active]])

    def join(self) -> torch.Tensor:
        """Return the rows as they are now, ``[K, P]``."""
        return self.rows

    def update(self, settings: Mapping[str, object], labels: np.ndarray) -> PlainUpdate | StackedUpdate:
        """Return the optimiser of these rows, with their memory."""
        recipe = self.learner.recipe
        if recipe.stateless:
            return PlainUpdate(settings)
        memory = {name: value[self._rows(value)] for name, value in self.work.memory.items()}
        parts, layout = self.trained_tensors()
        return StackedUpdate(recipe.kind, settings, parts=parts, layout=layout, memory=memory, labels=labels)

    def finish(self, update: Update) -> None:
        """Write rows, memory and losses back; the loss of a row that is no longer finite is NaN."""
        loss = self._last_epoch()  # [K]
        sound = torch.isfinite(loss + self.rows.sum(dim=1))  # [K]
        self.work.rows.index_copy_(0, self.where, self.rows)
        self.work.loss.index_copy_(0, self.where, torch.where(sound, loss, torch.nan))
        for name, value in update.memory().items():
            with self.work.alone:  # the first block to end makes the tensor
                if name not in self.work.memory:
                    self.work.memory[name] = value.new_zeros(len(self.work.rows), *value.shape[1:])  # [R, P] or [R]
            self.work.memory[name].index_copy_(0, self._rows(value), value)

    def _rows(self, value: torch.Tensor) -> torch.Tensor:
        """Return the numbers of these rows, on the device of the value."""
        return self.where if value.device == self.device else torch.from_numpy(self.chosen)  # [K]

    def _last_epoch(self) -> torch.Tensor:
        """Return the mean loss over the samples of each row's last epoch, ``[K]`` float64."""
        steps = np.arange(len(self.plan.sizes))[:, None]
        last = self.work.counts[self.chosen] - self.work.schedule.epoch[self.chosen]  # [K]
        shares = self.plan.sizes * (steps >= last)  # [T, K]
        share = to_device(torch.from_numpy(shares / shares.sum(axis=0)), self.device)
        return (self.losses * share).sum(dim=0)  # [K]


class _Flat(_Block):
    """Rows of a perceptron: optimiser and corrections act on whole rows."""

    def __init__(self, work: Work, learner: StackedLearner, chosen: np.ndarray, engine: Perceptrons) -> None:
        super().__init__(work, learner, chosen)
        self.engine = engine

    def trained_tensors(self) -> tuple[list[torch.Tensor], Layout]:
        """Return the rows."""
        return [self.rows], Layout(("row",), ((self.rows.shape[1],),))

    def run(self, update: Update, correction: Correction | None) -> None:
        """Take every step."""
        rows, slopes, where = self.rows, torch.zeros_like(self.rows), self.where
        models, losses = self.engine.models(rows, slopes), self.losses.numpy()
        features, targets = self.learner.features.numpy(), self.learner.targets.numpy()
        bound = self.learner.recipe.max_norm
        with np.errstate(all="ignore"):  # the loss of a row that is no longer finite shows it
            for step, active in enumerate(self.plan.active):
                if active < len(rows):
                    update.narrow(active)
                    rows, slopes, where = rows[:active], slopes[:active], where[:active]
                    models = self.engine.models(rows, slopes)
                index = self.plan.positions(step)  # [K, B]
                weights = self.plan.shares(step).astype(features.dtype) if not self.plan.even[step] else None
                losses[step, :active] = models.gradient(features.take(index, 0), targets.take(index), weights)
                [taken] = [slopes] if bound is None else clip([slopes], max_norm=bound)
                if correction is not None:
                    taken += correction(rows, where).to(slopes)
                self.pace(update, step, active)
                update.step([rows], [taken])


class _Stack(_Block):
    """Rows of any model, as a stack of each of its tensors."""

    def __init__(self, work: Work, learner: StackedLearner, chosen: np.ndarray, engine: Engine) -> None:
        super().__init__(work, learner, chosen)
        self.engine = engine
        self.parts = [part.contiguous() for part in learner.layout.split(self.rows).values()]  # [K, *shape] each
        self.slopes = len(learner.trained.names)  # number of parts with a gradient
        self.keys: torch.Tensor | None = None
        if learner.dropouts:
            drawn = keys(learner.seed, "dropout", work.peers, work.round)[chosen]  # [K]
            numbers = work.first + np.arange(len(self.plan.active))[:, None]  # [T, 1]
            self.keys = to_device(torch.from_numpy(subkeys(drawn, numbers)), self.device)  # [T, K], in one copy
        self.drawn = keys(learner.seed, "augment", work.peers, work.round)[chosen] if learner.augment else None  # [K]

    def trained_tensors(self) -> tuple[list[torch.Tensor], Layout]:
        """Return the parts with a gradient."""
        return self.parts[: self.slopes], self.learner.trained

    def batch(self, step: int) -> Batch:
        """Gather the samples of one step."""
        active, width = self.plan.active[step], self.plan.widths[step]
        index = self.plan.index(step).reshape(-1)  # [K B]
        features, targets = self.learner.features, self.learner.targets
        samples = features.index_select(0, index).view(active, width, *features.shape[1:])  # [K, B, *shape]
        if self.learner.augment is not None and self.drawn is not None:
            seeds = step_keys(self.drawn[:active], self.work.first + step)
            samples = self.learner.augment.change_stack(samples, self.plan.sizes[step, :active].tolist(), keys=seeds)
        return Batch(
            samples,
            targets.index_select(0, index).view(active, width, *targets.shape[1:]),  # [K, B]
            self.plan.weights(step, dtype=self.work.rows.dtype),
            None if self.keys is None else self.keys[step, :active],
        )

    def run(self, update: Update, correction: Correction | None) -> None:
        """Take every step."""
        parts, where, bound = self.parts, self.where, self.learner.recipe.max_norm
        for step, active in enumerate(self.plan.active):
            if active < len(where):
                update.narrow(active)
                parts, where = [part[:active] for part in parts], where[:active]
            losses, gradients = self.engine.gradient(parts, self.batch(step))
            if bound is not None:
                gradients = clip(gradients[: self.slopes], max_norm=bound)
            if correction is not None:
                gradients = self._correct(correction, parts, gradients, where=where)
            self.pace(update, step, active)
            update.step(parts[: self.slopes], gradients)
            self.losses[step, :active] = losses

    def _correct(
        self,
        correction: Correction,
        parts: Sequence[torch.Tensor],
        gradients: Sequence[torch.Tensor],
        *,
        where: torch.Tensor,
    ) -> list[torch.Tensor]:
        layout = self.learner.layout
        rows = layout.join(dict(zip(layout.names, parts, strict=True)))  # [K, P]
        terms = layout.split(correction(rows, where).to(rows))
        return [gradient + terms[name] for gradient, name in zip(gradients, self.learner.trained.names, strict=True)]

    def finish(self, update: Update) -> None:
        """Write rows, memory and losses back."""
        self.rows = self.join()
        super().finish(update)

    def join(self) -> torch.Tensor:
        """Return the rows as they are now, ``[K, P]``."""
        layout = self.learner.layout
        return layout.join(dict(zip(layout.names, self.parts, strict=True)))  # [K, P]


def _block(work: Work, learner: StackedLearner, chosen: IntArray, engine: Engine | Perceptrons) -> _Block:
    """Return the block of some rows for an engine."""
    if isinstance(engine, Perceptrons):
        return _Flat(work, learner, chosen, engine)
    return _Stack(work, learner, chosen, engine)
