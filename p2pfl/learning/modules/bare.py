"""Layers that compute what their class says, and nothing else."""

from __future__ import annotations

from collections.abc import Collection

from torch import nn
from torch.nn.modules.module import _has_any_global_hook

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
