r"""Robust aggregation rules, which replace the weighted average if some neighbours may be Byzantine.

A rule takes the rows that one peer has, its own first, ``[n, P]``, and the weights by which it would mix them,
``[n]`` with sum 1, and returns one row ``[P]``. At most f of the rows (``attackers``), unknown which, are
arbitrary. Distances are computed in double precision, so that rows of the largest numbers do no harm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch

from p2pfl.rows import Rows
from p2pfl.traits import RuleTraits


class Rule(Protocol):
    """Interface of rules that aggregate the models of a peer and its neighbours."""

    traits: ClassVar[RuleTraits]

    @property
    def fewest(self) -> int:
        """Smallest number of rows, including its own, that a peer needs; with fewer it keeps its own."""
        ...

    def __call__(self, rows: Rows, weights: torch.Tensor) -> torch.Tensor:
        """Aggregate ``[n, P]``, the peer's own row first, under weights ``[n]`` (float64) to one row ``[P]``."""
        ...


@dataclass(frozen=True)
class ClippedGossip:
    r"""Gossip averaging in which no neighbour moves the model further than a radius.

    .. math:: x_i \leftarrow \sum_j W_{ij} \left( x_i + \mathrm{clip}(x_j - x_i, \tau_i) \right), \qquad
              \mathrm{clip}(z, \tau) = \min(1, \tau / \lVert z \rVert)\, z

    under the radius of the paper's theorem,

    .. math:: \tau_i^2 = \frac{1}{\delta_i} \sum_{j \in S_i} W_{ij} \lVert x_i - x_j \rVert^2,

    where :math:`\delta_i` is the weight of the attackers, here of the f heaviest neighbours, which is no less. The
    theorem sums over the honest neighbours, which are unknown; here :math:`S_i` is all neighbours except the f with
    the largest terms, whose sum is no larger. Attackers can choose neither number, and move a row by
    at most :math:`\sqrt{\delta_i \sum_{S_i} W_{ij} \lVert x_i - x_j \rVert^2}`. With f = 0 the radius is infinite.

    Parameters
    ----------
    attackers
        f.

    References
    ----------
    He, Karimireddy, Jaggi, Byzantine-robust decentralized learning via ClippedGossip, arXiv 2202.01545, 2022.

    Examples
    --------
    >>> rows = torch.tensor([[0.0], [3.0], [1000.0]])
    >>> ClippedGossip(1)(rows, torch.full((3,), 1 / 3, dtype=torch.float64))
    tensor([2.])
    """

    traits: ClassVar[RuleTraits] = RuleTraits(centred=True)
    attackers: int

    @property
    def fewest(self) -> int:
        """One: the own row is enough."""
        return 1

    def __call__(self, rows: Rows, weights: torch.Tensor) -> torch.Tensor:
        """Aggregate ``[n, P]`` to one row ``[P]``."""
        apart = distances(rows, rows[:1]).squeeze(-1)  # [n]
        terms = torch.where(weights > 0, weights.sqrt() * apart, 0.0)  # [n], the roots; that of the own row is zero
        f = min(self.attackers, len(rows) - 1)
        suspected = weights[1:].topk(f).values.sum()
        kept = scaled_norms(terms[1:].sort().values[: len(rows) - 1 - f])
        radius = kept / suspected.sqrt() if f else torch.tensor(torch.inf, dtype=torch.float64)
        return clipped(rows, weights, apart, radius)


@dataclass(frozen=True)
class SelfCentredClipping:
    r"""Centred clipping around the own row, with equal weights.

    .. math:: x_i \leftarrow x_i + \frac{1}{n} \sum_j \mathrm{clip}(x_j - x_i, \tau)

    One step of the paper's iteration, started at the own row.

    Parameters
    ----------
    radius
        :math:`\tau`.

    References
    ----------
    Karimireddy, He, Jaggi, Learning from history for Byzantine robust optimization, ICML 2021; around the own row as in
    the first version of He, Karimireddy, Jaggi, arXiv 2202.01545, 2022.

    Examples
    --------
    >>> SelfCentredClipping(6.0)(torch.tensor([[0.0], [3.0], [1000.0]]), torch.ones(3))
    tensor([3.])
    """

    traits: ClassVar[RuleTraits] = RuleTraits(centred=True, needs_radius=True)
    radius: float

    @property
    def fewest(self) -> int:
        """One: the own row is enough."""
        return 1

    def __call__(self, rows: Rows, weights: torch.Tensor) -> torch.Tensor:
        """Aggregate ``[n, P]`` to one row ``[P]``."""
        del weights  # all rows weigh the same
        alike = torch.full((len(rows),), 1 / len(rows), dtype=torch.float64)  # [n]
        radius = torch.tensor(self.radius, dtype=torch.float64)
        return clipped(rows, alike, distances(rows, rows[:1]).squeeze(-1), radius)


@dataclass(frozen=True)
class TrimmedMean:
    r"""Coordinate-wise mean without the f smallest and the f largest values.

    .. math:: [x]_k = \frac{1}{n - 2f} \sum_{j=f+1}^{n-f} [x_{\pi_k(j)}]_k, \qquad
              [x_{\pi_k(1)}]_k \le \dots \le [x_{\pi_k(n)}]_k

    Parameters
    ----------
    attackers
        f; with 0 the rule is the mean.

    References
    ----------
    Yin, Chen, Ramchandran, Bartlett, Byzantine-robust distributed learning: towards optimal statistical rates, ICML
    2018.

    Examples
    --------
    >>> TrimmedMean(1)(torch.tensor([[1.0, 9.0], [2.0, 1.0], [30.0, 2.0]]), torch.ones(3))
    tensor([2., 2.])
    """

    traits: ClassVar[RuleTraits] = RuleTraits()
    attackers: int

    @property
    def fewest(self) -> int:
        """More than twice the number of attackers."""
        return 2 * self.attackers + 1

    def __call__(self, rows: Rows, weights: torch.Tensor) -> torch.Tensor:
        """Aggregate ``[n, P]`` to one row ``[P]``."""
        del weights  # all rows weigh the same
        if not self.attackers:
            return mean(rows)
        return mean(rows.sort(dim=0).values[self.attackers : len(rows) - self.attackers])  # [P]


@dataclass(frozen=True)
class Median:
    r"""Coordinate-wise median, or the mean of the two middle values for an even number of rows.

    Parameters
    ----------
    attackers
        f, the number of attackers to tolerate, below half of the rows.

    References
    ----------
    Yin, Chen, Ramchandran, Bartlett, Byzantine-robust distributed learning: towards optimal statistical rates, ICML
    2018.

    Examples
    --------
    >>> Median(1)(torch.tensor([[1.0, 9.0], [2.0, 1.0], [30.0, 2.0], [4.0, 4.0]]), torch.ones(4))
    tensor([3., 3.])
    """

    traits: ClassVar[RuleTraits] = RuleTraits()
    attackers: int

    @property
    def fewest(self) -> int:
        """More than twice the number of attackers."""
        return 2 * self.attackers + 1

    def __call__(self, rows: Rows, weights: torch.Tensor) -> torch.Tensor:
        """Aggregate ``[n, P]`` to one row ``[P]``."""
        del weights  # all rows weigh the same
        ordered, middle = rows.sort(dim=0).values, len(rows) // 2
        if len(rows) % 2:
            return ordered[middle]
        return ordered[middle - 1] / 2 + ordered[middle] / 2  # [P]; their sum may be too large for a number


@dataclass(frozen=True)
class Krum:
    r"""Krum, which selects the row closest to its n - f - 2 nearest others; or multi-Krum, the mean of several.

    .. math:: s(i) = \sum_{j \in N_i} \lVert x_i - x_j \rVert^2, \qquad \lvert N_i \rvert = n - f - 2

    Krum returns the row of the lowest score, multi-Krum the mean of the n - f rows of the lowest scores. Among equal
    scores the first row wins, which is the own row before any other.

    Parameters
    ----------
    attackers
        f.
    several
        True to use multi-Krum.

    References
    ----------
    Blanchard, El Mhamdi, Guerraoui, Stainer, Machine learning with adversaries: Byzantine tolerant gradient descent,
    NeurIPS 2017.

    Examples
    --------
    >>> rows = torch.tensor([[0.0], [1.0], [3.0], [4.5], [90.0]])
    >>> Krum(1)(rows, torch.ones(5)), Krum(1, several=True)(rows, torch.ones(5))
    (tensor([1.]), tensor([2.1250]))
    """

    traits: ClassVar[RuleTraits] = RuleTraits()
    attackers: int
    several: bool = False

    @property
    def fewest(self) -> int:
        """Smallest n with 2f + 2 < n, as the paper requires."""
        return 2 * self.attackers + 3

    def __call__(self, rows: Rows, weights: torch.Tensor) -> torch.Tensor:
        """Aggregate ``[n, P]`` to one row ``[P]``."""
        del weights  # all rows weigh the same
        count = len(rows)
        squares = distances(rows, rows) ** 2  # [n, n]
        nearest = squares.sort(dim=1).values[:, 1 : count - self.attackers - 1]  # [n, n - f - 2], without itself
        order = nearest.sum(1).sort(stable=True).indices  # [n]
        return mean(rows[order[: count - self.attackers]]) if self.several else rows[order[0]]  # [P]


def multi_krum(attackers: int) -> Krum:
    """Return the rule that takes the mean of the rows with the least scores of :class:`Krum`.

    Examples
    --------
    >>> multi_krum(1)
    Krum(attackers=1, several=True)
    """
    return Krum(attackers, several=True)


@dataclass(frozen=True)
class NearestMixed:
    r"""Nearest-neighbour mixing before another rule: each row becomes the mean of its n - f nearest, including itself.

    .. math:: y_i = \frac{1}{n - f} \sum_{j \in N_i} x_j, \qquad \lvert N_i \rvert = n - f,\ i \in N_i

    which makes rules robust to heterogeneous data.

    Parameters
    ----------
    rule
        Rule for the mixed rows.
    attackers
        f.

    References
    ----------
    Allouah, Farhadkhani, Guerraoui, Gupta, Pinot, Stephan, Fixing by mixing: a recipe for optimal Byzantine ML under
    heterogeneity, AISTATS 2023.

    Examples
    --------
    >>> rows = torch.tensor([[0.0], [1.0], [2.0], [30.0]])
    >>> mixed(rows, attackers=1).squeeze()
    tensor([ 1.,  1.,  1., 11.])
    >>> NearestMixed(Median(1), 1)(rows, torch.ones(4))
    tensor([1.])
    """

    traits: ClassVar[RuleTraits] = RuleTraits()
    rule: Rule
    attackers: int

    @property
    def fewest(self) -> int:
        """Number of rows that the rule needs."""
        return self.rule.fewest

    def __call__(self, rows: Rows, weights: torch.Tensor) -> torch.Tensor:
        """Aggregate ``[n, P]`` to one row ``[P]``."""
        return self.rule(mixed(rows, attackers=self.attackers), weights)


def mixed(rows: Rows, *, attackers: int) -> Rows:
    """Apply nearest-neighbour mixing to ``[n, P]``, see :class:`NearestMixed`."""
    nearest = distances(rows, rows).sort(dim=1, stable=True).indices[:, : len(rows) - attackers]  # [n, n - f]
    return torch.stack([mean(rows[each]) for each in nearest])  # [n, P]


def mean(rows: Rows) -> torch.Tensor:
    """Return the mean of ``[n, P]``, even if the sum overflows.

    Examples
    --------
    >>> mean(torch.full((4, 1), 3e38))
    tensor([3.0000e+38])
    """
    found, largest = rows.mean(0), torch.finfo(rows.dtype).max
    return torch.where(found.isfinite(), found, (rows / len(rows)).sum(0).clamp(-largest, largest))  # [P]


def distances(rows: Rows, others: Rows) -> torch.Tensor:
    r"""Return :math:`\lVert x_i - y_j \rVert_2`, ``[n, m]``, with differences in double precision, row by row.

    At most one difference ``[n, P]`` is held. A distance is infinite if it overflows, but not if only its square does.
    """
    doubles = rows.to("cpu", torch.float64)  # [n, P]
    columns = []
    for other in others.to("cpu", torch.float64):
        found = torch.linalg.vector_norm(doubles - other, dim=-1)  # [n]
        if not found.isfinite().all():  # half of a difference does not overflow
            found = torch.where(found.isfinite(), found, 2 * scaled_norms(doubles / 2 - other / 2))  # [n]
        columns.append(found)
    return torch.stack(columns, dim=-1)  # [n, m]


def scaled_norms(rows: Rows) -> torch.Tensor:
    r"""Return :math:`\lVert x \rVert_2` of the last axis, in units of the largest number, as squares may overflow."""
    if not rows.shape[-1]:
        return rows.new_zeros(rows.shape[:-1])  # []
    unit = rows.abs().amax(-1, keepdim=True)  # [..., 1]
    ones = torch.linalg.vector_norm(rows / unit, dim=-1, keepdim=True)  # [..., 1]
    return torch.where(unit.isinf() | (unit == 0), unit, unit * ones).squeeze(-1)  # [...]


def clipped(rows: Rows, weights: torch.Tensor, apart: torch.Tensor, radius: torch.Tensor) -> torch.Tensor:
    r"""Return the sum of rows, each clipped around the first row to a radius.

    It is :math:`\sum_j w_j (x_0 + \mathrm{clip}(x_j - x_0, \tau))`, ``[P]``, given all :math:`\lVert x_j - x_0 \rVert`.
    Clipping moves weight to the own row, so the result is one sum of rows. Rows at an infinite distance have no weight,
    even under an infinite radius.
    """
    tiny = torch.finfo(torch.float64).tiny
    kept = torch.where(apart > radius, radius / apart.clamp_min(tiny), 1.0)  # [n]
    factors = weights * torch.where(apart.isinf(), 0.0, kept)  # [n]
    factors[0] += (weights - factors).sum()
    return factors.to(rows) @ rows  # [P]
