"""Steps of one row of a small perceptron by numpy.

The calls of a step on a small model take longer than its products, and a call of numpy takes about a fifth of the time
of one of torch: a step of an MLP (64-64-10, batch of 32) takes 50 microseconds, where kernels on one row take 260 and
autograd 300 (``python -m benchmarks.engines``). Activations have the layout ``[B, units]``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from p2pfl.learning.losses import PerSample, cross_entropy
from p2pfl.learning.steps.kernels import flat
from p2pfl.rows import Layout

Numbers = npt.NDArray[Any]
"""Array of float32 or float64."""

Loss = Callable[[Numbers, Numbers], tuple[float, Numbers]]

PRODUCTS = 2**20
"""Most products of a weight and a number in one layer; OpenBLAS may divide more of them among several threads."""

FEW = 4
"""Most rows that train one after another."""


class Layer(Protocol):
    """Layer of one row, whose parameters and their gradients are views of flat rows."""

    def forward(self, x: Numbers) -> Numbers:
        """Return the outputs for a batch, and keep what :meth:`backward` needs."""
        ...

    def backward(self, g: Numbers) -> Numbers:
        """Return the gradient of the inputs, given that of the outputs; write that of the parameters."""
        ...


class Affine:
    r"""Linear layer :math:`y = x W^\top + b`.

    Parameters
    ----------
    parts, slopes
        Weight ``[O, I]`` and, unless there is none, bias ``[O]``; and the places of their gradients.
    """

    def __init__(self, parts: Sequence[Numbers], slopes: Sequence[Numbers]) -> None:
        self.weight, *self.bias = parts
        self.slope, *self.slope_of_bias = slopes

    def forward(self, x: Numbers) -> Numbers:
        """Map ``[B, I]`` to ``[B, O]``."""
        self.x = x
        y: Numbers = x @ self.weight.T
        for bias in self.bias:
            y += bias
        return y

    def backward(self, g: Numbers) -> Numbers:
        """Multiply with the inputs, and with the weights."""
        self.write(g)
        found: Numbers = g @ self.weight
        return found

    def write(self, g: Numbers) -> None:
        """Write the gradient of the parameters alone."""
        np.matmul(g.T, self.x, out=self.slope)
        for slope in self.slope_of_bias:
            np.add.reduce(g, 0, out=slope)


class Rectifier:
    """ReLU."""

    def forward(self, x: Numbers) -> Numbers:
        """Replace negative numbers by zero."""
        self.y: Numbers = np.maximum(x, 0)
        return self.y

    def backward(self, g: Numbers) -> Numbers:
        """Pass the gradient of positive numbers."""
        g *= self.y > 0
        return g


class Tangent:
    """Hyperbolic tangent."""

    def forward(self, x: Numbers) -> Numbers:
        """Apply the function."""
        self.y: Numbers = np.tanh(x)
        return self.y

    def backward(self, g: Numbers) -> Numbers:
        """Multiply by one less the square of the output."""
        g *= 1 - self.y * self.y
        return g


class Row:
    """One row, its gradient, and the layers on them.

    Parameters
    ----------
    first, others
        First layer, and those after it in order.
    loss
        Function from outputs ``[B, C]`` and targets ``[B]`` to the mean loss and its gradient ``[B, C]``.
    """

    def __init__(self, first: Affine, others: Sequence[Layer], loss: Loss) -> None:
        self.first, self.others, self.loss = first, tuple(others), loss

    def gradient(self, features: Numbers, targets: Numbers) -> float:
        """Return the mean loss over a batch, ``[B, *shape]`` and ``[B]``, and write its gradient."""
        x = self.first.forward(features.reshape(len(features), -1))
        for layer in self.others:
            x = layer.forward(x)
        loss, g = self.loss(x, targets)
        for layer in reversed(self.others):
            g = layer.backward(g)
        self.first.write(g)
        return loss


class Rowwise:
    """Engine that takes the steps of one row of a perceptron after another.

    Parameters
    ----------
    modules
        Layers: :class:`torch.nn.Linear`, of which the first is one, with :class:`torch.nn.ReLU` or
        :class:`torch.nn.Tanh` between them.
    layout
        Places of their parameters in a row, in the order of the layers.
    loss
        :func:`~p2pfl.learning.losses.cross_entropy` or :func:`~p2pfl.learning.losses.squared_error`.
    """

    def __init__(self, modules: Sequence[nn.Module], layout: Layout, *, loss: PerSample) -> None:
        self.modules, self.layout = tuple(modules), layout
        self.loss = _likelihood if loss is cross_entropy else _distance
        self.largest = max(module.weight.numel() for module in modules if isinstance(module, nn.Linear))

    def block(self, width: int) -> int:
        """Return one: a block is one row, however wide the batch."""
        del width
        return 1

    def copies(self, count: int) -> list[Rowwise]:
        """Return none, as short calls of numpy do not run at once in several threads."""
        del count
        return []

    def suits(self, rows: int, *, width: int) -> bool:
        """Return whether this is the fastest engine for so many rows, with batches of ``width`` samples."""
        return rows <= FEW and width * self.largest <= PRODUCTS

    def row(self, row: torch.Tensor, slope: torch.Tensor) -> Row:
        """Return the model on a row ``[P]``, which writes gradients to ``slope``, ``[P]``; both on the CPU."""
        parts, slopes = ([part.numpy() for part in self.layout.split(each).values()] for each in (row, slope))
        layers = [self._layer(module, parts, slopes) for module in self.modules]
        first, *others = layers
        return Row(cast(Affine, first), others, self.loss)

    def _layer(self, module: nn.Module, parts: list[Numbers], slopes: list[Numbers]) -> Layer:
        """Return the layer of a module, which takes its parameters from the front of the lists."""
        if not isinstance(module, nn.Linear):
            return Rectifier() if isinstance(module, nn.ReLU) else Tangent()
        count = 1 if module.bias is None else 2
        own, written = parts[:count], slopes[:count]
        del parts[:count], slopes[:count]
        return Affine(own, written)


def rowwise(model: nn.Module, layout: Layout, *, loss: PerSample) -> Rowwise | None:
    """Return the engine for single rows of a model that has kernels; ``None`` unless it is a perceptron.

    Parameters
    ----------
    model
        Any module.
    layout
        Places of its trained parameters in a row.
    loss
        Loss per sample.
    """
    modules = [module for module in flat(model) if type(module) is not nn.Identity]
    modules = modules[1:] if modules and type(modules[0]) is nn.Flatten else modules
    known = all(type(module) in (nn.Linear, nn.ReLU, nn.Tanh) for module in modules)
    if not known or not modules or type(modules[0]) is not nn.Linear:
        return None
    own = [parameter for module in modules for parameter in module.parameters()]
    same = all(one is other for one, other in zip(own, model.parameters(), strict=True))
    return Rowwise(modules, layout, loss=loss) if same else None


def _likelihood(outputs: Numbers, targets: Numbers) -> tuple[float, Numbers]:
    """Return the mean cross-entropy and its gradient, probabilities less one at the target, over the batch size."""
    places = np.arange(len(outputs))
    outputs = outputs - np.maximum.reduce(outputs, 1, keepdims=True)
    logits = outputs[places, targets]  # [B]
    g = np.exp(outputs, out=outputs)
    sums = np.add.reduce(g, 1, keepdims=True)  # [B, 1]
    loss = (np.add.reduce(np.log(sums[:, 0])) - np.add.reduce(logits)) / len(outputs)
    g /= sums
    g[places, targets] -= 1
    g *= 1 / len(outputs)
    return float(loss), g


def _distance(outputs: Numbers, targets: Numbers) -> tuple[float, Numbers]:
    """Return the mean squared error and its gradient."""
    difference = outputs - targets[:, None]  # [B, 1]
    loss = np.add.reduce(difference * difference, None) / len(difference)
    difference *= 2 / len(difference)
    return float(loss), difference
