"""Terms that an algorithm adds to the gradients of local training."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache

import torch

from p2pfl.core.rows import Rows
from p2pfl.learning import Correction

THREADS = 4
"""Selections of rows that are kept, one for each thread that trains."""


def select_on_device(rows: Rows) -> Callable[[Rows, torch.Tensor], Rows]:
    """Return a function that selects K of R rows on the device of training, to which it copies them once.

    Steps of the same rows follow each other, so what was selected last is kept, for a few threads.

    Examples
    --------
    >>> select_on_device(torch.tensor([[1.0], [2.0]]))(torch.zeros(1, 1), torch.tensor([1]))
    tensor([[2.]])
    """

    @cache
    def there(device: torch.device, dtype: torch.dtype) -> Rows:
        return rows.to(device, dtype)

    @lru_cache(maxsize=THREADS)
    def selected(indices: torch.Tensor, device: torch.device, dtype: torch.dtype) -> Rows:
        return there(device, dtype).index_select(0, indices)  # [K, P]

    return lambda like, indices: selected(indices, like.device, like.dtype)


def constant(terms: Rows) -> Correction:
    """Return a correction that adds the same terms ``[R, P]`` at every step."""
    return select_on_device(terms)


def proximal(anchor: Rows, *, strength: float) -> Correction | None:
    r"""Return the gradient :math:`\mu (x - a)` of :math:`\frac{\mu}{2} \lVert x - a \rVert^2`; ``None`` if it is zero.

    Parameters
    ----------
    anchor
        a, ``[R, P]``.
    strength
        :math:`\mu`.
    """
    if not strength:
        return None
    home = select_on_device(anchor)
    return lambda rows, indices: torch.sub(rows, home(rows, indices)).mul_(strength)
