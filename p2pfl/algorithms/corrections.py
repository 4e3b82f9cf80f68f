"""Terms that an algorithm adds to the gradients of local training."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch

from p2pfl.learning import Correction
from p2pfl.rows import Rows


def beside(rows: Rows) -> Callable[[Rows, torch.Tensor], Rows]:
    """Return a function that selects K of R rows on the device of training, to which it copies them once.

    Examples
    --------
    >>> beside(torch.tensor([[1.0], [2.0]]))(torch.zeros(1, 1), torch.tensor([1]))
    tensor([[2.]])
    """

    @cache
    def there(device: torch.device, dtype: torch.dtype) -> Rows:
        return rows.to(device, dtype)

    return lambda like, indices: there(like.device, like.dtype).index_select(0, indices)  # [K, P]


def constant(terms: Rows) -> Correction:
    """Return a correction that adds the same terms ``[R, P]`` at every step."""
    return beside(terms)


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
    home = beside(anchor)
    return lambda rows, indices: strength * (rows - home(rows, indices))
