r"""Robust aggregation rules, which replace the weighted average if some neighbours may be Byzantine.

A rule takes the models that a peer has, its own first, ``[n, P]``, and the weights by which it would mix them,
``[n]`` with sum 1, and returns one model ``[P]``. At most f of the models (``attackers``), unknown which, are
arbitrary. Distances are computed in double precision, so that models of the largest numbers do no harm.

The rules of this module take any leading axes as well: ``[R, n, P]`` and ``[R, n]`` are the models of R peers that have
as many each. A simulation calls them in this way, and a live peer with R = 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from p2pfl.algorithms.robust.arithmetic import (
    apply_by_columns,
    distances,
    mean,
    measure_from_first,
    scaled_norms,
    select_ordered,
    sum_clipped,
    take_models,
)
from p2pfl.core.rows import Rows
from p2pfl.core.tensors import torch
from p2pfl.core.traits import RuleTraits


class Rule(Protocol):
    """Interface of rules that aggregate the models of a peer and its neighbours."""

    traits: ClassVar[RuleTraits]

    @property
    def fewest(self) -> int:
        """Smallest number of rows, including its own, that a peer needs; with fewer it keeps its own."""
        ...

    def __call__(self, rows: Rows, weights: torch.Tensor) -> torch.Tensor:
        """Aggregate ``[n, P]``, the peer's own model first, under weights ``[n]`` (float64) to one model ``[P]``.

        With the trait ``takes_stacks`` all three have the same leading axes, one entry for each peer.
        """
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

    traits: ClassVar[RuleTraits] = RuleTraits(centred=True, stacked=True)
    attackers: int

    @property
    def fewest(self) -> int:
        """One: the own row is enough."""
        return 1

    def __call__(self, rows: Rows, weights: torch.Tensor) -> torch.Tensor:
        """Aggregate ``[..., n, P]`` to ``[..., P]``."""
        apart = measure_from_first(rows)  # [..., n]
        terms = torch.where(weights > 0, weights.sqrt() * apart, 0.0)  # [..., n], the roots; that of the own is zero
        others = rows.shape[-2] - 1
        f = min(self.attackers, others)
        if not f:
            return sum_clipped(rows, weights, apart, torch.full_like(apart[..., :1], torch.inf))
        suspected = weights[..., 1:].topk(f, dim=-1).values.sum(-1)  # [...]
        kept = scaled_norms(terms[..., 1:].sort(dim=-1).values[..., : others - f])  # [...]
        radius = (kept / suspected.sqrt()).unsqueeze(-1)  # [..., 1]
        return sum_clipped(rows, weights, apart, radius)


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

    traits: ClassVar[RuleTraits] = RuleTraits(centred=True, stacked=True)
    radius: float

    @property
    def fewest(self) -> int:
        """One: the own row is enough."""
        return 1

    def __call__(self, rows: Rows, weights: torch.Tensor) -> torch.Tensor:
        """Aggregate ``[..., n, P]`` to ``[..., P]``."""
        del weights  # all rows weigh the same
        apart = measure_from_first(rows)  # [..., n]
        alike = torch.full_like(apart, 1 / rows.shape[-2])
        return sum_clipped(rows, alike, apart, torch.full_like(apart[..., :1], self.radius))


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

    traits: ClassVar[RuleTraits] = RuleTraits(stacked=True)
    attackers: int

    @property
    def fewest(self) -> int:
        """More than twice the number of attackers."""
        return 2 * self.attackers + 1

    def __call__(self, rows: Rows, weights: torch.Tensor) -> torch.Tensor:
        """Aggregate ``[..., n, P]`` to ``[..., P]``."""
        del weights  # all rows weigh the same
        count = rows.shape[-2] - 2 * self.attackers
        if not self.attackers:
            return mean(lambda index: rows[..., index, :], count)
        low = self.attackers

        def trimmed(part: Rows) -> torch.Tensor:
            kept = select_ordered(part, low, low + count)
            return mean(kept.__getitem__, count)

        return apply_by_columns(trimmed, rows)


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

    traits: ClassVar[RuleTraits] = RuleTraits(stacked=True)
    attackers: int

    @property
    def fewest(self) -> int:
        """More than twice the number of attackers."""
        return 2 * self.attackers + 1

    def __call__(self, rows: Rows, weights: torch.Tensor) -> torch.Tensor:
        """Aggregate ``[..., n, P]`` to ``[..., P]``."""
        del weights  # all rows weigh the same
        return apply_by_columns(_middle, rows)


def _middle(rows: Rows) -> torch.Tensor:
    """Return the median of ``[..., n, P]`` along n, ``[..., P]``."""
    middle = rows.shape[-2] // 2
    if rows.shape[-2] % 2:
        return select_ordered(rows, middle, middle + 1)[0]
    lower, upper = select_ordered(rows, middle - 1, middle + 1)
    return lower / 2 + upper / 2  # their sum may be too large for a number


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

    traits: ClassVar[RuleTraits] = RuleTraits(stacked=True)
    attackers: int
    several: bool = False

    @property
    def fewest(self) -> int:
        """Smallest n with 2f + 2 < n, as the paper requires."""
        return 2 * self.attackers + 3

    def __call__(self, rows: Rows, weights: torch.Tensor) -> torch.Tensor:
        """Aggregate ``[..., n, P]`` to ``[..., P]``."""
        del weights  # all rows weigh the same
        count = rows.shape[-2]
        squares = distances(rows) ** 2  # [..., n, n]
        nearest = squares.sort(dim=-1).values[
            ..., 1 : count - self.attackers - 1
        ]  # [..., n, n - f - 2], without itself
        order = nearest.sum(-1).sort(dim=-1, stable=True).indices  # [..., n]
        best = take_models(rows, order[..., : count - self.attackers if self.several else 1])  # [..., m, P]
        return mean(lambda index: best[..., index, :], best.shape[-2])  # [..., P]


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
    >>> mix_nearest(rows, attackers=1).squeeze()
    tensor([ 1.,  1.,  1., 11.])
    >>> NearestMixed(Median(1), 1)(rows, torch.ones(4))
    tensor([1.])
    """

    traits: ClassVar[RuleTraits] = RuleTraits(stacked=True)
    rule: Rule
    attackers: int

    @property
    def fewest(self) -> int:
        """Number of rows that the rule needs."""
        return self.rule.fewest

    def __call__(self, rows: Rows, weights: torch.Tensor) -> torch.Tensor:
        """Aggregate ``[..., n, P]`` to ``[..., P]``."""
        near = mix_nearest(rows, attackers=self.attackers)
        return apply_rule(self.rule, near, weights)


def mix_nearest(rows: Rows, *, attackers: int) -> Rows:
    """Apply nearest-neighbour mixing to ``[..., n, P]``, see :class:`NearestMixed`."""
    count = rows.shape[-2] - attackers
    nearest = distances(rows).sort(dim=-1, stable=True).indices[..., :count]  # [..., n, n - f]
    return mean(lambda index: take_models(rows, nearest[..., index]), count)  # [..., n, P]


def apply_rule(rule: Rule, rows: Rows, weights: torch.Tensor) -> torch.Tensor:
    """Aggregate ``[..., n, P]`` to ``[..., P]``, one peer after the other if that is what the rule takes."""
    if rows.dim() == 2 or takes_stacks(rule):
        return rule(rows, weights)
    pairs = zip(rows.flatten(0, -3), weights.flatten(0, -2), strict=True)
    return torch.stack([rule(*each) for each in pairs]).view(*rows.shape[:-2], rows.shape[-1])


def takes_stacks(rule: Rule) -> bool:
    """Return whether a rule takes the models of several peers at once."""
    inner = rule.rule if isinstance(rule, NearestMixed) else rule
    traits: RuleTraits = getattr(inner, "traits", RuleTraits())
    return traits.stacked
