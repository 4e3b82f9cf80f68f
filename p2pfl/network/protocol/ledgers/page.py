"""Page of a checkpoint: part of the ledgers that belongs to a model (:class:`.PeerLedgers`)."""

from __future__ import annotations

import msgspec

from p2pfl.network.protocol.ledgers.flows import GossipStep, Row


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
    mass
        Of the row as last mixed.
    """

    flows: dict[str, Partner] = {}
    owed: dict[int, str] = {}
    gossip_steps: tuple[tuple[GossipStep, int], ...] = ()
    mass: float | None = None


Rows = dict[str, Row]
"""The rows that a page speaks of, by name."""
