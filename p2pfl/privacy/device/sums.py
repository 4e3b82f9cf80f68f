"""Exact sums of weighted rows on an accelerator."""

from __future__ import annotations

import numpy as np
import scipy.sparse
import torch

from p2pfl.core.rows import to_device
from p2pfl.privacy.device.stream import WIDE, to_grid
from p2pfl.privacy.normal_stream import spans


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
