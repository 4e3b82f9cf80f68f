"""A user's own function as a source."""

import importlib
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from traceback import walk_tb
from typing import Any

import numpy as np
import torch

from p2pfl.data.dataset import Dataset
from p2pfl.data.description import Description
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
        If the function cannot be imported or does not take these arguments; when it is called, also
        if it raises or gives anything but samples of finite numbers.
    """
    function = _function(name)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise DataError(f"expected {name} to be a function of yours, got one without a signature: wrap it") from None
    classes = options.get("classes")
    if classes is not None and (not isinstance(classes, int) or isinstance(classes, bool) or classes < 1):
        raise DataError(f'expected a whole number > 0 as the option "classes", got {classes!r}: change it')
    passed = {key: value for key, value in options.items() if key != "classes" or key in signature.parameters}
    try:
        signature.bind(**{"peer": "", "peers": (), "seed": 0, **passed})
    except TypeError as error:
        given = ", ".join(f"{key}=..." for key in ("peer", "peers", "seed", *passed))
        raise DataError(
            f"expected {name} to be called as function({given}), got one that takes {signature}: {error}; "
            "change its parameters or the options"
        ) from None
    if taken := sorted({"peer", "peers", "seed"} & set(passed)):
        raise DataError(
            f'expected data.options of {name} to be its own, got "{taken[0]}": p2pfl passes it, leave it out'
        )
    told = Description(raw=f"the features that {name} returns")
    return Private(partial(_loaded, name, partial(function, **passed), classes), classes=classes, description=told)


def told(error: BaseException, *, module: str) -> str:
    """What a user's code raised, and the line of his module where it did.

    Examples
    --------
    >>> told(ValueError("too cold"), module="clinic")
    'ValueError: too cold'
    """
    first = (str(error).splitlines() or [""])[0]
    lines = [(frame.f_code, line) for frame, line in walk_tb(error.__traceback__) if _module(frame) == module]
    where = f" (in {lines[-1][0].co_qualname}, line {lines[-1][1]} of {module})" if lines else ""
    return f"{type(error).__name__}{': ' if first else ''}{first}{where}"


def _module(frame: Any) -> str:
    return str(frame.f_globals.get("__name__"))


def _function(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    try:
        function = getattr(importlib.import_module(module), attribute)
    except Exception as error:
        raise DataError(
            f'expected a function "package.module:function" that can be imported, got "{name}": '
            f"{told(error, module=module)}; correct the name or the module"
        ) from error
    if not callable(function):
        raise DataError(f'expected a function at "{name}", got {type(function).__name__}: name a function')
    found: Callable[..., Any] = function
    return found


def _loaded(
    name: str, load: Callable[..., Any], classes: int | None, *, peer: str, peers: tuple[str, ...], seed: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """One peer's features and targets, as soon as they are known to be samples."""
    whose = f'for peer "{peer}"'
    try:
        loaded = load(peer=peer, peers=peers, seed=seed)
    except Exception as error:
        said = told(error, module=name.partition(":")[0])
        raise DataError(f"expected {name} to give the data {whose}, got {said}: mend the function") from error
    wanted = f"expected {name} to give (features, targets) as arrays of numbers {whose}"
    if not isinstance(loaded, tuple | list) or len(loaded) != 2:
        size = f" of {len(loaded)}" if isinstance(loaded, tuple | list) else ""
        raise DataError(f"{wanted}, got {type(loaded).__name__}{size}: return the two")
    try:
        features, targets = (_tensor(values) for values in loaded)
    except Exception as error:
        kinds = " and ".join(type(values).__name__ for values in loaded)
        raise DataError(f"{wanted}, got {kinds} that are none ({error}): convert them") from error
    if not features.dim() or len(features) < 2:
        count = len(features) if features.dim() else "a single number"
        raise DataError(f"expected {name} to give at least 2 samples {whose}, got {count}: add data")
    if classes is not None and targets.is_floating_point():
        raise DataError(
            f"expected {name} to give whole numbers as targets {whose}, as the option classes is set, got "
            "fractions: convert them, or leave classes out to predict numbers"
        )
    labels = None if targets.is_floating_point() else classes or max(1, 1 + int(targets.max()) if len(targets) else 1)
    try:
        Dataset(features, targets, labels)
    except DataError as error:
        raise DataError(f"{name} {whose}: {error}") from None
    return features, targets


def _tensor(values: Any) -> torch.Tensor:
    """Floats or whole numbers, a copy of whatever array it is."""
    tensor = values.detach().cpu() if isinstance(values, torch.Tensor) else torch.from_numpy(np.array(values))
    if tensor.is_complex() or tensor.layout != torch.strided:
        raise TypeError(f"{str(tensor.dtype).removeprefix('torch.')}, {tensor.layout}")
    return tensor.float() if tensor.is_floating_point() else tensor.long()
