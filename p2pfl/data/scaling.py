"""What peers add up of their data, and features on one scale."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from p2pfl.data.dataset import FloatArray
from p2pfl.data.federation import Federation


def totals(federation: Federation, peers: Sequence[str]) -> torch.Tensor:
    r"""What each peer's training part adds up to, ``[R, 1 + C + F]`` float64.

    Its samples, its samples of each of C classes (none where a number is predicted), and the sums
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
    r"""What each peer's training part deviates, :math:`\sum_i (x_i - \mu)^2`, ``[R, F]`` float64.

    Parameters
    ----------
    federation, peers
        Whose data, R peers.
    mean
        :math:`\mu`, ``[R, F]``: what each peer holds to be the mean.
    """
    features = federation.dataset.features.flatten(1)  # [n, F]
    return torch.stack(
        [
            (features[torch.from_numpy(federation.train[peer])].double() - mean[row]).square().sum(0)
            for row, peer in enumerate(peers)
        ]
    )  # [R, F]


def largest_squares(federation: Federation, peers: Sequence[str]) -> torch.Tensor:
    r"""Return a bound of :func:`squares`, :math:`n (2 \max_i |x_i|)^2`, ``[R, F]``.

    It holds for every mean that is no larger than a peer's own features.

    Parameters
    ----------
    federation, peers
        Whose data, R peers.
    """
    features = federation.dataset.features.flatten(1)  # [n, F]
    own = [features[torch.from_numpy(federation.train[peer])].double().abs() for peer in peers]
    return torch.stack([len(each) * (2 * each.max(0).values).square() for each in own])  # [R, F]


def target_totals(federation: Federation, peers: Sequence[str]) -> torch.Tensor:
    r"""Samples of each peer's test part, and :math:`\sum_i y_i` and :math:`\sum_i y_i^2` over it, ``[R, 3]``."""
    targets = federation.dataset.targets.double()
    own = [targets[torch.from_numpy(federation.test[peer])] for peer in peers]
    return torch.stack([torch.stack([y.new_tensor(len(y)), y.sum(), y.square().sum()]) for y in own])  # [R, 3]


def standardised(federation: Federation, *, mean: torch.Tensor, deviation: torch.Tensor) -> Federation:
    r"""The same samples with each feature as :math:`(x - \mu) / \sigma`.

    Parameters
    ----------
    federation
        Stays as it is.
    mean, deviation
        ``[F]``, one number for each feature, flattened.

    Examples
    --------
    >>> import numpy as np
    >>> from p2pfl.data import Dataset
    >>> data = Dataset(torch.tensor([[1.0], [5.0]]), torch.tensor([0, 1]), classes=2)
    >>> own = {"ada": np.array([0, 1])}
    >>> scaled = standardised(Federation(data, own, own, own), mean=torch.tensor([3.0]), deviation=torch.tensor([2.0]))
    >>> scaled.dataset.features.flatten().tolist()
    [-1.0, 1.0]
    """
    features = federation.dataset.features
    scaled = (features.flatten(1).double() - mean.double()) / deviation.double()  # [n, F]
    description = federation.dataset.description.scaled(mean=_numbers(mean), deviation=_numbers(deviation))
    dataset = replace(federation.dataset, features=scaled.to(features.dtype).view_as(features), description=description)
    return replace(federation, dataset=dataset)


def _numbers(values: torch.Tensor) -> FloatArray:
    numbers: FloatArray = values.double().cpu().numpy()
    return numbers


def _totals(federation: Federation, peer: str) -> torch.Tensor:
    """One peer's, ``[1 + C + F]``."""
    own = torch.from_numpy(federation.train[peer])
    dataset = federation.dataset
    counts = (
        torch.zeros(0) if dataset.classes is None else torch.bincount(dataset.targets[own], minlength=dataset.classes)
    )
    sums = dataset.features[own].flatten(1).double().sum(0)  # [F]
    return torch.cat([torch.tensor([len(own)]).double(), counts.double(), sums])
