"""A copy of a user's model that computes what the model computes."""

from __future__ import annotations

import copy
import sys
from collections.abc import Collection, Iterator
from types import MethodType

import torch
from torch import nn
from torch.nn.modules.module import _has_any_global_hook

from p2pfl.core.errors import ModelError
from p2pfl.core.imports import describe_error
from p2pfl.learning.modules.norms import replace_layers


def own_copy(model: nn.Module) -> nn.Module:
    """Return a copy of a model, without the wrappers of ``torch.compile``.

    Raises
    ------
    ModelError
        The model is scripted or wrapped, cannot be copied, or has something that a copy loses.
    """
    while _is_compiled(model) and not has_hooks(model):
        model = _inside(model)
    _check_kinds(model)
    try:
        made = copy.deepcopy(model)
    except Exception as error:
        raise ModelError(
            f"the model cannot be copied ({describe_error(error, module='')[:100]}); end torch.nn.utils.prune by "
            "prune.remove, take weight_norm from torch.nn.utils.parametrizations, and keep no computed tensor as an "
            "attribute"
        ) from error
    for path, layer in model.named_modules():
        _check_forward(layer, where=_describe_layer(layer, path))
    for name, parameter in model.named_parameters():
        if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:  # noqa: SLF001 -- no public way to ask
            raise ModelError(
                f"parameter {name!r} has a hook, which the stacks and copies of p2pfl lose; change its gradient in a "
                "hook of its layer (register_full_backward_hook), or in the loss"
            )
    before = find_hooked(made)
    replace_layers(made, lambda layer: _inside(layer) if _is_compiled(layer) else layer)
    check_hooks_left(_inside(made) if _is_compiled(made) else made, before)
    return made


def find_hooked(model: nn.Module) -> set[nn.Module]:
    """Return the layers that have hooks, or a forward of their own."""
    return {layer for layer in model.modules() if (has_hooks if _is_compiled(layer) else is_hooked)(layer)}


def check_hooks_left(model: nn.Module, before: set[nn.Module]) -> None:
    """Raise :class:`ModelError` if a layer with hooks is no longer part of a model.

    Parameters
    ----------
    model
        Model.
    before
        Layers with hooks that it had.
    """
    if before - {*model.modules()}:
        raise ModelError(
            "the model has a hook on a layer that p2pfl replaces (dropout, batch normalisation, or a module wrapped by "
            "torch.compile), which would lose it; put the hook on the layer before or after"
        )


def _describe_layer(layer: nn.Module, path: str) -> str:
    kind = type(layer).__name__
    return f"{kind} {path!r}" if path else kind


def _check_kinds(model: nn.Module) -> None:
    """Raise :class:`ModelError` for modules that are no plain torch, or that have gradients of another kind."""
    for path, layer in model.named_modules():
        where = _describe_layer(layer, path)
        if isinstance(layer, torch.jit.ScriptModule):
            raise ModelError(
                f"{where} is scripted by torch.jit, whose parameters p2pfl cannot replace; give the module as it was "
                "before torch.jit.script or torch.jit.trace"
            )
        if isinstance(layer, nn.DataParallel | nn.parallel.DistributedDataParallel):
            raise ModelError(
                f"{where} divides batches among devices; give the module inside of it, its attribute module"
            )
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.sparse:
            raise ModelError(f"{where} has sparse gradients, which a row does not hold; set its sparse to False")


def _check_forward(layer: nn.Module, *, where: str) -> None:
    """Raise :class:`ModelError` for a forward that a copy of a layer would take from the original."""
    forward = vars(layer).get("forward")
    if (
        forward is not None
        and not _is_compiled(layer)
        and not (isinstance(forward, MethodType) and forward.__self__ is layer)
    ):
        raise ModelError(
            f"{where} has another forward than that of its class, which would still use this layer in copies of it; "
            "write the forward in a class"
        )


def _is_compiled(layer: nn.Module) -> bool:
    """Return whether a module is a wrapper of ``torch.compile``."""
    wrappers = sys.modules.get("torch._dynamo.eval_frame")  # imported by torch.compile, in seconds
    return wrappers is not None and isinstance(layer, wrappers.OptimizedModule)


def _inside(layer: nn.Module) -> nn.Module:
    """Return the module inside of a wrapper of ``torch.compile``."""
    inner: nn.Module = layer._orig_mod  # type: ignore[assignment]  # noqa: SLF001 -- the only way to it
    return inner


def check_leaves(model: nn.Module, outputs: torch.Tensor) -> None:
    """Raise :class:`ModelError` if outputs depend on tensors with a gradient that are no parameters of a model.

    Parameters
    ----------
    model
        Model.
    outputs
        Its outputs.
    """
    own = set(map(id, model.parameters()))
    for leaf in _leaves(outputs):
        if id(leaf) not in own:
            raise ModelError(
                f"the model computes with a tensor of shape {tuple(leaf.shape)} that has a gradient and is none of its "
                "parameters; register it (torch.nn.Parameter, torch.nn.ModuleList in place of a list), or set its "
                "requires_grad to False"
            )


def _leaves(outputs: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the tensors on which the gradient of outputs ends."""
    left, seen = [outputs.grad_fn], set()
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf: torch.Tensor | None = getattr(node, "variable", None)
        if leaf is not None:
            yield leaf
        left.extend(before for before, _ in node.next_functions)


HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
"""Attributes of a module that hold the hooks of its passes; torch has no public way to ask for them."""


def has_hooks(module: nn.Module) -> bool:
    """Return whether a module has a hook of its forward or backward pass."""
    own = vars(module)
    return any(own[name] for name in HOOKS)


def is_hooked(module: nn.Module) -> bool:
    """Return whether a module has a hook, or a forward of its own in place of that of its class.

    Examples
    --------
    >>> layer = nn.Linear(1, 1)
    >>> is_hooked(layer)
    False
    >>> handle = layer.register_forward_hook(lambda module, inputs, outputs: 2 * outputs)
    >>> is_hooked(layer)
    True
    """
    return has_hooks(module) or "forward" in vars(module)


def is_bare(module: nn.Module, parameters: Collection[str] = ()) -> bool:
    """Return whether nothing on a module changes what its class computes.

    Parameters
    ----------
    module
        Module of a class that is known.
    parameters
        Names of the parameters that the class uses.

    Returns
    -------
    bool
        True if the module has no hooks, none are set for all modules, no attribute takes the place of one of its class,
        and it has no other parameters than these.
    """
    own = vars(module)
    everywhere: bool = _has_any_global_hook()  # type: ignore[no-untyped-call]
    shadowed = own.keys() & {*dir(type(module))}
    return not (everywhere or is_hooked(module) or shadowed or own["_parameters"].keys() - {*parameters})
