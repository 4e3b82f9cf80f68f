"""Training of any model on a stack of rows, by ``torch.func``."""

import copy
from collections.abc import Mapping, Sequence

import torch
from torch import nn
from torch.func import grad_and_value, vmap

from p2pfl.learning.dropout import KeyedDropout, dropout_at
from p2pfl.learning.losses import PerSample, mean
from p2pfl.learning.steps.autograd import Autocast, Stateless
from p2pfl.learning.steps.batching import Batch, Footprint


class StackedEngine:
    """Engine that computes the gradients of K rows of any module at once: ``vmap(grad(loss))``.

    Parameters
    ----------
    model
        Skeleton whose trained parameters are replaced by those of the rows.
    names
        Names of the trained parameters, in the order of the row.
    loss
        Loss per sample.
    dropouts
        Keyed dropouts of the model, by the names of their keys.
    autocast
        Function that makes the context in which the model runs.
    footprint
        Memory that decides the number of rows in a block.
    """

    first_weight: int | None = None

    def __init__(
        self,
        model: nn.Module,
        names: Sequence[str],
        *,
        loss: PerSample,
        dropouts: Mapping[str, KeyedDropout],
        autocast: Autocast,
        footprint: Footprint,
    ) -> None:
        self.model, self.names, self.loss, self.autocast = model, tuple(names), loss, autocast
        self.dropouts = dict(dropouts)
        self.called = Stateless(model)
        self.dtype = next(model.parameters()).dtype
        self.footprint = footprint
        self.differentiated = grad_and_value(self._objective)
        self._others: list[StackedEngine] = []

    def copies(self, count: int) -> "list[StackedEngine]":
        """Return so many engines, this one first, of which each may run in a thread of its own.

        They share all parameters and buffers of the model, but not the modules that hold them.
        """
        while len(self._others) < count - 1:
            shared = {id(tensor): tensor for tensor in (*self.model.parameters(), *self.model.buffers())}
            model = copy.deepcopy(self.model, shared)
            self._others.append(
                StackedEngine(
                    model,
                    self.names,
                    loss=self.loss,
                    dropouts={name: dropout_at(model, name) for name in self.dropouts},
                    autocast=self.autocast,
                    footprint=self.footprint,
                )
            )
        for other in self._others:
            other.model.train(self.model.training)
        return [self, *self._others[: count - 1]]

    def block(self, width: int) -> int:
        """Return the number of rows, with batches of ``width`` samples, that make a block."""
        return self.footprint.rows(width)

    def _call(self, parts: Mapping[str, torch.Tensor], features: torch.Tensor) -> torch.Tensor:
        for dropout in self.dropouts.values():
            dropout.calls = 0
        with self.autocast():
            outputs = self.called(parts, features)
        return outputs.to(self.dtype)  # undo autocast

    def _objective(
        self,
        parts: Mapping[str, torch.Tensor],
        features: torch.Tensor,
        targets: torch.Tensor,
        weights: torch.Tensor | None,
        key: torch.Tensor | None,
    ) -> torch.Tensor:
        """Return the mean loss of one row over its batch without padding."""
        keys = {} if key is None else dict.fromkeys(self.dropouts, key)
        outputs = self._call({**parts, **keys}, features)
        if weights is None:
            return mean(self.loss, outputs, targets)
        losses = self.loss(outputs, targets)  # [B]
        return torch.where(weights > 0, losses, 0).dot(weights)

    def gradient(self, parts: Sequence[torch.Tensor], batch: Batch) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return mean losses ``[K]`` and their gradients, ``[K, *shape]`` each."""
        named = dict(zip(self.names, parts, strict=True))
        axes = (0, 0, 0, None if batch.weights is None else 0, None if batch.keys is None else 0)
        stacked = vmap(self.differentiated, in_dims=axes)
        gradients, losses = stacked(named, batch.features, batch.targets, batch.weights, batch.keys)
        return losses, [gradients[name] for name in self.names]

    def outputs(self, parts: Sequence[torch.Tensor], features: torch.Tensor, *, shared: bool) -> torch.Tensor:
        """Return ``[K, B, *outputs]`` for features ``[K, B, *shape]``, or ``[B, *shape]`` if all rows share them."""
        named = dict(zip(self.names, parts, strict=True))
        outputs: torch.Tensor = vmap(self._call, in_dims=(0, None if shared else 0))(named, features)
        return outputs
