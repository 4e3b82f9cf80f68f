"""Load a data set and give every peer its part."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from p2pfl.core.draws import draw
from p2pfl.core.errors import DataError
from p2pfl.core.imports import kind_of
from p2pfl.core.tensors import torch
from p2pfl.data import sources
from p2pfl.data.dataset import Dataset, IntArray
from p2pfl.data.federation import Elsewhere, Federation, Sizes
from p2pfl.data.peer_data import AddProcesses, load_peers, set_aside
from p2pfl.data.pictures import fashion_mnist, mnist
from p2pfl.data.sources import Central, Private, nearest, synthetic
from p2pfl.data.splits import SPLITS, hold_out
from p2pfl.data.tables.common_table import csv
from p2pfl.data.tables.declaration import Table
from p2pfl.data.tables.declaration import table as own_table
from p2pfl.data.tables.heart import fed_heart
from p2pfl.data.user_functions import import_source, own_split

SOURCES: Mapping[str, Callable[..., Central | Private]] = {
    "digits": sources.digits,
    "breast_cancer": sources.breast_cancer,
    "wine": sources.wine,
    "diabetes": sources.diabetes,
    "mnist": mnist,
    "fashion_mnist": fashion_mnist,
    "fed_heart": fed_heart,
    "table": own_table,
    "csv": csv,
    "synthetic": synthetic,
}
"""Loaders by the name of the data set; their keyword-only parameters are the options of the data set."""


def federate(
    name: str,
    *,
    peers: Sequence[str],
    seed: int,
    split: str = "iid",
    test: float = 0.2,
    validation: float = 0.0,
    alpha: float = 0.3,
    shards_per_peer: int = 2,
    exponent: float = 1.5,
    column: str | None = None,
    data_dir: Path | None = None,
    options: Mapping[str, Any] | None = None,
    only: Sequence[str] | None = None,
    total: AddProcesses | None = None,
    dtype: torch.dtype = torch.float32,
    reading: int | None = None,
) -> Federation:
    """Load a data set and give every peer its own part, reproducibly.

    Parameters
    ----------
    name
        A key of :data:`SOURCES`, or a ``package.module:function`` that returns the data of a peer
        (see :func:`~p2pfl.data.user_functions.import_source`).
    peers
        Names of all peers of the run, in any order.
    seed
        Seed of every draw.
    split
        A key of :data:`~p2pfl.data.splits.SPLITS`, or a ``package.module:function``
        (:func:`~p2pfl.data.user_functions.own_split`), for data that the peers do not own already.
    test
        Share to hold out, stratified by class: one common part of all data, or a part of each peer's own data. With 0
        there are no scores.
        MNIST, Fashion-MNIST, synthetic and fed_heart come with a test part and ignore it.
    validation
        Share of its own training part that each peer sets aside.
    alpha, shards_per_peer, exponent, column
        Options of the splits ``dirichlet``, ``shards``, ``power_law`` and ``column``.
    data_dir
        Folder with MNIST, Fashion-MNIST, Fed-Heart and tables.
    options
        Keyword arguments of the loader or function.
    only
        Local peers; no other data are loaded or kept. Their samples are the same as without this argument.
    total
        Function that adds up integers of the processes among which all peers are divided, so that each knows the
        numbers of samples of all; ``None`` if they are not.
    dtype
        Number type of fractions; models that follow from exact totals gain from ``torch.float64``.
    reading
        Round before which peers read data of their own that grow, of which the part of a row follows from the row
        alone; ``None`` for data that are read once.

    Returns
    -------
    Federation
        Samples of the local peers.

    Raises
    ------
    DataError
        The data set is unknown, missing or damaged, or the split is impossible.

    Notes
    -----
    The training part standardises the numerical targets of central data, as it does features.

    Examples
    --------
    >>> options = {"alpha": 1.0, "beta": 1.0}
    >>> swarm = federate("synthetic", peers=["ada", "bob"], seed=7, options=options)
    >>> swarm.peers, swarm.dataset.shape, swarm.dataset.classes
    (('ada', 'bob'), (60,), 10)
    >>> alone = federate("synthetic", peers=["bob", "ada"], seed=7, options=options, only=["ada"])
    >>> bool(alone.samples(["ada"]) == swarm.samples(["ada"]))
    True
    """
    names = _checked_peers(peers)
    hands = names if only is None else _checked_peers(only)
    for peer in sorted(set(hands) - set(names)):
        raise DataError(f'peer "{peer}" is not part of the run; {nearest(peer, names)}')
    if not 0 <= test < 1 or not 0 <= validation < 1:
        raise DataError(
            f"test and validation must be at least 0 and below 1, but they are {test} and {validation}; both are "
            "shares of the samples"
        )
    check_split(split)
    source = source_of(name, data_dir, options or {}, reading=reading)
    if isinstance(source, Private):
        if split != "iid":
            raise DataError(
                f'each peer of "{name}" owns its data, which cannot be split by "{split}"; leave the split out'
            )
        return load_peers(
            source,
            names,
            hands,
            seed=seed,
            test=test,
            validation=validation,
            total=total,
            dtype=dtype,
            growing=reading is not None,
        )
    values = _values(source, column, name) if split == "column" else None
    whole, tested = _test_part(source, seed=seed, fraction=test)
    given = {"seed": seed, "alpha": alpha, "shards_per_peer": shards_per_peer, "exponent": exponent}
    if values is not None:
        given["values"] = values[whole]
    if ":" in split:
        parts = own_split(split, source.targets[whole], peers=names, given=given)
    else:
        takes = inspect.signature(SPLITS[split]).parameters
        parts = SPLITS[split](source.targets[whole], peers=names, **{key: given[key] for key in takes if key in given})
    among = hands if total is None else names
    cut = {peer: set_aside(whole[parts[peer]], peer, "validation", seed=seed, fraction=validation) for peer in among}
    sizes = {peer: Sizes(len(own), len(aside), len(tested)) for peer, (own, aside) in cut.items()}
    elsewhere = None if total is None else Elsewhere(sizes, common=True)
    return _central(source, {peer: cut[peer] for peer in hands}, whole, tested, elsewhere, dtype=dtype)


def check_split(name: str) -> None:
    """Raise :class:`DataError` unless a split is known, or has the form of a user's own."""
    if name not in SPLITS and ":" not in name:
        raise DataError(f'"{name}" is neither a split nor a "package.module:function"; {nearest(name, SPLITS)}')


def check_name(name: str) -> None:
    """Raise :class:`DataError` unless a data set is known, or has the form of a user's function."""
    if name not in SOURCES and ":" not in name:
        raise DataError(f'"{name}" is neither a data set nor a "package.module:function"; {nearest(name, SOURCES)}')


def gather(
    given: Mapping[Any, Any],
    *,
    seed: int,
    classes: int | None = None,
    test: float = 0.2,
    validation: float = 0.0,
    table: Table | None = None,
    dtype: torch.dtype = torch.float32,
) -> Federation:
    """Give every peer the data it owns.

    Parameters
    ----------
    given
        By peer, whose name is text or a whole number, ``(features, targets)``: arrays or tensors ``[n, *shape]`` and
        ``[n, ...]``; or a map-style Dataset of torch. Targets that are whole numbers are classes, others are to be
        predicted as numbers. With a ``table``, the path of a CSV or Parquet file or a data frame.
    seed
        Decides what is held out.
    classes
        How many there are, for a peer whose own data do not show all of them.
    test, validation
        Shares of each peer's own data that are held out.
    table
        Declaration that the tables of all peers fit.
    dtype
        Number type of fractions; models that follow from exact totals gain from ``torch.float64``.

    Returns
    -------
    Federation
        Of these peers.

    Raises
    ------
    DataError
        If shapes differ or a value is not finite.

    Examples
    --------
    >>> import torch
    >>> gather({"ada": (torch.zeros(10, 3), torch.arange(10) % 2)}, seed=0).samples(["ada"])
    tensor([8])
    """
    if not isinstance(given, Mapping):
        raise DataError(
            f'the data of the peers are a {type(given).__name__}; give them by peer, such as {{"ada": data}}'
        )
    given = {str(peer) if isinstance(peer, Integral) else peer: data for peer, data in given.items()}
    names = _checked_peers(list(given))

    def load(*, peer: str, peers: tuple[str, ...], seed: int) -> Any:
        del peers, seed
        if table is None:
            return given[peer]
        try:
            return table.load(given[peer])
        except DataError as error:
            raise DataError(f'table of peer "{peer}": {error}') from None

    source = Private(load, classes=classes) if table is None else table.source(load)
    return load_peers(source, names, names, seed=seed, test=test, validation=validation, dtype=dtype)


def _checked_peers(peers: Sequence[str]) -> tuple[str, ...]:
    if odd := [peer for peer in peers if not isinstance(peer, str)]:
        raise DataError(f"a peer is named by {odd[0]!r}, {kind_of(odd[0])}; name peers by text")
    names = tuple(sorted(peers))
    if not names or len(set(names)) < len(names):
        raise DataError(
            f"the peers must be at least one and each named once, but they are {', '.join(names) or 'none'}; change "
            "the list"
        )
    return names


def source_of(
    name: str, data_dir: Path | None, options: Mapping[str, Any], *, reading: int | None = None
) -> Central | Private:
    """Return the source of a data set, or of a user's function.

    Raises
    ------
    DataError
        The data set or an option is unknown, or an option is missing.
    """
    if ":" in name:
        return import_source(name, options, reading=reading)
    check_name(name)
    load = SOURCES[name]
    check_options(name, load, options)
    return load(data_dir, reading, **options) if load is own_table else load(data_dir, **options)


def check_options(name: str, load: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Refuse options of a data set that its loader does not take, and the lack of those that it needs."""
    parameters = inspect.signature(load).parameters.values()
    known = {parameter.name: parameter for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}
    for option in options:
        if option not in known:
            raise DataError(f'the data set "{name}" has no option "{option}"; {nearest(option, known)}')
    for option, parameter in known.items():
        if parameter.default is parameter.empty and option not in options:
            raise DataError(f'the data set "{name}" needs the option "{option}"; add it to the options')


def _values(source: Central, column: str | None, name: str) -> Any:
    if column is None or column not in source.columns:
        remedy = (
            nearest(column or "", source.columns)
            if source.columns
            else 'use a data set of the kind "csv", which has columns'
        )
        raise DataError(f'`column` is {column!r}, which is not a column of the data set "{name}"; {remedy}')
    return source.columns[column]


def _test_part(source: Central, *, seed: int, fraction: float) -> tuple[IntArray, IntArray]:
    if source.test is not None:
        return np.setdiff1d(np.arange(len(source.targets)), source.test), source.test
    whole, test = hold_out(source.targets, fraction=fraction, rng=draw(seed, "test"))
    if fraction and not len(test):
        raise DataError(
            f"no class has two samples, for training and test, among {len(source.targets)} samples; add data"
        )
    return whole, test


def _central(
    source: Central,
    cut: Mapping[str, tuple[IntArray, IntArray]],
    whole: IntArray,
    test: IntArray,
    elsewhere: Elsewhere | None,
    *,
    dtype: torch.dtype,
) -> Federation:
    """Build the data set of the samples that local peers hold, and renumber them."""
    keep = np.unique(np.concatenate([test, *(part for parts in cut.values() for part in parts)]))
    targets = source.targets[keep]
    features, description = source.encode(whole, keep)
    if source.classes is None:
        moments = sources.moments(source.targets[:, None], whole)
        mean, deviation = (float(each[0]) for each in moments) if source.units is None else source.units
        targets = (source.targets[keep] - mean) / deviation
        description = replace(description, target_mean=mean, target_deviation=deviation)
    dataset = Dataset(
        torch.from_numpy(features).to(dtype),
        torch.from_numpy(targets).to(dtype if source.classes is None else torch.int64),
        source.classes,
        {name: values[keep] for name, values in source.columns.items()},
        description,
    )
    train = {peer: np.searchsorted(keep, own) for peer, (own, _) in cut.items()}
    validation = {peer: np.searchsorted(keep, own) for peer, (_, own) in cut.items()}
    return Federation(dataset, train, validation, dict.fromkeys(cut, np.searchsorted(keep, test)), elsewhere)
