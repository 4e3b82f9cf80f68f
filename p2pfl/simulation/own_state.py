"""State of the peers that took part in rounds of a cohort: tensors without rows for those that never did."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import torch

from p2pfl.algorithms import State
from p2pfl.core.encodings import Ints
from p2pfl.core.rows import repeated, to_device

APART = "peers apart"
"""Name, in the extra tensors of a state, of the numbers of the peers that have rows in the others, ``[A]``.

The row after theirs, if there is one, is that of all other peers."""


def pick(values: torch.Tensor, apart: Ints, places: Ints) -> torch.Tensor:
    """Return the values of the peers at some places, ``[R, ...]``, out of those of the peers apart and of one other.

    Examples
    --------
    >>> pick(torch.tensor([[5], [8], [0]]), np.array([2, 7]), np.array([1, 2, 3, 7])).flatten().tolist()
    [0, 5, 0, 8]
    """
    if repeated(values):
        return values[:1].expand(len(places), *values.shape[1:])
    rows = np.searchsorted(apart, places)
    rows[~np.isin(places, apart)] = len(apart)
    return values[to_device(torch.from_numpy(rows), values.device)]


def apart_of(state: State) -> Ints | None:
    """Return the numbers of the peers with rows of their own, sorted; ``None`` where each peer has a row."""
    numbers = state.extra.get(APART)
    return None if numbers is None else numbers.numpy()


def map_own(state: State, function: Callable[[torch.Tensor], torch.Tensor], *, apart: Ints | None = None) -> State:
    """Return a state with a function of the tensors of algorithm and optimiser, and with other peers apart."""

    def each(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: function(value) for name, value in tensors.items() if name != APART}

    extra = each(state.extra) | ({} if apart is None else {APART: torch.from_numpy(apart)})
    return replace(state, extra=extra, memory=None if state.memory is None else each(state.memory))


def unpacked(state: State, *, peers: int) -> State:
    """Return a state in which each peer has a row."""
    apart = apart_of(state)
    return state if apart is None else map_own(state, lambda values: pick(values, apart, np.arange(peers)))
