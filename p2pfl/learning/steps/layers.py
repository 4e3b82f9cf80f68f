r"""Layers on a stack of rows, with hand-written gradients.

Activations have the layout ``[K, C, *space, B]``: the units of a row first, its samples last. This order makes the
arithmetic fast on a CPU. The samples of a batch fill whole vector registers, softmax runs along the second axis
rather than along ten numbers, pooling and the patches of a convolution copy and compare whole cache lines, and
flattening is a view. Times per row and batch of 16 on one core of an AMD EPYC (Zen 4), samples last against samples
first: softmax over 10 classes 0.2 against 2.4 microseconds, pooling 8x8x8 to 4x4 1.1 against 46, patches of a 3x3
convolution of 8x4x4 3.8 against 33.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Self

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 -- torch's own convention

from p2pfl.learning.dropout import KeyedDropout, mask

aten = torch.ops.aten
Parts = Sequence[torch.Tensor]
Saved = tuple[torch.Tensor, ...]


MIN_UNITS = 16
"""Fewest units of a layer whose products may have them innermost, see :class:`Affine`."""

MIN_SAMPLES = 32
"""Fewest samples of a batch that are innermost in any product."""


class Scratch:
    """Memory that every step reuses.

    Fresh tensors of megabytes come from the operating system page by page, and go back when they are freed; a step
    would spend a quarter of its time on this.
    """

    def __init__(self) -> None:
        self.flat: dict[str, torch.Tensor] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}

    def take(self, role: str, shape: tuple[int, ...], like: torch.Tensor, *, zero: bool = False) -> torch.Tensor:
        """Return a tensor of ``shape`` with the numbers that ``role`` left there.

        With ``zero``, places not written since the shape of a row last changed are zero.
        """
        size = math.prod(shape)
        flat = self.flat.get(role)
        if flat is None or len(flat) < size or flat.dtype != like.dtype:
            flat = self.flat[role] = like.new_zeros(size)
        elif zero and self.shapes[role] != shape[1:]:
            flat.zero_()
        self.shapes[role] = shape[1:]
        return flat[:size].view(shape)


class Layer(ABC):
    """Layer without state; its parameters come as ``parts``, ``[K, *shape]`` each."""

    def __init__(self) -> None:
        self.scratch = Scratch()

    def copy_for_thread(self) -> Self:
        """Return the same layer with memory of its own, for another thread."""
        other = copy.copy(self)
        other.scratch = Scratch()
        return other

    @abstractmethod
    def forward(self, x: torch.Tensor, parts: Parts, keys: torch.Tensor | None) -> tuple[torch.Tensor, Saved]:
        """Return the outputs, and the tensors that :meth:`backward` needs."""

    @abstractmethod
    def backward(
        self, g: torch.Tensor, saved: Saved, parts: Parts, gradients: list[torch.Tensor], *, first: bool
    ) -> torch.Tensor:
        """Return the gradient of the inputs, given that of the outputs; write those of ``parts`` to ``gradients``.

        The ``first`` layer of a model that has parameters need not return the gradient of its inputs.
        """


class Affine(Layer):
    r"""Linear layer :math:`y = W x + b` on ``[K, I, B]``.

    Many outputs of few samples are views of ``[K, B, O]``: products whose innermost dimension is the batch run at a
    quarter of the speed where the batch is not a multiple of eight (batches of 10, MKL on AVX2). A layer of 10 units
    on 256 samples takes a ninth of the time the other way (2.8 instead of 28 microseconds on AVX-512).

    Parameters
    ----------
    weight, bias
        Indices of weight and bias among the parts.
    """

    def __init__(self, weight: int, bias: int | None) -> None:
        super().__init__()
        self.weight, self.bias = weight, bias

    def forward(self, x: torch.Tensor, parts: Parts, keys: torch.Tensor | None) -> tuple[torch.Tensor, Saved]:
        """Map ``[K, I, B]`` to ``[K, O, B]``; keep the inputs."""
        del keys
        weight = parts[self.weight].flatten(2)  # [K, O, I]
        rows, units, samples = *weight.shape[:2], x.shape[2]
        if len(x) == len(weight):
            y = torch.bmm(weight, x, out=self._fresh(rows, units, samples, weight))
        else:  # inputs that all rows share: one product
            y = self.scratch.take("y", (rows, units, samples), weight)
            torch.mm(weight.flatten(0, 1), x[0], out=y.flatten(0, 1))
        if self.bias is not None:
            y += parts[self.bias].unsqueeze(2)
        return y, (x,)

    def backward(
        self, g: torch.Tensor, saved: Saved, parts: Parts, gradients: list[torch.Tensor], *, first: bool
    ) -> torch.Tensor:
        """Multiply with the inputs, and with the weights."""
        (x,) = saved
        weight = parts[self.weight].flatten(2)  # [K, O, I]
        slope = self.scratch.take("weight", tuple(weight.shape), weight)
        if len(x) == len(weight):
            torch.bmm(g, x.transpose(1, 2), out=slope)
        else:  # inputs that all rows share: one product
            torch.mm(g.flatten(0, 1), x[0].T, out=slope.flatten(0, 1))
        gradients[self.weight] = slope.view_as(parts[self.weight])
        if self.bias is not None:
            gradients[self.bias] = g.sum(dim=2)  # [K, O]
        if first:
            return g
        return torch.bmm(weight.transpose(1, 2), g, out=self._room(x))  # [K, I, B]

    def _fresh(self, rows: int, units: int, samples: int, like: torch.Tensor) -> torch.Tensor:
        """Return memory for the outputs, ``[K, O, B]``."""
        if units < MIN_UNITS or samples >= MIN_SAMPLES:
            return self.scratch.take("y", (rows, units, samples), like)
        return self.scratch.take("y", (rows, samples, units), like).transpose(1, 2)

    def _room(self, x: torch.Tensor) -> torch.Tensor:
        """Return memory for the gradient of the inputs, in their layout."""
        if x.is_contiguous():
            return self.scratch.take("x", tuple(x.shape), x)
        return self.scratch.take("x", tuple(x.transpose(1, 2).shape), x).transpose(1, 2)


class Convolution(Affine):
    """2-D convolution on ``[K, C, H, W, B]``: a linear layer on patches.

    Parameters
    ----------
    weight, bias
        Indices of weight and bias among the parts.
    shape
        ``(C, H, W)`` of the inputs.
    kernel, stride, padding
        Arguments of :class:`torch.nn.Conv2d`, one for each of H and W.
    """

    def __init__(
        self,
        weight: int,
        bias: int | None,
        *,
        shape: tuple[int, ...],
        kernel: tuple[int, ...],
        stride: tuple[int, ...],
        padding: tuple[int, ...],
    ) -> None:
        super().__init__(weight, bias)
        self.shape, self.kernel, self.stride, self.padding = shape, kernel, stride, padding

    @property
    def patch_size(self) -> int:
        """Number of values in the patches of one sample."""
        lines = zip(self.shape[1:], self.kernel, self.stride, self.padding, strict=True)
        windows = math.prod((size + 2 * padding - kernel) // stride + 1 for size, kernel, stride, padding in lines)
        return self.shape[0] * math.prod(self.kernel) * windows

    def _pad(self, x: torch.Tensor) -> torch.Tensor:
        """Pad the inputs with zeros to ``[K, C, H + 2 ph, W + 2 pw, B]``."""
        (channels, height, width), (ph, pw) = self.shape, self.padding
        shape = (len(x), channels, height + 2 * ph, width + 2 * pw, x.shape[-1])
        padded = self.scratch.take("padded", shape, x, zero=True)
        padded[:, :, ph : ph + height, pw : pw + width] = x
        return padded

    def forward(self, x: torch.Tensor, parts: Parts, keys: torch.Tensor | None) -> tuple[torch.Tensor, Saved]:
        """Map ``[K, C, H, W, B]`` to ``[K, O, H', W', B]``; keep the patches."""
        (kh, kw), (sh, sw) = self.kernel, self.stride
        windows = self._pad(x).unfold(2, kh, sh).unfold(3, kw, sw)  # [K, C, H', W', B, kh, kw]
        rows, channels, height, width, samples = windows.shape[:5]
        patches = self.scratch.take("patches", (rows, channels, kh, kw, height, width, samples), x)
        patches.copy_(windows.permute(0, 1, 5, 6, 2, 3, 4))
        y, kept = super().forward(patches.view(rows, channels * kh * kw, -1), parts, keys)
        return y.view(len(y), -1, height, width, samples), kept  # [K, O, H', W', B]

    def backward(
        self, g: torch.Tensor, saved: Saved, parts: Parts, gradients: list[torch.Tensor], *, first: bool
    ) -> torch.Tensor:
        """Apply the linear layer's gradient, then sum the overlaps of patches, along their width, then their height."""
        slopes = super().backward(g.flatten(2, 4), saved, parts, gradients, first=first)
        if first:
            return g
        patches = slopes.view(len(g), -1, *self.kernel, *g.shape[2:])  # [K, C, kh, kw, H', W', B]
        wide = self._sum_overlaps(patches.unbind(3), 1)  # [K, C, kh, H', W, B]
        return self._sum_overlaps(wide.unbind(2), 0)  # [K, C, H, W, B]

    def _fresh(self, rows: int, units: int, samples: int, like: torch.Tensor) -> torch.Tensor:
        """Return memory for the outputs in the layout of the patches, with places and samples innermost."""
        return self.scratch.take("y", (rows, units, samples), like)

    def _room(self, x: torch.Tensor) -> torch.Tensor:
        """Return the memory of the patches, which are no longer needed and still in the cache."""
        return x

    def _sum_overlaps(self, shifted: Sequence[torch.Tensor], axis: int) -> torch.Tensor:
        """Sum the values at each offset of the kernel, along the height (0) or the width (1)."""
        size, stride, padding = self.shape[1 + axis], self.stride[axis], self.padding[axis]
        shape = list(shifted[0].shape)
        where = len(shape) - 3 + axis
        count, shape[where] = shape[where], size
        others = list(range(len(shifted)))
        if stride == 1 and count == size:  # the values at the middle of the kernel are already in place
            total = shifted[others.pop(padding)]
        else:
            total = self.scratch.take(f"total {axis}", tuple(shape), shifted[0]).zero_()
        for offset in others:
            ahead = offset - padding
            begin, end = max(0, -(ahead // stride)), min(count, (size - 1 - ahead) // stride + 1)  # inside the inputs
            if begin < end:
                columns = slice(begin * stride + ahead, (end - 1) * stride + ahead + 1, stride)
                total[(slice(None),) * where + (columns,)] += shifted[offset].narrow(where, begin, end - begin)
        return total


class Pointwise(Layer):
    """Function of single numbers.

    Parameters
    ----------
    function
        Function from inputs to outputs.
    slope
        Function ``slope(g, saved)`` that returns the gradient of the inputs.
    keeps
        Values that ``slope`` needs: ``"inputs"`` or ``"outputs"``.
    """

    def __init__(
        self,
        function: Callable[[torch.Tensor], torch.Tensor],
        slope: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
        *,
        keeps: str = "outputs",
    ) -> None:
        super().__init__()
        self.function, self.slope, self.keeps = function, slope, keeps

    def forward(self, x: torch.Tensor, parts: Parts, keys: torch.Tensor | None) -> tuple[torch.Tensor, Saved]:
        """Apply the function, and keep the tensor that the slope needs."""
        del parts, keys
        y = self.function(x)
        return y, (y if self.keeps == "outputs" else x,)

    def backward(
        self, g: torch.Tensor, saved: Saved, parts: Parts, gradients: list[torch.Tensor], *, first: bool
    ) -> torch.Tensor:
        """Multiply slope and gradient."""
        del parts, gradients
        return g if first else self.slope(g, *saved)


class Flatten(Layer):
    """Flattening of all units of a sample; a view."""

    def forward(self, x: torch.Tensor, parts: Parts, keys: torch.Tensor | None) -> tuple[torch.Tensor, Saved]:
        """Map ``[K, *shape, B]`` to ``[K, F, B]``."""
        del parts, keys
        return x.flatten(1, -2), (x,)  # [K, F, B]

    def backward(
        self, g: torch.Tensor, saved: Saved, parts: Parts, gradients: list[torch.Tensor], *, first: bool
    ) -> torch.Tensor:
        """Restore the shape of the inputs."""
        del parts, gradients, first
        return g.view(saved[0].shape)  # [K, *shape, B]


class Pooling(Layer):
    """Maximum over windows of ``[K, C, H, W, B]`` that do not overlap.

    The maximum of many is taken pair by pair; the gradient goes back down that chain, to the first of equal numbers as
    in torch.

    Parameters
    ----------
    kernel
        Height and width of a window; rows and columns left over are ignored.
    spare
        True if the layer before no longer needs its outputs, so that their gradient may overwrite them.
    """

    def __init__(self, kernel: tuple[int, int], *, spare: bool) -> None:
        super().__init__()
        self.kernel, self.spare = kernel, spare

    def forward(self, x: torch.Tensor, parts: Parts, keys: torch.Tensor | None) -> tuple[torch.Tensor, Saved]:
        """Map ``[K, C, H, W, B]`` to ``[K, C, H', W', B]``; keep the inputs and the maximum of each row."""
        del parts, keys
        rows = self._largest(x, axis=3)[-1]
        return self._largest(rows, axis=2)[-1], (x, rows)

    def backward(
        self, g: torch.Tensor, saved: Saved, parts: Parts, gradients: list[torch.Tensor], *, first: bool
    ) -> torch.Tensor:
        """Pass the gradient to the maximum of each window."""
        del parts, gradients
        if first:
            return g
        x, rows = saved
        return self._route_gradient(self._route_gradient(g, rows, axis=2), x, axis=3)

    def _slices(self, x: torch.Tensor, axis: int) -> list[torch.Tensor]:
        """Return views of the first, second, ... number of each window along one axis."""
        size = self.kernel[axis - 2]
        whole = x.narrow(axis, 0, x.shape[axis] // size * size)
        return [whole[(slice(None),) * axis + (slice(i, None, size),)] for i in range(size)]

    def _largest(self, x: torch.Tensor, *, axis: int) -> list[torch.Tensor]:
        """Return the maximum of the first, of the first two, ... numbers of each window along one axis."""
        return self._running_maxima(self._slices(x, axis), f"largest {axis}")

    def _running_maxima(self, slices: list[torch.Tensor], role: str) -> list[torch.Tensor]:
        running = slices[:1]
        for i, other in enumerate(slices[1:]):
            room = self.scratch.take(f"{role} {i}", tuple(other.shape), other)
            running.append(torch.maximum(running[-1], other, out=room))
        return running

    def _route_gradient(self, g: torch.Tensor, x: torch.Tensor, *, axis: int) -> torch.Tensor:
        """Give the gradient to the maximum of each window along one axis, zero to the others."""
        slices = self._slices(x, axis)
        if len(slices) == 1:
            return g
        before = self._running_maxima(slices[:-1], f"before {axis}")
        spread = x if self.spare else self.scratch.take(f"spread {axis}", tuple(x.shape), x)
        targets = self._slices(spread, axis)
        over, rest = (self.scratch.take(f"{role} {axis}", tuple(g.shape), g) for role in ("over", "rest"))
        for i in range(len(slices) - 1, 0, -1):
            # threshold_backward passes g where the difference is positive: fast, without booleans
            torch.sub(slices[i], before[i - 1], out=over)
            aten.threshold_backward.grad_input(g, over, 0, grad_input=targets[i])
            g = torch.sub(g, targets[i], out=rest if i > 1 else targets[0])  # the rest goes to the slices before
        left = x.shape[axis] % len(slices)
        spread.narrow(axis, x.shape[axis] - left, left).zero_()
        return spread


class Dropout(Layer):
    """Dropout by key; see :mod:`p2pfl.learning.dropout`."""

    def __init__(self, dropout: KeyedDropout, *, call: int) -> None:
        super().__init__()
        self.p, self.layer = dropout.p, dropout.stream(call)

    def forward(self, x: torch.Tensor, parts: Parts, keys: torch.Tensor | None) -> tuple[torch.Tensor, Saved]:
        """Drop units during training, when there are keys; keep the scaled mask."""
        del parts
        if keys is None or self.p == 0:
            return x, (x.new_ones(()),)
        units = math.prod(x.shape[1:-1])
        unit = torch.arange(units, device=x.device).view(*x.shape[1:-1], 1)
        counter = unit + units * torch.arange(x.shape[-1], device=x.device)  # [*shape, B]
        stays = mask(keys.view(-1, *[1] * counter.dim()), counter, layer=self.layer, p=self.p)  # [K, *shape, B]
        scale = stays.to(x.dtype) * (1 / (1 - self.p) if self.p < 1 else 0.0)
        return x * scale, (scale,)

    def backward(
        self, g: torch.Tensor, saved: Saved, parts: Parts, gradients: list[torch.Tensor], *, first: bool
    ) -> torch.Tensor:
        """Apply the same mask."""
        del parts, gradients
        return g if first else g * saved[0]


def rectifier(*, inplace: bool) -> Pointwise:
    """Return a ReLU layer, in place where the layer before no longer needs its outputs."""
    return Pointwise(
        torch.relu_ if inplace else torch.relu,
        lambda g, y: aten.threshold_backward.grad_input(g, y, 0, grad_input=g),
    )


def gelu(approximate: str) -> Pointwise:
    """Return a layer of the Gaussian error linear unit."""
    return Pointwise(
        lambda x: F.gelu(x, approximate=approximate),
        lambda g, x: aten.gelu_backward(g, x, approximate=approximate),
        keeps="inputs",
    )


POINTWISE_FUNCTIONS: dict[type[nn.Module], Pointwise] = {
    nn.Tanh: Pointwise(torch.tanh, aten.tanh_backward),
    nn.Sigmoid: Pointwise(torch.sigmoid, aten.sigmoid_backward),
}
