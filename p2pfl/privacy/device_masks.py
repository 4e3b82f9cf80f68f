"""Pairwise masks, and exact sums of weighted rows, as tensor operations, for simulations on an accelerator.

IEEE 754 or the arithmetic of integers fixes the result of every operation to the last bit, and each runs in a kernel
of its own, so no product is fused with a sum. The keystreams of ChaCha20 and the normal numbers equal those of the
numpy code, which live peers use, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import scipy  # imports scipy.sparse when that is first used, which takes 20 MiB

from p2pfl.core.rows import to_device
from p2pfl.core.tensors import torch
from p2pfl.privacy import normal_stream
from p2pfl.privacy.masks import Masks
from p2pfl.privacy.normal_stream import spans

NUMBERS_PER_DRAW = 2**23
"""Numbers that a device draws at a time: enough that it computes for longer than the CPU needs to launch its work."""

_MANTISSA = (1 << 52) - 1


WORDS_PER_BLOCK = 8
"""Words of 64 bits in a block of ChaCha20."""

_CONSTANTS = tuple(np.frombuffer(b"expand 32-byte k", "<i4").tolist())
_DOUBLE_ROUNDS = 10


def key_words(keys: Sequence[bytes], device: torch.device) -> torch.Tensor:
    """Return keys as the words of ChaCha20, ``[K, 8]`` int32 on a device; the CPU does not wait for the copy."""
    words = np.frombuffer(b"".join(keys), "<i4").astype(np.int32).reshape(len(keys), 8)  # [K, 8]
    return to_device(torch.from_numpy(words), device)


def keystream(keys: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Return blocks of the keystreams of some keys under nonce 0, as little-endian words, ``[K, 8 B]`` int64.

    It takes 480 operations on tensors, 230 elementary ones on 32 bits for each word.

    Parameters
    ----------
    keys
        ``[K, 8]`` int32, from :func:`key_words`.
    counts
        Numbers of the B blocks, ``[B]`` int32.

    References
    ----------
    RFC 8439, section 2.3.

    Examples
    --------
    >>> zeros = key_words([bytes(32)], torch.device("cpu"))
    >>> keystream(zeros, torch.tensor([0], dtype=torch.int32))[0, :2].tolist()
    [-8053014886254331786, 2935650227004792128]
    """
    constants = torch.stack([torch.full_like(keys[:1, :1], each) for each in _CONSTANTS])  # [4, 1, 1]
    nothing = torch.zeros_like(counts)
    last = torch.stack([counts, nothing, nothing, nothing])[:, None]  # [4, 1, B]
    start = constants, keys.T[:4, :, None], keys.T[4:, :, None], last
    shape = 4, len(keys), len(counts)
    a, b, c, d = (part.expand(shape).clone() for part in start)  # rows of the state, [4, K, B] each
    for _ in range(_DOUBLE_ROUNDS):
        a, b, c, d = _quarter_rounds(a, b, c, d)
        b, c, d = b.roll(-1, 0), c.roll(-2, 0), d.roll(-3, 0)  # diagonals become columns
        a, b, c, d = _quarter_rounds(a, b, c, d)
        b, c, d = b.roll(1, 0), c.roll(2, 0), d.roll(3, 0)
    for part, first in zip((a, b, c, d), start, strict=True):
        part.add_(first)
    blocks = torch.stack([a, b, c, d]).permute(2, 3, 0, 1).contiguous()  # [K, B, 4, 4]
    return blocks.view(len(keys), -1).view(torch.int64)  # [K, 8 B]; accelerators are little-endian


def _quarter_rounds(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return four columns after a quarter round of each; the arguments are overwritten."""
    a += b
    d = _rotate(d.bitwise_xor_(a), 16)
    c += d
    b = _rotate(b.bitwise_xor_(c), 12)
    a += b
    d = _rotate(d.bitwise_xor_(a), 8)
    c += d
    b = _rotate(b.bitwise_xor_(c), 7)
    return a, b, c, d


def _rotate(x: torch.Tensor, bits: int) -> torch.Tensor:
    """Return int32 rotated to the left by 7 to 16 bits; their shift to the right copies the sign, hence the mask."""
    low = x >> (32 - bits)
    low &= (1 << bits) - 1
    return low.add_(x, alpha=1 << bits)  # a product wraps around, so its low bits are zero


def normals(keys: torch.Tensor, columns: slice) -> torch.Tensor:
    """Return the same stretch of several standard normal streams, ``[K, columns]`` float64.

    Parameters
    ----------
    keys
        ``[K, 8]``, from :func:`key_words`.
    columns
        From a multiple of 8.

    Examples
    --------
    >>> normals(key_words([bytes(32)], torch.device("cpu")), slice(0, 1)).item()
    0.159709872675285
    """
    counts = torch.arange(
        columns.start // WORDS_PER_BLOCK, -(-columns.stop // WORDS_PER_BLOCK), dtype=torch.int32, device=keys.device
    )  # [B]
    words = keystream(keys, counts)[:, : columns.stop - columns.start]  # [K, columns]
    return _quantiles(words)


def to_grid(values: torch.Tensor, *, scale: float) -> torch.Tensor:
    """Scale and round to whole numbers, half to even; the result overwrites ``values``.

    Examples
    --------
    >>> to_grid(torch.tensor([0.25, -0.75, 3.0], dtype=torch.float64), scale=2.0)
    tensor([ 0, -2,  6])
    """
    values *= scale
    values += normal_stream.ROUNDER
    points = values.view(torch.int64)
    points -= normal_stream.ROUNDER_BITS
    return points


def _quantiles(words: torch.Tensor) -> torch.Tensor:
    """Map random words by the inverse normal distribution function, as :func:`p2pfl.privacy.normal_stream.normals`."""
    bits = words >> 12
    bits &= _MANTISSA  # a shift to the right copies the sign
    bits |= normal_stream.ONE_BITS
    q = bits.view(torch.float64)  # 1 + k 2^-52
    q -= 1.5
    q += 2.0**-53  # u - 1/2, exactly
    p = 0.5 - q.abs()  # min(u, 1 - u), exactly
    t = p - (p.view(torch.int64) & normal_stream.CELL_MASK).view(
        torch.float64
    )  # from the left end of the cell, exactly
    cell = p.view(torch.int64) >> normal_stream.CELL_SHIFT
    cell -= normal_stream.FIRST_CELL
    third, second, first = _table(str(words.device))
    z = third[cell]
    for coefficients in (second, first):
        z *= t
        z += coefficients[cell]
    return z.copysign_(q)


@lru_cache(maxsize=2)
def _table(device: str) -> tuple[torch.Tensor, ...]:
    """Return the coefficients of the parabolas on a device, ``[cells]`` each."""
    return tuple(to_device(torch.from_numpy(each), torch.device(device)) for each in normal_stream.parabolas())


def mask_sums(
    masks: Masks, peers: Sequence[str], *, round: int, size: int, device: torch.device, attempt: int = 0
) -> torch.Tensor:
    """Return the sums of :meth:`p2pfl.privacy.masks.Masks.sums`, ``[R, P]`` int64, drawn by a device.

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
    for columns in spans(size, NUMBERS_PER_DRAW):
        for group in spans(len(drawn), max(1, NUMBERS_PER_DRAW // size)):  # short rows: many edges at a time
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
    for columns in spans(size, NUMBERS_PER_DRAW):
        for edges in spans(len(listener), max(1, NUMBERS_PER_DRAW // size)):
            terms = points[:, columns].index_select(0, of[edges])  # [edges, columns]
            terms *= weight[edges]
            sums[:, columns].index_add_(0, to[edges], to_grid(terms, scale=1.0))
    return sums
