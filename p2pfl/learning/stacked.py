"""Any model on a stack of rows, by ``torch.func``."""

from collections.abc import Mapping, Sequence

import torch
from torch import nn
from torch.func import functional_call, grad_and_value, vmap

from p2pfl.learning.batching import Batch, Footprint
from p2pfl.learning.dropout import KeyedDropout
from p2pfl.learning.losses import PerSample, mean
from p2pfl.learning.plain import Autocast


class Stacked:
    """Gradients of K rows of any module at once: ``vmap(grad(loss))``.

    Parameters
    ----------
    model
        A skeleton: its trained parameters are replaced by those of the rows.
    names
        Of the trained parameters, in the order of the row.
    loss
        Per sample.
    dropouts
        The model's keyed dropouts, by the names of their keys.
    autocast
        Makes the context in which the model runs.
    footprint
        Sets how many rows make a block.
    """

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
        self.dtype = next(model.parameters()).dtype
        self.footprint = footprint
        self.differentiated = grad_and_value(self._objective)

    def block(self, width: int) -> int:
        """How many rows of batches of ``width`` samples make a block."""
        return self.footprint.rows(width)

    def _call(self, parts: Mapping[str, torch.Tensor], features: torch.Tensor) -> torch.Tensor:
        for dropout in self.dropouts.values():
            dropout.calls = 0
        with self.autocast():
            outputs: torch.Tensor = functional_call(self.model, dict(parts), (features,))
        return outputs.to(self.dtype)  # what autocast made of it

    def _objective(
        self,
        parts: Mapping[str, torch.Tensor],
        features: torch.Tensor,
        targets: torch.Tensor,
        weights: torch.Tensor | None,
        key: torch.Tensor | None,
    ) -> torch.Tensor:
        """Mean loss of one row over its true batch."""
        keys = {} if key is None else dict.fromkeys(self.dropouts, key)
        outputs = self._call({**parts, **keys}, features)
        if weights is None:
            return mean(self.loss, outputs, targets)
        losses = self.loss(outputs, targets)  # [B]
        return torch.where(weights > 0, losses, 0).dot(weights)

    def gradient(self, parts: Sequence[torch.Tensor], batch: Batch) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Mean losses ``[K]`` and their gradients, ``[K, *shape]`` each."""
        named = dict(zip(self.names, parts, strict=True))
        axes = (0, 0, 0, None if batch.weights is None else 0, None if batch.keys is None else 0)
        stacked = vmap(self.differentiated, in_dims=axes)
        gradients, losses = stacked(named, batch.features, batch.targets, batch.weights, batch.keys)
        return losses, [gradients[name] for name in self.names]

    def outputs(self, parts: Sequence[torch.Tensor], features: torch.Tensor, *, shared: bool) -> torch.Tensor:
        """``[K, B, *outputs]`` for features ``[K, B, *shape]``, or ``[B, *shape]`` if all rows share them."""
        named = dict(zip(self.names, parts, strict=True))
        outputs: torch.Tensor = vmap(self._call, in_dims=(0, None if shared else 0))(named, features)
        return outputs
