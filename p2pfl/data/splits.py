"""Splits: ways to partition one training part among the peers.

Every split takes the targets of the training part and gives each peer its positions in it, sorted. The parts are a
partition, and every peer has at least one sample. ``peers`` are sorted first, so that their order does not matter.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from p2pfl.core.draws import draw
from p2pfl.core.errors import DataError
from p2pfl.data.dataset import FloatArray, IntArray

Targets = npt.NDArray[Any]
Parts = dict[str, IntArray]


def iid(targets: Targets, *, peers: Sequence[str], seed: int) -> Parts:
    """Shuffle the samples and deal them in equal parts; sizes differ by one at most.

    Examples
    --------
    >>> {peer: len(part) for peer, part in iid(np.zeros(5), peers=["ada", "bob"], seed=7).items()}
    {'ada': 3, 'bob': 2}
    """
    _check_enough(len(targets), len(peers))
    order = draw(seed, "split").permutation(len(targets))
    return _named(peers, np.array_split(order, len(peers)))


def dirichlet(targets: Targets, *, peers: Sequence[str], seed: int, alpha: float) -> Parts:
    r"""Split every class by its own Dirichlet draw over the peers.

    For class c, :math:`p_c \sim \mathrm{Dir}(\alpha, \dots, \alpha)` over the N peers; peer k
    gets the shuffled samples of the class from :math:`\lfloor n_c \sum_{j<k} p_{cj} \rfloor` to
    :math:`\lfloor n_c \sum_{j \le k} p_{cj} \rfloor`. A small alpha gives few classes per peer, a large one
    equal parts.
    A peer without samples takes one from the peer that has most at the time, so the draw always ends; redrawing until
    all peers have some would not, for many peers.

    The draw is made of independent Gamma variates :math:`g_{ck} / \sum_j g_{cj}`, those of each peer by the key of its
    name, in logarithms because Gamma(alpha) underflows for small alpha:
    :math:`\log g_\alpha = \log g_{\alpha + 1} + \log(u) / \alpha` with u uniform.

    References
    ----------
    Yurochkin et al. Bayesian nonparametric federated learning of neural networks. ICML 2019, arXiv:1905.12022.
    """
    if not 0 < alpha < np.inf:
        raise DataError(f"alpha must be above 0, but it is {alpha}; 0.1 is very uneven, 100 nearly iid")
    if targets.dtype.kind == "f":
        raise DataError(
            "the split by Dirichlet draws needs classes, but the targets are numbers; use iid, shards or power_law"
        )
    _check_enough(len(targets), len(peers))
    names = sorted(peers)
    labels = np.unique(targets, return_inverse=True)[1]
    sizes = np.bincount(labels)  # [C]
    logs = np.stack([_log_gamma(alpha, len(sizes), seed=seed, peer=peer) for peer in names])  # [N, C]
    shares = np.exp(logs - logs.max(0))
    ends = np.floor(shares.cumsum(0) / shares.sum(0) * sizes).astype(np.int64)  # [N, C]
    ends[-1] = sizes
    order = draw(seed, "split").permutation(len(targets))
    pieces: list[list[IntArray]] = [[] for _ in names]
    for c in range(len(sizes)):
        members = order[labels[order] == c]  # [n_c]
        for own, piece in zip(pieces, np.split(members, ends[:-1, c]), strict=True):
            own.append(piece)
    parts = [np.concatenate(own) for own in pieces]
    _fill_empty(parts)
    return _named(names, parts)


def shards(targets: Targets, *, peers: Sequence[str], seed: int, shards_per_peer: int) -> Parts:
    """Sort by target, cut into equal shards, and deal the same number of shards to each peer.

    With two shards a peer sees about two classes.

    References
    ----------
    McMahan et al. Communication-efficient learning of deep networks from
    decentralized data. AISTATS 2017, arXiv:1602.05629.
    """
    if shards_per_peer < 1:
        raise DataError(f"each peer needs at least 1 shard, but shards_per_peer is {shards_per_peer}; 2 is usual")
    count = len(peers) * shards_per_peer
    if count > len(targets):
        raise DataError(
            f"{len(targets)} training samples are too few for {len(peers)} x {shards_per_peer} shards; use "
            "fewer peers or shards"
        )
    rng = draw(seed, "split")
    order = rng.permutation(len(targets))
    ordered = order[np.argsort(targets[order], kind="stable")]  # [n], shuffled within a class
    cut = np.array_split(ordered, count)
    dealt = rng.permutation(count).reshape(len(peers), shards_per_peer)  # [N, shards]
    return _named(peers, [np.concatenate([cut[shard] for shard in own]) for own in dealt])


def power_law(targets: Targets, *, peers: Sequence[str], seed: int, exponent: float) -> Parts:
    r"""Deal shuffled samples in unequal parts: the r-th largest is proportional to :math:`r^{-\text{exponent}}`.

    Each peer gets one sample first; the law divides the rest, rounded by largest remainders. The rank of each peer is
    drawn. Exponent 0 gives equal parts, 1 Zipf's law.
    """
    if not 0 <= exponent < np.inf:
        raise DataError(f"the exponent must be at least 0, but it is {exponent}; 0 gives equal parts, 1 Zipf's law")
    _check_enough(len(targets), len(peers))
    rng = draw(seed, "split")
    weights = (1.0 + rng.permutation(len(peers))) ** -exponent  # [N]
    exact = weights / weights.sum() * (len(targets) - len(peers))
    sizes = exact.astype(np.int64)
    short = len(targets) - len(peers) - int(sizes.sum())
    sizes[np.argsort(sizes - exact, kind="stable")[:short]] += 1
    order = rng.permutation(len(targets))
    return _named(peers, np.split(order, (sizes + 1).cumsum()[:-1]))


def column(targets: Targets, *, peers: Sequence[str], values: npt.NDArray[Any]) -> Parts:
    """Give each peer the samples of one value of a column, such as a hospital.

    Values and peers are both sorted, so that peers named like the values get their own; if there are more values than
    peers, they are dealt in turn.
    """
    _check_enough(len(targets), len(peers))
    inverse = np.unique(values, return_inverse=True)[1]
    groups = int(inverse.max()) + 1
    if groups < len(peers):
        raise DataError(
            f"the column has {groups} different values in the training part, fewer than {len(peers)} peers; use "
            f"at most {groups} peers"
        )
    return _named(peers, [np.flatnonzero(inverse % len(peers) == k) for k in range(len(peers))])


SPLITS: Mapping[str, Callable[..., Parts]] = {
    "iid": iid,
    "dirichlet": dirichlet,
    "shards": shards,
    "power_law": power_law,
    "column": column,
}
"""Splits by name in the experiment file."""


def hold_out(targets: Targets, *, fraction: float, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Split positions into ``(kept, held)``, both sorted, with the share ``fraction`` of every class held.

    Of a class with two or more samples, at least one stays and one is held. Numbers count as one class.
    """
    labels = np.zeros(len(targets), np.int64) if targets.dtype.kind == "f" else targets
    order = rng.permutation(len(targets))
    aside = np.zeros(len(targets), bool)
    if fraction:
        for label in np.unique(labels):
            members = order[labels[order] == label]
            count = int(np.rint(len(members) * fraction))
            aside[members[: min(max(count, 1), len(members) - 1)]] = True
    return np.flatnonzero(~aside), np.flatnonzero(aside)


def _check_enough(samples: int, peers: int) -> None:
    if samples < peers:
        raise DataError(
            f"{samples} training samples are too few for {peers} peers; use at most {samples} peers or a larger "
            "data set"
        )


def _named(peers: Sequence[str], parts: Iterable[IntArray]) -> Parts:
    return {peer: np.sort(part) for peer, part in zip(sorted(peers), parts, strict=True)}


def _log_gamma(alpha: float, size: int, *, seed: int, peer: str) -> FloatArray:
    """Return logarithms of Gamma(alpha) variates, finite however small alpha is."""
    rng = draw(seed, "dirichlet", peer)
    above = rng.standard_gamma(alpha + 1, size)
    logs: FloatArray = np.log(above) + np.log1p(-rng.random(size)) / alpha
    return logs


def _fill_empty(parts: list[IntArray]) -> None:
    """Move one sample from the largest part to each empty part, in place."""
    largest = [(-len(part), k) for k, part in enumerate(parts)]
    heapq.heapify(largest)
    for k, part in enumerate(parts):
        if not len(part):
            size, rich = largest[0]
            parts[k], parts[rich] = parts[rich][-1:], parts[rich][:-1]
            heapq.heapreplace(largest, (size + 1, rich))
