"""User-defined functions as sources of data."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from p2pfl import importing
from p2pfl.data.dataset import Dataset
from p2pfl.data.description import Description
from p2pfl.data.samples import tensors
from p2pfl.data.sources import Private
from p2pfl.errors import DataError
from p2pfl.importing import located


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
    function = importing.imported(name, key="data.name", sought="a function", refused=DataError)
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
