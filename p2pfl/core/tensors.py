"""torch; or, on a device without it, the part of its interface that :mod:`p2pfl.core.numpy_tensors` has.

Rows of peers, messages, masks and algorithms use what both have. Modules with networks import torch itself.

Examples
--------
>>> torch.zeros(1, 2).tolist()
[[0.0, 0.0]]
"""

from __future__ import annotations

from importlib.util import find_spec
from os import PathLike
from typing import TYPE_CHECKING

from p2pfl.core.errors import ModelError

TORCH_INSTALLED = find_spec("torch") is not None

if TYPE_CHECKING or TORCH_INSTALLED:
    import torch
    from safetensors.torch import load, load_file, save
else:
    from safetensors import numpy as safetensors_numpy

    from p2pfl.core import numpy_tensors as torch

    def load(data: bytes) -> dict[str, torch.Tensor]:
        """Return the tensors of a file's bytes."""
        return {name: torch.from_numpy(each) for name, each in safetensors_numpy.load(data).items()}

    def load_file(path: str | PathLike[str]) -> dict[str, torch.Tensor]:
        """Return the tensors of a file."""
        return {name: torch.from_numpy(each) for name, each in safetensors_numpy.load_file(path).items()}

    def save(tensors: dict[str, torch.Tensor], metadata: dict[str, str] | None = None) -> bytes:
        """Return the bytes of a file of tensors."""
        return safetensors_numpy.save({name: each.contiguous().numpy() for name, each in tensors.items()}, metadata)


def needs_torch(key: str) -> ModelError:
    """Return the error about a key of the experiment file that a device without torch cannot follow."""
    return ModelError(f"{key} needs torch, which is not installed here; run pip install torch, or leave it out")


__all__ = ["TORCH_INSTALLED", "load", "load_file", "needs_torch", "save", "torch"]
