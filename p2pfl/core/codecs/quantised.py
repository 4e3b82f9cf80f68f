"""QSGD: random rounding of each number to one of few levels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from p2pfl.core.codecs.bits import bits_for
from p2pfl.core.codecs.codecs import At, Codes, Part, Whole
from p2pfl.core.errors import InputError
from p2pfl.core.rows import Rows, blockwise, for_each_block, keys, norms, subkeys, to_device
from p2pfl.core.traits import CodecTraits


@dataclass(frozen=True)
class QSGD:
    r"""Codec of random rounding to s levels of the norm, scaled so that it contracts.

    .. math:: Q(x) = \frac{\operatorname{sign}(x) \lVert x \rVert}{s \tau}
              \left\lfloor s \frac{|x|}{\lVert x \rVert} + \xi \right\rfloor, \qquad
              \tau = 1 + \min\left(\frac{P}{s^2}, \frac{\sqrt P}{s}\right)

    with :math:`\xi` uniform in [0, 1) for each number, a hash of a key.
    :math:`E \lVert Q(x) - x \rVert^2 \le (1 - 1 / \tau) \lVert x \rVert^2`.

    Parameters
    ----------
    levels
        s. A number takes :math:`\lceil \log_2(2 s + 1) \rceil` bits: 4 for 7 levels, 8 for 127.
    seed
        Seed of :math:`\xi`.

    Raises
    ------
    InputError
        ``levels`` is out of range.

    References
    ----------
    Alistarh et al., QSGD: communication-efficient SGD via gradient quantization and encoding, NIPS 2017; shrunk as in
    Koloskova et al., Decentralized stochastic optimization and gossip algorithms with compressed communication, ICML
    2019, section 3.5.

    Examples
    --------
    >>> from p2pfl.core.codecs import coded
    >>> coded(QSGD(levels=4, seed=0), torch.tensor([[3.0, 0.0, -4.0]]), at=At(("ada",), 0, 0))[0]
    tensor([[ 2.1053,  0.0000, -4.2105]])
    """

    levels: int = 127
    seed: int = 0
    traits: ClassVar[CodecTraits] = CodecTraits(differences=True)
    number: int = 4

    def __post_init__(self) -> None:
        if not 1 <= self.levels < 2**15:
            raise InputError(f"levels is {self.levels}, not from 1 to 32767; 7 take 4 bits per number, 127 take 8")

    @property
    def bits(self) -> int:
        """Number of bits of a level."""
        return bits_for(2 * self.levels)

    def gamma(self, length: int) -> float:
        r"""Return :math:`1 / \tau`."""
        return 1 / self.tau(length)

    def tau(self, length: int) -> float:
        """Return the factor by which rows shrink."""
        return 1 + min(length / self.levels**2, math.sqrt(length) / self.levels)

    def parts(self, length: int, dtype: torch.dtype) -> tuple[Part, ...]:
        """Return the size of a level, and the levels."""
        return (1, dtype), Whole(length, 2 * self.levels)

    def encode(self, rows: Rows, *, at: At) -> Codes:
        """Encode rows as sizes ``[R, 1]`` and levels above the lowest one, ``[R, P]``."""
        length, s = rows.shape[-1], self.levels
        lengths = norms(rows)  # [R, 1]
        drawn = to_device(torch.from_numpy(keys(self.seed, f"qsgd {at.step}", at.peers, at.round)), rows.device)  # [R]
        numbers = torch.arange(length, device=rows.device)  # [P]
        levels = torch.empty_like(rows, dtype=torch.uint8 if 2 * s < 256 else torch.int32)  # [R, P]

        def some(part: slice) -> None:
            bits = subkeys(drawn[part].unsqueeze(-1), numbers)  # [K, P] int64
            xi = (bits >> 11).double() * 2.0**-53 + 0.5  # [K, P]
            share = torch.where(lengths[part] > 0, lengths[part], 1.0)
            near = (s * rows[part].abs() / share + xi).floor().clamp(max=s) * rows[part].sign()  # [K, P]
            levels[part] = near.nan_to_num(0.0) + s  # a share of infinity is no number

        for_each_block(some, rows)
        return (lengths / (s * self.tau(length))).to(rows.dtype), levels

    def decode(self, codes: Codes, *, length: int, dtype: torch.dtype, at: At) -> Rows:
        """Multiply levels and their size."""
        del length, at
        sizes, levels = codes
        rows = torch.empty_like(levels, dtype=dtype)  # [R, P]
        return blockwise(lambda level, size: (level.to(dtype) - self.levels) * size, levels, sizes, out=rows)
