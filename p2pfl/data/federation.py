""":class:`Federation`, the assignment of samples to peers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np

from p2pfl.core.errors import DataError
from p2pfl.core.imports import kind_of
from p2pfl.core.tensors import torch
from p2pfl.data.dataset import Dataset, FloatArray, IntArray
from p2pfl.data.parties import Parties
from p2pfl.data.sources import nearest

PartName = Literal["train", "validation", "test"]
PARTS: tuple[PartName, ...] = get_args(PartName)
"""Parts of a federation."""


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
    notes
        By local peer, sentences on its table for its owner alone.
    keys
        By local peer, private keys of its people, if peers count those that several have in common.
    parties
        Peers with different columns of the same people, who have no samples in the data set; ``None`` if all peers have
        the same columns.

    Examples
    --------
    >>> data = Dataset(torch.zeros(3, 1), torch.tensor([0, 0, 1]), classes=2)
    >>> own = {"ada": np.array([0, 1]), "bob": np.array([2])}
    >>> Federation(data, own, own, own).samples(["ada", "bob"])
    tensor([2, 1])
    """

    lazy: ClassVar[bool] = False
    """True if training samples are loaded only where their peers train."""

    dataset: Dataset
    train: Mapping[str, IntArray]
    validation: Mapping[str, IntArray]
    test: Mapping[str, IntArray]
    elsewhere: Elsewhere | None = None
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    parties: Parties | None = None

    @property
    def peers(self) -> tuple[str, ...]:
        """Names of the local peers, sorted."""
        return tuple(sorted(self.train))

    def of(self, *peers: str) -> Federation:
        """Return the federation of only these peers, on the same data set."""
        for peer in peers:
            if peer not in self.train:
                raise DataError(f'peer "{peer}" has no data; {nearest(peer, self.train)}')
        if len({*peers}) == len(self.train):
            return Federation(self.dataset, self.train, self.validation, self.test)
        few = sorted(peers)
        parts = (dict(zip(few, map(part.__getitem__, few), strict=True)) for part in self._parts)
        train, validation, test = parts
        return Federation(self.dataset, train, validation, test)

    def pooled(self, name: str = "pooled") -> Federation:
        """Return a federation of one peer that holds the samples of all."""
        train, validation, test = ({name: self._union(part)} for part in self._parts)
        return Federation(self.dataset, train, validation, test)

    def _union(self, parts: Mapping[str, IntArray]) -> IntArray:
        """Return the positions that parts contain, sorted, each once."""
        contained = np.zeros(len(self.dataset.targets), bool)
        contained[_joined(_distinct(parts))] = True
        return np.flatnonzero(contained)

    @property
    def _parts(self) -> tuple[Mapping[str, IntArray], ...]:
        return self.train, self.validation, self.test

    def samples(self, peers: Sequence[str]) -> torch.Tensor:
        """Return the number of training samples of each of these peers, ``[R]`` int64."""
        return torch.from_numpy(self.counts("train", peers))

    def counts(self, part: PartName, peers: Sequence[str]) -> IntArray:
        """Return the number of samples of each of these peers in a part, ``[R]``.

        They may be a million, so that no function of Python is called for each.
        """
        if self.elsewhere is not None:
            return np.array([getattr(self.elsewhere.sizes[peer], part) for peer in peers], np.int64)
        return np.fromiter(map(len, map(getattr(self, part).__getitem__, peers)), np.int64, len(peers))

    def sizes(self, peer: str) -> Sizes:
        """Return the numbers of samples of a peer, also of one whose samples another process holds."""
        if self.elsewhere is not None:
            return self.elsewhere.sizes[peer]
        return Sizes(*(len(part[peer]) for part in self._parts))

    @property
    def largest(self) -> int:
        """Largest number of training samples of a local peer."""
        return max(map(len, self.train.values()), default=1)

    @property
    def validates(self) -> bool:
        """True if some peer of the run has samples in its validation part."""
        if self.elsewhere is not None:
            return any(sizes.validation for sizes in self.elsewhere.sizes.values())
        return any(map(len, self.validation.values()))

    @property
    def tests(self) -> bool:
        """True if some peer of the run has samples in its test part."""
        if self.elsewhere is not None:
            return any(sizes.test for sizes in self.elsewhere.sizes.values())
        return any(map(len, self.test.values()))

    @property
    def common(self) -> bool:
        """True if all peers of the run have the same test part."""
        if self.elsewhere is not None:
            return self.elsewhere.common
        return len(_distinct(self.test)) == 1


def no_data(peers: Sequence[str]) -> Federation:
    """Return a federation of peers of whose data nobody knows anything but their owners.

    Examples
    --------
    >>> no_data(["ada"]).samples(["ada"])
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


def clash(parts: Mapping[str, IntArray]) -> tuple[int, str, str] | None:
    """Return the first sample that parts contain twice, and the two peers, which may be one; ``None`` if there is none.

    Examples
    --------
    >>> clash({"ada": np.array([0, 2]), "bob": np.array([1, 2])})
    (2, 'ada', 'bob')
    """
    peers = sorted(parts)
    arrays = [*map(parts.__getitem__, peers)]
    positions = _joined(arrays)
    order = np.argsort(positions, kind="stable")
    twice = np.flatnonzero(np.diff(positions[order]) == 0)
    if not len(twice):
        return None
    owners = np.repeat(np.arange(len(arrays)), [*map(len, arrays)])
    one, other = order[twice[0]], order[twice[0] + 1]
    return int(positions[one]), peers[owners[one]], peers[owners[other]]


def check_positions(federation: Federation, *, apart: bool = True) -> None:
    """Check a federation that a user has put together.

    Parameters
    ----------
    federation
        The federation.
    apart
        True if no sample may be both for training and for validation or test, but where a peer is scored on all of its
        training samples.

    Raises
    ------
    DataError
        A part lacks a peer, or has positions that are no whole numbers or outside of the data set; two peers train on
        one sample, or one sample is both for training and for validation or test.
    """
    if federation.lazy:  # its positions follow from sizes
        return
    if not isinstance(federation.dataset, Dataset):
        kind = type(federation.dataset).__name__
        raise DataError(f"the data set of the federation is of type {kind}; give a p2pfl.data.Dataset")
    for name in PARTS:
        _check_part(name, getattr(federation, name), federation)
    if shared := clash(federation.train):
        sample, one, other = shared
        if one == other:
            raise DataError(f'the training part of "{one}" contains sample {sample} twice; name each position once')
        raise DataError(
            f'the training parts contain sample {sample} for "{one}" and for "{other}"; give each sample to one peer '
            "at most"
        )
    if apart:
        _check_apart(federation)


def _check_apart(federation: Federation) -> None:
    """Check that no sample is both for training and for scores, but where all training samples of a peer are scored."""
    trained = np.zeros(len(federation.dataset), bool)
    trained[_joined(federation.train.values())] = True
    for name in PARTS[1:]:
        part = getattr(federation, name)
        leaking = {id(positions) for positions in _distinct(part) if trained[positions].any()}
        for peer, positions in part.items() if leaking else ():
            if id(positions) in leaking and not np.isin(federation.train[peer], positions).all():
                leaked = np.flatnonzero(trained[positions])
                raise DataError(
                    f'the {name} part of "{peer}" contains sample {positions[leaked[0]]}, which is in a training part, '
                    "and not all training samples of the peer; take it out of one of them"
                )


def _check_part(name: str, part: Mapping[str, Any], federation: Federation) -> None:
    """Check the peers of a part, and that positions are whole numbers within the data set."""
    if part.keys() != federation.train.keys() and (odd := sorted({*map(str, part)} ^ {*map(str, federation.train)})):
        raise DataError(
            f"the {name} part and the training part of the federation do not have the same peers, but differ in "
            f'"{odd[0]}"; give both the same peers, an empty array to a peer without samples'
        )

    def owner(array: object) -> str:
        return next(peer for peer, positions in part.items() if positions is array)

    arrays = _distinct(part)
    for positions in arrays:
        if not isinstance(positions, np.ndarray) or positions.ndim != 1 or positions.dtype not in (np.int64, np.int32):
            kind = (
                f"a {positions.ndim}-dimensional array of {positions.dtype}"
                if isinstance(positions, np.ndarray)
                else kind_of(positions)
            )
            raise DataError(
                f'the {name} part of "{owner(positions)}" is {kind}; give positions as a list of whole numbers in '
                "np.array(positions, dtype=np.int64)"
            )
    count, joined = len(federation.dataset), _joined(arrays)
    if len(joined) and not 0 <= joined.min() <= joined.max() < count:
        outside = ((each, each[(each < 0) | (each >= count)]) for each in arrays)
        array, wrong = next((each, wrong) for each, wrong in outside if len(wrong))
        raise DataError(
            f'the {name} part of "{owner(array)}" contains position {wrong[0]}, and the data set has the positions 0 '
            f"to {count - 1}; count within the data set"
        )


def _distinct(part: Mapping[str, Any]) -> list[Any]:
    """Return the arrays of a part, each once: peers may share one."""
    arrays = part.values()
    return [*dict(zip(map(id, arrays), arrays, strict=True)).values()]


def _joined(arrays: Iterable[IntArray]) -> IntArray:
    """Return all positions that arrays contain, one after the other."""
    return np.concatenate([np.empty(0, np.int64), *arrays])


BLOCK = 1024
"""Samples that are scaled at once, in double precision."""


def totals(federation: Federation, peers: Sequence[str]) -> torch.Tensor:
    r"""Return the sums over each peer's training part, ``[R, 1 + C + F]`` float64.

    They are its number of samples, its number of samples of each of C classes (none for regression), and the sums
    :math:`\sum_i x_i` of the F features, flattened.

    Examples
    --------
    >>> import numpy as np
    >>> from p2pfl.data import Dataset
    >>> data = Dataset(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 1, 1]), classes=2)
    >>> own = {"ada": np.array([0, 1]), "bob": np.array([2])}
    >>> totals(Federation(data, own, own, own), ["ada", "bob"])
    tensor([[2., 1., 1., 4.],
            [1., 0., 1., 5.]], dtype=torch.float64)
    """
    return torch.stack([_totals(federation, peer) for peer in peers])  # [R, 1 + C + F]


def squares(federation: Federation, peers: Sequence[str], *, mean: torch.Tensor) -> torch.Tensor:
    r"""Return the squared deviations of each peer's training part, :math:`\sum_i (x_i - \mu)^2`, ``[R, F]`` float64.

    Parameters
    ----------
    federation, peers
        Data, and the names of R peers.
    mean
        :math:`\mu`, ``[R, F]``: the mean that each peer knows.
    """
    features = federation.dataset.features.flatten(1)  # [n, F]
    return torch.stack(
        [
            (features[torch.from_numpy(federation.train[peer])].double() - mean[row]).square().sum(0)
            for row, peer in enumerate(peers)
        ]
    )  # [R, F]


def largest_squares(federation: Federation, peers: Sequence[str]) -> torch.Tensor:
    r"""Return an upper bound of :func:`squares`, :math:`n (2 \max_i |x_i|)^2`, ``[R, F]``.

    It holds for every mean that is no larger than the features of the peer.

    Parameters
    ----------
    federation, peers
        Data, and the names of R peers.
    """
    features = federation.dataset.features.flatten(1)  # [n, F]
    own = [features[torch.from_numpy(federation.train[peer])].double().abs() for peer in peers]
    return torch.stack([len(each) * (2 * each.max(0).values).square() for each in own])  # [R, F]


def target_totals(federation: Federation, peers: Sequence[str]) -> torch.Tensor:
    r"""Return the test samples of each peer, and :math:`\sum_i y_i` and :math:`\sum_i y_i^2` over them, ``[R, 3]``."""
    targets = federation.dataset.targets.double()
    own = [targets[torch.from_numpy(federation.test[peer])] for peer in peers]
    return torch.stack([torch.stack([y.new_tensor(len(y)), y.sum(), y.square().sum()]) for y in own])  # [R, 3]


def standardise(federation: Federation, *, mean: torch.Tensor, deviation: torch.Tensor) -> Federation:
    r"""Return the same samples with each feature as :math:`(x - \mu) / \sigma`.

    Parameters
    ----------
    federation
        Data to scale; it is not changed.
    mean, deviation
        ``[F]``, one number for each feature, flattened.

    Examples
    --------
    >>> import numpy as np
    >>> from p2pfl.data import Dataset
    >>> data = Dataset(torch.tensor([[1.0], [5.0]]), torch.tensor([0, 1]), classes=2)
    >>> own = {"ada": np.array([0, 1])}
    >>> scaled = standardise(Federation(data, own, own, own), mean=torch.tensor([3.0]), deviation=torch.tensor([2.0]))
    >>> scaled.dataset.features.flatten().tolist()
    [-1.0, 1.0]
    """
    features = federation.dataset.features
    description = federation.dataset.description.scaled(mean=_numbers(mean), deviation=_numbers(deviation))
    kind = features.dtype if features.is_floating_point() else torch.float32
    scaled = torch.empty_like(features, dtype=kind, memory_format=torch.contiguous_format)
    for part, target in zip(torch.split(features, BLOCK), torch.split(scaled, BLOCK), strict=True):
        target.flatten(1).copy_((part.flatten(1).double() - mean.double()) / deviation.double())  # [BLOCK, F]
    dataset = replace(federation.dataset, features=scaled, description=description)
    return replace(federation, dataset=dataset)


def _numbers(values: torch.Tensor) -> FloatArray:
    numbers: FloatArray = values.double().cpu().numpy()
    return numbers


def _totals(federation: Federation, peer: str) -> torch.Tensor:
    """Return the totals of one peer, ``[1 + C + F]``."""
    own = torch.from_numpy(federation.train[peer])
    dataset = federation.dataset
    counts = torch.from_numpy(dataset.counts(federation.train[peer]))  # [C]
    sums = dataset.features[own].flatten(1).double().sum(0)  # [F]
    return torch.cat([torch.tensor([len(own)]).double(), counts.double(), sums])
