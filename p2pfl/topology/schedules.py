"""Builders of schedules, one noun per family of graphs that take turns.

All peers compute the same schedule, by key where it is random, without communication.
"""

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from p2pfl.core.draws import draw
from p2pfl.core.errors import TopologyError
from p2pfl.topology.builders import (
    bits,
    build_numbered,
    check_at_least_one,
    check_degree,
    check_regular,
    draw_regular,
    most_square,
)
from p2pfl.topology.graph import Schedule, Topology


def one_peer_exponential(n: int) -> Schedule:
    """Build the directed one-peer exponential schedule.

    In gossip step ``k`` peer ``i`` sends only to ``i + 2 ** k`` modulo ``n``. For ``n = 2 ** t`` the weights of
    ``t`` gossip steps multiply to the exact average (Ying et al. 2021, arXiv 2110.13363).

    Returns
    -------
    Schedule
        One directed topology per gossip step of a period.

    See Also
    --------
    p2pfl.topology.exponential : The union of these graphs, in every gossip step.

    Examples
    --------
    >>> [graph.receivers("peer0") for graph in one_peer_exponential(8).topologies]
    [('peer1',), ('peer2',), ('peer4',)]
    """
    hops = [2**k for k in range(bits(n))] or [1]
    return Schedule(tuple(build_numbered(n, [(i, (i + hop) % n) for i in range(n)], directed=True) for hop in hops))


def double_binary_tree(n: int) -> Schedule:
    r"""Build two binary trees that take turns; each inner peer of one is a leaf of the other.

    In the first tree, counted from zero, peer :math:`i = (2 a + 1) 2^h` lies at height h; its parent is the even one
    of :math:`i \pm 2^h` that exists, so that odd peers are leaves, and peer 0 is the root. The second tree is the
    first one counted from the other end (n even) or shifted by one (n odd).

    Returns
    -------
    Schedule
        The two trees.

    References
    ----------
    Sanders, Speck and Träff, Two-tree algorithms for full bandwidth broadcast, reduction and scan,
    Parallel Computing 35, 2009.

    Examples
    --------
    >>> one, other = double_binary_tree(8).topologies
    >>> one.neighbours("peer2"), other.neighbours("peer2")
    (('peer1', 'peer3', 'peer4'), ('peer1',))
    """
    check_at_least_one(n)
    edges = [(_parent(i, n), i) for i in range(1, n)]
    moved = [n - 1 - i if n % 2 == 0 else (i + 1) % n for i in range(n)]
    return Schedule((build_numbered(n, edges), build_numbered(n, ((moved[a], moved[b]) for a, b in edges))))


def nested(n: int, *, levels: Sequence[int] = ()) -> Schedule:
    r"""Build groups of groups, such as hospitals in regions of a country, whose averages are exact.

    With L levels of :math:`a_1, \dots, a_L` parts each, :math:`n = a_1 \cdots a_L`, a peer has one number for each
    level. In the first gossip step peers that differ in the last number alone average, so each innermost group has its
    mean; in the last one peers that differ in the first number alone. After L steps everybody has the mean of all
    peers. A peer has :math:`\sum_l (a_l - 1)` neighbours in all, and :math:`a_1 - 1` of them in other parts of the
    outermost level.

    Parameters
    ----------
    n
        Number of peers.
    levels
        Number of parts of each level, from the outermost; by default two levels that are as equal as possible.

    Returns
    -------
    Schedule
        One topology per level, from the innermost. Levels of one part have none.

    Raises
    ------
    TopologyError
        The levels do not have ``n`` peers.

    Examples
    --------
    >>> inside, across = nested(6, levels=[2, 3]).topologies
    >>> inside.neighbours("peer0"), across.neighbours("peer0")
    (('peer1', 'peer2'), ('peer3',))

    References
    ----------
    L. Liu, J. Zhang, S. H. Song, K. B. Letaief, "Client-edge-cloud hierarchical federated learning", ICC 2020: with as
    many gossip steps a round as levels, FedAvg is theirs with an average over everybody in each round.
    """
    check_at_least_one(n)
    side = most_square(n)
    sizes = tuple(levels) or (side, n // side)
    if math.prod(sizes) != n or min(sizes) < 1:
        raise TopologyError(
            f"levels of {' x '.join(map(str, sizes))} parts have {math.prod(sizes)} peers, but there are {n}; change "
            "one of the two numbers"
        )
    numbers = np.arange(n).reshape(sizes)
    groups = [np.moveaxis(numbers, level, -1).reshape(-1, size) for level, size in enumerate(sizes) if size > 1]
    steps = [build_numbered(n, (pair for group in each.tolist() for pair in combinations(group, 2))) for each in groups]
    return Schedule(tuple(reversed(steps))) if steps else Schedule((build_numbered(n, ()),))


def epidemic_oracle(n: int, *, degree: int = 4, period: int = 64, seed: int) -> Schedule:
    r"""Build an EL-Oracle schedule of Epidemic Learning: another random regular graph in every gossip step.

    With Metropolis-Hastings weights, which are :math:`1 / (s + 1)` here, a gossip step leaves

    .. math:: \alpha_s = \frac{1 - s / (n - 1)}{s + 1}

    of the squared deviation from the mean, on average (:func:`p2pfl.topology.remainder`).

    Parameters
    ----------
    n
        Number of peers.
    degree
        s, the number of neighbours of each peer.
    period
        Number of gossip steps after which the draws repeat; live peers keep one stream for each.
    seed
        Seed of the draws, by the key ``(seed, "topology")`` and the gossip step.

    Returns
    -------
    Schedule
        One topology per gossip step.

    Raises
    ------
    TopologyError
        ``degree`` is not below ``n``, or ``n * degree`` is odd.

    References
    ----------
    De Vos et al., Epidemic learning: boosting decentralized learning with randomized communication,
    NeurIPS 2023.

    Examples
    --------
    >>> {len(graph.neighbours("peer0")) for graph in epidemic_oracle(6, degree=3, period=4, seed=1).topologies}
    {3}
    """
    check_regular(n, degree)
    check_at_least_one(period, "gossip steps in a period (topology.options.period)")
    graphs = (draw_regular(n, degree, draw(seed, "topology", round=step)) for step in range(period))
    return Schedule(tuple(build_numbered(n, graph.edges()) for graph in graphs))


def epidemic_local(n: int, *, degree: int = 4, period: int = 64, seed: int) -> Schedule:
    r"""Build an EL-Local schedule of Epidemic Learning: in every gossip step each peer sends to random others.

    The graphs are directed. A receiver gives itself and each of the d peers that it receives from the weight
    :math:`1 / (1 + d)`. Its weights sum to one; those of a sender need not, so the mean moves a little, and masks do
    not cancel. A gossip step leaves

    .. math:: \beta_s = \frac{1 - (1 - s / (n - 1))^n}{s} - \frac{1}{n - 1}

    of the squared deviation, about the mean before it.

    Parameters
    ----------
    n
        Number of peers.
    degree
        s, the number of peers that each peer sends to.
    period
        Number of gossip steps after which the draws repeat; live peers keep one stream for each.
    seed
        Seed of the draws, by the key ``(seed, "topology", peer)`` and the gossip step.

    Returns
    -------
    Schedule
        One directed, weighted topology per gossip step.

    Raises
    ------
    TopologyError
        ``degree`` is not below ``n``.

    References
    ----------
    De Vos et al., NeurIPS 2023, as :func:`epidemic_oracle`.

    Examples
    --------
    >>> graph = epidemic_local(6, degree=2, seed=1).at(0)
    >>> {len(graph.receivers(peer)) for peer in graph.peers}
    {2}
    """
    check_degree(n, degree)
    check_at_least_one(period, "gossip steps in a period (topology.options.period)")
    return Schedule(tuple(_push_graph(n, degree, step=step, seed=seed) for step in range(period)))


def _push_graph(n: int, degree: int, *, step: int, seed: int) -> Topology:
    rng = draw(seed, "topology", round=step)
    others = np.stack([rng.choice(n - 1, size=degree, replace=False) for _ in range(n)])  # [N, s]
    others += others >= np.arange(n)[:, None]  # no peer draws itself
    received = np.bincount(others.ravel(), minlength=n).tolist()
    edges = [(sender, listener) for sender, row in enumerate(others.tolist()) for listener in row]
    return build_numbered(n, edges, directed=True, weights=(1.0 / (1.0 + received[listener]) for _, listener in edges))


def _parent(i: int, n: int) -> int:
    """Return the parent of peer ``i`` of ``n`` in the first of two trees; the highest is below peer 0."""
    height = i & -i
    above = (i ^ height) | 2 * height
    return above if above < n else i ^ height
