"""Data that peers own already, loaded one peer after the other."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from p2pfl.core.draws import draw
from p2pfl.core.errors import DataError, P2PFLError
from p2pfl.core.tensors import torch
from p2pfl.data.dataset import Dataset, IntArray
from p2pfl.data.federation import Elsewhere, Federation, Sizes
from p2pfl.data.readings import divide_by_digest
from p2pfl.data.samples import tensors
from p2pfl.data.sources import OwnSamples, Private
from p2pfl.data.splits import hold_out

Kind = tuple[tuple[int, ...], str, tuple[int, ...], str]
"""Shapes and types of the features and targets of a sample."""


class AddProcesses(Protocol):
    """Function that adds up integers of all processes of a run."""

    def __call__(self, integers: IntArray, /, *, refused: P2PFLError | None = None) -> IntArray:
        """Return the sums, or raise the error of the first process that refuses."""


def load_peers(
    source: Private,
    names: tuple[str, ...],
    hands: tuple[str, ...],
    *,
    seed: int,
    test: float,
    validation: float,
    total: AddProcesses | None = None,
    dtype: torch.dtype = torch.float32,
    growing: bool = False,
) -> Federation:
    """Load the data of one peer after the other.

    Parameters
    ----------
    source
        Source of the data.
    names, hands
        Names of all peers, and of the local ones.
    seed, test, validation
        As for :func:`p2pfl.data.loader.federate`.
    total
        Function that adds up integers of the processes among which the peers are divided; ``None`` if they are not.
    dtype
        Number type of fractions.
    growing
        True if the part of a row follows from the row alone, because the data are read again.
    """
    loading = _Loading(source, names, seed=seed, test=test, validation=validation, dtype=dtype, growing=growing)
    refused: P2PFLError | None = None
    try:
        for peer in hands:
            loading.add(peer)
        loading.check(complete=hands == names or total is not None)
    except P2PFLError as error:
        if total is None:
            raise
        refused = error  # the processes that wait for this one must know
    elsewhere = None if total is None else loading.exchanged(total, refused=refused)
    samples = torch.cat(loading.features), torch.cat(loading.targets)
    dataset = Dataset(*samples, loading.classes, {}, source.description)
    parts = loading.train, loading.validations, loading.tests
    return Federation(dataset, *parts, elsewhere, loading.notes, loading.keys)


class _Loading:
    """Data of the peers that were loaded so far."""

    def __init__(
        self,
        source: Private,
        names: tuple[str, ...],
        *,
        seed: int,
        test: float,
        validation: float,
        dtype: torch.dtype,
        growing: bool,
    ) -> None:
        self.source, self.names, self.seed, self.dtype, self.growing = source, names, seed, dtype, growing
        self.shares = source.test or test, validation
        self.features, self.targets = list[torch.Tensor](), list[torch.Tensor]()
        self.kinds: set[Kind] = set()
        self.classes: int | None = source.classes
        self.count = 0
        self.notes: dict[str, tuple[str, ...]] = {}
        self.keys: dict[str, tuple[str, ...]] = {}
        self.train: dict[str, IntArray] = {}
        self.validations: dict[str, IntArray] = {}
        self.tests: dict[str, IntArray] = {}

    def add(self, peer: str) -> None:
        """Load the data of a peer, and set its test and validation parts aside."""
        loaded = self.source.load(peer=peer, peers=self.names, seed=self.seed)
        if isinstance(loaded, OwnSamples):
            if loaded.keys is not None:
                self.keys[peer] = loaded.keys
            self.notes[peer], loaded = loaded.notes, (loaded.features, loaded.targets)
        features, targets = tensors(loaded, giver=f'peer "{peer}" has', dtype=self.dtype)
        self.kinds.add(_kind(features, targets))
        if len(self.kinds) > 1:
            return  # they are refused once all kinds are known
        classes = self._classes(targets)
        try:
            Dataset(features, targets, classes, description=self.source.description)
        except DataError as error:
            raise DataError(f'data of peer "{peer}": {error}') from None
        own = np.arange(self.count, self.count + len(targets))
        if self.growing:
            self._divide(own, peer, features, targets)
        else:
            self._set_aside(own, peer)
        self.features.append(features)
        self.targets.append(targets)
        self.count += len(own)

    def _set_aside(self, own: IntArray, peer: str) -> None:
        """Draw the test and validation parts of a peer."""
        test, validation = self.shares
        if self.source.held is None:
            kept, self.tests[peer] = set_aside(own, peer, "test", seed=self.seed, fraction=test)
        else:
            self.tests[peer] = own[self.source.held(peer=peer, peers=self.names)]
            kept = np.setdiff1d(own, self.tests[peer])
        if test and not len(self.tests[peer]):
            raise DataError(f'peer "{peer}" has {len(own)} samples, but training and test need at least 2; add data')
        parts = set_aside(kept, peer, "validation", seed=self.seed, fraction=validation)
        self.train[peer], self.validations[peer] = parts

    def _divide(self, own: IntArray, peer: str, features: torch.Tensor, targets: torch.Tensor) -> None:
        """Divide the rows of a peer by what is in them, so that each stays in its part when others come."""
        test, validation = self.shares
        parts = divide_by_digest(features, targets, seed=self.seed, test=test, validation=validation)
        self.train[peer], self.validations[peer], self.tests[peer] = (own[part] for part in parts)
        if not len(self.train[peer]) or (test and not len(self.tests[peer])):
            raise DataError(
                f'peer "{peer}" has {len(own)} samples, and the digest of each decides whether it is for training or '
                "test, which leaves one of the two empty; add data"
            )

    def check(self, *, complete: bool) -> None:
        """Check that all peers have the same kind of data, and that they show the number of classes."""
        if len(self.kinds) > 1:
            raise _different(sorted(map(str, self.kinds)))
        if self.classes is not None and self.source.classes is None and not complete:
            raise DataError(
                "the data of one peer do not show the number of classes; add `classes` to the options of the data"
            )

    def exchanged(self, total: AddProcesses, *, refused: P2PFLError | None) -> Elsewhere:
        """Return the sizes of all peers; set the number of classes to that of all.

        Raises
        ------
        P2PFLError
            Another process could not load its data, or they are of another kind.
        """
        positions = {peer: position for position, peer in enumerate(self.names)}
        table = np.zeros((len(self.names), 5), np.int64)
        if refused is None:
            kind = zlib.crc32(str(*self.kinds).encode())
            for peer, own in self.train.items():
                sizes = len(own), len(self.validations[peer]), len(self.tests[peer])
                table[positions[peer]] = (*sizes, self.classes or 0, kind)
        table = total(table.ravel(), refused=refused).reshape(table.shape)
        if len(np.unique(table[:, 4])) > 1:
            raise _different([str(kind) for kind in self.kinds] + ["others in other processes"])
        self.classes = int(table[:, 3].max()) or None
        sizes_of = {peer: Sizes(*table[position, :3].tolist()) for peer, position in positions.items()}
        return Elsewhere(sizes_of, common=len(self.names) == 1)

    def _classes(self, targets: torch.Tensor) -> int | None:
        """Return the number of classes that the targets so far show; ``None`` for fractions."""
        if targets.is_floating_point():
            if self.source.classes is not None:
                raise DataError("the targets are fractions, although `classes` is set; leave it out")
            return None
        if self.source.classes is None and len(targets):
            self.classes = max(self.classes or 0, 1 + int(targets.max()))
        return self.classes


def set_aside(own: IntArray, peer: str, purpose: str, *, seed: int, fraction: float) -> tuple[IntArray, IntArray]:
    """Split the positions of a peer into those that it keeps and those that it sets aside."""
    if not fraction:
        return own, own[:0]
    kept, aside = hold_out(np.zeros(len(own)), fraction=fraction, rng=draw(seed, purpose, peer))
    return own[kept], own[aside]


def redraw_tests(federation: Federation, *, seed: int, fraction: float) -> Federation:
    """Return the federation that :func:`load_peers` would with another seed, if only the test part is set aside."""
    train, test = dict[str, IntArray](), dict[str, IntArray]()
    for peer, kept in federation.train.items():
        own = np.sort(np.concatenate([kept, federation.test[peer]]))
        train[peer], test[peer] = set_aside(own, peer, "test", seed=seed, fraction=fraction)
    return replace(federation, train=train, test=test)


def _kind(features: torch.Tensor, targets: torch.Tensor) -> Kind:
    """Return the shapes and types that the data of all peers must have."""
    types = ("numbers" if each.is_floating_point() else "whole numbers" for each in (features, targets))
    return tuple(features.shape[1:]), next(types), tuple(targets.shape[1:]), next(types)


def _different(kinds: Sequence[str]) -> DataError:
    return DataError(
        f"the peers have features or targets of different shapes or types ({', '.join(kinds)}); make them equal"
    )
