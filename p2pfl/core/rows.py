"""Rows: the trained parameters of a peer's model, flattened to ``[P]``.

Every function of this module but :func:`mean` acts on the last axis of ``[R, P]`` and neither assumes nor reduces the
leading one: ``R = 1`` on a device, ``R = N`` in a simulation.
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np

from p2pfl.core.process import cores, spread
from p2pfl.core.tensors import torch

Rows = torch.Tensor
"""Tensor ``[R, P]`` with one row for each local peer."""

NUMBERS_PER_BLOCK = 2**18
"""Numbers of a block of rows that one core computes at a time."""

NUMBERS_PER_DEVICE_BLOCK = 2**26
"""The same on an accelerator, where starting work dominates."""

NUMBERS_PER_RUN = 2**12
"""Numbers of a long row whose squares :func:`distances` sums in single precision."""


@dataclass(frozen=True)
class Layout:
    """Places of the named tensors of a model in its row.

    Parameters
    ----------
    names, shapes
        Names and shapes of the trained tensors, in the order of concatenation.
    local
        Names of the tensors that never leave their peer.

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
    local: tuple[str, ...] = ()

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of values of each tensor."""
        return tuple(math.prod(shape) for shape in self.shapes)

    @property
    def size(self) -> int:
        """Length P of a row."""
        return sum(self.sizes)

    def mask(self, names: Collection[str]) -> torch.Tensor:
        """Return which numbers of a row belong to tensors of these names, ``[P]`` bool.

        Examples
        --------
        >>> Layout(("weight", "bias"), ((2,), (1,))).mask({"bias"})
        tensor([False, False,  True])
        """
        parts = [
            torch.full((length,), name in names, dtype=torch.bool)
            for name, length in zip(self.names, self.sizes, strict=True)
        ]
        return torch.cat([torch.empty(0, dtype=torch.bool), *parts])  # [P]

    def split(self, rows: Rows) -> dict[str, torch.Tensor]:
        """Return views of ``[R, P]`` as ``{name: [R, *shape]}``, without copying."""
        parts: dict[str, torch.Tensor] = {}
        start = 0
        for name, shape, length in zip(self.names, self.shapes, self.sizes, strict=True):
            parts[name] = rows[..., start : start + length].view((*rows.shape[:-1], *shape))  # [R, *shape]
            start += length
        return parts

    def join(self, parts: Mapping[str, torch.Tensor]) -> Rows:
        """Concatenate ``{name: [R, *shape]}`` to ``[R, P]``; the inverse of :meth:`split`."""
        flat = [
            parts[name].flatten(parts[name].dim() - len(shape)) if shape else parts[name].unsqueeze(-1)
            for name, shape in zip(self.names, self.shapes, strict=True)
        ]
        return torch.cat(flat, dim=-1)  # [R, P]


def to_device(values: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return values on a device; nothing waits for a copy to an accelerator, on which later work runs in order.

    Rows that are :func:`repeated` stay so.

    Examples
    --------
    >>> to_device(torch.ones(2), torch.device("cpu"))
    tensor([1., 1.])
    """
    if values.device == device:
        return values
    if values.dim() and repeated(values):
        return to_device(values[:1], device).expand(values.shape)
    if device.type == "cpu":
        return values.to(device)
    if device.type == "cuda" and values.device.type == "cpu":
        values = values.pin_memory()  # a copy of other memory waits for the work before it
    return values.to(device, non_blocking=True)


def repeated(rows: torch.Tensor) -> bool:
    """Return whether all rows are one in memory, as :meth:`torch.Tensor.expand` makes them.

    Rows that are equal by construction, as at the start and after an exact average, are kept so. Nothing may write into
    them.

    Examples
    --------
    >>> repeated(torch.ones(1, 2).expand(3, 2)), repeated(torch.ones(3, 2))
    (True, False)
    """
    return len(rows) > 1 and rows.stride(0) == 0


def norms(rows: Rows) -> torch.Tensor:
    """Return the L2 norm of each row, ``[R, 1]``, summed in double precision.

    Examples
    --------
    >>> norms(torch.tensor([[3.0, 4.0]]))
    tensor([[5.]], dtype=torch.float64)
    """
    if repeated(rows):
        return _norms(rows[:1]).expand(len(rows), 1)
    if rows.dim() != 2 or len(rows) < 2 or rows.device.type != "cpu":
        return _norms(rows)
    lengths = torch.empty(len(rows), 1, dtype=torch.float64)  # [R, 1]
    for_each_block(lambda part: lengths[part].copy_(_norms(rows[part])), rows)
    return lengths


def _norms(rows: Rows) -> torch.Tensor:
    """Return the norms of a block; on the CPU this holds it in double precision."""
    lengths: torch.Tensor = torch.linalg.vector_norm(rows, dim=-1, keepdim=True, dtype=torch.float64)  # [R, 1]
    return lengths


def _height(rows: Rows) -> int:
    """Return the number of rows in a block."""
    return max(1, NUMBERS_PER_BLOCK // max(1, rows.shape[-1]))


def for_each_block(
    work: Callable[[slice], object], rows: Rows, *, numbers: int | None = None, workers: int | None = None
) -> None:
    """Do some work on each block of rows, on the CPU in several threads: a block has so many numbers, or one row.

    Parameters
    ----------
    work
        Function of the rows of a block, which other blocks do not depend on.
    rows
        The rows ``[R, P]``.
    numbers
        Numbers in a block. Default: :data:`NUMBERS_PER_BLOCK`, on an accelerator :data:`NUMBERS_PER_DEVICE_BLOCK`.
    workers
        Largest number of threads, where the work on a block takes much memory; all cores by default.

    Examples
    --------
    >>> rows = torch.zeros(3, 2)
    >>> for_each_block(lambda part: rows[part].add_(1), rows, numbers=4)
    >>> rows.sum()
    tensor(6.)
    """
    here = rows.device.type == "cpu"
    height = max(1, (numbers or (NUMBERS_PER_BLOCK if here else NUMBERS_PER_DEVICE_BLOCK)) // max(1, rows.shape[-1]))
    blocks = [slice(low, low + height) for low in range(0, len(rows), height)]

    def one(_number: int, block: slice) -> None:
        work(block)

    threads = min(cores(), workers or cores()) if here and len(blocks) > 1 else 1
    spread(one, blocks, workers=threads)


def blockwise(function: Callable[..., Rows], *stacks: torch.Tensor, out: Rows | None = None) -> Rows:
    """Return ``function(*stacks)``, ``[R, P]``, for a function that treats each number by itself.

    On the CPU it is computed in blocks of rows, so that intermediate results take little memory and stay in the cache.
    If all stacks are :func:`repeated`, it computes one row.

    Parameters
    ----------
    function
        Function of blocks of the stacks; its result has the shape and the number type of the first one.
    stacks
        ``[R, P]`` or ``[R, 1]`` each.
    out
        Memory of the result, which may be that of a stack; new memory by default, and where its rows are one.

    Examples
    --------
    >>> blockwise(lambda rows, factor: (rows * factor).to(rows.dtype), torch.ones(2, 3), torch.tensor([[1.0], [2.0]]))
    tensor([[1., 1., 1.],
            [2., 2., 2.]])
    """
    first = stacks[0]
    if out is None and all(map(repeated, stacks)):
        return function(*(stack[:1] for stack in stacks)).expand_as(first)
    if out is None and (len(first) <= _height(first) or first.device.type != "cpu"):
        return function(*stacks)
    result = torch.empty_like(first) if out is None or repeated(out) else out  # [R, P]
    for_each_block(lambda part: result[part].copy_(function(*(stack[part] for stack in stacks))), first)
    return result


def alike(rows: Rows) -> bool:
    """Return whether all rows are the same; this waits for the device."""
    if repeated(rows):
        return True
    if rows.device.type != "cpu":
        return bool((rows == rows[0]).all())
    return all(bool((part == rows[0]).all()) for part in torch.split(rows, _height(rows)))


def held_once(rows: Rows) -> Rows:
    """Return rows that are all the same as one in memory, and others as they are; this waits for the device."""
    return rows[:1].expand_as(rows) if len(rows) > 1 and alike(rows) else rows


def mean(rows: Rows) -> torch.Tensor:
    """Return the mean row, ``[P]``; on the CPU, several threads take some columns each.

    Examples
    --------
    >>> mean(torch.tensor([[1.0, 2.0], [3.0, 6.0]]))
    tensor([2., 4.])
    """
    if repeated(rows):
        return rows[0]
    if rows.numel() <= NUMBERS_PER_BLOCK or rows.device.type != "cpu":
        return rows.mean(0)
    means = rows.new_empty(rows.shape[-1])  # [P]
    width = max(NUMBERS_PER_RUN, NUMBERS_PER_BLOCK // len(rows))
    columns = [slice(low, low + width) for low in range(0, rows.shape[-1], width)]

    def one(_number: int, some: slice) -> None:
        torch.mean(rows[:, some], 0, out=means[some])

    spread(one, columns, workers=cores())
    return means


def raw(row: torch.Tensor) -> memoryview:
    """Return the bytes of a row ``[P]`` as they lie in memory; a view if it is on the CPU."""
    row = row.detach().cpu().contiguous()
    return memoryview(row.view(torch.uint8).numpy()) if row.numel() else memoryview(b"")  # type: ignore[arg-type]


def part_of(rows: Rows, where: torch.Tensor | None) -> Rows:
    """Return the numbers at some places ``[Q]``, or all of them if that is ``None``.

    Examples
    --------
    >>> rows, where = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([0, 2])
    >>> with_part(rows, 2 * part_of(rows, where), where)
    tensor([[2., 2., 6.]])
    """
    return rows if where is None else rows.index_select(-1, to_device(where, rows.device))


def with_part(rows: Rows, part: Rows, where: torch.Tensor | None) -> Rows:
    """Return rows with other numbers at some places, or at all of them; the counterpart of :func:`part_of`."""
    return part if where is None else rows.index_copy(-1, to_device(where, rows.device), part)


def scale_rows(rows: Rows, factor: float) -> Rows:
    """Return ``factor * rows`` in memory that may be written to.

    On the CPU, numpy allocates the memory, because it requests huge pages; page by page the fresh memory of a
    50 MB row costs three times the product.
    """
    if rows.device.type != "cpu" or rows.dtype == torch.bfloat16:
        return rows * factor
    out = torch.from_numpy(np.empty(rows.shape, rows.numpy().dtype))
    return torch.mul(rows, factor, out=out)


def distances(a: Rows, b: Rows, *, factor: torch.Tensor | None = None, block: int = NUMBERS_PER_BLOCK) -> torch.Tensor:
    r"""Return the distances of two stacks, row by row: :math:`\lVert a - f b \rVert_2`, ``[R, 1]``, f = 1 by default.

    They are computed in blocks of columns, and on the CPU of rows, so that no third stack is held. Of long float32 rows
    on the CPU, squares are summed in single precision among :data:`NUMBERS_PER_RUN` numbers, which takes half the time.
    """
    height = max(1, block // max(1, a.shape[-1]))
    if repeated(a) and repeated(b) and (factor is None or repeated(factor)):
        one = None if factor is None else factor[:1]
        return distances(a[:1], b[:1], factor=one, block=block).expand(len(a), 1)
    if a.dim() == 2 and len(a) > height and a.device.type == "cpu":
        lengths = torch.empty(len(a), 1, dtype=torch.float64)  # [R, 1]

        def some(part: slice) -> None:
            own = None if factor is None else factor[part]
            lengths[part] = distances(a[part], b[part], factor=own, block=block)

        for_each_block(some, a, numbers=block)
        return lengths
    if a.shape[-1] <= block:  # a round of small live models takes few calls
        return _lengths(a - (b if factor is None else b * factor.to(b)))
    squares = torch.zeros(*a.shape[:-1], 1, dtype=torch.float64, device=a.device)
    room = torch.empty_like(a[..., :block])  # one for all blocks, as each page of new memory costs a page fault
    for start in range(0, a.shape[-1], block):
        where = ..., slice(start, start + block)
        own, other = a[where], b[where] if factor is None else b[where] * factor.to(b)
        squares += _lengths(torch.sub(own, other, out=room[..., : own.shape[-1]])) ** 2
    return squares.sqrt()


def _lengths(rows: Rows) -> torch.Tensor:
    """Return the L2 norms of differences, ``[R, 1]``; of long float32 rows by sums in single precision."""
    length = rows.shape[-1]
    if length <= NUMBERS_PER_RUN or rows.dtype != torch.float32 or rows.device.type != "cpu":
        return norms(rows)
    even = length - length % NUMBERS_PER_RUN
    runs = torch.linalg.vector_norm(
        rows[..., :even].view(*rows.shape[:-1], -1, NUMBERS_PER_RUN), dim=-1
    )  # [R, P / RUN]
    rest = torch.linalg.vector_norm(rows[..., even:], dim=-1, keepdim=True)  # [R, 1]
    lengths = norms(torch.cat((runs, rest), dim=-1))  # [R, 1]
    return lengths if bool(lengths.isfinite().all()) else norms(rows)  # the squares of large numbers overflow
