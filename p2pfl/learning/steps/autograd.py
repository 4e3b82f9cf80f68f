"""Training of one row at a time by autograd, for devices and for models that cannot be stacked."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import nn
from torch.func import functional_call

from p2pfl.learning.dropout import KeyedDropout, dropout_at
from p2pfl.learning.losses import PerSample, mean
from p2pfl.learning.steps.batching import Batch

Autocast = Callable[[], contextlib.AbstractContextManager[object]]
"""Function that makes the context in which a model runs."""


class Stateless:
    """Call of a model with other tensors in place of its own.

    A tensor that several layers share is replaced in each of them. :func:`torch.func.functional_call` would find out by
    itself, but where one layer is in two places it leaves the other tensors in the layer.

    Parameters
    ----------
    model
        Model.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        first: dict[int, str] = {}
        self.others: list[tuple[str, str]] = []  # other name, first name
        for path, layer in model.named_modules():
            for own, parameter in layer.named_parameters(path, recurse=False, remove_duplicate=False):
                name = first.setdefault(id(parameter), own)
                if name != own:
                    self.others.append((own, name))

    def __call__(self, tensors: Mapping[str, torch.Tensor], features: torch.Tensor) -> torch.Tensor:
        """Return the outputs of the model with these tensors, by their names."""
        shared = {own: tensors[name] for own, name in self.others if name in tensors}
        outputs: torch.Tensor = functional_call(self.model, {**tensors, **shared}, (features,), tie_weights=False)
        return outputs


class PlainEngine:
    """Engine that computes the gradient of one row by autograd, on the model itself.

    The parameters of the model are views of the row, so nothing is copied in or out.

    Many rows pass one by one where one fills a block, as a stack would have one row, too, and torch's own layers are
    faster: steps of the CNNs of FEMNIST and CIFAR-10 in ``benchmarks.simulators`` take 29 and 22 ms instead of 33 and
    31, and are not compared with those of torch at clients that are new in each round. Where two rows fit, the engines
    are equally fast.

    Parameters
    ----------
    model
        Model whose trained parameters and running statistics become views of the row.
    names
        Names of the trained parameters, in the order of the row, and then of the running statistics.
    loss
        Loss per sample.
    dropouts
        Keyed dropouts of the model.
    autocast
        Function that makes the context in which the model runs.

    Attributes
    ----------
    threadable
        Whether copies of the model may run at the same time: a stacked engine, which runs its layers on copies of the
        tensors, has computed the same.
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
    ) -> None:
        self.model, self.names, self.loss, self.autocast = model, tuple(names), loss, autocast
        self.dropouts = dict(dropouts)
        self.threadable, self._others = False, list[PlainEngine]()
        self.called = Stateless(model)
        parameters = dict(model.named_parameters())
        self.parameters = [parameters[name] for name in names if name in parameters]
        self.statistics = [name.rpartition(".")[::2] for name in names if name not in parameters]  # layer, buffer
        self.bound: Sequence[torch.Tensor] = ()

    def copies(self, count: int) -> list[PlainEngine]:
        """Return so many engines, this one first, of which each may run in a thread of its own; else none.

        They share the constants of the model, and neither its parameters, which are those of one row at a time, nor its
        modules.
        """
        if not self.threadable:
            return []
        while len(self._others) < count - 1:
            own = {id(parameter) for parameter in self.parameters}
            constants = {id(each): each for each in (*self.model.parameters(), *self.model.buffers())}
            model = copy.deepcopy(self.model, {key: each for key, each in constants.items() if key not in own})
            dropouts = {name: dropout_at(model, name) for name in self.dropouts}
            self._others.append(
                PlainEngine(model, self.names, loss=self.loss, dropouts=dropouts, autocast=self.autocast)
            )
        for other in self._others:
            other.model.train(self.model.training)
        return [self, *self._others[: count - 1]]

    def block(self, width: int) -> int:
        """Return one: a block is one row, however wide the batch."""
        del width
        return 1

    def bind(self, parts: Sequence[torch.Tensor]) -> None:
        """Make the parameters of the model views of one row, ``[1, *shape]`` each."""
        trained = len(self.parameters)
        for parameter, part in zip(self.parameters, parts[:trained], strict=True):
            parameter.data = part[0]
        for (layer, name), part in zip(self.statistics, parts[trained:], strict=True):
            setattr(self.model.get_submodule(layer), name, part[0])
        self.bound = parts

    def gradient(self, parts: Sequence[torch.Tensor], batch: Batch) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return the mean loss ``[1]`` and its gradient in the trained parameters, ``[1, *shape]`` each.

        Running statistics move in place.
        """
        if self.bound is not parts:
            self.bind(parts)
        for dropout in self.dropouts.values():
            dropout.calls = 0
            if batch.keys is not None:
                dropout.key = batch.keys[0]
        with self.autocast():
            outputs = self.model(batch.features[0])
        outputs = outputs.to(self.parameters[0].dtype)  # undo autocast
        loss = mean(self.loss, outputs, batch.targets[0])
        gradients = torch.autograd.grad(
            loss, self.parameters, allow_unused=True
        )  # torch imports sympy for grad_outputs
        return loss.detach().view(1), [
            torch.zeros_like(part) if gradient is None else gradient.view_as(part)
            for gradient, part in zip(gradients, parts[: len(gradients)], strict=True)
        ]

    def outputs(self, parts: Sequence[torch.Tensor], features: torch.Tensor, *, shared: bool) -> torch.Tensor:
        """Return ``[K, B, *outputs]`` for features ``[K, B, *shape]``, or ``[B, *shape]`` if all rows share them."""
        each = []
        for k in range(len(parts[0])):
            row = {name: part[k] for name, part in zip(self.names, parts, strict=True)}
            with self.autocast():
                each.append(self.called(row, features if shared else features[k]))
        return torch.stack(each).to(parts[0].dtype)
