"""User-defined functions as sources of data, and as splits of central data."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from p2pfl.core import imports
from p2pfl.core.errors import DataError
from p2pfl.core.imports import describe_error, kind_of
from p2pfl.core.tensors import torch
from p2pfl.data.data_description import Description
from p2pfl.data.dataset import Dataset, IntArray
from p2pfl.data.federation import clash
from p2pfl.data.samples import tensors
from p2pfl.data.sources import Private
from p2pfl.data.splits import Parts, Targets


def import_source(name: str, options: Mapping[str, Any], *, reading: int | None = None) -> Private:
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
    reading
        Round before which data that grow are read, which the function receives as ``round`` if it takes it.

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
    function = imports.import_callable(name, key="data.name", sought="a function", refused=DataError)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise DataError(f"{name} has no signature; wrap it in a function") from None
    classes = options.get("classes")
    if classes is not None and (not isinstance(classes, int) or isinstance(classes, bool) or classes < 1):
        raise DataError(f'the option "classes" is {classes!r}, not a whole number above 0; change it')
    passed = {key: value for key, value in options.items() if key != "classes" or key in signature.parameters}
    if reading is not None and "round" in signature.parameters and "round" not in passed:
        passed["round"] = reading
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
        reason = describe_error(error, module=name.partition(":")[0])
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


def own_split(name: str, targets: Targets, *, peers: Sequence[str], given: Mapping[str, Any]) -> Parts:
    """Split a training part by ``package.module:function``.

    p2pfl calls ``function(targets, peers=names, seed=seed)`` with those keyword arguments that it has parameters for;
    ``alpha``, ``shards_per_peer`` and ``exponent`` are others. The function returns by peer, or in the order of the
    names, the positions of their samples in the training part. Each live peer calls it, so it must return the same for
    the same arguments.

    Parameters
    ----------
    name
        Name of the function.
    targets
        Targets of the training part, ``[n]``.
    peers
        Names of all peers, sorted.
    given
        Further keyword arguments, such as ``seed``.

    Returns
    -------
    dict
        Positions by peer, sorted; samples that no peer has are left out.

    Raises
    ------
    DataError
        The function cannot be imported or raises, or returns no positions, none for a peer, one for two peers, or
        others when it is called again.
    """
    function = imports.import_callable(name, key="data.split", sought="a function", refused=DataError)
    try:
        takes = inspect.signature(function).parameters
    except (TypeError, ValueError):
        raise DataError(f"data.split: {name} has no signature; wrap it in a function") from None
    offered = {"peers": tuple(peers), **given}

    def called() -> Parts:
        try:
            parts = function(targets, **{key: value for key, value in offered.items() if key in takes})
        except DataError:
            raise
        except Exception as error:
            reason = describe_error(error, module=name.partition(":")[0])
            raise DataError(f"data.split: {name} raised {reason}; fix the function") from error
        return _checked(name, _by_peer(name, parts, peers), count=len(targets))

    parts, again = called(), called()
    if not all(np.array_equal(part, again[peer]) for peer, part in parts.items()):
        raise DataError(
            f"data.split: {name} returns other positions when it is called again; draw random numbers from a generator "
            "with the argument `seed`"
        )
    return parts


def _by_peer(name: str, parts: object, peers: Sequence[str]) -> dict[str, Any]:
    """Return what a function gives each peer."""
    if isinstance(parts, Mapping):
        if odd := sorted({*map(str, parts)} ^ {*peers}):
            raise DataError(
                f'data.split: {name} does not return the positions of the peers of the run, but differs in "{odd[0]}"; '
                "use the names in `peers`"
            )
        return {str(peer): positions for peer, positions in parts.items()}
    if not isinstance(parts, Sequence | np.ndarray) or len(parts) != len(peers):
        what = f"{len(parts)} lists" if isinstance(parts, Sequence | np.ndarray) else kind_of(parts)
        raise DataError(f"data.split: {name} returns {what}; return the positions of each of {len(peers)} peers")
    return dict(zip(peers, parts, strict=True))


def _checked(name: str, parts: Mapping[str, Any], *, count: int) -> Parts:
    """Return positions that are a part of the samples each, and of which no two peers have one."""
    checked = {peer: _positions(name, parts[peer], peer, count=count) for peer in sorted(parts)}
    if shared := clash(checked):
        sample, one, other = shared
        if one == other:
            raise DataError(f'data.split: {name} gives "{one}" a sample twice; name each position once')
        raise DataError(
            f'data.split: {name} gives sample {sample} to "{one}" and to "{other}"; give each sample '
            "to one peer at most"
        )
    return checked


def _positions(name: str, given: Any, peer: str, *, count: int) -> IntArray:
    try:
        positions = np.sort(np.asarray(given).reshape(-1))
    except (TypeError, ValueError):
        positions = np.empty(0)
    if not len(positions) or positions.dtype.kind not in "iu":
        raise DataError(f'data.split: {name} returns no positions for "{peer}"; return whole numbers, at least one')
    if not 0 <= positions[0] <= positions[-1] < count:
        raise DataError(
            f'data.split: {name} gives "{peer}" the positions {positions[0]} to {positions[-1]}, and the training part '
            f"has the positions 0 to {count - 1}; count within the training part"
        )
    return positions.astype(np.int64)
