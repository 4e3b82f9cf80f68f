"""Pairwise masks, and exact sums of weighted rows, on an accelerator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse
import torch

from p2pfl.core.rows import to_device
from p2pfl.privacy.device.device_stream import WIDE, key_words, normals, to_grid
from p2pfl.privacy.masks import Masks
from p2pfl.privacy.normal_stream import spans


def mask_sums(
    masks: Masks, peers: Sequence[str], *, round: int, size: int, device: torch.device, attempt: int = 0
) -> torch.Tensor:
    """Return what :meth:`p2pfl.privacy.masks.Masks.sums` does, ``[R, P]`` int64, drawn by a device.

    The CPU derives one key for each edge, and does not wait for the device.

    Parameters
    ----------
    masks
        Masks of the peers.
    peers, round, size, attempt
        Arguments of ``sums``.
    device
        Device of the result.

    Examples
    --------
    >>> from p2pfl.privacy.keys import SeededSource
    >>> from p2pfl.privacy.masks import swarm_secrets
    >>> from p2pfl.topology import ring
    >>> swarm = ring(4)
    >>> masks = Masks(swarm_secrets(swarm, source=SeededSource(7), run="demo"), deviation=10.0, topology=swarm)
    >>> sums = mask_sums(masks, swarm.peers, round=0, size=5, device=torch.device("cpu"))
    >>> bool((sums.numpy() == masks.sums(swarm.peers, round=0, size=5)).all())
    True
    """
    row = {peer: number for number, peer in enumerate(peers)}
    elsewhere = len(peers)  # peers of other processes share a row that nobody reads
    sums = torch.zeros(len(peers) + 1, size, dtype=torch.int64, device=device)  # [R + 1, P]
    drawn = masks.keys(peers, round=round, attempt=attempt)
    if not drawn or not size:
        return sums[:elsewhere]
    ends = torch.tensor([[row.get(a, elsewhere), row.get(b, elsewhere)] for a, b in drawn])  # [E, 2]
    keys, plus, minus = key_words([*drawn.values()], device), *(to_device(end, device) for end in ends.T.contiguous())
    for columns in spans(size, WIDE):
        for group in spans(len(drawn), max(1, WIDE // size)):  # short rows: many edges at a time
            points = to_grid(normals(keys[group], columns), scale=masks.scale)  # [group, columns]
            sums[:, columns].index_add_(0, plus[group], points)
            sums[:, columns].index_add_(0, minus[group], points, alpha=-1)
    return sums[:elsewhere]


def weighted_sums(weights: scipy.sparse.csr_array, points: torch.Tensor) -> torch.Tensor:
    r"""Return :math:`\sum_j \mathrm{rint}(W_{rj} x_j)`, ``[R, P]`` int64, as :func:`.portions` does.

    Integers are added, so their order does not matter.

    Parameters
    ----------
    weights
        ``[R, S]``.
    points
        ``[S, P]`` float64, in steps of the grid; smaller than ``LIMIT``.

    Examples
    --------
    >>> weights = scipy.sparse.csr_array([[0.5, 0.5], [0.0, 1.0]])
    >>> weighted_sums(weights, torch.tensor([[3.0, 4.0], [5.0, 8.0]], dtype=torch.float64))
    tensor([[4, 6],
            [5, 8]])
    """
    count, size, device = weights.shape[0], points.shape[1], points.device
    listener = np.repeat(np.arange(count), np.diff(weights.indptr))  # [E]
    to, of = to_device(torch.from_numpy(listener), device), to_device(torch.from_numpy(weights.indices).long(), device)
    weight = to_device(torch.from_numpy(weights.data), device)[:, None]  # [E, 1]
    sums = torch.zeros(count, size, dtype=torch.int64, device=device)  # [R, P]
    for columns in spans(size, WIDE):
        for edges in spans(len(listener), max(1, WIDE // size)):
            terms = points[:, columns].index_select(0, of[edges])  # [edges, columns]
            terms *= weight[edges]
            sums[:, columns].index_add_(0, to[edges], to_grid(terms, scale=1.0))
    return sums
