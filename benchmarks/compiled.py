"""Prototype of training steps in numba: row after row, with the sizes of the layers known when it is compiled.

The step is that of :mod:`p2pfl.learning.steps.perceptrons` for perceptrons of one or two layers with ReLU,
softmax cross-entropy and plain gradient descent. It takes all steps of a row before the next row, so rows of different
lengths cost their own steps only. Only ``benchmarks.engines`` uses it, where numba is installed.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cache
from importlib.util import find_spec
from typing import Any
from unittest.mock import patch

import numpy as np

from p2pfl.learning.steps import training

INSTALLED = find_spec("numba") is not None
"""True if numba is installed."""


def njit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function for this processor; sums may change their order, as vectors need."""
    import numba  # noqa: PLC0415 (not a dependency)

    compiled: Callable[..., Any] = numba.njit(fastmath=True, error_model="numpy", boundscheck=False)(function)
    return compiled


@cache
def layer(  # noqa: C901 (plain loops)
    inputs: int, outputs: int, number: type
) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    """Return the forward pass, the gradient of the inputs and the step of the parameters of a linear layer."""
    zero = number(0)

    def forward(x, w, bias, y, n):
        """Write ``y = x W^T + b``, four samples at a time, for which a weight is read once."""
        whole = n - n % 4
        for o in range(outputs):
            for b in range(0, whole, 4):
                s0 = s1 = s2 = s3 = zero
                for i in range(inputs):
                    s0 += x[b, i] * w[o, i]
                    s1 += x[b + 1, i] * w[o, i]
                    s2 += x[b + 2, i] * w[o, i]
                    s3 += x[b + 3, i] * w[o, i]
                y[b, o], y[b + 1, o], y[b + 2, o], y[b + 3, o] = s0 + bias[o], s1 + bias[o], s2 + bias[o], s3 + bias[o]
            for b in range(whole, n):
                s0 = zero
                for i in range(inputs):
                    s0 += x[b, i] * w[o, i]
                y[b, o] = s0 + bias[o]

    def back(g, w, x, before, n):
        """Write ``g W`` where the input of the layer was positive, and zero elsewhere."""
        for b in range(n):
            for i in range(inputs):
                before[b, i] = g[b, 0] * w[0, i]
            for o in range(1, outputs):
                for i in range(inputs):
                    before[b, i] += g[b, o] * w[o, i]
            for i in range(inputs):
                before[b, i] = before[b, i] if x[b, i] > 0 else zero

    def step(g, x, w, bias, n):
        """Subtract ``g^T x`` from the weights and the sums of ``g`` from the biases; ``g`` contains the rate."""
        whole = n - n % 4
        for o in range(outputs):
            total = zero
            for b in range(n):
                total += g[b, o]
            bias[o] -= total
            for b in range(0, whole, 4):
                g0, g1, g2, g3 = g[b, o], g[b + 1, o], g[b + 2, o], g[b + 3, o]
                for i in range(inputs):
                    w[o, i] -= g0 * x[b, i] + g1 * x[b + 1, i] + g2 * x[b + 2, i] + g3 * x[b + 3, i]
            for b in range(whole, n):
                for i in range(inputs):
                    w[o, i] -= g[b, o] * x[b, i]

    return njit(forward), njit(back), njit(step)


@cache
def loss(classes: int, number: type) -> Callable[..., Any]:
    """Return the mean cross-entropy, which puts its gradient times the rate in place of the outputs."""
    zero = number(0)

    def likelihood(y, targets, rate, n):
        mean, scale = zero, number(rate / n)
        for b in range(n):
            most = y[b, 0]
            for c in range(1, classes):
                most = max(most, y[b, c])
            own, total = y[b, targets[b]] - most, zero
            for c in range(classes):
                y[b, c] = math.exp(y[b, c] - most)
                total += y[b, c]
            mean += math.log(total) - own
            for c in range(classes):
                y[b, c] *= scale / total
            y[b, targets[b]] -= scale
        return mean / n

    return njit(likelihood)


@cache
def trained(units: Sequence[int], number: type) -> Callable[..., Any]:  # noqa: C901 (plain loops)
    """Return the training of all rows of a perceptron with these units, of one or two layers, in numbers of a type.

    Its arguments are the rows ``[K, P]``, the losses ``[T, K]``, for each batch its place in the order of samples, its
    length and where the samples of the row begin ``[3, T, K]``, that order, the samples, the data set and the rate.
    """
    inputs, outputs, zero = units[0], units[-1], number(0)
    hidden = units[1]
    likelihood = loss(outputs, number)
    forward0, _, step0 = layer(inputs, hidden, number)
    ends = inputs * hidden, inputs * hidden + hidden

    def single(rows, losses, batches, order, samples, features, targets, rate):  # noqa: PLR0917 (compiled)
        begins, sizes, starts = batches[0], batches[1], batches[2]
        width = sizes.max()
        x, t = np.empty((width, inputs), number), np.empty(width, np.int64)
        y = np.empty((width, outputs), number)
        for k in range(len(rows)):
            w, bias = rows[k, : ends[0]].reshape(hidden, inputs), rows[k, ends[0] : ends[1]]
            for step in range(len(sizes)):
                n = sizes[step, k]
                if n == 0:
                    break
                for b in range(n):
                    place = samples[starts[step, k] + order[begins[step, k] + b]]
                    t[b] = targets[place]
                    x[b] = features[place]
                forward0(x, w, bias, y, n)
                losses[step, k] = likelihood(y, t, rate, n)
                step0(y, x, w, bias, n)

    if len(units) == 2:
        return njit(single)
    forward1, back1, step1 = layer(hidden, outputs, number)
    last = ends[1] + hidden * outputs

    def double(rows, losses, batches, order, samples, features, targets, rate):  # noqa: PLR0917 (compiled)
        begins, sizes, starts = batches[0], batches[1], batches[2]
        width = sizes.max()
        x, t = np.empty((width, inputs), number), np.empty(width, np.int64)
        h, g = np.empty((width, hidden), number), np.empty((width, hidden), number)
        y = np.empty((width, outputs), number)
        for k in range(len(rows)):
            w0, bias0 = rows[k, : ends[0]].reshape(hidden, inputs), rows[k, ends[0] : ends[1]]
            w1, bias1 = rows[k, ends[1] : last].reshape(outputs, hidden), rows[k, last:]
            for step in range(len(sizes)):
                n = sizes[step, k]
                if n == 0:
                    break
                for b in range(n):
                    place = samples[starts[step, k] + order[begins[step, k] + b]]
                    t[b] = targets[place]
                    x[b] = features[place]
                forward0(x, w0, bias0, h, n)
                for b in range(n):
                    for o in range(hidden):
                        h[b, o] = max(h[b, o], zero)
                forward1(h, w1, bias1, y, n)
                losses[step, k] = likelihood(y, t, rate, n)
                back1(y, w1, h, g, n)
                step1(y, h, w1, bias1, n)
                step0(g, x, w0, bias0, n)

    return njit(double)


def compiled(units: Sequence[int], rate: float, number: type) -> AbstractContextManager[object]:
    """Return a context in which rows of perceptrons, which numpy would train, train by the prototype."""
    kernel = trained(tuple(units), number)

    def run(block, *_):
        plan, learner = block.plan, block.learner
        batches = plan._numbers[..., 0].numpy()  # noqa: SLF001 (what a schedule consists of)
        order, samples = plan._order.numpy(), plan._samples.numpy()  # noqa: SLF001 (the same)
        data = learner.features.numpy(), learner.targets.numpy()
        kernel(block.rows.numpy(), block.losses.numpy(), batches, order, samples, *data, rate)

    return patch.object(training._Flat, "run", run)  # noqa: SLF001 (the only place where all steps of rows are taken)
