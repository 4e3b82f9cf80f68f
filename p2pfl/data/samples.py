"""Features and targets of one peer as tensors, from arrays or from a map-style Dataset of torch."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from p2pfl.core.errors import DataError
from p2pfl.core.imports import kind_of
from p2pfl.core.tensors import torch

PAIR = "return (features, targets) as arrays of numbers, or a map-style Dataset of torch whose samples are such pairs"
"""Advice for data of another kind."""


REREAD = 8
"""Samples of a Dataset that are read twice; a flip with probability 1/2 escapes in one of 256 cases."""


OTHERS = (torch.Tensor, np.ndarray, str, bytes, Mapping)
"""Classes whose objects have numbered parts and are no Dataset."""


def tensors(
    given: Any, *, giver: str, whose: str = "", dtype: torch.dtype = torch.float32
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the features ``[n, *shape]`` and targets ``[n, ...]`` of one peer, copied.

    Whole numbers and truth values become int64.

    Parameters
    ----------
    given
        A pair of arrays or tensors, or a map-style Dataset of torch: an object with ``len`` whose samples
        ``dataset[i]`` are pairs of features and target. Pictures of Pillow become ``(C, H, W)`` from 0 to 1 as
        features, and whole numbers ``(H, W)`` as targets.
    giver, whose
        Beginning and end of what errors say, such as ``clinic:patients returns`` and ``for peer "ada"``.
    dtype
        Number type of fractions.

    Raises
    ------
    DataError
        The data are something else, or samples have different shapes.

    Examples
    --------
    >>> from torch.utils.data import TensorDataset
    >>> given = TensorDataset(torch.arange(6).view(3, 2), torch.rand(3))
    >>> features, targets = tensors(given, giver="the source returns")
    >>> features.tolist(), targets.dtype
    ([[0, 1], [2, 3], [4, 5]], torch.float32)
    """
    whose = f" {whose}" if whose else ""
    if isinstance(given, tuple | list):
        if len(given) != 2:
            raise DataError(f"{giver} {kind_of(given)} of {len(given)}{whose}; {PAIR}")
        pair = tuple(given)
    elif _is_map(given):
        pair = _stack(given, giver=giver, whose=whose, dtype=dtype)
    else:
        remedy = "give its dataset instead" if hasattr(given, "dataset") else PAIR
        raise DataError(f"{giver} {kind_of(given)}{whose}; {remedy}")
    try:
        features, targets = (_tensor(values, dtype) for values in pair)
    except Exception as error:
        kinds = " and ".join(type(values).__name__ for values in pair)
        raise DataError(f"{giver} {kinds}{whose}, which are no arrays of numbers ({error}); {PAIR}") from error
    return features, targets


def _is_map(given: Any) -> bool:
    """Return whether an object is a map-style Dataset of torch, which has no class of its own."""
    return hasattr(given, "__getitem__") and hasattr(given, "__len__") and not isinstance(given, OTHERS)


def _stack(dataset: Any, *, giver: str, whose: str, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the samples of a Dataset of torch, read once."""
    features, targets = list[torch.Tensor](), list[torch.Tensor]()
    for number in range(len(dataset)):
        try:
            sample = dataset[number]
        except Exception as error:
            raise DataError(
                f"{giver} {kind_of(dataset)}{whose} whose sample {number} cannot be read "
                f"({type(error).__name__}: {error}); {PAIR}"
            ) from error
        if not isinstance(sample, tuple | list) or len(sample) != 2:
            raise DataError(
                f"{giver} a Dataset{whose} whose sample {number} is {kind_of(sample)}; have it return pairs of "
                "features and target"
            )
        try:
            features.append(_feature(sample[0], dtype))
            targets.append(_tensor(sample[1], dtype))
        except Exception as error:
            raise DataError(
                f"{giver} a Dataset{whose} whose sample {number} is no pair of numbers ({error}); give it a transform"
            ) from error
        for role, each in (("features", features), ("a target", targets)):
            if each[-1].shape != each[0].shape:
                shapes = tuple(each[0].shape), tuple(each[-1].shape)
                raise DataError(
                    f"{giver} a Dataset{whose} with {role} of shape {shapes[0]} in sample 0 and {shapes[1]} in sample "
                    f"{number}; give it a transform that makes them equal"
                )
    if not features:
        return torch.zeros(0), torch.zeros(0)
    if _differs(dataset, features, dtype):
        warnings.warn(  # without the name of the peer, so that Python shows it once
            f"the samples of {kind_of(dataset)} differ when they are read twice, but p2pfl reads each sample once, so "
            "its random transform is frozen; move it to learning.augment",
            stacklevel=2,
        )
    return torch.stack(features), torch.stack(targets)


def _differs(dataset: Any, features: list[torch.Tensor], dtype: torch.dtype) -> bool:
    """Return whether a sample differs when it is read again."""
    for number, before in enumerate(features[:REREAD]):
        again = _feature(dataset[number][0], dtype)
        if again.shape != before.shape or not torch.equal(again.nan_to_num(), before.nan_to_num()):
            return True
    return False


def _feature(values: Any, dtype: torch.dtype) -> torch.Tensor:
    """Return the features of one sample; a picture of Pillow as torchvision's ``ToTensor`` returns it."""
    if not hasattr(values, "getbands"):
        return _tensor(values, dtype)
    pixels = torch.from_numpy(np.array(values))  # [H, W] or [H, W, C]
    pixels = pixels.unsqueeze(0) if pixels.dim() == 2 else pixels.movedim(-1, 0)  # [C, H, W]
    return pixels.to(dtype) / 255 if pixels.dtype == torch.uint8 else pixels.to(dtype)


def _tensor(values: Any, dtype: torch.dtype) -> torch.Tensor:
    """Copy an array to a tensor of floats or whole numbers."""
    # A copy, because the function may return an array that it still writes to, or one that is read-only.
    if isinstance(values, np.ma.MaskedArray) and (masked := int(np.ma.getmaskarray(values).sum())):
        raise TypeError(f"{masked} of them are masked; fill or remove these")
    tensor = values.detach().cpu().clone() if torch.is_tensor(values) else torch.from_numpy(np.array(values))
    if tensor.is_complex() or tensor.layout != torch.strided:
        raise TypeError(f"{str(tensor.dtype).removeprefix('torch.')}, {tensor.layout}")
    if tensor.dtype == torch.uint64 and (tensor.long() < 0).any():
        raise TypeError("whole numbers above 2^63 - 1; scale or number them")
    return tensor.to(dtype) if tensor.is_floating_point() else tensor.long()
