"""One row at a time, by autograd: what a device runs, and what no stack can hold."""

import contextlib
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import nn
from torch.func import functional_call

from p2pfl.learning.batching import Batch
from p2pfl.learning.dropout import KeyedDropout
from p2pfl.learning.losses import PerSample, mean

Autocast = Callable[[], contextlib.AbstractContextManager[object]]
"""Makes the context in which a model runs."""


class Plain:
    """Gradients of one row by ``loss.backward()``'s engine, on the model itself.

    The model's parameters are views of the row, so that nothing is copied in or out.

    Parameters
    ----------
    model
        Whose trained parameters follow the row.
    names
        Of the trained parameters, in the order of the row.
    loss
        Per sample.
    dropouts
        The model's keyed dropouts.
    autocast
        Makes the context in which the model runs.
    """

    def __init__(
        self,
        model: nn.Module,
        names: Sequence[str],
        *,
        loss: PerSample,
        dropouts: Mapping[str, KeyedDropout],
        autocast: Autocast,
    ) -> None:
        self.model, self.names, self.loss, self.autocast = model, tuple(names), loss, autocast
        self.dropouts = tuple(dropouts.values())
        parameters = dict(model.named_parameters())
        self.parameters = [parameters[name] for name in names]
        self.bound: Sequence[torch.Tensor] = ()

    def block(self, width: int) -> int:
        """One row at a time, however wide the batch."""
        del width
        return 1

    def bind(self, parts: Sequence[torch.Tensor]) -> None:
        """Let the model's parameters be views of one row, ``[1, *shape]`` each."""
        for parameter, part in zip(self.parameters, parts, strict=True):
            parameter.data = part[0]
        self.bound = parts

    def gradient(self, parts: Sequence[torch.Tensor], batch: Batch) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Mean loss ``[1]`` and its gradient, ``[1, *shape]`` each."""
        if self.bound is not parts:
            self.bind(parts)
        for dropout in self.dropouts:
            dropout.calls = 0
            if batch.keys is not None:
                dropout.key = batch.keys[0]
        with self.autocast():
            outputs = self.model(batch.features[0])
        outputs = outputs.to(self.parameters[0].dtype)  # what autocast made of it
        loss = mean(self.loss, outputs, batch.targets[0])
        gradients = torch.autograd.grad(
            loss, self.parameters, allow_unused=True
        )  # torch imports sympy for grad_outputs
        return loss.detach().view(1), [
            torch.zeros_like(part) if gradient is None else gradient.view_as(part)
            for gradient, part in zip(gradients, parts, strict=True)
        ]

    def outputs(self, parts: Sequence[torch.Tensor], features: torch.Tensor, *, shared: bool) -> torch.Tensor:
        """``[K, B, *outputs]`` for features ``[K, B, *shape]``, or ``[B, *shape]`` if all rows share them."""
        each = []
        for k in range(len(parts[0])):
            row = {name: part[k] for name, part in zip(self.names, parts, strict=True)}
            with self.autocast():
                each.append(functional_call(self.model, row, (features if shared else features[k],)))
        return torch.stack(each).to(parts[0].dtype)
