"""Sparsification: a few numbers of a row, the largest or random ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch

from p2pfl.core.codecs.codecs import At, Codes, Part, Whole, count_kept
from p2pfl.core.rows import Rows, draw, for_each_block, to_device
from p2pfl.core.traits import CodecTraits


@dataclass(frozen=True)
class TopK:
    r"""Codec that keeps the k numbers of largest magnitude, with their places; all others become zero.

    :math:`\lVert Q(x) - x \rVert^2 \le (1 - k / P) \lVert x \rVert^2`.

    Parameters
    ----------
    share
        k / P, above 0 and at most 1.

    References
    ----------
    Stich, Cordonnier, Jaggi, Sparsified SGD with memory, NeurIPS 2018.

    Examples
    --------
    >>> from p2pfl.core.codecs import coded
    >>> coded(TopK(0.5), torch.tensor([[3.0, 0.0, -4.0, 1.0]]), at=At(("ada",), 0, 0))[0]
    tensor([[ 3.,  0., -4.,  0.]])
    """

    share: float = 0.01
    traits: ClassVar[CodecTraits] = CodecTraits(differences=True)
    number: int = 5

    def __post_init__(self) -> None:
        count_kept(self.share, 1)

    def gamma(self, length: int) -> float:
        """Return twice the share."""
        del length
        return min(1.0, 2 * self.share)

    def parts(self, length: int, dtype: torch.dtype) -> tuple[Part, ...]:
        """Return places and values."""
        count = count_kept(self.share, length)
        return Whole(count, length - 1, increasing=True), (count, dtype)

    def encode(self, rows: Rows, *, at: At) -> Codes:
        """Encode rows as places in increasing order, and values ``[R, k]``; of equal magnitudes the first ones stay."""
        del at  # nothing is drawn
        places = rows.new_empty(len(rows), count_kept(self.share, rows.shape[-1]), dtype=torch.int64)  # [R, k]

        def some(part: slice) -> None:
            places[part] = find_largest(rows[part].abs(), places.shape[1])

        for_each_block(some, rows)
        return places, rows.gather(-1, places)

    def decode(self, codes: Codes, *, length: int, dtype: torch.dtype, at: At) -> Rows:
        """Put the values in their places."""
        del at
        places, values = codes
        rows = torch.zeros(len(values), length, dtype=dtype, device=values.device)  # [R, P]
        return rows.scatter_(-1, places, values)


def find_largest(sizes: torch.Tensor, count: int) -> torch.Tensor:
    """Return the places of the largest of ``[R, P]``, ``[R, count]`` in increasing order; of equal ones the first.

    Examples
    --------
    >>> find_largest(torch.tensor([[2.0, 3.0, 2.0, 2.0]]), 2)
    tensor([[0, 1]])
    """
    if sizes.device.type == "cpu":  # which of equal numbers topk takes depends on the device
        values, places = sizes.topk(min(count + 1, sizes.shape[-1]), dim=-1)
        if count == sizes.shape[-1] or bool((values[:, count] < values[:, count - 1]).all()):
            return places[:, :count].sort(dim=-1).values
    return sizes.sort(dim=-1, descending=True, stable=True).indices[:, :count].sort(dim=-1).values


@dataclass(frozen=True)
class RandomK:
    r"""Codec that keeps k numbers at places drawn by key, which need not travel; all others become zero.

    :math:`E \lVert Q(x) - x \rVert^2 = (1 - k / P) \lVert x \rVert^2`: half the bytes of :class:`TopK`, with a larger
    error.

    Parameters
    ----------
    share
        k / P, above 0 and at most 1.
    seed
        Seed of the places.

    References
    ----------
    Stich, Cordonnier, Jaggi, Sparsified SGD with memory, NeurIPS 2018.

    Examples
    --------
    >>> from p2pfl.core.codecs import coded
    >>> coded(RandomK(0.5, seed=1), torch.tensor([[3.0, 0.5, -4.0, 1.0]]), at=At(("ada",), 0, 0))[0]
    tensor([[ 0.,  0., -4.,  1.]])
    """

    share: float = 0.01
    seed: int = 0
    traits: ClassVar[CodecTraits] = CodecTraits(differences=True)
    number: int = 6

    def __post_init__(self) -> None:
        count_kept(self.share, 1)

    def gamma(self, length: int) -> float:
        """Return half the share."""
        del length
        return self.share / 2

    def parts(self, length: int, dtype: torch.dtype) -> tuple[Part, ...]:
        """Return the values alone."""
        return ((count_kept(self.share, length), dtype),)

    def encode(self, rows: Rows, *, at: At) -> Codes:
        """Encode rows as values ``[R, k]``."""
        return (rows.gather(-1, to_device(self._places(rows.shape[-1], at), rows.device)),)

    def decode(self, codes: Codes, *, length: int, dtype: torch.dtype, at: At) -> Rows:
        """Put the values in their places."""
        [values] = codes
        rows = torch.zeros(len(values), length, dtype=dtype, device=values.device)  # [R, P]
        return rows.scatter_(-1, to_device(self._places(length, at), values.device), values)

    def _places(self, length: int, at: At) -> torch.Tensor:
        """Return the places ``[R, k]`` in increasing order."""
        return torch.from_numpy(
            np.stack(
                [
                    choose_positions(length, share=self.share, seed=self.seed, peer=peer, round=at.round, step=at.step)
                    for peer in at.peers
                ]
            )
        )


def choose_positions(
    length: int, *, share: float, seed: int, peer: str = "", round: int, step: int = 0
) -> npt.NDArray[np.int64]:
    """Return the places of a share of ``length`` numbers, increasing int64, the same for every peer with the key.

    Examples
    --------
    >>> choose_positions(10, share=0.3, seed=0, round=2)
    array([0, 7, 9])
    """
    places = draw(seed, f"places {step}", peer, round).choice(
        length, count_kept(share, length), replace=False, shuffle=False
    )
    return np.sort(places)
