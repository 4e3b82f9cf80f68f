"""Page of a checkpoint: part of the ledgers that belongs to a model (:class:`.PeerLedgers`)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from p2pfl.network.protocol.ledgers.drawn_slots import DrawnSlots, Epochs
from p2pfl.network.protocol.ledgers.flows import GossipStep, Row
from p2pfl.network.protocol.ledgers.slots import Run


class Partner(msgspec.Struct, frozen=True):
    """The flows of one partner and incarnation on a page, see :class:`p2pfl.network.protocol.ledgers.flows.FlowNotes`.

    The flows that are held are rows of the page.
    """

    applied: tuple[GossipStep, ...]
    settled: GossipStep
    known: GossipStep
    held: dict[str, GossipStep]
    incarnation: int


class Page(msgspec.Struct, frozen=True):
    """Part of the ledgers that belongs to a model and goes back with it.

    Attributes
    ----------
    flows
        The flows, by partner.
    owed, gossip_steps
        What was found late, by release, as names of rows; and the release that each gossip step mixes.
    masks
        By partner, the masks in the row as :class:`p2pfl.network.protocol.ledgers.drawn_slots.DrawnSlots`.
    mass
        Of the row as last mixed.
    keys, lost
        Under which the masks are, by partner; and those that nobody can cancel any more.
    epochs, lost_epochs
        Of the masks, and of those that are lost.
    """

    flows: dict[str, Partner] = {}
    owed: dict[int, str] = {}
    gossip_steps: tuple[tuple[GossipStep, int], ...] = ()
    masks: dict[str, tuple[Run, ...]] = {}
    mass: float | None = None
    keys: dict[str, bytes] = {}
    lost: dict[str, tuple[Run, ...]] = {}
    epochs: dict[str, Epochs] = {}
    lost_epochs: dict[str, Epochs] = {}


Rows = dict[str, Row]
"""The rows that a page speaks of, by name."""


def encode_masks(masks: Mapping[str, DrawnSlots]) -> tuple[dict[str, tuple[Run, ...]], dict[str, Epochs]]:
    """Return the runs of each set of masks and the epochs of those, as a page holds them."""
    return {name: each.runs for name, each in masks.items()}, {name: each.epochs for name, each in masks.items()}


def read(runs: Mapping[str, tuple[Run, ...]], epochs: Mapping[str, Epochs]) -> dict[str, DrawnSlots]:
    """Read what :func:`encode_masks` returned."""
    return {name: DrawnSlots.read(each, epochs.get(name, ())) for name, each in runs.items()}
