""":class:`Federation`, the assignment of samples to peers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from p2pfl.data.dataset import Dataset, IntArray
from p2pfl.data.sources import nearest
from p2pfl.errors import DataError


class Sizes(NamedTuple):
    """Numbers of samples of a peer, by part."""

    train: int
    validation: int
    test: int


@dataclass(frozen=True, eq=False)
class Elsewhere:
    """Numbers of samples that other processes hold.

    Attributes
    ----------
    sizes
        Numbers of samples of all peers of the run.
    common
        True if all of them have the same test part.
    """

    sizes: Mapping[str, Sizes]
    common: bool


@dataclass(frozen=True, eq=False)
class Federation:
    """Positions of each peer's samples in one data set.

    Parameters
    ----------
    dataset
        Samples of all local peers.
    train, validation, test
        Positions of each peer's samples, sorted. With a common test part all peers hold the same array.
    elsewhere
        What is known of peers whose samples other processes hold; ``None`` if there are none.

    Examples
    --------
    >>> data = Dataset(torch.zeros(3, 1), torch.tensor([0, 0, 1]), classes=2)
    >>> own = {"ada": np.array([0, 1]), "bob": np.array([2])}
    >>> Federation(data, own, own, own).samples(["ada", "bob"])
    tensor([2, 1])
    """

    dataset: Dataset
    train: Mapping[str, IntArray]
    validation: Mapping[str, IntArray]
    test: Mapping[str, IntArray]
    elsewhere: Elsewhere | None = None

    @property
    def peers(self) -> tuple[str, ...]:
        """Names of the local peers, sorted."""
        return tuple(sorted(self.train))

    def of(self, *peers: str) -> "Federation":
        """Return the federation of only these peers, on the same data set."""
        for peer in peers:
            if peer not in self.train:
                raise DataError(f'peer "{peer}" has no data; {nearest(peer, self.train)}')
        parts = ({peer: part[peer] for peer in sorted(peers)} for part in (self.train, self.validation, self.test))
        train, validation, test = parts
        return Federation(self.dataset, train, validation, test)

    def pooled(self, name: str = "pooled") -> "Federation":
        """Return a federation of one peer that holds the samples of all."""
        train, validation, test = ({name: self._union(part)} for part in (self.train, self.validation, self.test))
        return Federation(self.dataset, train, validation, test)

    def _union(self, parts: Mapping[str, IntArray]) -> IntArray:
        """Return the positions that parts contain, sorted, each once."""
        contained = np.zeros(len(self.dataset.targets), bool)
        for part in {id(part): part for part in parts.values()}.values():  # peers may share one array
            contained[part] = True
        return np.flatnonzero(contained)

    def samples(self, peers: Sequence[str]) -> torch.Tensor:
        """Return the number of training samples of each of these peers, ``[R]`` int64."""
        return torch.tensor([self.sizes(peer).train for peer in peers], dtype=torch.int64)  # [R]

    def sizes(self, peer: str) -> Sizes:
        """Return the numbers of samples of a peer, also of one whose samples another process holds."""
        if self.elsewhere is not None:
            return self.elsewhere.sizes[peer]
        return Sizes(*(len(part[peer]) for part in (self.train, self.validation, self.test)))

    @property
    def validates(self) -> bool:
        """True if some peer of the run has samples in its validation part."""
        if self.elsewhere is not None:
            return any(sizes.validation for sizes in self.elsewhere.sizes.values())
        return any(len(part) for part in self.validation.values())

    @property
    def common(self) -> bool:
        """True if all peers of the run have the same test part."""
        if self.elsewhere is not None:
            return self.elsewhere.common
        return len({id(part) for part in self.test.values()}) == 1


def nothing(peers: Sequence[str]) -> Federation:
    """Return a federation of peers of whose data nobody knows anything but their owners.

    Examples
    --------
    >>> nothing(["ada"]).samples(["ada"])
    tensor([0])
    """
    parts = {peer: np.empty(0, dtype=np.int64) for peer in sorted(peers)}
    return Federation(Dataset(torch.zeros(1, 0), torch.zeros(1), None), parts, parts, parts)


def describe(federation: Federation) -> dict[str, Any]:
    r"""Describe how the training parts of the peers differ.

    Returns
    -------
    dict
        ``peers``, ``samples`` (min, median and max per peer), and for classes also ``classes_per_peer``
        (likewise) and ``label_distance``: the mean over peers of the total variation
        :math:`\frac12 \sum_c |p_{kc} - p_c|` between its label distribution and the pooled one. It is 0 where
        all peers are alike, and approaches 1 the less they share. Both are ``None`` for regression.

    Examples
    --------
    >>> data = Dataset(torch.zeros(4, 1), torch.tensor([0, 0, 1, 1]), classes=2)
    >>> own = {"ada": np.array([0, 1]), "bob": np.array([2, 3])}
    >>> describe(Federation(data, own, own, own))["label_distance"]
    0.5
    """
    parts = [federation.train[peer] for peer in federation.peers]
    facts = {
        "peers": len(parts),
        "samples": _spread([len(part) for part in parts]),
        "classes_per_peer": None,
        "label_distance": None,
    }
    classes = federation.dataset.classes
    if classes is not None:
        counts = np.stack([federation.dataset.counts(part) for part in parts])  # [N, C]
        own = counts / counts.sum(1, keepdims=True)
        pooled = counts.sum(0) / counts.sum()  # [C]
        facts["classes_per_peer"] = _spread((counts > 0).sum(1).tolist())
        facts["label_distance"] = float(np.abs(own - pooled).sum(1).mean() / 2)
    return facts


def _spread(numbers: Sequence[int]) -> dict[str, float]:
    return {"min": min(numbers), "median": float(np.median(numbers)), "max": max(numbers)}
