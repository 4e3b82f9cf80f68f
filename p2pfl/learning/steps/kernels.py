"""Hand-written gradients of sequences of linear and convolutional layers on a stack of rows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import nn

from p2pfl.core.rows import Layout
from p2pfl.learning.dropout import KeyedDropout
from p2pfl.learning.losses import PerSample, cross_entropy, squared_error
from p2pfl.learning.modules.model_copy import is_bare, is_hooked
from p2pfl.learning.steps.batching import Batch, Footprint
from p2pfl.learning.steps.layers import (
    POINTWISE_FUNCTIONS,
    Affine,
    Convolution,
    Dropout,
    Flatten,
    Layer,
    Pooling,
    Saved,
    gelu,
    rectifier,
)
from p2pfl.learning.steps.perceptrons import LayerKind, Perceptrons

KNOWN_LAYERS: Mapping[type[nn.Module], tuple[str, ...]] = {
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
        self._lowest = next((i for i, layer in enumerate(self.layers) if isinstance(layer, Affine)), 0)
        unflat = next((layer for layer in self.layers if not isinstance(layer, Flatten)), None)
        self.first_weight = unflat.weight if type(unflat) is Affine else None
        self._others: list[Kernels] = []

    def copies(self, count: int) -> "list[Kernels]":
        """Return so many engines, this one first, of which each may run in a thread of its own."""
        while len(self._others) < count - 1:
            layers = [layer.copy_for_thread() for layer in self.layers]
            self._others.append(Kernels(layers, loss=self.loss, footprint=self.footprint))
        return [self, *self._others[: count - 1]]

    def block(self, width: int) -> int:
        """Return the number of rows, with batches of ``width`` samples, that make a block."""
        return self.footprint.rows(width)

    def _forward(
        self, parts: Sequence[torch.Tensor], features: torch.Tensor, keys: torch.Tensor | None
    ) -> tuple[torch.Tensor, list[Saved]]:
        x = features.movedim(1, -1)  # [K, *shape, B]
        kept = []
        for layer in self.layers:
            x, saved = layer.forward(x, parts, keys)
            kept.append(saved)
        return x, kept

    def gradient(self, parts: Sequence[torch.Tensor], batch: Batch) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return mean losses ``[K]`` and their gradients, ``[K, *shape]`` each."""
        outputs, kept = self._forward(parts, batch.features, batch.keys)  # [K, C, B]
        shares = 1 / outputs.shape[-1] if batch.weights is None else batch.weights.unsqueeze(1)  # [K, 1, B]
        losses, g = (_likelihood if self.loss is cross_entropy else _distance)(outputs, batch.targets.unsqueeze(1))
        g *= shares
        mean = (losses * shares).sum(dim=(1, 2))  # [K]
        gradients = list(parts)
        for i in range(len(self.layers) - 1, self._lowest - 1, -1):
            g = self.layers[i].backward(g, kept[i], parts, gradients, first=i == self._lowest)
        return mean, gradients

    def outputs(self, parts: Sequence[torch.Tensor], features: torch.Tensor, *, shared: bool) -> torch.Tensor:
        """Return ``[K, B, *outputs]`` for features ``[K, B, *shape]``, or ``[B, *shape]`` if all rows share them."""
        x, _ = self._forward(parts, features.unsqueeze(0) if shared else features, None)
        return x.movedim(-1, 1)  # [K, B, C]


def _likelihood(outputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the cross-entropy ``[K, 1, B]`` and its gradient, probabilities less one at the target, ``[K, C, B]``."""
    targets = targets.expand(len(outputs), 1, -1)
    logarithms = torch.log_softmax(outputs, dim=1)  # [K, C, B]
    losses = logarithms.gather(1, targets).neg_()  # [K, 1, B]
    g = logarithms.exp_()
    return losses, g.scatter_add_(1, targets, g.new_full((1, 1, 1), -1.0).expand_as(targets))


def _distance(outputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the squared error ``[K, 1, B]`` and its gradient."""
    difference = outputs - targets  # [K, 1, B]
    return difference.square(), 2 * difference


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
    indices = {id(parameter): i for i, parameter in enumerate(model.parameters())}
    layers: list[Layer] = []
    dropouts: list[nn.Module] = []
    for module in _order(model):
        if type(module) is KeyedDropout and not is_hooked(module):
            layers.append(Dropout(module, call=dropouts.count(module)))
            dropouts.append(module)
        elif type(module) is not nn.Identity or not is_bare(module):
            layer = _layer(module, sample, indices, fresh=bool(layers) and isinstance(layers[-1], Affine | Pooling))
            if layer is None:
                return None
            layers.append(layer)
        with torch.no_grad():
            sample = module(sample)
    if sample.dim() != 2 or (loss is squared_error and sample.shape[1] != 1):
        return None
    patches = sum(layer.patch_size for layer in layers if isinstance(layer, Convolution)) * sample.itemsize
    return Kernels(layers, loss=loss, footprint=replace(footprint, sample=footprint.sample + patches))


def flat(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the layers of nested sequences, in the order in which they run."""
    if type(module) is not nn.Sequential or not is_bare(module):
        yield module
        return
    for child in module:
        yield from flat(child)


def _order(model: nn.Module) -> list[nn.Module]:
    """Return the layers in order, but with pooling before ReLU: equal results with fewer numbers to rectify."""
    modules = list(flat(model))
    for i in range(len(modules) - 1):
        if type(modules[i]) is nn.ReLU and type(modules[i + 1]) is nn.MaxPool2d:
            modules[i : i + 2] = modules[i + 1], modules[i]
    return modules


def _layer(module: nn.Module, sample: torch.Tensor, indices: Mapping[int, int], *, fresh: bool) -> Layer | None:
    """Return the kernel layer that matches a module on ``sample``, if there is one.

    ``fresh`` states that the layer before no longer needs its outputs.
    """
    if type(module) not in KNOWN_LAYERS or not is_bare(module, KNOWN_LAYERS[type(module)]):
        return None
    layer: Layer | None = None
    match module:
        case nn.Linear() if sample.dim() == 2:
            layer = Affine(*_slots(module, indices))
        case nn.Conv2d() if sample.dim() == 4 and _is_plain(module):
            layer = Convolution(
                *_slots(module, indices),
                shape=tuple(sample.shape[1:]),
                kernel=module.kernel_size,
                stride=module.stride,
                padding=module.padding if isinstance(module.padding, tuple) else (0, 0),
            )
        case nn.ReLU():
            layer = rectifier(inplace=fresh)
        case nn.GELU():
            layer = gelu(module.approximate)
        case nn.Tanh() | nn.Sigmoid():
            layer = POINTWISE_FUNCTIONS[type(module)]
        case nn.Flatten() if module.start_dim == 1 and module.end_dim in (-1, sample.dim() - 1):
            layer = Flatten()
        case nn.MaxPool2d() if sample.dim() == 4 and _is_tiling(module):
            layer = Pooling(_pair(module.kernel_size), spare=fresh)
    return layer


def _slots(module: nn.Linear | nn.Conv2d, indices: Mapping[int, int]) -> tuple[int, int | None]:
    """Return the places of weight and bias in the row."""
    return indices[id(module.weight)], None if module.bias is None else indices[id(module.bias)]


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


LAYER_KINDS: Mapping[type[nn.Module], LayerKind] = {nn.Linear: "affine", nn.ReLU: "relu", nn.Tanh: "tanh"}
"""Layers of perceptrons by their class."""


def perceptrons(model: nn.Module, layout: Layout, *, kernels: Kernels, loss: PerSample) -> Perceptrons | None:
    """Return the engine of a model that has kernels; ``None`` unless it is a perceptron.

    Parameters
    ----------
    model
        Any module.
    layout
        Places of its trained parameters in a row.
    kernels
        Its kernels.
    loss
        Loss per sample.
    """
    modules = [module for module in flat(model) if type(module) is not nn.Identity]
    modules = modules[1:] if modules and type(modules[0]) is nn.Flatten else modules
    supported = all(type(module) in LAYER_KINDS for module in modules)
    if not supported or not modules or type(modules[0]) is not nn.Linear:
        return None
    own = [parameter for module in modules for parameter in module.parameters()]
    same = all(one is other for one, other in zip(own, model.parameters(), strict=True))
    kinds: list[LayerKind] = [
        "product" if isinstance(module, nn.Linear) and module.bias is None else LAYER_KINDS[type(module)]
        for module in modules
    ]
    return Perceptrons(kinds, layout, footprint=kernels.footprint, loss=loss, kernels=kernels) if same else None
