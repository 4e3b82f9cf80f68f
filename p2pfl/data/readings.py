"""Readings of data that grow: which rows are new, which were there before, and how the new ones differ."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from p2pfl.core.tensors import torch
from p2pfl.data.dataset import IntArray
from p2pfl.data.federation import PARTS, Federation

Digests = npt.NDArray[np.uint64]
"""Digests of rows, ``[n]``."""

BINS = 10
"""Bins of equal content of the population stability index."""

MOST_FEATURES = 512
"""Features above which a checkpoint has no :func:`share_table`, which would outweigh the model."""

SMALLEST_SHARE = 1e-4
"""Share that an empty bin counts as, so that the index stays finite."""


@dataclass(frozen=True)
class DataPosition:
    """Rows that a peer has after a reading, by which a later incarnation finds them again.

    Attributes
    ----------
    round
        Round before which they were read.
    rows
        Number of rows.
    digest
        Digest of all rows, in their order.
    judged
        Round before which the rows changed that judge its models.
    shares
        How the numbers of each feature were distributed, as :func:`share_table` writes it; empty without that.
    """

    round: int
    rows: int
    digest: str
    judged: int = 0
    shares: bytes = b""


@dataclass(frozen=True)
class NewRows:
    """Rows that came with a reading.

    Attributes
    ----------
    rows
        Their positions, ``[m]``.
    appended
        True if all earlier rows are there, in front of the new ones.
    drift
        Population stability index of each feature, ``[F]``, of the new rows against the earlier ones; empty if either
        are missing.
    """

    rows: IntArray
    appended: bool
    drift: npt.NDArray[np.float64]


def digest_rows(features: torch.Tensor, targets: torch.Tensor, *, key: bytes = b"") -> Digests:
    """Return a digest of each row: equal for equal rows, whatever their place.

    Examples
    --------
    >>> first, second, third = digest_rows(torch.tensor([[1.0], [2.0], [1.0]]), torch.tensor([0, 0, 0]))
    >>> bool(first == third), bool(first == second)
    (True, False)
    """
    raw = np.concatenate([_bytes(each) for each in (features, targets)], axis=1)  # [n, bytes]
    words = np.zeros((len(raw), -(-raw.shape[1] // 8) * 8), np.uint8)
    words[:, : raw.shape[1]] = raw
    first = np.frombuffer(hashlib.blake2b(key, digest_size=8).digest(), "<u8")
    digests: Digests = np.broadcast_to(first, len(raw)).astype(np.uint64)
    for word in np.ascontiguousarray(words).view("<u8").T:
        digests = _mixed(digests ^ word)
    return digests


def _mixed(words: Digests) -> Digests:
    """Return the next numbers of the generator SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    return words ^ (words >> np.uint64(31))


def _bytes(values: torch.Tensor) -> npt.NDArray[np.uint8]:
    """Return the bytes of each row, ``[n, bytes]``."""
    rows = values.detach().cpu().contiguous().reshape(len(values), -1)
    return rows.view(torch.uint8).numpy() if rows.numel() else np.zeros((len(values), 0), np.uint8)


def divide_by_digest(
    features: torch.Tensor, targets: torch.Tensor, *, seed: int, test: float, validation: float
) -> tuple[IntArray, IntArray, IntArray]:
    """Return the positions of the rows for training, validation and test, which follow from each row alone.

    So a row stays in its part however many rows come and go around it, and equal rows are never in two parts.

    Parameters
    ----------
    features, targets
        Rows, ``[n, *shape]`` and ``[n, ...]``.
    seed
        Seed of the division.
    test
        Share of the rows for the test.
    validation
        Share of the others for validation.

    Examples
    --------
    >>> rows = torch.arange(2000.0).reshape(1000, 2)
    >>> train, validation, held = divide_by_digest(rows, rows[:, 0], seed=7, test=0.2, validation=0.0)
    >>> len(train), len(validation), len(held)
    (801, 0, 199)
    >>> shorter = divide_by_digest(rows[:500], rows[:500, 0], seed=7, test=0.2, validation=0.0)
    >>> bool((shorter[2] == held[held < 500]).all())
    True
    """
    digests = digest_rows(features, targets, key=f"part {seed}".encode())
    share = digests / 2.0**64  # [n], in [0, 1]
    held = share < test
    judged = ~held & (share < test + (1 - test) * validation)
    return np.flatnonzero(~held & ~judged), np.flatnonzero(judged), np.flatnonzero(held)


def rows_of(federation: Federation, peer: str) -> IntArray:
    """Return the positions of all rows of a peer, in their order."""
    return np.sort(np.concatenate([getattr(federation, name)[peer] for name in PARTS]))


def digests_of(federation: Federation, peer: str) -> Digests:
    """Return a digest of each row of a peer, in their order."""
    rows = torch.from_numpy(rows_of(federation, peer))
    return digest_rows(federation.dataset.features[rows], federation.dataset.targets[rows])


def judging_rows(federation: Federation, peer: str, digests: Digests) -> Digests:
    """Return, out of the digests of all rows of a peer, those of the rows that judge its models."""
    part = federation.validation[peer] if len(federation.validation[peer]) else federation.train[peer]
    return digests[np.searchsorted(rows_of(federation, peer), part)]


def position_of(digests: Digests, *, round: int) -> DataPosition:
    """Return the position after a reading before a round, given the digests of its rows."""
    return DataPosition(round, len(digests), hashlib.sha256(digests.tobytes()).hexdigest()[:32])


def share_table(federation: Federation, peer: str) -> bytes:
    """Return the bins of each feature of the rows of a peer, 80 bytes each: what a later reading is compared with.

    A device that slept has no other trace of rows that have left its window by then. Empty without rows, and where
    there are more than :data:`MOST_FEATURES` features.
    """
    rows = _features(federation)[rows_of(federation, peer)]
    if not len(rows) or rows.shape[1] > MOST_FEATURES:
        return b""
    return np.stack([EqualBins.of(column).packed() for column in rows.T]).astype("<f4").tobytes()


def drift_since(shares: bytes, federation: Federation, peer: str) -> npt.NDArray[np.float64]:
    """Return the population stability index of each feature, ``[F]``, of a peer's rows against those of a table.

    Empty if either are missing, or the table has other features.
    """
    rows = _features(federation)[rows_of(federation, peer)]
    table = np.frombuffer(shares, "<f4").astype(np.float64).reshape(-1, 2 * BINS)
    if not len(rows) or len(table) != rows.shape[1]:
        return np.zeros(0)
    return np.array([EqualBins.unpacked(each).index(column) for each, column in zip(table, rows.T, strict=True)])


def _features(federation: Federation) -> npt.NDArray[np.floating]:
    features = federation.dataset.features
    numbers: npt.NDArray[np.floating] = features.reshape(len(features), -1).numpy()
    return numbers


def shorten(federation: Federation, peer: str, position: DataPosition) -> Federation | None:
    """Return a federation in which a peer has the first rows alone, as at a position; ``None`` if it had others.

    Parameters
    ----------
    federation
        Data as they are now.
    peer
        Its name.
    position
        Position of an earlier reading.
    """
    digests = digests_of(federation, peer)[: position.rows]
    if position_of(digests, round=position.round).digest != position.digest:
        return None
    first = rows_of(federation, peer)[: position.rows]

    def kept(part: Mapping[str, IntArray]) -> dict[str, IntArray]:
        return {**part, peer: np.intersect1d(part[peer], first)}

    train, validation, test = map(kept, (federation.train, federation.validation, federation.test))
    return replace(federation, train=train, validation=validation, test=test)


def _surplus(new: Digests, old: Digests) -> npt.NDArray[np.bool_]:
    """Return which digests occur more often than among the old ones, the last of equal ones, ``[n]``."""
    order = np.argsort(new, kind="stable")
    ranked, earlier = new[order], np.sort(old)
    place = np.arange(len(new)) - np.searchsorted(ranked, ranked)  # of each among its equals
    known = np.searchsorted(earlier, ranked, side="right") - np.searchsorted(earlier, ranked)
    surplus = np.zeros(len(new), bool)
    surplus[order] = place >= known
    return surplus


def compare_readings(before: Federation, after: Federation, peer: str) -> NewRows:
    """Return which rows of a peer are new, and how they differ from those before."""
    old, new = digests_of(before, peer), digests_of(after, peer)
    appended = len(new) >= len(old) and bool((new[: len(old)] == old).all())
    fresh = np.arange(len(new)) >= len(old) if appended else _surplus(new, old)
    rows = rows_of(after, peer)[fresh]
    drift = np.zeros(0)
    if len(old) and len(rows):
        earlier, later = _features(before)[rows_of(before, peer)], _features(after)[rows]
        pairs = zip(earlier.T, later.T, strict=True)
        drift = np.array([population_stability(one, other) for one, other in pairs])  # [F]
    return NewRows(rows, appended, drift)


def lacks_rows(new: Digests, old: Digests) -> bool:
    """Return whether some of the old rows are gone, other than the first, which leave a window or a reservoir.

    Parameters
    ----------
    new, old
        Digests of all rows, in their order.

    Examples
    --------
    >>> lacks_rows(np.array([1, 2, 3], np.uint64), np.array([3, 1], np.uint64))
    False
    >>> lacks_rows(np.array([1, 2, 3], np.uint64), np.array([1, 4], np.uint64))
    True
    >>> lacks_rows(np.array([2, 3, 4], np.uint64), np.array([1, 2, 3], np.uint64))
    False
    """
    gone = int(_surplus(old, new).sum())
    left = old[gone:]
    return gone > 0 and (not len(left) or bool(_surplus(left, new).any()))


def merge_peers(federations: Mapping[str, Federation]) -> Federation:
    """Return one federation of peers, each with the rows that it has in a federation of its own.

    Parameters
    ----------
    federations
        By peer, a federation that has its rows; all have samples of one kind.
    """
    different = list({id(each): each for each in federations.values()}.values())
    if len(different) == 1:
        return different[0]
    features, targets, start = list[torch.Tensor](), list[torch.Tensor](), 0
    parts: dict[str, dict[str, IntArray]] = {name: {} for name in PARTS}
    for peer, federation in federations.items():
        rows = rows_of(federation, peer)
        features.append(federation.dataset.features[torch.from_numpy(rows)])
        targets.append(federation.dataset.targets[torch.from_numpy(rows)])
        for name in PARTS:
            parts[name][peer] = start + np.searchsorted(rows, getattr(federation, name)[peer])
        start += len(rows)
    dataset = replace(different[0].dataset, features=torch.cat(features), targets=torch.cat(targets))
    notes = {peer: each.notes[peer] for peer, each in federations.items() if peer in each.notes}
    keys = {peer: each.keys[peer] for peer, each in federations.items() if peer in each.keys}
    train, validation, test = (parts[name] for name in PARTS)
    return Federation(dataset, train, validation, test, notes=notes, keys=keys)


def population_stability(before: npt.NDArray[np.floating], after: npt.NDArray[np.floating]) -> float:
    r"""Return the population stability index :math:`\sum_i (q_i - p_i) \ln(q_i / p_i)` of two samples of a number.

    The bins hold equal shares :math:`p_i` of the earlier numbers, as far as these differ. What chance alone adds on
    average, :math:`(B - 1)(1/n + 1/m)` for B bins, is taken off. Below 0.1 a distribution counts as stable, above 0.25
    as changed.

    References
    ----------
    Siddiqi, Credit Risk Scorecards, Wiley 2006, chapter 9. Yurdakul and Naranjo, Statistical properties of the
    population stability index, Journal of Risk Model Validation 14, 2020, for the part of chance.

    Examples
    --------
    >>> calm = np.linspace(0.0, 1.0, 1000)
    >>> round(population_stability(calm, calm), 3), population_stability(calm, calm + 0.3) > 0.25
    (0.0, True)
    """
    return EqualBins.of(before).index(after)


@dataclass(frozen=True)
class EqualBins:
    """Bins of equal content of a sample of a number.

    Attributes
    ----------
    count
        Size of the sample, without numbers that are missing.
    edges, shares
        Between the bins, ``[b - 1]``, and the share of the sample in each, ``[b]``.
    """

    count: int
    edges: npt.NDArray[np.floating]
    shares: npt.NDArray[np.floating]

    @classmethod
    def of(cls, sample: npt.NDArray[np.floating]) -> Self:
        """Return the bins of a sample."""
        sample = sample[~np.isnan(sample)]
        inner = np.quantile(sample, np.linspace(0, 1, BINS + 1)[1:-1]) if len(sample) else np.zeros(0)
        edges = np.unique(inner)
        return cls(len(sample), edges, _shares(sample, edges))

    def packed(self) -> npt.NDArray[np.floating]:
        """Return them as numbers, ``[2 * BINS]``; what is missing is not a number."""
        numbers = np.full(2 * BINS, np.nan)
        numbers[0] = self.count
        numbers[1 : 1 + len(self.edges)] = self.edges
        numbers[BINS : BINS + len(self.shares)] = self.shares
        return numbers

    @classmethod
    def unpacked(cls, numbers: npt.NDArray[np.floating]) -> Self:
        """Return what :meth:`packed` has written."""
        edges, shares = numbers[1:BINS], numbers[BINS:]
        return cls(int(numbers[0]), edges[~np.isnan(edges)], shares[~np.isnan(shares)])

    def index(self, sample: npt.NDArray[np.floating]) -> float:
        """Return the population stability index of another sample."""
        sample = sample[~np.isnan(sample)]
        if not self.count or not len(sample):
            return 0.0
        later = _shares(sample, self.edges)
        chance = len(self.edges) * (1 / self.count + 1 / len(sample))
        return max(0.0, float(((later - self.shares) * np.log(later / self.shares)).sum()) - chance)


def _shares(sample: npt.NDArray[np.floating], edges: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    counts = np.bincount(np.searchsorted(edges, sample, side="left"), minlength=len(edges) + 1)
    return np.maximum(counts / max(len(sample), 1), SMALLEST_SHARE)
