r"""Base-(k+1) graphs: exact averages after a few gossip steps, for any number of peers.

The number of peers is written in base k + 1, :math:`n = \sum_l a_l (k+1)^{p_l}`, and the peers are split
accordingly. Parts whose size has no prime factor above k + 1 average exactly in cliques, digit by digit;
larger parts then pass their mean to the smaller ones, and average once more inside.

References
----------
Takezawa, Sato, Bao, Niwa and Yamada, Beyond exponential graph: communication-efficient topologies for
decentralized learning via finite-time convergence, NeurIPS 2023, algorithms 1 to 3.
"""

from collections.abc import Sequence

from p2pfl.topology.builders import build_numbered, check_at_least_one
from p2pfl.topology.graph import Schedule

StepWeights = dict[tuple[int, int], float]
"""Weights of the edges of one gossip step."""


def base(n: int, *, degree: int = 1) -> Schedule:
    """Build the Base-(k+1) graph for k = ``degree``, which averages exactly in a few gossip steps.

    No peer has more than k neighbours at a time. The edges carry the weights, and the product of the weights of a
    period is the exact average. With ``n = (degree + 1) ** p`` a period has p gossip steps, with other numbers at most
    about twice as many.

    Parameters
    ----------
    n
        Number of peers.
    degree
        k, the largest number of neighbours of a peer in one gossip step.

    Returns
    -------
    Schedule
        One weighted topology per gossip step.

    Raises
    ------
    TopologyError
        ``n`` or ``degree`` is below 1.

    Examples
    --------
    >>> [base(n, degree=1).period for n in (4, 5, 6, 7, 8)]
    [2, 5, 4, 5, 3]
    """
    check_at_least_one(n)
    check_at_least_one(degree, "neighbours (topology.degree)")
    peers = range(n)
    steps = _base(peers, degree)
    return Schedule(tuple(build_numbered(n, each, weights=each.values()) for each in steps or [{}]))


def _base(peers: Sequence[int], degree: int) -> list[StepWeights]:
    """Build algorithm 3: average the smooth part of the number last, across equal parts; or algorithm 2 if shorter."""
    simple = _simple(peers, degree)
    across = _smooth_part(len(peers), degree + 1)
    size = len(peers) // across
    parts = [peers[i * size : (i + 1) * size] for i in range(across)]
    inside = _together([_simple(part, degree) for part in parts])
    last = _together([_cliques([part[i] for part in parts], degree) for i in range(size)])
    return min(simple, [*inside, *last], key=len)


def _simple(peers: Sequence[int], degree: int) -> list[StepWeights]:
    """Build algorithm 2, the simple graph."""
    n = len(peers)
    if _smooth_part(n, degree + 1) == n:
        return _cliques(peers, degree)
    parts: list[list[Sequence[int]]] = []  # V_l as its a_l equal pieces
    start = 0
    for digit, size in _digits(n, degree + 1):
        parts.append([peers[start + i * size : start + (i + 1) * size] for i in range(digit)])
        start += digit * size
    whole = [_cliques([peer for piece in part for peer in piece], degree) for part in parts]
    pieces = [_together([_cliques(piece, degree) for piece in part]) for part in parts]
    steps = [_union([_latest(each, m) for each in whole]) for m in range(len(whole[0]))]
    done = [0] * len(parts)  # gossip steps inside the pieces of each part
    while done[0] < len(pieces[0]):
        giving = len(steps) - len(whole[0])  # the part whose mean goes to all smaller ones
        step = _pass_on(parts, giving, degree) if giving < len(parts) - 1 else {}
        for part in range(min(giving, len(parts))):
            step |= _latest(pieces[part], done[part])
            done[part] += 1
        if giving == len(parts) - 1:  # the smallest part has no receiver and averages at once
            step |= _latest(pieces[giving], done[giving])
            done[giving] += 1
        steps.append(step)
    return steps


def _pass_on(parts: list[list[Sequence[int]]], giving: int, degree: int) -> StepWeights:
    """Pair each peer of the smaller parts with one of every piece of the giving part.

    The remaining peers of the giving part already agree. They still mix, because peers may train between gossip steps.
    """
    takers = [peer for part in parts[giving + 1 :] for piece in part for peer in piece]
    size = sum(map(len, parts[giving]))
    weight = size / (len(parts[giving]) * (size + len(takers)))
    step = {_edge(taker, piece[i]): weight for i, taker in enumerate(reversed(takers)) for piece in parts[giving]}
    left = [peer for piece in parts[giving] for peer in piece[len(takers) :]]
    for start in range(0, len(left), degree + 1):
        step |= _clique(left[start : start + degree + 1])
    return step


def _cliques(peers: Sequence[int], degree: int) -> list[StepWeights]:
    """Build algorithm 1, the hyper-hypercube: one clique per peer and digit of its number, in mixed base."""
    steps, stride = [], 1
    for size in _factors(len(peers), degree + 1):
        starts = [i for i in range(len(peers)) if i // stride % size == 0]
        cliques = [_clique([peers[start + digit * stride] for digit in range(size)]) for start in starts]
        steps.append(_union(cliques))
        stride *= size
    return steps


def _clique(peers: Sequence[int]) -> StepWeights:
    return {_edge(a, b): 1 / len(peers) for i, a in enumerate(peers) for b in peers[:i]}


def _edge(a: int, b: int) -> tuple[int, int]:
    return min(a, b), max(a, b)


def _together(schedules: list[list[StepWeights]]) -> list[StepWeights]:
    """Run schedules of equal length over different peers side by side."""
    return [_union(list(each)) for each in zip(*schedules, strict=True)]


def _union(steps: list[StepWeights]) -> StepWeights:
    return {edge: weight for each in steps for edge, weight in each.items()}


def _latest(steps: list[StepWeights], number: int) -> StepWeights:
    """Return the gossip step of that number, or the last one from then on; a single peer has none."""
    return steps[min(number, len(steps) - 1)] if steps else {}


def _digits(n: int, radix: int) -> list[tuple[int, int]]:
    """Return the nonzero digits of ``n`` and the powers they stand for, the highest first."""
    digits, power = [], 1
    while n:
        n, digit = divmod(n, radix)
        if digit:
            digits.append((digit, power))
        power *= radix
    return digits[::-1]


def _smooth_part(n: int, most: int) -> int:
    """Return the largest divisor of ``n`` without a prime factor above ``most``."""
    smooth = 1
    for factor in range(2, most + 1):
        while n % factor == 0:
            n //= factor
            smooth *= factor
    return smooth


def _factors(n: int, most: int) -> list[int]:
    """Return as few factors of ``n`` as possible with none above ``most``, which must exist; the largest come last."""
    fewest: dict[int, list[int]] = {1: []}

    def of(m: int) -> list[int]:
        if m not in fewest:
            factorisations = [[*of(m // size), size] for size in range(2, min(m, most) + 1) if m % size == 0]
            fewest[m] = min(factorisations, key=len)
        return fewest[m]

    return sorted(of(n))
