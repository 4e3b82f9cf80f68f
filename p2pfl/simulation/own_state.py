"""State of the peers that took part in rounds of a cohort: tensors without rows for those that never did."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import torch

from p2pfl.algorithms import State
from p2pfl.core.encodings import Ints
from p2pfl.core.rows import Rows, mean, repeated, to_device

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


def has_few_models(state: State) -> bool:
    """Return whether the models, too, are those of the peers apart and one other."""
    return len(state.rows) < len(state.public.rows)


def models_of(state: State, numbers: Ints) -> Rows:
    """Return the models of the peers with some numbers, ``[K, P]``."""
    apart = apart_of(state)
    if apart is None or not has_few_models(state):
        return state.rows[to_device(torch.from_numpy(numbers), state.rows.device)]
    return pick(state.rows, apart, numbers)


def mean_model(state: State, *, peers: int) -> torch.Tensor:
    """Return the mean of the models of so many peers, ``[P]``, who have rows each or are those apart and all others.

    Examples
    --------
    >>> from p2pfl.core.neighbourhood import Public
    >>> apart = {APART: torch.tensor([2])}
    >>> rows = torch.tensor([[6.0], [2.0]])
    >>> mean_model(State(rows, Public(torch.zeros(1, 1).expand(4, 1)), extra=apart), peers=4)
    tensor([3.])
    """
    apart, rows = apart_of(state), state.rows
    if apart is None or not has_few_models(state):
        return mean(rows)
    weights = torch.full((len(rows),), 1 / peers, dtype=torch.float64)
    weights[-1] = (peers - len(apart)) / peers
    return to_device(weights.to(rows.dtype), rows.device) @ rows


def map_own(state: State, function: Callable[[torch.Tensor], torch.Tensor], *, apart: Ints | None = None) -> State:
    """Return a state with a function of the tensors of algorithm and optimiser, and with other peers apart."""

    def each(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: function(value) for name, value in tensors.items() if name != APART}

    extra = each(state.extra) | ({} if apart is None else {APART: torch.from_numpy(apart)})
    return replace(state, extra=extra, memory=None if state.memory is None else each(state.memory))


def unpacked(state: State, *, peers: int) -> State:
    """Return a state in which each peer has a row."""
    apart = apart_of(state)
    if apart is None:
        return state
    everyone = np.arange(peers)
    rows = pick(state.rows, apart, everyone) if has_few_models(state) else state.rows
    return replace(map_own(state, lambda values: pick(values, apart, everyone)), rows=rows)
