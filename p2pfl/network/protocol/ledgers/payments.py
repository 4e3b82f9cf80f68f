"""The masks that enter a release, fresh or late: their sum, and what they are to the accountant."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from p2pfl.core.errors import PrivacyError
from p2pfl.network.protocol.ledgers.slots import Slot
from p2pfl.privacy.keys import edge_key, epoch_secret
from p2pfl.privacy.masks import Edge, Masks
from p2pfl.privacy.normal_stream import VALUES_PER_BLOCK, Ints, Sampler, spans, to_grid


class Mask(NamedTuple):
    """One noise row.

    Attributes
    ----------
    edge
        Its ends, the smaller name first.
    slot
        Of the release that it was drawn for.
    epoch
        Of the edge then, from :func:`p2pfl.privacy.keys.epoch_of`; empty where secrets are of one epoch anyway.
    """

    edge: Edge
    slot: Slot
    epoch: bytes = b""


@dataclass(frozen=True)
class Payment:
    """The masks that enter one release.

    Attributes
    ----------
    peer, slot
        Whose release; the slot is None where it only settles.
    fresh
        Partners whose mask of this slot is in it.
    terms
        Every mask in it, fresh or late, with its factor +1 or -1: what the accountant's linear view reads.
    """

    peer: str
    slot: Slot | None
    fresh: tuple[str, ...]
    terms: Mapping[Mask, int]


def points(payment: Payment, *, masks: Masks, size: int) -> Ints:
    """Return the sum of a payment's masks, grid points ``[P]``.

    Without late terms it is what :meth:`~p2pfl.privacy.masks.Masks.sums` gives for the slot's round and attempt.

    Parameters
    ----------
    payment
        Of :meth:`~p2pfl.network.protocol.ledgers.mask_ledger.MaskLedger.release` or ``settle``.
    masks
        Their deviation, grid and secrets; where a payment names epochs, the secrets that those of epochs follow from.
    size
        P, the length of a row.

    Raises
    ------
    PrivacyError
        The secret of an edge is missing.
    """
    for edge in {mask.edge for mask in payment.terms} - set(masks.secrets):
        raise PrivacyError(
            f"Expected a shared secret for the edge {edge[0]}-{edge[1]}, whose masks are paid, got none; "
            "exchange public keys with all mask partners before the first round."
        )
    keys = [mask_key(mask, masks) for mask in payment.terms]
    factors = list(payment.terms.values())
    out = np.zeros(size, np.int64)  # [P]
    sampler = Sampler()
    for columns in spans(size, VALUES_PER_BLOCK):
        for group in spans(len(keys), max(1, VALUES_PER_BLOCK // max(size, 1))):  # short rows: many masks at a time
            noise = to_grid(sampler.window(keys[group], columns), scale=masks.deviation * 2.0**masks.bits)
            for factor, row in zip(factors[group], noise, strict=True):
                out[columns] += factor * row
    return out


def mask_key(mask: Mask, masks: Masks) -> bytes:
    """Return the 32-byte key of one mask.

    Parameters
    ----------
    mask, masks
        Which, and the secrets as in :func:`points`.
    """
    (a, b), slot, epoch = mask
    secret = masks.secrets[mask.edge]
    present = epoch_secret(secret, epoch) if epoch else secret
    return edge_key(present, purpose="mask", a=a, b=b, round=slot.round, attempt=slot.attempt)


def scatter(payment: Payment, *, masks: Masks, positions: Callable[[int], Ints], where: Ints) -> Ints:
    """Return the sum of a payment's masks where each of them was applied, grid points ``[Q]``.

    Parameters
    ----------
    payment, masks
        As in :func:`points`.
    positions
        The places of a row that a round released, ``[Q_r]`` in the order of the release.
    where
        The places of the row that is released now, ``[Q]`` in rising order, all of those among them.
    """
    out = np.zeros(len(where), np.int64)  # [Q]
    for round in sorted({mask.slot.round for mask in payment.terms}):
        terms = {mask: factor for mask, factor in payment.terms.items() if mask.slot.round == round}
        there = np.searchsorted(where, positions(round))  # [Q_r]
        out[there] += points(replace(payment, terms=terms), masks=masks, size=len(there))
    return out


def residual_variance(masks: Collection[Mask], *, deviation: float) -> float:
    r"""Bound what uncancelled masks add to the variance of a coordinate of the sum of all rows: :math:`n \sigma^2`.

    Examples
    --------
    >>> residual_variance([Mask(("ada", "bob"), Slot(0, 7))], deviation=10.0)
    100.0
    """
    return len(masks) * deviation**2
