"""Batched products for sequences of linear and convolutional layers on a stack of rows.

Activations have the layout ``[K, C, *space, B]``: the units of a row first, its samples last. This order makes the
arithmetic fast on a CPU. The samples of a batch fill whole vector registers, softmax runs along the second axis
rather than along ten numbers, pooling and the patches of a convolution copy and compare whole cache lines, and
flattening is a view. Autograd computes the gradients, except those of patches and of pooling.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 -- torch's own convention

from p2pfl.learning.dropout import KeyedDropout, mask
from p2pfl.learning.losses import PerSample, cross_entropy, squared_error
from p2pfl.learning.modules.model_copy import is_bare, is_hooked
from p2pfl.learning.steps.batching import Batch, Footprint

Parts = Sequence[torch.Tensor]
Layer = Callable[[torch.Tensor, Parts, torch.Tensor | None], torch.Tensor]
"""Function ``layer(inputs, parts, keys)`` that returns the outputs of K rows, with their parameters and dropout keys.

Inputs are ``[K, C, *space, B]``; K is 1 where all rows share them.
"""

KNOWN: Mapping[type[nn.Module], tuple[str, ...]] = {
    nn.Linear: ("weight", "bias"),
    nn.Conv2d: ("weight", "bias"),
    **dict.fromkeys((nn.ReLU, nn.GELU, nn.Tanh, nn.Sigmoid, nn.Flatten, nn.MaxPool2d), ()),
}
"""Classes of layers that have kernels, not their subclasses, with the names of their parameters."""


class Kernels:
    """Engine that computes the gradients of K rows of a sequence at once, by batched products.

    Parameters
    ----------
    layers
        Layers in order.
    loss
        :func:`~p2pfl.learning.losses.cross_entropy` or :func:`~p2pfl.learning.losses.squared_error`.
    footprint
        Memory that decides the number of rows in a block.
    """

    def __init__(self, layers: Sequence[Layer], *, loss: PerSample, footprint: Footprint) -> None:
        self.layers, self.loss, self.footprint = tuple(layers), loss, footprint

    def copies(self, count: int) -> "list[Kernels]":
        """Return this engine as often, as it keeps nothing: any thread may use it."""
        return [self] * count

    def block(self, width: int) -> int:
        """Return the number of rows, with batches of ``width`` samples, that make a block."""
        return self.footprint.rows(width)

    def _forward(self, parts: Parts, features: torch.Tensor, keys: torch.Tensor | None) -> torch.Tensor:
        x = features.movedim(1, -1)  # [K, *shape, B]
        for layer in self.layers:
            x = layer(x, parts, keys)
        return x

    def gradient(self, parts: Parts, batch: Batch) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return mean losses ``[K]`` and their gradients, ``[K, *shape]`` each."""
        leaves = [part.detach().requires_grad_() for part in parts]
        outputs = self._forward(leaves, batch.features, batch.keys)  # [K, C, B]
        if self.loss is cross_entropy:
            losses = F.cross_entropy(outputs, batch.targets, reduction="none")  # [K, B]
        else:
            losses = (outputs.squeeze(1) - batch.targets).square()
        mean = losses.mean(1) if batch.weights is None else (losses * batch.weights).sum(1)  # [K]
        return mean.detach(), list(torch.autograd.grad(mean.sum(), leaves))

    def outputs(self, parts: Parts, features: torch.Tensor, *, shared: bool) -> torch.Tensor:
        """Return ``[K, B, *outputs]`` for features ``[K, B, *shape]``, or ``[B, *shape]`` if all rows share them."""
        return self._forward(parts, features.unsqueeze(0) if shared else features, None).movedim(-1, 1)  # [K, B, C]


def _linear(
    x: torch.Tensor, parts: Parts, _keys: torch.Tensor | None, *, weight: int, bias: int | None
) -> torch.Tensor:
    """Map ``[K, I, B]`` to ``[K, O, B]``, a view of ``[K, B, O]``.

    Products whose innermost dimension is the batch run at a quarter of the speed where the batch is not a multiple of
    eight (batches of 10, MKL on AVX2).
    """
    matrix = parts[weight]  # [K, O, I]
    if len(x) == len(matrix):
        y = torch.bmm(x.mT, matrix.mT).mT
    else:  # one product for inputs that all rows share
        y = torch.mm(matrix.flatten(0, 1), x[0]).view(*matrix.shape[:2], -1)
    return y if bias is None else y.add_(parts[bias].unsqueeze(2))


def _convolution(
    x: torch.Tensor, parts: Parts, _keys: torch.Tensor | None, *, weight: int, bias: int | None, module: nn.Conv2d
) -> torch.Tensor:
    """Map ``[K, C, H, W, B]`` to ``[K, O, H', W', B]``: a linear layer on patches."""
    matrix, padding = parts[weight].flatten(2), module.padding if isinstance(module.padding, tuple) else (0, 0)
    patches: torch.Tensor = _Patches.apply(x, module.kernel_size, module.stride, padding)  # type: ignore[no-untyped-call]
    columns = patches.flatten(4).flatten(1, 3)  # [K, C kh kw, H' W' B]
    y = torch.bmm(matrix, columns.expand(len(matrix), -1, -1))
    y = y if bias is None else y.add_(parts[bias].unsqueeze(2))
    return y.view(*y.shape[:2], *patches.shape[4:])


class _Patches(torch.autograd.Function):
    """Patches ``[K, C, kh, kw, H', W', B]`` of ``[K, C, H, W, B]``."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, kernel: tuple[int, ...], stride: tuple[int, ...], padding: tuple[int, ...]
    ) -> torch.Tensor:
        ctx.steps = (*zip(x.shape[2:4], stride, padding, strict=True),)
        padded = F.pad(x, (0, 0, padding[1], padding[1], padding[0], padding[0])) if any(padding) else x
        windows = padded.unfold(2, kernel[0], stride[0]).unfold(3, kernel[1], stride[1])  # [K, C, H', W', B, kh, kw]
        return windows.permute(0, 1, 5, 6, 2, 3, 4).contiguous()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Sum the overlaps of patches, along their width, then their height; the gradient is overwritten."""
        height, width = ctx.steps
        wide = _overlap(gradient.unbind(3), 4, *width)  # [K, C, kh, H', W, B]
        return _overlap(wide.unbind(2), 2, *height), None, None, None  # [K, C, H, W, B]


def _overlap(shifted: Parts, axis: int, size: int, stride: int, padding: int) -> torch.Tensor:
    """Sum the values at each offset of a kernel along an axis, to ``size`` places."""
    count, others = shifted[0].shape[axis], list(range(len(shifted)))
    if stride == 1 and count == size:  # the values at the middle of the kernel are already in place
        total = shifted[others.pop(padding)]
    else:
        total = shifted[0].new_zeros(*shifted[0].shape[:axis], size, *shifted[0].shape[axis + 1 :])
    for offset in others:
        ahead = offset - padding
        begin, end = max(0, -(ahead // stride)), min(count, (size - 1 - ahead) // stride + 1)  # inside the inputs
        if begin < end:
            places = slice(begin * stride + ahead, (end - 1) * stride + ahead + 1, stride)
            total[(slice(None),) * axis + (places,)] += shifted[offset].narrow(axis, begin, end - begin)
    return total


class _Pooling(torch.autograd.Function):
    """Maximum over windows of ``[K, C, H, W, B]`` that do not overlap; rows and columns left over are ignored.

    The maximum of many is taken pair by pair; the gradient goes back down that chain, to the first of equal numbers as
    in torch.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, kernel: tuple[int, int]) -> torch.Tensor:
        rows = _maxima(_slices(x, 3, kernel[1]))[-1]
        ctx.save_for_backward(x, rows)
        ctx.kernel = kernel
        return _maxima(_slices(rows, 2, kernel[0]))[-1]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, rows = ctx.saved_tensors
        return _to_maxima(_to_maxima(gradient, rows, 2, ctx.kernel[0]), x, 3, ctx.kernel[1]), None


def _slices(x: torch.Tensor, axis: int, size: int) -> list[torch.Tensor]:
    """Return views of the first, second, ... number of each window along one axis."""
    whole = x.narrow(axis, 0, x.shape[axis] // size * size)
    return [whole[(slice(None),) * axis + (slice(number, None, size),)] for number in range(size)]


def _maxima(slices: Parts) -> list[torch.Tensor]:
    """Return the maximum of the first, of the first two, ... slices."""
    maxima = [slices[0]]
    for other in slices[1:]:
        maxima.append(torch.maximum(maxima[-1], other))
    return maxima


def _to_maxima(gradient: torch.Tensor, x: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    """Give the gradient to the maximum of each window along one axis, zero to the others."""
    if size == 1:
        return gradient
    slices, spread = _slices(x, axis, size), torch.empty_like(x)
    before, places = _maxima(slices[:-1]), _slices(spread, axis, size)
    for number in range(size - 1, 0, -1):
        # threshold_backward passes the gradient where the difference is positive: fast, without booleans
        larger = slices[number] - before[number - 1]
        torch.ops.aten.threshold_backward.grad_input(gradient, larger, 0, grad_input=places[number])
        # the rest goes to the slices before
        gradient = torch.sub(gradient, places[number], out=places[0] if number == 1 else None)
    left = x.shape[axis] % size
    spread.narrow(axis, x.shape[axis] - left, left).zero_()
    return spread


def _dropout(x: torch.Tensor, _parts: Parts, keys: torch.Tensor | None, *, p: float, stream: int) -> torch.Tensor:
    """Drop units by key during training, when there are keys; see :mod:`p2pfl.learning.dropout`."""
    if keys is None or p == 0:
        return x
    units = math.prod(x.shape[1:-1])
    unit = torch.arange(units, device=x.device).view(*x.shape[1:-1], 1)
    counter = unit + units * torch.arange(x.shape[-1], device=x.device)  # [*shape, B]
    stays = mask(keys.view(-1, *[1] * counter.dim()), counter, layer=stream, p=p)  # [K, *shape, B]
    return x * (stays.to(x.dtype) * (1 / (1 - p) if p < 1 else 0.0))


def compile_kernels(
    model: nn.Module,
    names: Sequence[str],
    sample: torch.Tensor,
    *,
    loss: PerSample,
    footprint: Footprint,
) -> Kernels | None:
    """Return kernels for a sequence of known layers; ``None`` for any other model.

    Parameters
    ----------
    model
        Any module.
    names
        Names of the trained parameters, in the order of the row.
    sample
        Features of one sample, ``[1, *shape]``.
    loss
        Loss per sample.
    footprint
        See :class:`Kernels`.
    """
    slots = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    if loss not in (cross_entropy, squared_error) or slots != list(names):
        return None  # a user-defined loss, or frozen or tied parameters
    places = {id(parameter): i for i, parameter in enumerate(model.parameters())}
    layers: list[Layer] = []
    dropouts: list[nn.Module] = []
    held = 0  # numbers in the patches of one sample
    for module in _ordered(model):
        if type(module) is KeyedDropout and not is_hooked(module):
            layers.append(partial(_dropout, p=module.p, stream=module.stream(dropouts.count(module))))
            dropouts.append(module)
        elif type(module) is not nn.Identity or not is_bare(module):
            layer = _layer(module, sample, places)
            if layer is None:
                return None
            layers.append(layer)
        with torch.no_grad():
            sample = module(sample)
        if isinstance(module, nn.Conv2d):
            held += module.weight[0].numel() * math.prod(sample.shape[2:])
    if sample.dim() != 2 or (loss is squared_error and sample.shape[1] != 1):
        return None
    touched = 2 * (footprint.sample + held * sample.itemsize)  # autograd keeps outputs until it has their gradients
    return Kernels(layers, loss=loss, footprint=replace(footprint, sample=touched))


def flat(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the layers of nested sequences, in the order in which they run."""
    if type(module) is not nn.Sequential or not is_bare(module):
        yield module
        return
    for child in module:
        yield from flat(child)


def _ordered(model: nn.Module) -> list[nn.Module]:
    """Return the layers in order, but with pooling before ReLU: equal results with fewer numbers to rectify."""
    modules = list(flat(model))
    for i in range(len(modules) - 1):
        if type(modules[i]) is nn.ReLU and type(modules[i + 1]) is nn.MaxPool2d:
            modules[i : i + 2] = modules[i + 1], modules[i]
    return modules


def _layer(module: nn.Module, sample: torch.Tensor, places: Mapping[int, int]) -> Layer | None:
    """Return the kernel layer that matches a module on ``sample``, if there is one."""
    if type(module) not in KNOWN or not is_bare(module, KNOWN[type(module)]):
        return None
    match module:
        case nn.Linear() if sample.dim() == 2:
            return partial(_linear, **_slots(module, places))
        case nn.Conv2d() if sample.dim() == 4 and _is_plain(module):
            return partial(_convolution, module=module, **_slots(module, places))
        case nn.MaxPool2d() if sample.dim() == 4 and _is_tiling(module):
            kernel = _pair(module.kernel_size)
            return lambda x, _parts, _keys: _Pooling.apply(x, kernel)  # type: ignore[no-untyped-call]
        case nn.Flatten() if module.start_dim == 1 and module.end_dim in (-1, sample.dim() - 1):
            return lambda x, _parts, _keys: x.flatten(1, -2)
        case nn.ReLU():
            return lambda x, _parts, _keys: torch.relu(x)
        case nn.GELU() | nn.Tanh() | nn.Sigmoid():
            return lambda x, _parts, _keys: module(x)
    return None


def _slots(module: nn.Linear | nn.Conv2d, places: Mapping[int, int]) -> dict[str, Any]:
    """Return the places of weight and bias in the row."""
    return {
        "weight": places[id(module.weight)],
        "bias": None if module.bias is None else places[id(module.bias)],
    }


def _pair(size: int | tuple[int, ...]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[1])


def _is_plain(module: nn.Conv2d) -> bool:
    """Return whether a convolution is neither grouped nor dilated, and pads with a number of zeros."""
    return (
        module.groups == 1
        and _pair(module.dilation) == (1, 1)
        and module.padding_mode == "zeros"
        and module.padding != "same"
    )


def _is_tiling(module: nn.MaxPool2d) -> bool:
    """Return whether windows of several numbers lie side by side, without padding, and indices are not requested."""
    return (
        _pair(module.kernel_size) == _pair(module.stride) != (1, 1)
        and _pair(module.padding) == (0, 0)
        and _pair(module.dilation) == (1, 1)
        and not module.ceil_mode
        and not module.return_indices
    )
