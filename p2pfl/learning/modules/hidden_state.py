"""Detection of models whose results depend on more than parameters, samples and keys.

A simulation computes all peers with one module. State that the module keeps between two calls, and random numbers
without a key, would let the data of one peer move the model of another, and one seed end in two results.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from p2pfl.core.errors import ModelError
from p2pfl.core.process import GENERATORS
from p2pfl.learning.dropout import KeyedDropout

STATE_CLASSES = (bool, int, float, complex, str, type(None))
"""Classes of attributes that count as state where they change."""

TORCH_ATTRIBUTES = frozenset(vars(nn.Module()))
"""Attributes of torch, such as the mode, the buffers and the hooks."""

MAX_DEPTH, MAX_ENTRIES = 3, 1000
"""Containers in containers, and entries of each, up to which their numbers count: a vocabulary is no state."""


def _numbers(value: Any, depth: int = MAX_DEPTH) -> Any:
    """Return a copy of the numbers in an attribute, or of the state of a generator; ``None`` for other objects."""
    if isinstance(value, STATE_CLASSES):
        return value
    if isinstance(value, GENERATORS):
        return pickle.dumps(value)
    if isinstance(value, torch.Generator):
        return value.get_state().numpy().tobytes()
    if not depth or not isinstance(value, dict | list | tuple | deque) or len(value) > MAX_ENTRIES:
        return None
    if isinstance(value, dict):
        return [(_numbers(key, 0), _numbers(each, depth - 1)) for key, each in value.items()]
    return [_numbers(each, depth - 1) for each in value]


@dataclass(frozen=True, eq=False)
class _Values:
    """A buffer with its values, and how often operations in place have changed them."""

    buffer: torch.Tensor
    kept: torch.Tensor
    version: int


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, _Values) and isinstance(other, _Values):
        if one.buffer is other.buffer and one.version == other.version and one.kept.device.type != "cpu":
            return True  # reading values would wait for the accelerator
        return torch.equal(one.kept, other.kept)
    return one is other or bool(one == other)  # NaN is the same number


class ModelState:
    """State of a model at one moment: its buffers, and the numbers and generators among the attributes of its layers.

    Parameters
    ----------
    model
        Model.
    own
        Names of the buffers that are part of a peer's row.
    """

    def __init__(self, model: nn.Module, *, own: Collection[str]) -> None:
        self.values: dict[str, Any] = {}
        for path, layer in model.named_modules():
            if isinstance(layer, KeyedDropout):
                continue
            prefix, kind = f"{path}." if path else "", type(layer).__name__
            for name, buffer in layer.named_buffers(recurse=False):
                if f"{prefix}{name}" not in own:
                    values = _Values(buffer, buffer.detach().clone(), buffer._version)  # noqa: SLF001 -- no public name
                    self.values[f"buffer {prefix + name!r} of {kind}"] = values
            for name, value in vars(layer).items():
                if name not in TORCH_ATTRIBUTES and (numbers := _numbers(value)) is not None:
                    self.values[f"attribute {prefix + name!r} of {kind}"] = numbers

    def find_change(self, later: ModelState) -> str | None:
        """Return the name of something that is different in a later state; ``None`` if nothing is."""
        names = (name for name, value in self.values.items() if not _same(value, later.values.get(name)))
        return next(names, None)

    def check(self, later: ModelState) -> None:
        """Raise :class:`ModelError` if the model has another state later.

        Parameters
        ----------
        later
            State of the same model after a call.
        """
        if (name := self.find_change(later)) is not None:
            raise ModelError(CHANGE_SENTENCE.format(name))


CHANGE_SENTENCE = (
    "{} changes when the model is called; peers of a simulation would share it and gossip cannot average it: compute "
    "it from the samples of the batch, leave it out, or set it before the training"
)
"""Why a model is refused that keeps state."""

REPEAT_SENTENCE = (
    "two calls of the model with the same samples differ, so it keeps state between calls or draws random numbers "
    "without a key; compute from the samples alone, use torch.nn.Dropout, which is replaced by a keyed one, and move "
    "random changes of the samples to learning.augment"
)
"""Why a model is refused that computes something else when it is called again."""

DROPOUT_REMEDY = (
    "use torch.nn.Dropout modules, which are replaced by keyed ones, set dropout to 0, or move random changes of the "
    "samples to learning.augment"
)
"""Ways out for a model with random numbers of its own."""
