r"""DP-SGD inside a peer: it protects each sample of a peer, not the peer as a whole.

The samples of a batch are rows with one sample each, so the engines that train many peers at once compute
the gradient of each sample. No sample can affect another's gradient, whatever the model and the loss do
with a batch; the bound on one sample rests on this.

The members of a batch and the noise follow from bytes of an injected source: secrets of the operating system on a
device, the seed in a simulation. Both draw the same where the source is the same. Opacus takes them from generators of
torch, of which the CPU's has 2^32 seeds, and its hooks stay on the model; it is an oracle of the tests alone.
"""

import copy
import importlib.util
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Literal, Self, TypedDict, Unpack

import numpy as np
import numpy.typing as npt
from torch import nn

from p2pfl.core.draws import keys
from p2pfl.core.errors import InputError, LearningError, ModelError
from p2pfl.core.rows import Rows, norms, to_device
from p2pfl.core.tensors import torch
from p2pfl.data import Federation, IntArray
from p2pfl.learning import checks
from p2pfl.learning.learner import Correction, Fitted, Memory, Report
from p2pfl.learning.losses import PerSample
from p2pfl.learning.modules.norms import Norm
from p2pfl.learning.set_scores import SetScore
from p2pfl.learning.steps import training
from p2pfl.learning.steps.augmentation import Augment, sample_keys, step_keys
from p2pfl.learning.steps.batching import Batch
from p2pfl.learning.steps.optimisers import Factor, PlainUpdate, StackedUpdate, StepClock
from p2pfl.learning.torch_learner import TorchLearner
from p2pfl.privacy.keys import KEY_BYTES, Source

MAX_NOISE = 2.0**15
"""Largest noise multiplier: the points of larger noise would not be distinct as doubles."""

MAX_BATCH = 2**21
"""Batches have fewer samples in the mean: a sum of twice as many is a whole number that a double counts exactly."""

CLIP_SLACK = 2.0**-24
"""Share by which gradients are clipped below the clip, more than lengths of up to 2^30 numbers are rounded by."""

Normals = Callable[[bytes, int], npt.NDArray[np.float64]]
"""Function ``normals(key, size)`` that returns the first standard normal numbers of a key of 32 bytes."""


class TrainingOptions(TypedDict, total=False):
    """Arguments of :class:`~p2pfl.learning.TorchLearner` that :class:`ExamplePrivateLearner` passes on."""

    seed: int | None
    optimizer: str | type[torch.optim.Optimizer]
    rate: float
    options: Mapping[str, object] | None
    schedule: str | Factor | None
    schedule_options: Mapping[str, object] | None
    schedule_by: Literal["round", "step"]
    warmup: int
    max_norm: float | None
    epochs: int
    steps: int | None
    stragglers: float
    loss: PerSample | str | None
    augment: Augment | None
    metrics: Mapping[str, PerSample | SetScore | str] | None
    pretrained: Mapping[str, torch.Tensor] | str | Path | None
    frozen: Sequence[str]
    norm: Norm | None
    device: str | torch.device
    dtype: torch.dtype
    precision: Literal["full", "mixed"]


class ExamplePrivateLearner(TorchLearner):
    r"""Local training that hides each sample: DP-SGD.

    In every step each of a peer's n samples is in the batch S independently with probability
    :math:`q = \min(1, B / n)`, and the gradient is

    .. math:: g = \frac{1}{q n} \Big(\sum_{i \in S} g_i \min(1, C / \lVert g_i \rVert_2) + z C\, N(0, I_P)\Big)

    Replacing one sample by a blank moves the sum by at most C, so a step is a Poisson-subsampled
    Gaussian mechanism of noise multiplier z; :mod:`p2pfl.privacy.accounting.examples` composes steps. An empty
    batch is a step of noise alone. Optimiser, correction, release and mixing only see g: the releases of a peer are
    (epsilon, delta)-DP for each of its samples, against all other parties together, whether or not
    ``[privacy]`` also protects the peer as a whole. n is public. A sample whose gradient is not
    finite counts as zero. Losses in a :class:`Report` are exact and must stay with the peer.

    With noise, each clipped gradient is rounded towards zero to a grid of :func:`grid_step`, which makes none longer,
    and the noise is a point of that grid. So sums and noise are whole numbers, added exactly, in which no last bits
    decide whether a sample was there: with the exact sampler a step is the Gaussian mechanism, rounded, and its
    sensitivity is C, not C and an error of rounding. Gradients are clipped to :math:`C (1 - 2^{-24})`, because their
    computed lengths are rounded too.

    Parameters
    ----------
    model, federation, seed, options
        Parameters of :class:`TorchLearner`; ``batch`` is the mean size of a batch, and an epoch has as many steps
        as batches of that size cover the data.
    noise
        Noise multiplier z.
    clip
        C, the largest L2 norm of one sample's gradient; infinity only without noise.
    source
        Source of batch membership and noise; each draw is for one peer, round and step.
    normals
        Function that makes standard normal numbers from a key of 32 bytes; times :func:`grid_deviation` they are
        rounded to the grid. Those of :func:`p2pfl.privacy.noise.exact_normals` lie on it.

    Raises
    ------
    ModelError
        The model has dropout, whose places would depend on the other samples of the batch; precision is mixed, a batch
        holds all samples, or a number is out of range.
    InputError
        The extra ``privacy`` is not installed.

    Examples
    --------
    >>> from p2pfl.data import Dataset
    >>> from p2pfl.privacy.keys import SeededSource
    >>> data, none = Dataset(torch.eye(4), torch.tensor([0, 0, 1, 1]), classes=2), {"ada": np.arange(0)}
    >>> learner = ExamplePrivateLearner(
    ...     nn.Linear(4, 2), Federation(data, {"ada": np.arange(4)}, none, none), seed=0, batch=2, noise=1.0, clip=0.5,
    ...     source=SeededSource(7), normals=lambda key, size: np.zeros(size), device="cpu")
    >>> learner.cost("ada")  # q and steps a round
    (0.5, 2)
    >>> tuple(learner.fit(learner.start(["ada"]), peers=["ada"], round=0).rows.shape)
    (1, 10)

    References
    ----------
    M. Abadi et al., "Deep learning with differential privacy", CCS 2016, Algorithm 1, with the expected
    batch size in the denominator.
    """

    def __init__(
        self,
        model: nn.Module,
        federation: Federation,
        *,
        noise: float,
        clip: float,
        source: Source,
        normals: Normals,
        batch: int | None = 32,
        **options: Unpack[TrainingOptions],
    ) -> None:
        if importlib.util.find_spec("dp_accounting") is None:
            raise InputError(
                "learning.example_noise needs dp-accounting, which is not installed; run pip install "
                '"p2pfl-mqtt[privacy]"'
            )
        if not (0 <= noise < math.inf and clip > 0) or (noise and math.isinf(clip)):
            raise ModelError(
                "learning.example_noise must be at least 0 and learning.max_norm finite and above 0, but "
                f"they are {noise} and {clip}; 1 and 1 are usual"
            )
        if noise > MAX_NOISE or (noise and batch is not None and batch >= MAX_BATCH):
            raise ModelError(
                f"learning.example_noise must be at most {MAX_NOISE:g} and learning.batch below {MAX_BATCH}, but "
                f"they are {noise:g} and {batch}; choose smaller ones"
            )
        if batch is None:
            raise ModelError(
                'learning.example_noise needs a number as learning.batch, but it is "all"; choose a batch that '
                "leaves most samples out, which hides each of them better"
            )
        if options.get("precision", "full") != "full":
            raise ModelError(
                'learning.example_noise needs full precision, but learning.dtype is "mixed"; change it, so that '
                "gradients are clipped exactly"
            )
        if options.get("max_norm") is not None:
            raise ModelError(
                "max_norm bounds gradients of batches, and a learner that hides samples bounds those of each by clip; "
                "leave max_norm out"
            )
        super().__init__(model, federation, batch=batch, **options)
        if any(dropout.p > 0 for dropout in self.dropouts.values()):
            raise ModelError(
                "learning.example_noise does not allow dropout in the model; set the dropout to 0, as the "
                "noise regularises already"
            )
        if self.layout != self.trained:
            raise ModelError(
                "learning.example_noise does not allow batch normalisation, which mixes the samples of a batch; set "
                'model.norm to "frozen" or "group"'
            )
        self.noise, self.clip, self.size = noise, clip, batch
        self.source, self.normals = source, normals
        self.grid = grid_step(clip) if noise else 0.0
        self.exact = torch.device("cpu") if self.device.type == "mps" else self.device  # knows double precision

    def drawing(self, source: Source) -> Self:
        """Return the same learner with another source of secrets."""
        other = copy.copy(self)
        other.source = source
        return other

    def cost(self, peer: str) -> tuple[float, int]:
        """Return the sampling rate q and the number of steps of a peer in one round."""
        samples = self.federation.sizes(peer).train
        if not samples:
            return 0.0, 0
        return min(1.0, self.size / samples), self.epochs * -(
            -samples // self.size
        ) if self.steps is None else self.steps

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
        """Train each row on the data of its peer, one after the other; parameters are those of :class:`TorchLearner`.

        Raises
        ------
        LearningError
            A row is no longer finite.
        """
        self._check_rows(rows, peers)
        self._prove(peers, round=round)
        awake = [True] * len(peers) if active is None else active.tolist()
        trained = rows.to(self.device, self.dtype, copy=True)  # [R, P]
        kept = {name: _move(value, self.device).clone() for name, value in (memory or {}).items()}
        loss = torch.zeros(len(rows), dtype=torch.float64, device=self.exact)  # [R]
        steps = torch.zeros(len(rows), dtype=torch.int64)  # [R]
        for index, peer in enumerate(peers):
            rate, count = self.cost(peer)
            if not awake[index] or not count:
                continue
            row = _Row(
                self, trained[index : index + 1], {name: value[index : index + 1] for name, value in kept.items()}
            )
            with self.alone, checks.blame_model(self.model, doing=f"in round {round}"):
                self.model.train()
                last = min(count, max(1, math.ceil(1 / rate)))
                mean = row.train(peer, round=round, steps=count, last=last, index=index, correction=correction)
            steps[index] = count
            trained[index : index + 1], loss[index] = row.join(mean, peer=peer, round=round)
            for name, value in row.update.memory().items():
                if name not in kept:
                    kept[name] = value.new_zeros(len(rows), *value.shape[1:])  # [R, P] or [R]
                kept[name][index : index + 1] = value
        back = rows.device
        if back.type == "cpu" and self.exact.type != "cpu":  # the rows of a live peer, who waits for them
            for peer, own in zip(peers, trained.isfinite().all(dim=1).tolist(), strict=True):
                if not own:
                    raise divergence_error(peer, round)
        state = {name: _move(value, back) for name, value in kept.items()}
        return Fitted(trained.to(back), state, Report(loss.to(back), steps))

    def _prove(self, peers: Sequence[str], *, round: int) -> None:
        """Compare the engine for stacks with plain torch on a batch of each peer, as a fit of many rows does."""
        if self.proof.knows([peer for peer in peers if len(self.federation.train[peer])], self.engine):
            return
        schedule = training.schedule_batches(self, peers, round=round, active=None, only=0)
        work = training.Work(self.start(peers).to(self.device), {}, schedule, tuple(peers), round)
        with self.alone, checks.blame_model(self.model, doing=f"in round {round}"):
            self._proven(work, self.engine)

    def sample(self, peer: str, *, round: int, step: int) -> IntArray:
        """Return the positions in the data set of the samples of one step; there may be none."""
        part, rate = self.federation.train[peer], self.cost(peer)[0]
        if rate == 1:
            return part
        secret = self.source.bytes(8 * len(part), purpose=f"examples {step}", peer=peer, round=round)
        joins = np.frombuffer(secret, "<u8") < np.uint64(int(rate * 2**64))  # [n]
        return part[joins]

    def seeds(self, peer: str, chosen: IntArray, *, round: int, step: int) -> list[int]:
        """Return the seed of the changes of each sample, which follows from its place in the data of its peer."""
        if self.augment is None:
            return []
        part = self.federation.train[peer]
        order = np.argsort(part, kind="stable")
        positions = order[np.searchsorted(part, chosen, sorter=order)]
        return sample_keys(step_keys(keys(self.seed, "augment", (peer,), round), step)[0], positions)

    def hide(self, total: torch.Tensor, *, peer: str, round: int, step: int) -> torch.Tensor:
        """Round a sum of clipped gradients ``[1, P]`` to the grid, and add noise; double precision."""
        if not self.noise:
            return total
        key = self.source.bytes(KEY_BYTES, purpose=f"example noise {step}", peer=peer, round=round)
        drawn = self.normals(key, self.layout.size)  # [P]
        drawn = np.rint(drawn * grid_deviation(noise=self.noise, clip=self.clip)).astype(np.int64)
        points = (total / self.grid).round().to(torch.int64) + to_device(
            torch.from_numpy(drawn), total.device
        )  # [1, P]
        return points.double() * self.grid

    def clip_gradients(
        self, parts: Sequence[torch.Tensor], chosen: IntArray, seeds: Sequence[int] = ()
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the sums of losses and of clipped gradients ``[1, P]`` of some samples, in double precision.

        With noise the sum is exact, and a multiple of the step of the grid. ``seeds`` are those of the random changes
        of each sample, where there are any.
        """
        changing = iter(seeds)
        bound = self.clip * (1 - CLIP_SLACK) if self.noise else self.clip
        total = torch.zeros(1, self.layout.size, dtype=torch.float64, device=self.exact)  # [1, P]
        loss = torch.zeros((), dtype=torch.float64, device=self.exact)
        for some in torch.split(to_device(torch.from_numpy(chosen), self.device), self.engine.block(1)):
            stack = [part.expand(len(some), *part.shape[1:]) for part in parts]  # [B, *shape] each
            features = self.features[some].unsqueeze(1)  # [B, 1, *shape]
            if self.augment is not None:  # each by itself, so that no sample changes the gradient of another
                mine = list(islice(changing, len(some)))
                features = self.augment.change_stack(features, [1] * len(some), keys=mine)
            batch = Batch(features, self.targets[some].unsqueeze(1), None, None)
            losses, gradients = self.engine.gradient(stack, batch)
            each = self.layout.join(dict(zip(self.layout.names, gradients, strict=True)))  # [B, P]
            each = each.to(self.exact, torch.float64)
            lengths = norms(each)  # [B, 1]
            finite = lengths.isfinite()  # [B, 1]
            if self.exact.type != "cpu" or not finite.all():  # the CPU does not wait for another device
                each, lengths = torch.where(finite, each, 0.0), torch.where(finite, lengths, 1.0)
            factors = (bound / lengths.clamp_min(1e-300)).clamp_max(1.0)  # [B, 1]
            if self.noise:
                points = each.mul_(factors / self.grid).trunc_()  # [B, P], joined above into memory of its own
                total += points.new_ones(1, len(points)) @ points  # [1, P]; whole numbers, so no order matters
            else:
                total += factors.T @ each  # [1, P]
            loss += losses.to(self.exact, torch.float64).sum()
        return loss, total * self.grid if self.noise else total


def grid_step(clip: float) -> float:
    """Return the step of the grid for noise: the power of two of which the clip is 2^30 to 2^31.

    Examples
    --------
    >>> grid_step(1.0) == 2.0**-30
    True
    """
    return math.ldexp(1.0, math.frexp(clip)[1] - 31)


def grid_deviation(*, noise: float, clip: float) -> float:
    """Return the standard deviation of the noise in steps of the grid.

    Parameters
    ----------
    noise, clip
        z and C.
    """
    return noise * (clip / grid_step(clip))


def _move(values: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return rows ``[R, P]`` on a device; one number for each row stays on the CPU."""
    return to_device(values, device) if values.dim() > 1 else values


class _Row:
    """Row ``[1, P]`` in one round, with its optimiser."""

    def __init__(self, learner: ExamplePrivateLearner, row: torch.Tensor, memory: Mapping[str, torch.Tensor]) -> None:
        self.learner, self.memory = learner, memory
        self.parts = [part.clone() for part in learner.layout.split(row).values()]  # [1, *shape] each
        self.update: PlainUpdate | StackedUpdate

    def train(
        self, peer: str, *, round: int, steps: int, last: int, index: int, correction: Correction | None
    ) -> torch.Tensor:
        """Take all steps and return the mean loss of the samples in the ``last`` ones, ``[]``."""
        learner, layout = self.learner, self.learner.layout
        self.update = self._make_update(round)
        scale = learner.cost(peer)[0] * len(learner.federation.train[peer])
        losses, count = torch.zeros((), dtype=torch.float64, device=learner.exact), 0
        for step in range(steps):
            chosen = learner.sample(peer, round=round, step=step)
            seeds = learner.seeds(peer, chosen, round=round, step=step)
            clipped = partial(learner.clip_gradients, self.parts, chosen, seeds)
            loss, total = learner.repeatable(clipped, numbers=list)
            gradient = learner.hide(total, peer=peer, round=round, step=step) / scale  # [1, P]
            gradient = gradient.to(learner.device, learner.dtype)
            if correction is not None:
                row = layout.join(dict(zip(layout.names, self.parts, strict=True)))  # [1, P]
                gradient = gradient + correction(row, torch.full((1,), index, device=row.device)).to(gradient)
            if learner.recipe.paced:
                now = learner.recipe.at(round, step, StepClock(steps, learner.clock))
                self.update.pace([now])
            self.update.step(self.parts, list(layout.split(gradient).values()))
            if step >= steps - last:
                losses, count = losses + loss, count + len(chosen)
        return losses / max(1, count)

    def _make_update(self, round: int) -> PlainUpdate | StackedUpdate:
        recipe = self.learner.recipe
        settings = recipe.settings(round)
        if recipe.stateless:
            return PlainUpdate(settings)
        return StackedUpdate(
            recipe.kind,
            settings,
            parts=self.parts,
            layout=self.learner.layout,
            memory=self.memory,
            labels=np.zeros(1, dtype=np.int64),
        )

    def join(self, loss: torch.Tensor, *, peer: str, round: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the current row ``[1, P]`` and its loss ``[]``; on an accelerator NaN for a row that is not finite."""
        layout = self.learner.layout
        row = layout.join(dict(zip(layout.names, self.parts, strict=True)))  # [1, P]
        finite = torch.isfinite(row).all()
        if self.learner.exact.type != "cpu":
            return row, torch.where(finite, loss, torch.nan)
        if not finite:
            raise divergence_error(peer, round)
        return row, loss


def divergence_error(peer: str, round: int) -> LearningError:
    """Return the error of a row that is no longer finite."""
    return LearningError(f"training of {peer} diverged in round {round}; set a smaller learning.rate")
