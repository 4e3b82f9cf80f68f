"""User-defined functions as sources of data."""

import importlib
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from traceback import walk_tb
from typing import Any

import torch

from p2pfl.data.dataset import Dataset
from p2pfl.data.description import Description
from p2pfl.data.samples import tensors
from p2pfl.data.sources import Private
from p2pfl.errors import DataError, P2PFLError


def imported(name: str, options: Mapping[str, Any]) -> Private:
    """Use ``package.module:function`` as the source of each peer's private data.

    p2pfl calls ``function(peer=name, peers=names, seed=seed, **options)`` for each local peer, and the function
    returns the ``(features, targets)`` of that peer as arrays or tensors ``[n, *shape]`` and ``[n, ...]``, or a Dataset
    of torch (:func:`p2pfl.data.samples.tensors`). Targets of whole numbers are classes; others are predicted as
    numbers. The option ``classes`` gives the number of classes; it is passed on only if the function takes it.

    Parameters
    ----------
    name
        Name of the function.
    options
        Further keyword arguments of the function, and ``classes``.

    Returns
    -------
    Private
        Source that calls the function for each local peer.

    Raises
    ------
    DataError
        The function cannot be imported or does not take these arguments; when called, it raises or returns anything
        but samples of finite numbers.
    """
    function = function_of(name)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise DataError(f"{name} has no signature; wrap it in a function") from None
    classes = options.get("classes")
    if classes is not None and (not isinstance(classes, int) or isinstance(classes, bool) or classes < 1):
        raise DataError(f'the option "classes" is {classes!r}, not a whole number above 0; change it')
    passed = {key: value for key, value in options.items() if key != "classes" or key in signature.parameters}
    try:
        signature.bind(**{"peer": "", "peers": (), "seed": 0, **passed})
    except TypeError as error:
        given = ", ".join(f"{key}=..." for key in ("peer", "peers", "seed", *passed))
        raise DataError(
            f"{name} takes {signature} and cannot be called as function({given}) ({error}); change its "
            "parameters or the options"
        ) from None
    if taken := sorted({"peer", "peers", "seed"} & set(passed)):
        raise DataError(f'data.options of {name} contain "{taken[0]}", which p2pfl passes itself; leave it out')
    description = Description(raw=f"the features that {name} returns")
    load = partial(_loaded, name, partial(function, **passed), classes)
    return Private(load, classes=classes, description=description)


def located(error: BaseException, *, module: str) -> str:
    """Describe an exception of a user's function, with the line of their module that raised it.

    Returns
    -------
    str
        Type and first line of the error, and the place in the module, if there is one.

    Examples
    --------
    >>> located(ValueError("too cold"), module="clinic")
    'ValueError: too cold'
    """
    first = (str(error).splitlines() or [""])[0]
    lines = [(frame.f_code, line) for frame, line in walk_tb(error.__traceback__) if _module(frame) == module]
    where = f" (in {lines[-1][0].co_qualname}, line {lines[-1][1]} of {module})" if lines else ""
    return f"{type(error).__name__}{': ' if first else ''}{first}{where}"


def _module(frame: Any) -> str:
    return str(frame.f_globals.get("__name__"))


def function_of(name: str, *, key: str = "", refused: type[P2PFLError] = DataError) -> Callable[..., Any]:
    """Return the function that ``package.module:function`` names.

    Parameters
    ----------
    name
        Its name.
    key
        Key of the experiment file that has the name, for an error.
    refused
        Type of the error.

    Raises
    ------
    P2PFLError
        It cannot be imported, or is no function.

    Examples
    --------
    >>> function_of("math:floor")(2.5)
    2
    """
    module, _, attribute = name.partition(":")
    said = f'{key}: "{name}"' if key else f'"{name}"'
    try:
        function = getattr(importlib.import_module(module), attribute)
    except Exception as error:
        reason = located(error, module=module)
        raise refused(f"{said} cannot be imported ({reason}); correct the name or the module") from error
    if not callable(function):
        raise refused(f"{said} is a {type(function).__name__}; give the name of a function")
    found: Callable[..., Any] = function
    return found


def _loaded(
    name: str, load: Callable[..., Any], classes: int | None, *, peer: str, peers: tuple[str, ...], seed: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the features and targets of one peer, once they are known to be samples."""
    whose = f'for peer "{peer}"'
    try:
        loaded = load(peer=peer, peers=peers, seed=seed)
    except Exception as error:
        reason = located(error, module=name.partition(":")[0])
        raise DataError(f"{name} cannot load the data {whose} ({reason}); fix the function") from error
    features, targets = tensors(loaded, giver=f"{name} returns", whose=whose)
    if not features.dim() or len(features) < 2:
        count = f"{len(features)} samples" if features.dim() else "a single number"
        raise DataError(f"{name} returns {count} {whose}, but training and test need at least 2 samples; add data")
    if classes is not None and targets.is_floating_point():
        raise DataError(
            f'{name} returns fractions as targets {whose}, although the option "classes" is set; convert them '
            'to whole numbers, or leave "classes" out to predict numbers'
        )
    labels = None if targets.is_floating_point() else classes or max(1, 1 + int(targets.max()) if len(targets) else 1)
    try:
        Dataset(features, targets, labels)
    except DataError as error:
        raise DataError(f"{name} {whose}: {error}") from None
    return features, targets
