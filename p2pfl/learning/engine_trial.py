"""Engines of a model, each tried on a few samples before anything starts."""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import torch
from torch import nn

from p2pfl.core.errors import LearningError, ModelError
from p2pfl.core.process import watch_generators
from p2pfl.core.rows import Layout, Rows
from p2pfl.learning import checks
from p2pfl.learning.dropout import KeyedDropout
from p2pfl.learning.losses import PerSample
from p2pfl.learning.modules.hidden_state import DROPOUT_REMEDY, REPEAT_SENTENCE, ModelState
from p2pfl.learning.steps.autograd import Autocast, PlainEngine
from p2pfl.learning.steps.batching import BLOCK_BYTES, Batch, Footprint
from p2pfl.learning.steps.kernels import Kernels, compile_kernels, perceptrons
from p2pfl.learning.steps.perceptrons import Perceptrons
from p2pfl.learning.steps.torch_func import StackedEngine

MAX_STACKED_PARAMETERS = 2**22
"""Most parameters of a model whose engines are tried on two rows at once."""

BLOCK_SHARE = 1 / 16
"""Share of the memory of a GPU that a block of rows may touch in one step, at least 1 GiB, as on other accelerators."""


def block_bytes(device: torch.device) -> int:
    """Return the bytes that a block of rows may touch in one step.

    Examples
    --------
    >>> block_bytes(torch.device("cpu")) == BLOCK_BYTES["cpu"]
    True
    """
    memory = torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else 0
    return BLOCK_BYTES.get(device.type, max(2**30, int(BLOCK_SHARE * memory)))


RELATIVE_TOLERANCES = {torch.float64: 1e-6, torch.float32: 1e-3}
"""Largest difference of gradients and losses that counts as rounding, relative to them, by type of number.

Rounding puts a few numbers on the other side of a ReLU; a hook or a layer that is left out changes everything.
"""

ACCELERATOR_TOLERANCE = 3e-2
"""The same on an accelerator, whose convolutions round single precision to 10 bits."""

MIXED_TOLERANCE = 0.2
"""The same in mixed precision."""

REPEAT_TOLERANCE = 1e-5
"""Largest difference between two calls of one engine, relative to the result: threads may sum in another order."""


@dataclass(frozen=True)
class Tolerance:
    """Largest differences that count as rounding.

    Attributes
    ----------
    relative
        Relative to the norm.
    absolute
        In units of the loss or of the gradient.
    """

    relative: float
    absolute: float

    @classmethod
    def of(cls, dtype: torch.dtype, device: torch.device, *, mixed: bool = False) -> Self:
        """Return the tolerance of a number type on a device."""
        relative = (
            MIXED_TOLERANCE if mixed else RELATIVE_TOLERANCES[dtype] if device.type == "cpu" else ACCELERATOR_TOLERANCE
        )
        return cls(relative, relative / 1000)

    def equal(self, one: torch.Tensor, other: torch.Tensor, *, scale: float = 0.0) -> bool:
        """Return whether two tensors of one shape are equal to rounding; what is not finite is equal to its like.

        Parameters
        ----------
        one, other
            The tensors.
        scale
            Size of the numbers that were added up to them, if it is larger than they are.

        Examples
        --------
        >>> close = Tolerance(1e-3, 1e-6)
        >>> close.equal(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0005]))
        True
        >>> close.equal(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.1]))
        False
        """
        one, other = one.detach(), other.detach()
        if torch.equal(one, other):
            return True
        distance = _norm(one - other)
        if not math.isfinite(distance):
            finite = one.isfinite()
            if not torch.equal(finite, other.isfinite()):
                return False
            one, other = torch.where(finite, one, 0), torch.where(finite, other, 0)
            distance = _norm(one - other)
        size = max(scale, _norm(one), _norm(other))
        return distance <= self.relative * size + self.absolute


def _norm(numbers: torch.Tensor) -> float:
    """Return the L2 norm, summed in double precision where the device has it."""
    exact = torch.float32 if numbers.device.type == "mps" else torch.float64
    return float(torch.linalg.vector_norm(numbers, dtype=exact))


MAX_ATTEMPTS = 3
"""Rows on which engines are compared before they count as different.

Where the input of a ReLU is zero to rounding, two right engines differ by the whole gradient of a unit. At another row
it is not.
"""

ROW_SHIFT = 0.01
"""Largest difference of numbers of these rows."""


def perturb_row(row: torch.Tensor, attempt: int) -> torch.Tensor:
    """Return a row next to another one, which itself is attempt 0.

    Examples
    --------
    >>> row = torch.zeros(2)
    >>> torch.equal(perturb_row(row, 0), row), torch.equal(perturb_row(row, 1), perturb_row(row, 2))
    (True, False)
    """
    if attempt == 0:
        return row
    waves = torch.cos(attempt * torch.arange(row.shape[-1], device=row.device).float())
    return row + ROW_SHIFT * waves.to(row.dtype)


TOLERANCE_OF_REPEATS = Tolerance(REPEAT_TOLERANCE, REPEAT_TOLERANCE / 100)
"""Tolerance of two calls of one engine."""


@dataclass(frozen=True)
class Trial:
    """A model, and the samples on which its engines are tried.

    Attributes
    ----------
    model, layout, initial
        Model, the places of its row, and a copy of its values ``[1, P]`` on the device.
    features, targets
        A few samples.
    loss, dropouts, autocast
        Arguments of :class:`~p2pfl.learning.steps.autograd.PlainEngine`.
    tolerance
        Differences between engines that count as rounding.
    """

    model: nn.Module
    layout: Layout
    initial: Rows
    features: torch.Tensor
    targets: torch.Tensor
    loss: PerSample
    dropouts: Mapping[str, KeyedDropout]
    autocast: Autocast
    tolerance: Tolerance

    def plain(self) -> PlainEngine:
        """Return the engine for a single row, which runs the model itself.

        Raises
        ------
        ModelError
            A step on a few samples fails, for instance in code of the user; or a second call gives another result, as
            the model keeps state or draws random numbers without a key.
        """
        engine = PlainEngine(
            self.model, self.layout.names, loss=self.loss, dropouts=self.dropouts, autocast=self.autocast
        )
        try:
            with (
                watch_generators() as drawn,
                checks.blame_model(self.model, doing="in a first step of training"),
            ):
                first = self._step(engine)
                before = ModelState(self.model, own=self.layout.names)
                second = self._step(engine)
                after = ModelState(self.model, own=self.layout.names)
                first, second = [*first, *self._scores(engine)], [*second, *self._scores(engine)]
                last = ModelState(self.model, own=self.layout.names)
        except LearningError as error:
            raise ModelError(str(error)) from error
        if drawn:
            raise ModelError(f"the model draws from {drawn[0]} global generator; {DROPOUT_REMEDY}")
        before.check(after)
        after.check(last)
        if not all(TOLERANCE_OF_REPEATS.equal(one, other) for one, other in zip(first, second, strict=True)):
            raise ModelError(REPEAT_SENTENCE)
        return engine

    def _scores(self, engine: PlainEngine) -> list[torch.Tensor]:
        """Return the outputs of the model itself in evaluation, and those of the engine less them."""
        parts = self._parts(self.initial)
        engine.bind(parts)
        self.model.eval()
        with torch.no_grad(), self.autocast():
            outputs = self.model(self.features)
        return [outputs, engine.outputs(parts, self.features, shared=True)[0]]

    def agrees(self, engine: Kernels | StackedEngine | Perceptrons, plain: PlainEngine) -> bool:
        """Return whether an engine computes what plain torch does, called twice, in training and in evaluation.

        Two rows take a batch of one length and batches of two lengths, of which the shorter is padded. A model whose
        outputs for one sample depend on the other samples of the batch fails the latter.

        Raises
        ------
        ModelError
            The model draws random numbers without a key.
        """
        try:
            with warnings.catch_warnings():  # vmap runs some operations row by row, which is slower but correct
                warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
                return any(self._agrees(engine, plain, self._rows(attempt)) for attempt in range(MAX_ATTEMPTS))
        except Exception as error:
            if "random" in str(error):
                raise ModelError(f"the model draws random numbers without a key; {DROPOUT_REMEDY}") from error
            if not isinstance(engine, StackedEngine):
                raise
            return False

    def _agrees(self, engine: Kernels | StackedEngine | Perceptrons, plain: PlainEngine, rows: Rows) -> bool:
        """Return whether an engine is right about rows ``[K, P]``."""
        steps = all(self._same_step(engine, plain, rows, padded=padded) for padded in (False, True))
        return steps and (isinstance(engine, Perceptrons) or self._same_outputs(engine, plain, rows))

    def _rows(self, attempt: int) -> Rows:
        """Return a row, and for small models one nearby, so that parameters that start at zero count, ``[K, P]``."""
        row = perturb_row(self.initial, attempt)
        return row if row.shape[1] > MAX_STACKED_PARAMETERS else torch.cat([row, perturb_row(row, MAX_ATTEMPTS)])

    def _parts(self, rows: Rows) -> list[torch.Tensor]:
        """Return copies of the tensors of rows."""
        return [part.clone(memory_format=torch.contiguous_format) for part in self.layout.split(rows).values()]

    def _keys(self, rows: Rows) -> torch.Tensor | None:
        """Return keys of dropout, ``[K]``."""
        return 1 + torch.arange(len(rows), device=rows.device) if self.dropouts else None

    def _same_step(
        self, engine: Kernels | StackedEngine | Perceptrons, plain: PlainEngine, rows: Rows, *, padded: bool
    ) -> bool:
        """Return whether losses and gradients of a step are those of each row alone."""
        count = len(self.features)
        self.model.train()
        lengths = [count, 1][: len(rows)] if padded else [count] * len(rows)
        keys, weights = self._keys(rows), None
        positions = torch.arange(count, device=rows.device).expand(len(rows), -1).clone()  # [K, n]
        if padded:
            sizes = torch.tensor(lengths, device=rows.device).unsqueeze(1)  # [K, 1]
            weights = ((positions < sizes).double() / sizes).to(rows.dtype)  # [K, n]
            positions[1:] = 0
            positions[1:, 0] = count - 1
        batch = Batch(self.features[positions], self.targets[positions], weights, keys)
        first, again = (_step(engine, self._parts(rows), rows, batch) for _ in range(2))
        for row, length in enumerate(lengths):
            own = positions[row, :length]
            alone = Batch(
                self.features[own].unsqueeze(0),
                self.targets[own].unsqueeze(0),
                None,
                None if keys is None else keys[row : row + 1],
            )
            loss, gradients = plain.gradient(self._parts(rows[row : row + 1]), alone)
            expected = (loss[0], torch.cat([gradient.flatten() for gradient in gradients]))
            for one, twice, other in zip(first, again, expected, strict=True):
                if not (self.tolerance.equal(one[row], other) and TOLERANCE_OF_REPEATS.equal(one[row], twice[row])):
                    return False
        return True

    def _same_outputs(self, engine: Kernels | StackedEngine, plain: PlainEngine, rows: Rows) -> bool:
        """Return whether outputs in evaluation are those of each row alone, for common samples and for own ones."""
        self.model.eval()
        each = self.features.expand(len(rows), *self.features.shape)
        with torch.no_grad():
            expected = plain.outputs(self._parts(rows), self.features, shared=True)
            results = [  # copies, as kernels reuse the memory
                engine.outputs(self._parts(rows), features, shared=shared).clone()
                for features, shared in ((self.features, True), (self.features, True), (each, False))
            ]
        return all(self.tolerance.equal(outputs, expected) for outputs in results)

    def _step(self, engine: PlainEngine) -> list[torch.Tensor]:
        """Return the loss and the gradients of the first samples."""
        self.model.train()
        batch = Batch(self.features[None], self.targets[None], None, self._keys(self.initial))
        loss, gradients = engine.gradient(self._parts(self.initial), batch)
        return [loss, *gradients]


def _step(
    engine: Kernels | StackedEngine | Perceptrons, parts: list[torch.Tensor], rows: Rows, batch: Batch
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the losses ``[K]`` and the gradients ``[K, P]`` of a batch."""
    if not isinstance(engine, Perceptrons):
        losses, gradients = engine.gradient(parts, batch)
        return losses.clone(), torch.cat(
            [gradient.flatten(1) for gradient in gradients], dim=1
        )  # copies of memory in use
    slopes = torch.zeros_like(rows)
    weights = None if batch.weights is None else batch.weights.numpy()
    values = engine.models(rows.clone(), slopes).gradient(batch.features.numpy(), batch.targets.numpy(), weights)
    return torch.from_numpy(values), slopes


@dataclass(frozen=True)
class Engines:
    """Engines of a model.

    Attributes
    ----------
    plain
        Engine for a single row.
    many
        Engine for a stack of rows.
    perceptrons
        Engine for steps of a perceptron on the CPU; ``None`` for other models, and elsewhere.
    footprint
        Memory that decides how many rows make a block.
    """

    plain: PlainEngine
    many: PlainEngine | Kernels | StackedEngine
    perceptrons: Perceptrons | None
    footprint: Footprint


def engines(trial: Trial, *, numbers: int, mixed: bool, stacks: bool) -> Engines:
    """Return the fastest engines that compute for a model what plain torch does.

    Parameters
    ----------
    trial
        The model with a few samples.
    numbers
        Number of outputs of all its layers for one sample.
    mixed
        True if it runs in mixed precision.
    stacks
        True if rows may be stacked, padded to the longest batch among them.

    Raises
    ------
    ModelError
        A first step fails, or the model keeps state or draws random numbers without a key.
    """
    plain, device, model, names = trial.plain(), trial.initial.device, trial.model, trial.layout.names
    size = trial.initial.itemsize
    footprint = Footprint(size * trial.layout.size, size * numbers, block_bytes(device))
    if not stacks:
        return Engines(plain, plain, None, footprint)
    kernels = None
    if not mixed and trial.targets.dim() == 1:
        kernels = compile_kernels(model, names, trial.features[:1], loss=trial.loss, footprint=footprint)
    if kernels is not None and trial.agrees(kernels, plain):
        fast = perceptrons(model, trial.layout, kernels=kernels, loss=trial.loss) if device.type == "cpu" else None
        fits = fast is not None and trial.agrees(fast, plain)
        plain.threadable = True
        return Engines(plain, kernels, fast if fits else None, footprint)
    stacked = StackedEngine(
        model, names, loss=trial.loss, dropouts=trial.dropouts, autocast=trial.autocast, footprint=footprint
    )
    plain.threadable = trial.agrees(stacked, plain)
    return Engines(plain, stacked if plain.threadable else plain, None, footprint)
