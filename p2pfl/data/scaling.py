"""Sums over the data of each peer, and features on a common scale."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from p2pfl.data.dataset import FloatArray
from p2pfl.data.federation import Federation

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
    for part, place in zip(torch.split(features, BLOCK), torch.split(scaled, BLOCK), strict=True):
        place.flatten(1).copy_((part.flatten(1).double() - mean.double()) / deviation.double())  # [BLOCK, F]
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
