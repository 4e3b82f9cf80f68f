"""Checks of numbers, losses and outputs that need no module of torch; each error names a remedy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real

from p2pfl.core.errors import LearningError, ModelError
from p2pfl.core.tensors import torch
from p2pfl.data import Dataset
from p2pfl.learning.losses import PerSample, binary_cross_entropy


def inputs(
    dataset: Dataset, *, device: torch.device, dtype: torch.dtype, whole: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return features and targets on a device, fractions in the number type of the parameters.

    Parameters
    ----------
    dataset
        Data.
    device, dtype
        Device and number type of the parameters.
    whole
        True if features that are whole numbers stay so.

    Raises
    ------
    ModelError
        Features are missing.
    """
    if dataset.description.lacking and bool(dataset.features.isnan().any()):
        raise ModelError(
            "the features have missing values, which a torch model does not take; let the rule `missing` of each "
            'column replace them, or set model.name to "boosting"'
        )
    features, targets = dataset.features, dataset.targets
    stays = whole and not features.is_floating_point()
    return (
        features.to(device, features.dtype if stays else dtype),
        targets.to(device, dtype if targets.is_floating_point() else targets.dtype),
    )


def finite(value: object, *, key: str) -> float:
    """Return a finite number as a float, whatever library it comes from.

    Raises
    ------
    ModelError
        It is text, no number, or not finite.
    """
    scalar = isinstance(value, torch.Tensor) and value.numel() == 1 and not value.is_complex()
    if isinstance(value, bool) or not (scalar or isinstance(value, Real)):
        raise ModelError(f"{key} is {value!r}, which is no number; pass one, such as 0.1")
    number = float(value)  # type: ignore[arg-type] # a tensor with one number is one
    if not math.isfinite(number):
        raise ModelError(f"{key} is {number}, not a finite number; change it")
    return number


def check_whole(value: object, *, key: str, least: int = 1) -> int:
    """Return a whole number as an int, whatever library it comes from.

    Raises
    ------
    ModelError
        It is something else, or below ``least``.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ModelError(f"{key} is {value!r}; set it to a whole number >= {least}")
    return int(value)


def check_losses(loss: torch.Tensor, *, peers: Sequence[str], round: int) -> None:
    """Raise :class:`LearningError` if a loss ``[R]`` or what it was computed with was not finite, and name the peer."""
    sound = torch.isfinite(loss)  # [R]
    if not sound.all():
        peer = peers[int(sound.logical_not().nonzero()[0])]
        raise LearningError(f"training of {peer} diverged in round {round}; set a smaller learning.rate")


def check_outputs(dataset: Dataset, outputs: torch.Tensor, *, loss: PerSample) -> None:
    """Raise :class:`ModelError` unless the outputs of a model fit the targets, for a built-in loss or metric.

    Parameters
    ----------
    dataset
        Data with the targets.
    outputs
        Outputs for one sample, ``[1, *outputs]``.
    loss
        Loss of the training.
    """
    shape, expected = tuple(outputs.shape[1:]), tuple(dataset.targets.shape[1:])
    if dataset.classes is None or loss is binary_cross_entropy:
        if math.prod(shape) != math.prod(expected):
            what = f"{math.prod(expected)} labels" if loss is binary_cross_entropy else _numbers(math.prod(expected))
            raise ModelError(
                f"the model returns {shape} outputs per sample, not the {what}; match its last layer to the data, or "
                "set both learning.loss and learning.metrics"
            )
        return
    if len(shape) != 1 + len(expected) or shape[0] < dataset.classes or shape[1:] != expected:
        raise ModelError(
            f"the model returns {shape} outputs per sample, not {(dataset.classes, *expected)} scores, one for each "
            f"class{' at each place' if expected else ''}; match its last layer to the data, or set both learning.loss "
            "and learning.metrics"
        )


def _numbers(count: int) -> str:
    return "1 number of a regression" if count == 1 else f"{count} numbers of a regression"
