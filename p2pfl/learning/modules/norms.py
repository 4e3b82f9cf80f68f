"""Batch normalisation, whose running statistics cannot be averaged: constant, replaced, or kept by each peer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 -- torch's own convention
from torch.nn.modules.batchnorm import _BatchNorm

from p2pfl.core.errors import ModelError

Norm = Literal["frozen", "group", "local"]
"""Treatment of the batch normalisation of a model."""

STATISTIC_NAMES = ("running_mean", "running_var")
"""Names of the running statistics of a layer."""

MAX_GROUPS = 32
"""Largest number of groups of a :class:`torch.nn.GroupNorm` that replaces a layer."""

NORM_REMEDY = (
    'set model.norm to "frozen" (its statistics and parameters stay as they are), "group" (torch.nn.GroupNorm takes '
    'its place) or "local" (each peer keeps its own, with learning.algorithm = "fedbn")'
)
"""Ways out, as the end of a sentence."""


class FrozenNorm(nn.Module):
    """Batch normalisation by constant statistics, the same in training and evaluation.

    It has the tensors of the layer that it replaces, under the same names, as buffers.

    Parameters
    ----------
    layer
        Layer to replace.

    Examples
    --------
    >>> FrozenNorm(nn.BatchNorm1d(2, eps=0.0))(torch.ones(3, 2)).sum()
    tensor(6.)
    """

    running_mean: torch.Tensor
    running_var: torch.Tensor
    weight: torch.Tensor | None
    bias: torch.Tensor | None

    def __init__(self, layer: _BatchNorm) -> None:
        super().__init__()
        self.eps = layer.eps
        self.drop, self.act = _find_followers(layer)
        for name in ("weight", "bias", *STATISTIC_NAMES, "num_batches_tracked"):
            value: torch.Tensor | None = getattr(layer, name)
            self.register_buffer(name, None if value is None else value.detach().clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise ``[B, C, ...]``."""
        x = F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, training=False, eps=self.eps)
        return _apply(x, self.drop, self.act)


class LocalNorm(nn.Module):
    """Batch normalisation whose parameters and running statistics stay with each peer.

    A batch of one value for each channel has no variance; it is normalised by the running statistics, and does not
    change them.

    Parameters
    ----------
    layer
        Layer to replace.

    Examples
    --------
    >>> norm = LocalNorm(nn.BatchNorm1d(1, momentum=0.5))
    >>> norm(torch.tensor([[1.0], [3.0]])).detach().flatten().round(decimals=3).tolist(), norm.running_mean.tolist()
    ([-1.0, 1.0], [1.0])
    """

    running_mean: torch.Tensor
    running_var: torch.Tensor

    def __init__(self, layer: _BatchNorm) -> None:
        super().__init__()
        self.eps, self.momentum = layer.eps, layer.momentum or 0.0
        self.drop, self.act = _find_followers(layer)
        self.weight, self.bias = layer.weight, layer.bias
        for name in (*STATISTIC_NAMES, "num_batches_tracked"):
            self.register_buffer(name, getattr(layer, name).detach().clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise ``[B, C, ...]``; the statistics move in place during training."""
        trains = self.training and x.numel() > x.shape[1]
        mean, variance = self.running_mean, self.running_var
        x = F.batch_norm(x, mean, variance, self.weight, self.bias, trains, self.momentum, self.eps)
        return _apply(x, self.drop, self.act)


def replace_norms(model: nn.Module, norm: Norm | None) -> tuple[str, ...]:
    """Replace the batch normalisation of a model in place.

    A layer whose parameters are frozen becomes constant as a whole, whatever ``norm`` is.

    Parameters
    ----------
    model
        Model.
    norm
        ``frozen``: constant statistics and parameters. ``group``: :class:`torch.nn.GroupNorm` with the same
        parameters. ``local``: layers that stay with each peer. ``None``: layers that are not frozen are left alone.

    Returns
    -------
    tuple of str
        Paths of the layers that stay with each peer.

    Raises
    ------
    ModelError
        A layer cannot become the kind that ``norm`` names, or the model has no batch normalisation to replace.

    References
    ----------
    Li, Jiang, Zhang, Kamp, Dou, FedBN: federated learning on non-IID features via local batch normalization,
    ICLR 2021; Hsieh, Phanishayee, Mutlu, Gibbons, The non-IID data quagmire of decentralized machine learning,
    ICML 2020 (group normalisation).
    """
    paths = {id(layer): path for path, layer in model.named_modules() if isinstance(layer, _BatchNorm)}
    if norm is not None and not paths:
        raise ModelError(f'model.norm is "{norm}", but the model has no batch normalisation; leave it out')
    if norm is None and not any(_is_frozen(layer) for layer in model.modules()):
        return ()

    def change(layer: nn.Module) -> nn.Module:
        if not isinstance(layer, _BatchNorm) or (norm is None and not _is_frozen(layer)):
            return layer
        path = f"{type(layer).__name__} {paths[id(layer)]!r}"
        _check_kind(layer, path=path)
        if norm == "group" and not _is_frozen(layer):
            return _group_norm(layer)
        if layer.running_mean is None:
            raise ModelError(
                f'{path} has no running statistics to keep; set model.norm to "group", or track_running_stats to True'
            )
        if norm == "frozen" or _is_frozen(layer):
            return FrozenNorm(layer)
        if layer.momentum is None:
            raise ModelError(f'{path} has no momentum, which model.norm = "local" needs; set its momentum to 0.1')
        return LocalNorm(layer)

    replace_layers(model, change)
    return tuple(path for path, layer in model.named_modules() if isinstance(layer, LocalNorm))


def _is_frozen(layer: nn.Module) -> bool:
    """Return whether a layer is batch normalisation whose parameters do not train."""
    parameters = list(layer.parameters())
    frozen = bool(parameters) and not any(parameter.requires_grad for parameter in parameters)
    return isinstance(layer, _BatchNorm) and frozen and layer.running_mean is not None


def _check_kind(layer: _BatchNorm, *, path: str) -> None:
    """Raise :class:`ModelError` for a layer of somebody else that may compute something more."""
    if type(layer).__module__.partition(".")[0] not in {"torch", "timm"}:
        raise ModelError(
            f"{path} is a class of its own, whose forward p2pfl does not know; replace it by torch.nn.GroupNorm"
        )


def _find_followers(layer: _BatchNorm) -> tuple[nn.Module | None, nn.Module | None]:
    """Return the dropout and the activation that a layer of timm contains."""
    layers = getattr(layer, "drop", None), getattr(layer, "act", None)
    return tuple(each if isinstance(each, nn.Module) else None for each in layers)  # type: ignore[return-value]


def _apply(x: torch.Tensor, *layers: nn.Module | None) -> torch.Tensor:
    for layer in layers:
        x = x if layer is None else layer(x)
    return x


def groups(channels: int, *, flat: bool = False) -> int:
    """Return the number of groups for so many channels: the largest divisor up to 32 with two channels each.

    Features without places (``flat``) are one group, because a group of two numbers shows only which is larger.

    Examples
    --------
    >>> groups(64), groups(24), groups(7), groups(64, flat=True)
    (32, 12, 1, 1)
    """
    most = 1 if flat else max(1, min(MAX_GROUPS, channels // 2))
    return next(count for count in range(most, 0, -1) if channels % count == 0)


def _group_norm(layer: _BatchNorm) -> nn.Module:
    """Return group normalisation with the parameters of a layer, and what a layer of timm contains."""
    count = groups(layer.num_features, flat=isinstance(layer, nn.BatchNorm1d))
    norm = nn.GroupNorm(count, layer.num_features, eps=layer.eps, affine=layer.affine)
    if layer.affine:
        norm.weight, norm.bias = layer.weight, layer.bias
    if _find_followers(layer) == (None, None):
        return norm
    return _GroupNormAct(norm, *_find_followers(layer))


class _GroupNormAct(nn.Module):
    """Group normalisation, dropout and activation under the names of timm's layer."""

    def __init__(self, norm: nn.GroupNorm, drop: nn.Module | None, act: nn.Module | None) -> None:
        super().__init__()
        self.groups, self.eps = norm.num_groups, norm.eps
        self.weight, self.bias, self.drop, self.act = norm.weight, norm.bias, drop, act

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise ``[B, C, ...]``."""
        return _apply(F.group_norm(x, self.groups, self.weight, self.bias, self.eps), self.drop, self.act)


def replace_layers(model: nn.Module, change: Callable[[nn.Module], nn.Module]) -> None:
    """Replace each layer below a model by what ``change`` returns for it, once for a layer of several places."""
    done: dict[int, tuple[nn.Module, nn.Module]] = {}  # holds the layers, so that no two share an id
    for module in list(model.modules()):
        for name, child in list(module._modules.items()):  # noqa: SLF001 -- named_children() hides repetitions
            if child is None:
                continue
            if id(child) not in done:
                done[id(child)] = child, change(child)
            if done[id(child)][1] is not child:
                setattr(module, name, done[id(child)][1])
