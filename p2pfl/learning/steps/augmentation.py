"""Random changes of the samples of a batch, drawn by key: the same for a peer alone and among a thousand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from p2pfl.core.draws import subkeys
from p2pfl.core.errors import LearningError, ModelError
from p2pfl.core.imports import describe_error, kind_of
from p2pfl.core.process import watch_generators
from p2pfl.core.tensors import torch
from p2pfl.data import IntArray

Augment = Callable[..., torch.Tensor]
"""Function ``augment(features, *, generator)`` that returns features of the same shape and type.

It receives a batch ``[B, *shape]``; with the attribute ``each`` that is true, one sample ``[*shape]`` at a time. The
generator of torch is on the CPU.
"""


MAX_SEED = 2**63 - 1
"""Largest seed of a generator of torch that is a key."""


class Augmentation:
    """Function of the user that changes the features of each batch of a training step.

    Numbers that the function draws follow from ``(seed, "augment", peer, round, step)``; where a function is called for
    each sample, they follow each other in the order of the batch.

    Parameters
    ----------
    function
        See :data:`Augment`.
    name
        Name of the function in errors.

    Examples
    --------
    >>> def noise(features, *, generator):
    ...     return features + torch.randn(features.shape, generator=generator)
    >>> augmenting = Augmentation(noise)
    >>> one, other = (augmenting.change(torch.zeros(4, 2), key=key) for key in (7, 7))
    >>> torch.equal(one, other), one.any().item()
    (True, True)
    """

    def __init__(self, function: Augment, *, name: str = "") -> None:
        self.function = function
        self.each = bool(getattr(function, "each", False))
        kind = type(function)
        self.name = name or str(getattr(function, "__name__", kind.__name__))

    def change(self, features: torch.Tensor, *, key: int) -> torch.Tensor:
        """Return the features of a batch ``[B, *shape]`` under the random numbers of a key.

        Raises
        ------
        LearningError
            The function fails, or returns something else than features of the same shape.
        """
        generator = torch.Generator().manual_seed(key)
        if not self.each:
            return self._call(features, generator)
        return torch.stack([self._call(sample, generator) for sample in features])

    def _call(self, features: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        try:
            augmented = self.function(features.clone(), generator=generator)
        except Exception as error:
            reason = describe_error(error, module=str(getattr(self.function, "__module__", "")))
            raise LearningError(
                f"{self.name} fails for features {tuple(features.shape)} ({reason}); fix the function"
            ) from error
        if not torch.is_tensor(augmented) or (augmented.shape, augmented.dtype, augmented.device) != (
            features.shape,
            features.dtype,
            features.device,
        ):
            got = f"{augmented.dtype} {tuple(augmented.shape)}" if torch.is_tensor(augmented) else kind_of(augmented)
            raise LearningError(
                f"{self.name} returns {got} for features {features.dtype} {tuple(features.shape)}; return changed "
                "features of the same shape, type and device"
            )
        return augmented.detach()

    def change_stack(self, features: torch.Tensor, sizes: Sequence[int], *, keys: Sequence[int]) -> torch.Tensor:
        """Return the features ``[K, B, *shape]`` of K rows, whose first ``sizes`` samples are real; padding stays.

        Parameters
        ----------
        features
            Samples of each row.
        sizes
            Number of real samples of each row.
        keys
            Key of each row in this step.
        """
        changed = features.clone()
        for row, (size, key) in enumerate(zip(sizes, keys, strict=True)):
            changed[row, :size] = self.change(features[row, :size], key=key)
        return changed

    def check(self, features: torch.Tensor) -> None:
        """Call the function twice on a few samples.

        Raises
        ------
        ModelError
            The function fails, or draws random numbers that do not come from its generator.
        """
        try:
            with watch_generators() as drawn:
                augmented = [self.change(features[:many], key=7) for many in (1, len(features), len(features))]
        except LearningError as error:
            raise ModelError(str(error)) from error
        if drawn or not torch.equal(augmented[1].nan_to_num(), augmented[2].nan_to_num()):
            source = f"draws from {drawn[0]} global generator" if drawn else "gives two results for one generator"
            raise ModelError(
                f"{self.name} {source}; draw random numbers as in torch.rand(size, generator=generator) alone"
            )


def make_augmentation(function: Augment | None) -> Augmentation | None:
    """Return the augmentation by a function of the user's, if there is one.

    Raises
    ------
    ModelError
        It cannot be called.
    """
    if function is None or isinstance(function, Augmentation):
        return function
    if not callable(function):
        raise ModelError(
            f"augment is {kind_of(function)}; give a function augment(features, *, generator), see docs/own-models.md"
        )
    return Augmentation(function)


def step_keys(round_keys: IntArray, step: int) -> list[int]:
    """Return seeds of generators in one step, from the keys of rows in a round."""
    seeds: list[int] = (subkeys(round_keys, step) & MAX_SEED).tolist()
    return seeds


def sample_keys(key: int, positions: IntArray) -> list[int]:
    """Return seeds of generators for single samples of a step, by their places among the samples of their peer."""
    seeds: list[int] = (subkeys(np.full(len(positions), key), positions) & MAX_SEED).tolist()
    return seeds
