"""A peer is one row: the trained numbers of its model, flattened to ``[P]``.

Every function here acts on the last axis of ``[R, P]`` and neither assumes nor
reduces the leading one: ``R = 1`` on a device, ``R = N`` in a simulation.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from p2pfl.draws import draw

__all__ = ["Layout", "Rows", "clip", "distances", "draw", "narrowed", "norms", "raw", "scaled"]

Rows = torch.Tensor
"""``[R, P]``: one row for each peer at hand."""


@dataclass(frozen=True)
class Layout:
    """Where each named tensor of a model lies in its row.

    Parameters
    ----------
    names, shapes
        The trained tensors in the order in which they are laid end to end.

    Examples
    --------
    >>> layout = Layout(("weight", "bias"), ((2, 3), (2,)))
    >>> layout.size, layout.sizes
    (8, (6, 2))
    >>> layout.split(torch.arange(16.0).view(2, 8))["bias"]
    tensor([[ 6.,  7.],
            [14., 15.]])
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many numbers of a row belong to each tensor."""
        return tuple(math.prod(shape) for shape in self.shapes)

    @property
    def size(self) -> int:
        """P, the length of a row."""
        return sum(self.sizes)

    def split(self, rows: Rows) -> dict[str, torch.Tensor]:
        """Views of ``[R, P]`` as ``{name: [R, *shape]}``; nothing is copied."""
        parts: dict[str, torch.Tensor] = {}
        start = 0
        for name, shape, length in zip(self.names, self.shapes, self.sizes, strict=True):
            parts[name] = rows[..., start : start + length].view((*rows.shape[:-1], *shape))  # [R, *shape]
            start += length
        return parts

    def join(self, parts: Mapping[str, torch.Tensor]) -> Rows:
        """Lay ``{name: [R, *shape]}`` end to end; the inverse of :meth:`split`."""
        flat = [
            parts[name].flatten(parts[name].dim() - len(shape)) if shape else parts[name].unsqueeze(-1)
            for name, shape in zip(self.names, self.shapes, strict=True)
        ]
        return torch.cat(flat, dim=-1)  # [R, P]


def norms(rows: Rows) -> torch.Tensor:
    """L2 norm of each row, ``[R, 1]``, summed in double precision."""
    lengths: torch.Tensor = torch.linalg.vector_norm(rows, dim=-1, keepdim=True, dtype=torch.float64)  # [R, 1]
    return lengths


def narrowed(row: torch.Tensor) -> torch.Tensor:
    """An int64 row as int32 where every number fits, else itself."""
    if row.dtype != torch.int64 or row.numel() == 0:
        return row
    low, high = torch.aminmax(row)
    bounds = torch.iinfo(torch.int32)
    return row.to(torch.int32) if low >= bounds.min and high <= bounds.max else row


def raw(row: torch.Tensor) -> memoryview:
    """The bytes of a row ``[P]`` as they lie in memory; a view where it is on the CPU."""
    row = row.detach().cpu().contiguous()
    return memoryview(row.view(torch.uint8).numpy()) if row.numel() else memoryview(b"")  # type: ignore[arg-type]


def scaled(rows: Rows, factor: float) -> Rows:
    """``factor * rows`` in memory that may be written to.

    On the CPU numpy takes the memory, as it asks for huge pages; page by page the fresh memory of a
    50 MB row costs three times the product.
    """
    if rows.device.type != "cpu" or rows.dtype == torch.bfloat16:
        return rows * factor
    out = torch.from_numpy(np.empty(rows.shape, rows.numpy().dtype))
    return torch.mul(rows, factor, out=out)


def distances(a: Rows, b: Rows, *, factor: torch.Tensor | None = None, block: int = 2**20) -> torch.Tensor:
    r"""How far apart two stacks are, row by row: :math:`\lVert a - f b \rVert_2`, ``[R, 1]``, f = 1 if there is none.

    Taken in blocks of columns, so that no third stack is held.
    """
    squares = torch.zeros(*a.shape[:-1], 1, dtype=torch.float64, device=a.device)
    for start in range(0, a.shape[-1], block):
        other = b[..., start : start + block]
        if factor is not None:
            other = other * factor.to(other)  # [R, block]
        squares += norms(a[..., start : start + block] - other) ** 2
    return squares.sqrt()


def clip(rows: Rows, bound: float) -> Rows:
    r"""Scale each row to norm at most ``bound``: :math:`x \min(1, C / \lVert x \rVert)`.

    An infinite bound returns the rows themselves, untouched.
    """
    if math.isinf(bound):
        return rows
    factor = (bound / norms(rows).clamp_min(torch.finfo(torch.float64).tiny)).clamp_max(1.0)  # [R, 1]
    return rows * factor.to(rows.dtype)
