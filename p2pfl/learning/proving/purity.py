"""Detection of models whose results depend on more than parameters, samples and keys.

A simulation computes all peers with one module. State that the module keeps between two calls, and random numbers
without a key, would let the data of one peer move the model of another, and one seed end in two results.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

import torch
from torch import nn

from p2pfl.errors import ModelError
from p2pfl.learning.dropout import KeyedDropout
from p2pfl.learning.proving.agreement import AGAIN
from p2pfl.process import generators, moved

Result = TypeVar("Result")

NUMBERS = (bool, int, float, complex, str, type(None))
"""Classes of attributes that count as state where they change."""


def _equal(one: Any, other: Any) -> bool:
    if torch.is_tensor(one):
        return torch.equal(one, other)
    return bool(one == other)


class State:
    """State of a model at one moment: its buffers, and the numbers among the attributes of its layers.

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
                    self.values[f"buffer {prefix + name!r} of {kind}"] = buffer.detach().clone()
            for name, value in vars(layer).items():
                if type(value) in NUMBERS and name != "training":
                    self.values[f"attribute {prefix + name!r} of {kind}"] = value

    def check(self, later: State) -> None:
        """Raise :class:`ModelError` if the model has another state later.

        Parameters
        ----------
        later
            State of the same model after a call.
        """
        for name, value in self.values.items():
            if name not in later.values or not _equal(value, later.values[name]):
                raise ModelError(
                    f"{name} changes when the model is called; peers of a simulation would share it and gossip cannot "
                    "average it: compute it from the samples of the batch, leave it out, or set it before the training"
                )


UNREPEATABLE = (
    "two calls of the model with the same samples differ, so it keeps state between calls or draws random numbers "
    "without a key; compute from the samples alone, use torch.nn.Dropout, which is replaced by a keyed one, and move "
    "random changes of the samples to learning.augment"
)
"""Why a model is refused that computes something else when it is called again."""

UNKEYED = (
    "use torch.nn.Dropout modules, which are replaced by keyed ones, set dropout to 0, or move random changes of the "
    "samples to learning.augment"
)
"""Ways out for a model with random numbers of its own."""


def repeatable(
    compute: Callable[[], Result], *, numbers: Callable[[Result], Sequence[torch.Tensor]], by: str = "the model"
) -> Result:
    """Return the result of a computation that runs code of the user, if it depends on no global generator.

    Other threads of the process may draw meanwhile, and rewinding a generator would disturb them. So a computation
    during which a generator moves runs a second time, on other random numbers: if it gives the same result, it does not
    depend on them.

    Parameters
    ----------
    compute
        Function that computes the same from the same start each time it is called.
    numbers
        Function that returns the tensors of a result to compare.
    by
        Whose code runs, for the message.

    Raises
    ------
    ModelError
        Generators move in both computations, and the results differ.
    """
    before = generators()
    result = compute()
    if not moved(before):
        return result
    before = generators()
    again = compute()
    drawn = moved(before)
    if drawn and not all(AGAIN.equal(*both) for both in zip(numbers(result), numbers(again), strict=True)):
        raise ModelError(f"{by} draws from {drawn[0]} global generator; {UNKEYED}")
    return result
