"""Engines of a model: for a single row, for a stack, and for steps of perceptrons."""

from __future__ import annotations

from dataclasses import dataclass

from p2pfl.learning.steps.batching import Footprint
from p2pfl.learning.steps.kernels import Kernels
from p2pfl.learning.steps.perceptrons import Perceptrons
from p2pfl.learning.steps.plain import Plain
from p2pfl.learning.steps.stacked import Stacked
from p2pfl.learning.steps.trial import Trial

BLOCK = {"cpu": 12 * 2**20}
"""Bytes that a block of rows may touch in one step, by device; elsewhere 1 GiB, as launching work dominates there.

Peer-steps of 2,000 MLPs (64-32-10, batches of 16) on two cores with 1 MiB of L2 each and 32 MiB of L3 took 17, 12, 11,
9.6, 9.7 and 10.9 microseconds by kernels and -, 28, 20, 16, 14 and 15 by vmap in blocks of 1, 2, 4, 8, 16 and 32 MiB:
calls of Python dominate below, memory above.
"""


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
