"""Engines of a model, each tried on a few samples before anything starts."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from p2pfl.errors import LearningError, ModelError
from p2pfl.learning import checks
from p2pfl.learning.dropout import KeyedDropout
from p2pfl.learning.losses import PerSample
from p2pfl.learning.steps.batching import Batch, Footprint
from p2pfl.learning.steps.kernels import Kernels, compiled
from p2pfl.learning.steps.perceptrons import Perceptrons, perceptrons
from p2pfl.learning.steps.plain import Autocast, Plain
from p2pfl.learning.steps.stacked import Stacked
from p2pfl.rows import Layout, Rows

UNKEYED = (
    "the model draws from torch's global generator; use torch.nn.Dropout modules, which are replaced by keyed ones, or "
    "set dropout to 0"
)
"""Why a model with random numbers of its own is refused."""


BLOCK = {"cpu": 24 * 2**20}
"""Bytes that a block of rows may touch in one step, by device; elsewhere 1 GiB, as launching work dominates there.

Peer-steps of 2,000 CNNs (8-16 on 8x8, batches of 16) on two cores with 2 MiB of L2 each took 171, 132, 105, 105 and 118
microseconds in blocks of 6, 12, 24, 48 and 96 MiB; those of 1,000 MLPs (64-32-10) by numpy 9.1, 7.1 and 6.6 in
blocks of 4, 12 and 24 MiB. Calls of Python, and handing over the interpreter between threads, dominate below, memory
above.
"""


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
        Arguments of :class:`~p2pfl.learning.steps.plain.Plain`.
    """

    model: nn.Module
    layout: Layout
    initial: Rows
    features: torch.Tensor
    targets: torch.Tensor
    loss: PerSample
    dropouts: Mapping[str, KeyedDropout]
    autocast: Autocast

    def plain(self) -> Plain:
        """Return the engine for a single row.

        Raises
        ------
        ModelError
            A step on a few samples fails, for instance in code of the user, or draws random numbers without a key.
        """
        engine = Plain(self.model, self.layout.names, loss=self.loss, dropouts=self.dropouts, autocast=self.autocast)
        with torch.random.fork_rng(devices=[]):
            before = torch.random.get_rng_state()
            try:
                with checks.blamed(self.model, doing="in a first step of training"):
                    self._step(engine, count=len(self.features))
            except LearningError as error:
                raise ModelError(str(error)) from error
            if not torch.equal(before, torch.random.get_rng_state()):
                raise ModelError(UNKEYED)
        return engine

    def kernels(self, footprint: Footprint) -> Kernels | None:
        """Return the engine with hand-written gradients, or ``None`` if a layer has none."""
        return compiled(self.model, self.layout.names, self.features[:1], loss=self.loss, footprint=footprint)

    def perceptrons(self, kernels: Kernels) -> Perceptrons | None:
        """Return the engine for steps by numpy; ``None`` unless the model is a perceptron on the CPU."""
        if self.initial.device.type != "cpu" or self.initial.dtype not in (torch.float32, torch.float64):
            return None
        return perceptrons(self.model, self.layout, kernels=kernels, loss=self.loss)

    def stacked(self, footprint: Footprint) -> Stacked | None:
        """Return an engine for any module by ``vmap``, or ``None`` if ``vmap`` cannot trace it.

        Raises
        ------
        ModelError
            The model draws random numbers without a key.
        """
        stacked = Stacked(
            self.model,
            self.layout.names,
            loss=self.loss,
            dropouts=self.dropouts,
            autocast=self.autocast,
            footprint=footprint,
        )
        parts = list(self.layout.split(self.initial).values())
        try:
            with warnings.catch_warnings():  # vmap runs some operations row by row, which is slower but correct
                warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
                self._step(stacked, count=1)
                self.model.eval()
                with torch.no_grad():  # some modules can be trained but not evaluated
                    stacked.outputs(parts, self.features[:1], shared=True)
                    stacked.outputs(parts, self.features[None, :1], shared=False)
        except Exception as error:
            if "random" in str(error):
                raise ModelError(UNKEYED) from error
            return None
        return stacked

    def _step(self, engine: Plain | Stacked, *, count: int) -> None:
        """Compute gradients of the first samples, and discard them."""
        parts = list(self.layout.split(self.initial).values())
        keys = torch.zeros(1, dtype=torch.int64, device=self.features.device) if self.dropouts else None
        self.model.train()
        engine.gradient(parts, Batch(self.features[None, :count], self.targets[None, :count], None, keys))


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

    plain: Plain
    many: Plain | Kernels | Stacked
    perceptrons: Perceptrons | None
    footprint: Footprint


def engines(trial: Trial, *, numbers: int, mixed: bool, stacks: bool) -> Engines:
    """Return the fastest engines that work for a model.

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
        A first step fails, or the model draws random numbers without a key.
    """
    plain, size = trial.plain(), trial.initial.itemsize
    block = BLOCK.get(trial.initial.device.type, 2**30)
    footprint = Footprint(size * trial.layout.size, size * numbers, block)
    if not stacks:
        return Engines(plain, plain, None, footprint)
    kernels = None if mixed else trial.kernels(footprint)
    perceptrons = None if kernels is None else trial.perceptrons(kernels)
    return Engines(plain, kernels or trial.stacked(footprint) or plain, perceptrons, footprint)
