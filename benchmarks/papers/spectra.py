"""Spectra and finite-time graphs: Ying 2021, Vogels 2022, De Vos 2023, Takezawa 2023.

Second eigenvalues of Metropolis weights and the gap of exponential graphs (Ying et al., arXiv 2110.13363), the
effective neighbours and best rates of Vogels, Hendrikx and Jaggi (Beyond spectral gap), the contraction of an Epidemic
Learning exchange (De Vos et al.) by formula and by drawing rows, and the lengths of Base-(k+1) graphs
(Takezawa et al.). Graphs and weights are those that experiments use.
"""

import math
from collections.abc import Callable

import numpy as np
import torch

from benchmarks.papers import Line
from p2pfl import topology as graphs
from p2pfl.core.draws import draw
from p2pfl.simulation.mixing import product
from p2pfl.topology import Schedule, Topology, Weights

RATES = {
    "ring": (
        graphs.ring,
        {8: 0.80473785, 16: 0.94925302, 25: 0.97905544, 32: 0.98719019, 64: 0.99678982, 100: 0.99868449},
    ),
    "path": (graphs.path, {8: 0.94925302, 16: 0.98719019}),
    "torus, a side": (lambda k: graphs.torus(k, k), {3: 0.4, 4: 0.6, 5: 0.7236068, 8: 0.88284271, 10: 0.9236068}),
    "hypercube, dimension": (graphs.hypercube, {3: 0.5, 4: 0.6, 5: 2 / 3, 6: 5 / 7}),
    "star": (graphs.star, {n: 1 - 1 / n for n in (3, 4, 10, 50)}),
    "complete": (graphs.complete, {8: 0.0, 64: 0.0}),
}
"""Second eigenvalue moduli to eight decimals."""

GAPS = {4: 0.66667, 5: 0.75, 6: 0.5, 12: 0.4, 16: 0.4, 25: 0.489139, 32: 0.33333, 100: 0.25}
"""Of static exponential graphs."""

DECAYS = (0.5, 0.9, 0.95, 0.99, 0.999)
EFFECTIVE = {
    "solo": "1 1 1 1 1",
    "ring": "3.72 6.632 8.781 17.076 28.895",
    "torus 4x8": "7.116 15.739 20.502 28.541 31.609",
    "hypercube": "8.897 19.636 24.170 30.009 31.788",
    "time-varying exponential": "2.994 9.286 14.155 25.429 31.190",
    "two cliques": "16.183 16.991 17.873 22.385 29.906",
    "complete": "32 32 32 32 32",
}
"""At 32 peers: effective neighbours at these decays."""

EPIDEMIC = {(16, 2): (0.2889, 0.3827), (32, 4): (0.1742, 0.2147), (96, 6): (0.1338, 0.1558)}
"""Of n peers and s others: what an exchange of EL-Oracle and of EL-Local leaves."""

DRAWS = 1500

LENGTHS = {
    1: {4: 2, 5: 5, 6: 4, 7: 5, 8: 3, 9: 7, 10: 6, 16: 4, 21: 9, 22: 8, 23: 9, 24: 6, 25: 9, 32: 5, 64: 6},
    2: {5: 3, 6: 2, 7: 4, 9: 2, 10: 4, 21: 5, 22: 6, 23: 6, 24: 4, 25: 6},
}
"""Exchanges of Base-(k+1) graphs by k and n."""


def lines() -> list[Line]:
    """Every table, a line or more each."""
    return [*rates(), gaps(), exponential(), *effective(), cliques(), *epidemic(), *lengths()]


def rates() -> list[Line]:
    """Second eigenvalues of Metropolis weights."""
    return [
        _compared(
            f"rho of the {name} {', '.join(map(str, published))}",
            [f"{each:.8f}" for each in published.values()],
            [graphs.contraction(_weights(build(n))) for n in published],
        )
        for name, (build, published) in RATES.items()
    ]


def gaps() -> Line:
    """Spectral gaps of the static exponential graph."""
    found = [graphs.gap(_weights(graphs.exponential(n))) for n in GAPS]
    return _compared(f"gap of the static exponential {', '.join(map(str, GAPS))}", list(map(str, GAPS.values())), found)


def exponential() -> Line:
    """The product of a period of the one-peer exponential graph."""
    worst = max(_error(graphs.one_peer_exponential(2**t)) for t in range(2, 7))
    return Line("one-peer exponential, n = 4..64: error of the mean after log2 n", "0", f"{worst:.2g}", met=worst == 0)


def effective() -> list[Line]:
    """Effective neighbours."""
    found = []
    for name, neighbours in EFFECTIVE.items():
        weights = _weights(_thirty_two(name))
        measured = [graphs.effective_neighbours(weights, decay=decay) for decay in DECAYS]
        line = _compared(f"n_W of {name}, decays {DECAYS[0]} to {DECAYS[-1]}", neighbours.split(), measured)
        if name == "torus 4x8" and not line.met:
            line = _checked_torus(line, measured)
        found.append(line)
    return found


def cliques() -> Line:
    """The lesson of effective neighbours."""
    ring, two = (_weights(_thirty_two(name)) for name in ("ring", "two cliques"))
    gap = graphs.gap(two) / graphs.gap(ring)
    said = f"gap {graphs.gap(two):.4f} against {graphs.gap(ring):.4f}"
    return Line("two cliques against a ring", "gap .0066 against .0128", said, met=0.5 < gap < 0.53)


def epidemic() -> list[Line]:
    """What an exchange leaves of the squared deviation: by formula, of the weights drawn, and of rows drawn."""
    found = []
    for (n, s), published in EPIDEMIC.items():
        oracle = (1 - s / (n - 1)) / (s + 1)
        local = (1 - (1 - s / (n - 1)) ** n) / s - 1 / (n - 1)
        for name, build, value, formula in (
            ("EL-Oracle", graphs.epidemic_oracle, published[0], oracle),
            ("EL-Local", graphs.epidemic_local, published[1], local),
        ):
            weights = _weights(build(n, degree=s, period=DRAWS, seed=0))
            left, rows = graphs.remainder(weights), _left(weights)
            met = round(formula, 4) == value and math.isclose(left, value, rel_tol=5e-3)
            said = f"{formula:.4f} by formula, {left:.4f} drawn, {rows:.4f} of models"
            what = f"{name}, {n} peers, s = {s}: squared deviation left"
            found.append(Line(what, f"{value:.4f}"[1:], said, met and math.isclose(rows, value, rel_tol=0.02)))
    return found


def lengths() -> list[Line]:
    """Exchanges until the Base-(k+1) graph has averaged exactly."""
    found = []
    for k, published in LENGTHS.items():
        schedules = {n: graphs.base(n, degree=k) for n in published}
        measured = {n: schedule.period for n, schedule in schedules.items()}
        error = max(_error(schedule) for schedule in schedules.values())
        most = max(int(np.diff(each.adjacency.indptr).max()) for s in schedules.values() for each in s.topologies)
        said = f"{' '.join(map(str, measured.values()))}; error of the mean {error:.1g}, degree {most} at most"
        met = measured == published and error < 1e-15 and most <= k
        what = f"gossip steps of the Base-{k + 1} graph, n = {', '.join(map(str, published))}"
        found.append(Line(what, " ".join(map(str, published.values())), said, met))
    return found


def _compared(what: str, published: list[str], measured: list[float]) -> Line:
    """Met where every figure rounds to the published one, to as many digits as that has."""
    digits = [len(each.partition(".")[2]) for each in published]
    rounded = [f"{value:.{places}f}" for value, places in zip(measured, digits, strict=True)]
    met = all(float(ours) == float(theirs) for ours, theirs in zip(rounded, published, strict=True))
    theirs = " ".join(published)
    return Line(what, theirs, theirs if met else " ".join(rounded), met)


def _checked_torus(line: Line, measured: list[float]) -> Line:
    """The torus from the eigenvalues that are known in closed form, where the published last digit is another."""
    sides = [[math.cos(2 * math.pi * i / n) for i in range(n)] for n in (4, 8)]
    squares = np.array([((1 + 2 * a + 2 * b) / 5) ** 2 for a in sides[0] for b in sides[1]])
    exact = [1 / ((1 - decay) * float(np.mean(squares / (1 - decay * squares)))) for decay in DECAYS]
    assert np.allclose(measured, exact, rtol=1e-10, atol=0)  # noqa: S101 (or the reason below would be false)
    why = f"the closed form gives {exact[2]:.4f} and {exact[3]:.4f} for the two that differ by .001"
    return Line(line.what, line.published, line.measured, line.met, why)


def _thirty_two(name: str) -> Topology | Schedule:
    names = graphs.ring(32).peers
    halves = [(names[a], names[b]) for start in (0, 16) for a in range(start, start + 16) for b in range(start, a)]
    build: dict[str, Callable[[], Topology | Schedule]] = {
        "solo": lambda: Topology(names, ()),
        "ring": lambda: graphs.ring(32),
        "torus 4x8": lambda: graphs.torus(4, 8),
        "hypercube": lambda: graphs.hypercube(5),
        "time-varying exponential": lambda: graphs.one_peer_exponential(32),
        "two cliques": lambda: Topology(names, (*halves, (names[0], names[16]))),
        "complete": lambda: graphs.complete(32),
    }
    return build[name]()


def _weights(topology: Topology | Schedule) -> list[Weights]:
    return [graphs.natural(topology.at(phase)) for phase in range(topology.period)]


def _error(schedule: Schedule) -> float:
    """How far the product of a period is from the mean, at worst."""
    n = len(schedule.peers)
    whole = np.eye(n)
    for weights in _weights(schedule):
        whole = weights.matrix @ whole
    return float(abs(whole - 1 / n).max())


def _left(weights: list[Weights]) -> float:
    """Squared deviation after an exchange over that before, of rows drawn anew for each, mixed as in a simulation."""
    rng, before, after = draw(0, "rows"), 0.0, 0.0
    for each in weights:
        rows = torch.from_numpy(rng.standard_normal((len(each.peers), 16)))
        mean = rows.mean(dim=0)
        before += float(((rows - mean) ** 2).sum())
        after += float(((product(each.matrix, rows) - mean) ** 2).sum())
    return after / before
