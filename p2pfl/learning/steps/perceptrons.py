"""Gradients of perceptrons by numpy, on a stack of rows.

The calls of a step on small models take longer than its products, and a call of numpy takes about a fifth of the time
of one of torch. Activations have the layout ``[K, B, units]``. ``python -m benchmarks.engines`` compares the engines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Literal, Protocol, cast

import numpy as np
import numpy.typing as npt

from p2pfl.core.rows import Layout
from p2pfl.core.tensors import torch
from p2pfl.data import IntArray
from p2pfl.learning.losses import PerSample, cross_entropy
from p2pfl.learning.steps.batching import Footprint

Numbers = npt.NDArray[Any]
"""Array of float32 or float64."""

Loss = Callable[[Numbers, Numbers], tuple[Numbers, Numbers]]
"""Function from outputs ``[K, B, C]`` and targets ``[K, B]`` to losses ``[K, B]`` and gradients ``[K, B, C]``."""

LayerKind = Literal["affine", "product", "relu", "tanh"]
"""Layer of a perceptron: an affine map, the same without biases, or a function of each number."""

MAX_LAYER_PRODUCTS = 2**20
"""Most products of a weight and a number in one layer of a row: with more of them, calls no longer matter.

OpenBLAS would divide them among threads of its own, which are in the way of torch's: one MLP of 512-512 units on 64
features took three to four times as long as by torch.
"""


class NumpyLayer(Protocol):
    """Layer of K rows, whose parameters and their gradients are views of flat rows."""

    def forward(self, x: Numbers) -> Numbers:
        """Return the outputs for a batch of each row, and keep what :meth:`backward` needs."""
        ...

    def backward(self, g: Numbers) -> Numbers:
        """Return the gradient of the inputs, given that of the outputs; write that of the parameters."""
        ...


class NumpyAffine:
    r"""Linear layer :math:`y = x W^\top + b`.

    Parameters
    ----------
    parts, slopes
        Weights ``[K, O, I]`` and, unless there are none, biases ``[K, O]``; and the places of their gradients.
    """

    def __init__(self, parts: Sequence[Numbers], slopes: Sequence[Numbers]) -> None:
        self.weight, *biases = parts
        self.slope, *self.slopes_of_biases = slopes
        self.turned = self.weight.transpose(0, 2, 1)  # [K, I, O]
        self.biases = [bias[:, None] for bias in biases]  # [K, 1, O]

    def forward(self, x: Numbers) -> Numbers:
        """Map ``[K, B, I]`` to ``[K, B, O]``."""
        self.x = x
        y: Numbers = x @ self.turned
        for bias in self.biases:
            y += bias
        return y

    def backward(self, g: Numbers) -> Numbers:
        """Multiply with the inputs, and with the weights."""
        self.write(g)
        gradient: Numbers = g @ self.weight
        return gradient

    def write(self, g: Numbers) -> None:
        """Write the gradient of the parameters alone."""
        np.matmul(g.transpose(0, 2, 1), self.x, out=self.slope)
        for slope in self.slopes_of_biases:  # sums over the batch, as products a fraction of the time of a reduction
            np.matmul(_ones(g.shape[1], g.dtype), g, out=slope[:, None])


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


class Models:
    """K models, which are rows, and the places of their gradients.

    Parameters
    ----------
    lowest, others
        First layer, and those after it in order.
    loss
        Losses and gradients of outputs.
    """

    def __init__(self, lowest: NumpyAffine, others: Sequence[NumpyLayer], loss: Loss) -> None:
        self.lowest, self.others, self.loss = lowest, tuple(others), loss

    def gradient(self, features: Numbers, targets: Numbers, weights: Numbers | None) -> Numbers:
        """Write the gradients, and return the mean losses, ``[K]``.

        Parameters
        ----------
        features, targets
            Batches, ``[K, B, *shape]`` and ``[K, B]``.
        weights
            ``[K, B]``: one over the batch size of the row, zero for padding; ``None`` where all rows have B samples.
        """
        x = self.lowest.forward(features.reshape(*targets.shape, -1))
        for layer in self.others:
            x = layer.forward(x)
        losses, g = self.loss(x, targets)
        if weights is None:
            g *= 1 / targets.shape[1]
            mean = np.add.reduce(losses, 1) / targets.shape[1]
        else:
            g *= weights[:, :, None]
            mean = np.add.reduce(losses * weights, 1)
        for layer in reversed(self.others):
            g = layer.backward(g)
        self.lowest.write(g)
        return cast(Numbers, mean)


class Perceptrons:
    """Engine that computes the gradients of K rows of a perceptron at once.

    Parameters
    ----------
    layers
        Layers in order, see :data:`LayerKind`; the first has weights.
    layout
        Places of their parameters in a row, in the order of the layers.
    footprint
        Memory that decides the number of rows in a block.
    loss
        :func:`~p2pfl.learning.losses.cross_entropy` or :func:`~p2pfl.learning.losses.squared_error`.
    kernels
        Engine that evaluates the same rows, where torch is installed.
    """

    first_weight: int | None = None

    def __init__(
        self,
        layers: Sequence[LayerKind],
        layout: Layout,
        *,
        footprint: Footprint,
        loss: PerSample,
        kernels: Any = None,
    ) -> None:
        self.layers, self.layout, self.footprint, self.kernels = tuple(layers), layout, footprint, kernels
        self.loss = _likelihood if loss is cross_entropy else _distance
        self.largest = max(map(math.prod, layout.shapes))

    def suits(self, width: int) -> bool:
        """Return whether this is the fastest engine for batches of ``width`` samples; it follows from shapes alone."""
        return width * self.largest <= MAX_LAYER_PRODUCTS

    def block(self, width: int) -> int:
        """Return the number of rows, with batches of ``width`` samples, that make a block."""
        return self.footprint.rows(width)

    def copies(self, count: int) -> list[Perceptrons]:
        """Return this engine as often, as it keeps nothing: any thread may use it."""
        return [self] * count

    def models(self, rows: torch.Tensor, slopes: torch.Tensor) -> Models:
        """Return the models of rows ``[K, P]`` on the CPU, which write their gradients to ``slopes``, ``[K, P]``."""
        parts, gradients = ([part.numpy() for part in self.layout.split(each).values()] for each in (rows, slopes))
        lowest, *others = [self._layer(kind, parts, gradients) for kind in self.layers]
        return Models(cast(NumpyAffine, lowest), others, self.loss)

    def outputs(self, parts: Sequence[torch.Tensor], features: torch.Tensor, *, shared: bool) -> torch.Tensor:
        """Return ``[K, B, *outputs]`` for features ``[K, B, *shape]``, or ``[B, *shape]`` if all rows share them."""
        arrays = [part.numpy() for part in parts]
        x = features.numpy().reshape(*features.shape[: 1 if shared else 2], -1)  # [B, I] or [K, B, I]
        for layer in [self._layer(kind, arrays, [*arrays]) for kind in self.layers]:
            x = layer.forward(x)
        return torch.from_numpy(x)

    def _layer(self, kind: LayerKind, parts: list[Numbers], slopes: list[Numbers]) -> NumpyLayer:
        """Return a layer, which takes its parameters from the front of the lists."""
        if kind in ("relu", "tanh"):
            return Rectifier() if kind == "relu" else Tangent()
        count = 2 if kind == "affine" else 1
        own, written = parts[:count], slopes[:count]
        del parts[:count], slopes[:count]
        return NumpyAffine(own, written)


@lru_cache(maxsize=64)
def _ones(count: int, dtype: np.dtype[Any]) -> Numbers:
    """Return ones ``[1, 1, B]``; making them takes as long as the product with them."""
    return np.ones((1, 1, count), dtype)


@lru_cache(maxsize=64)
def _places(shape: tuple[int, int, int]) -> IntArray:
    """Return the places of the numbers of the first class in a flat array ``[K, C, B]``, as ``[K, B]``."""
    rows, classes, samples = shape
    return np.arange(rows)[:, None] * (classes * samples) + np.arange(samples)


def _likelihood(outputs: Numbers, targets: IntArray) -> tuple[Numbers, Numbers]:
    """Return the cross-entropy, and its gradient: probabilities less one at the target."""
    x = np.ascontiguousarray(outputs.transpose(0, 2, 1))  # [K, C, B]: reductions along the last axis are slow
    where = _places(x.shape) + targets * x.shape[2]  # [K, B]
    x -= np.maximum.reduce(x, 1, keepdims=True)
    logits = x.take(where)  # [K, B]
    g = np.exp(x, out=x)
    sums = np.add.reduce(g, 1, keepdims=True)  # [K, 1, B]
    losses = np.log(sums[:, 0])
    losses -= logits
    g /= sums
    g.reshape(-1)[where] -= 1
    return losses, g.transpose(0, 2, 1)


def _distance(outputs: Numbers, targets: Numbers) -> tuple[Numbers, Numbers]:
    """Return the squared error, and its gradient."""
    difference = outputs[:, :, 0] - targets  # [K, B]
    return difference * difference, 2 * difference[:, :, None]
