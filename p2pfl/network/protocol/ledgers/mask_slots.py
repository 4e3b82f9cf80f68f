"""Masks of a peer's releases: each is named once, and both ends of an edge add it in an attempt that counts.

The masks of a release are named by its **slot** (attempt, round) and, for each of its edges, by the **epoch** of that
edge: the incarnations of both ends and the nonces that both announced. A peer takes slots in rising order and makes
the next one durable before anything of a release is sent. So no key hides two plaintexts: not after a crash, because
the slot is on the disk, and not if two copies of a directory are resumed, because their epochs differ.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np

from p2pfl.core.errors import PrivacyError
from p2pfl.privacy.keys import edge_key, epoch_secret
from p2pfl.privacy.masks import Edge, Masks
from p2pfl.privacy.normal_stream import VALUES_PER_BLOCK, Ints, Sampler, spans, to_grid


class Slot(NamedTuple):
    """Number of a release, which names its masks; ordered."""

    attempt: int
    round: int

    @property
    def after(self) -> Slot:
        """The least slot that is greater."""
        return Slot(self.attempt, self.round + 1)


START = Slot(0, 0)
END = Slot(2**63 - 1, 0)
"""After every slot: of a peer that will not release again."""

LEAP = 1 << 20
"""Attempts that a peer may be ahead of all that is known: a swarm restarts less often between two messages."""


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


class MaskSlots:
    """Slots of one peer's releases.

    Parameters
    ----------
    peer
        Its name.
    partners
        The other ends of its mask edges, in whichever round.
    until
        Slot before which all may have been used, from the newest journal: an old one would use keys again.

    Attributes
    ----------
    epochs
        By partner that was met in this incarnation, the epoch in which masks are drawn.

    Examples
    --------
    >>> slots = MaskSlots("ada", partners=["bob"])
    >>> slots.take(Slot(2, 5), partners=["bob"]) == {Mask(("ada", "bob"), Slot(2, 5)): 1}
    True
    >>> slots.until
    Slot(attempt=2, round=6)
    """

    def __init__(self, peer: str, *, partners: Collection[str], until: Slot = START) -> None:
        self.peer, self.partners, self.until = peer, frozenset(partners), until
        self.epochs: dict[str, bytes] = {}
        self._least = 0

    @property
    def attempt(self) -> int:
        """The largest attempt in use."""
        return max(self._least, self.until.attempt)

    @property
    def over(self) -> bool:
        """True once this peer has promised to release nothing more."""
        return self.until == END

    def agree(self, attempt: int) -> None:
        """Use this attempt, or a later one, from now on: what all choose who go back to a round together."""
        self._least = max(self._least, attempt)
        self.until = max(self.until, Slot(attempt, 0))

    def take(self, slot: Slot, *, partners: Collection[str]) -> dict[Mask, int]:
        """Return the masks of a release, each with its factor +1 or -1.

        Make :attr:`until` durable before anything of the release is sent.

        Raises
        ------
        PrivacyError
            The slot may have been used before.
        """
        if slot < self.until:
            raise PrivacyError(
                f'expected masks of "{self.peer}" from slot {tuple(self.until)} on, got {tuple(slot)}; begin a new run'
            )
        self.until = slot.after
        edges = {each: (min(self.peer, each), max(self.peer, each)) for each in sorted(partners)}
        return {
            Mask(edge, slot, self.epochs.get(each, b"")): 1 if self.peer < each else -1 for each, edge in edges.items()
        }

    def finish(self) -> None:
        """Promise that no release will follow."""
        self.until = END


def draw_masks(terms: Mapping[Mask, int], *, masks: Masks, size: int) -> Ints:
    """Return the sum of masks, grid points ``[P]``.

    Parameters
    ----------
    terms
        Masks and their factors, of :meth:`MaskSlots.take`.
    masks
        Their deviation, grid and secrets; where masks name epochs, the secrets that those of epochs follow from.
    size
        P, the length of a row.

    Raises
    ------
    PrivacyError
        The secret of an edge is missing.
    """
    for edge in {mask.edge for mask in terms} - set(masks.secrets):
        raise PrivacyError(
            f"the peers {edge[0]} and {edge[1]} share no secret from which masks follow; exchange public keys with all "
            "mask partners before the first round"
        )
    keys, factors = [mask_key(mask, masks) for mask in terms], list(terms.values())
    out = np.zeros(size, np.int64)  # [P]
    sampler = Sampler()
    for columns in spans(size, VALUES_PER_BLOCK):
        for group in spans(len(keys), max(1, VALUES_PER_BLOCK // max(size, 1))):  # short rows: many masks at a time
            noise = to_grid(sampler.window(keys[group], columns), scale=masks.deviation * 2.0**masks.bits)
            for factor, row in zip(factors[group], noise, strict=True):
                out[columns] += factor * row
    return out


def mask_key(mask: Mask, masks: Masks) -> bytes:
    """Return the 32-byte key of one mask; its secret is among ``masks``."""
    (a, b), slot, epoch = mask
    secret = masks.secrets[mask.edge]
    present = epoch_secret(secret, epoch) if epoch else secret
    return edge_key(present, purpose="mask", a=a, b=b, round=slot.round, attempt=slot.attempt)
