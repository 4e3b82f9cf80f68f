"""A user's own function as a source."""

import importlib
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from p2pfl.data.sources import Private
from p2pfl.errors import DataError


def imported(name: str, options: Mapping[str, Any]) -> Private:
    """Take ``package.module:function`` as the source of each peer's private data.

    The function is called as ``function(peer=name, peers=names, seed=seed, **options)``
    for each peer at hand and gives that peer's ``(features, targets)``, arrays or
    tensors ``[n, *shape]`` and ``[n]``. Whole numbers are classes, others are to
    be predicted as numbers. The option ``classes`` says how many classes there are; it
    is passed on only if the function takes it.

    Raises
    ------
    DataError
        If the function cannot be imported or does not take these arguments.
    """
    function = _function(name)
    signature = inspect.signature(function)
    classes = options.get("classes")
    if classes is not None and (not isinstance(classes, int) or classes < 1):
        raise DataError(f'Expected a whole number > 0 as the option "classes", got {classes!r}; change it.')
    passed = {key: value for key, value in options.items() if key != "classes" or key in signature.parameters}
    try:
        signature.bind(peer="", peers=(), seed=0, **passed)
    except TypeError as error:
        given = ", ".join(f"{key}=..." for key in ("peer", "peers", "seed", *passed))
        raise DataError(
            f"Expected {name} to be called as function({given}), but it takes {signature}: {error}; "
            "change its parameters or the options."
        ) from None
    return Private(partial(function, **passed), classes=classes)


def _function(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    try:
        function = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise DataError(
            f'Expected a function "package.module:function" that can be imported, got "{name}": {error}; '
            "correct the name or install its package."
        ) from error
    if not callable(function):
        raise DataError(f'Expected a function at "{name}", got {type(function).__name__}; name a function.')
    found: Callable[..., Any] = function
    return found
