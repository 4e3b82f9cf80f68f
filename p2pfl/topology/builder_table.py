"""Table of all kinds of topology by name."""

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Any

from p2pfl.core.errors import TopologyError
from p2pfl.topology import builders, schedules
from p2pfl.topology.builders import bits, check_at_least_one, most_square
from p2pfl.topology.finite_time import base
from p2pfl.topology.graph import Schedule, Topology

BUILDERS: dict[str, Callable[..., Topology | Schedule]] = {
    builder.__name__: builder
    for builder in (
        *(builders.ring, builders.path, builders.star, builders.complete, builders.grid, builders.torus),
        *(builders.hypercube, builders.tree, builders.small_world, builders.random_regular, builders.circulant),
        *(builders.random_k_out, builders.erdos_renyi, builders.exponential, schedules.one_peer_exponential),
        *(base, schedules.epidemic_oracle, schedules.epidemic_local, schedules.nested),
        *(schedules.double_binary_tree,),
    )
}
"""Builders of all kinds that an experiment file may name."""


def build(
    kind: str,
    *,
    peers: int,
    seed: int,
    degree: int = 4,
    rewire: float = 0.1,
    probability: float = 0.3,
    rows: int | None = None,
    branching: int = 2,
    levels: Sequence[int] = (),
    period: int = 64,
) -> Topology | Schedule:
    """Build a topology of any kind from a number of peers; each builder takes the options that it knows.

    Parameters
    ----------
    kind
        A key of :data:`BUILDERS`.
    peers
        Number of peers; a power of two for a hypercube.
    rows
        Rows of a grid or torus; by default it is as square as the number of peers allows.

    Returns
    -------
    Topology or Schedule
        The graph, or the schedule of graphs.

    Raises
    ------
    TopologyError
        The kind is unknown (the message names the nearest), or no such graph has these numbers.

    Examples
    --------
    >>> build("torus", peers=12, seed=0) == builders.torus(3, 4)
    True
    """
    check_kind(kind)
    check_at_least_one(peers)
    if kind in {"grid", "torus"}:
        rows = most_square(peers) if rows is None else rows
        if rows < 1 or peers % rows:
            raise TopologyError(f"{peers} peers do not fill {rows} rows of equal length; change one of the two numbers")
        return BUILDERS[kind](rows, peers // rows)
    if kind == "hypercube":
        if peers != 2 ** bits(peers):
            nearest = 2 ** round(math.log2(peers))
            raise TopologyError(f"a hypercube needs a power of two of peers, but there are {peers}; use {nearest}")
        return builders.hypercube(bits(peers))
    options: dict[str, Any] = {"seed": seed, "degree": degree, "rewire": rewire, "probability": probability}
    options |= {"branching": branching, "period": period, "levels": levels}
    parameters = inspect.signature(BUILDERS[kind]).parameters
    return BUILDERS[kind](peers, **{name: value for name, value in options.items() if name in parameters})


def options_of(kind: str) -> tuple[str, ...]:
    """Return the names of what :func:`build` passes to a kind besides the number of peers.

    Examples
    --------
    >>> options_of("small_world"), options_of("torus")
    (('degree', 'rewire', 'seed'), ('rows',))
    """
    if kind in {"grid", "torus"}:
        return ("rows",)
    return tuple(inspect.signature(BUILDERS[kind]).parameters)[1:]


def check_kind(kind: str, *, registered: Iterable[str] = ()) -> None:
    """Raise :class:`TopologyError` unless there is a builder of this name; the message names the nearest.

    Parameters
    ----------
    kind
        Name of a kind.
    registered
        Further names to choose from, for the message.
    """
    if kind not in BUILDERS:
        names = [*BUILDERS, *registered]
        near = get_close_matches(kind.lower(), names, n=1, cutoff=0.0)[0]
        raise TopologyError(f'"{kind}" is not a kind of topology; use "{near}" or another of {", ".join(names)}')
