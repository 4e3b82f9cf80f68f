"""One more release of what is public already: it pays masks that only one end of an edge applied.

Nothing here runs an algorithm's round, so that nothing its state keeps beside ``public`` can leave. An algorithm
declares what differs from a release of the whole row by these optional attributes:

``places(size, *, round)``
    The places of a row of ``size`` numbers that it releases in a round, ``[Q]`` int64; by default all of them. It is
    the same at every peer.
``average``
    The :class:`~p2pfl.algorithms.Averaging` that gives its releases their weights; by default all peers count alike.
``settle(state, average)``
    The state in which ``average``, ``[R, P]``, takes the place of ``state.public``; by default the peer's own row moves
    as far as the public one. It sees no neighbourhood, so that it cannot release anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch

from p2pfl.algorithms.algorithm import Algorithm, AsyncLearner, State
from p2pfl.algorithms.averaging import average_of
from p2pfl.algorithms.gossip import Gossip
from p2pfl.core.neighbourhood import Neighbourhood, Public, derived
from p2pfl.core.rows import to_device


def places(algorithm: Algorithm, size: int, *, round: int) -> torch.Tensor:
    """Return the places of a row that an algorithm releases in a round, ``[Q]`` int64 in the order of the release.

    Examples
    --------
    >>> from p2pfl.algorithms import DPSGD
    >>> places(DPSGD(), 3, round=0)
    tensor([0, 1, 2])
    """
    declared = getattr(algorithm, "places", None)
    positions: torch.Tensor = torch.arange(size) if declared is None else declared(size, round=round)  # [Q]
    return positions


def settling_places(algorithm: Algorithm, size: int, *, rounds: Iterable[int]) -> torch.Tensor:
    """Return the places that an algorithm releases in any of the rounds, ``[Q]`` int64 in rising order."""
    if getattr(algorithm, "places", None) is None:
        return torch.arange(size)
    positions = [places(algorithm, size, round=round) for round in rounds]
    released: torch.Tensor = torch.unique(torch.cat([torch.empty(0, dtype=torch.int64), *positions]))  # sorted
    return released


async def settle(
    algorithm: Algorithm,
    state: State,
    learner: AsyncLearner,
    net: Neighbourhood,
    *,
    gossip: Gossip,
    rounds: int,
    participation: float = 1.0,
) -> State:
    """Release the public rows once more with the places and weights of the algorithm's releases, and mix them.

    Parameters
    ----------
    algorithm, state
        What was learned. Of the state, ``public`` alone is released.
    learner
        Says how many samples each peer has, and trains nothing.
    net
        Adds the masks that are owed.
    gossip
        Gossip that mixes the rows.
    rounds
        Number of rounds that ran. Peers count as in the last of them, whose masks are the ones most often owed.
    participation
        By how much the rounds scaled all weights, see :mod:`p2pfl.privacy.release`.

    Returns
    -------
    State
        With the masks in it that were paid.
    """
    before = state.public.rows  # [R, P]
    where = to_device(settling_places(algorithm, before.shape[-1], rounds=range(rounds)), before.device)
    public = derived(lambda rows: rows.index_select(-1, where), state.public)  # [R, Q]
    masses = await _masses(algorithm, learner, net, round=rounds - 1)
    if participation < 1:
        masses = participation * (torch.ones(len(before), 1, dtype=torch.float64) if masses is None else masses)
    released = await net.release(public.rows, since=public, masses=masses)
    mean = (await gossip(net, released)).average(own=public)  # [R, Q]
    average = derived(lambda rows, part: rows.index_copy(-1, where, part), state.public, mean)  # [R, P]
    declared = getattr(algorithm, "settle", follow_average)
    settled: State = declared(state, average)
    return settled


def follow_average(state: State, average: Public) -> State:
    """Return the state with ``average`` as its public rows, and its own rows moved as far as these."""
    before, after = state.public.rows, average.rows
    moved = state.rows + (after - before)
    rows = torch.where(state.rows == before, after, moved)  # equal rows stay equal to the last bit
    return replace(state, rows=rows, public=average)


async def _masses(
    algorithm: Algorithm, learner: AsyncLearner, net: Neighbourhood, *, round: int
) -> torch.Tensor | None:
    """Return the masses of a round's releases, ``[R, 1]``; ``None`` where all peers count alike."""
    average = average_of(algorithm)
    if average is None:
        return None
    return await average.masses(learner, net, average.participants(net.peers, round=round))
