"""Attacks on secure sums of live peers: contributions are uniform in the ring, and so are sums of some of them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from p2pfl.experiment import Plan
from p2pfl.network.peer import Peer
from p2pfl.network.secagg.sender import SumSender
from p2pfl.network.transport import MemoryTransport
from p2pfl.plugins.audit.claims import SUMS, ExactClaim, claim, uniform
from p2pfl.plugins.audit.live.restarts import RUN_TIMEOUT, short
from p2pfl.plugins.audit.live.tap import Tap, TappedPlan
from p2pfl.plugins.audit.statistical_tests import Ints
from p2pfl.privacy.keys import SecretSource
from p2pfl.privacy.masks import swarm_secrets
from p2pfl.privacy.secagg.protocol import Sender, Sum, SumSlot
from p2pfl.privacy.total_masks import Ring
from p2pfl.topology import complete

PEER_COUNT = 4
"""Number of peers, each of which receives the sum of all others."""

ROUND_COUNT = 3
"""Rounds."""

CONTRIBUTION_SIZE = 4096
"""Length of a contribution."""

SLOT_RANGE = 3
"""Number of rounds and of gossip steps in each combination of which masks have keys of their own."""


@dataclass
class ObservedTerm:
    """Contribution of one peer to one sum.

    Attributes
    ----------
    slot, sender
        Sum and sender of the contribution.
    points
        Contribution without masks, ``[P]``.
    values
        Masked contribution as sent, ``[P]`` in the ring.
    """

    slot: SumSlot
    sender: str
    points: Ints
    values: Ring


@dataclass
class ObservedTerms:
    """All contributions of a run, by sum and sender."""

    by_sender: dict[tuple[SumSlot, str], ObservedTerm] = field(default_factory=dict)

    def sum_parts(self) -> list[Ring]:
        """Return the masks that are left in each sum of all contributions but one, ``[P]`` each."""
        slots: dict[SumSlot, list[ObservedTerm]] = {}
        for term in self.by_sender.values():
            slots.setdefault(term.slot, []).append(term)
        parts = [part for terms in slots.values() for part in itertools.combinations(terms, PEER_COUNT - 2)]
        return [sum_of([each.values for each in terms]) - sum_of([_to_ring(each) for each in terms]) for terms in parts]


def sums(plan: Plan) -> list[ExactClaim]:
    """Attack the sums of a short live run in the mode ``secagg``.

    Parameters
    ----------
    plan
        Plan of the experiment, of which only noise, clip and grid are used.

    Returns
    -------
    list of ExactClaim
        Claims about live sums.
    """
    terms = ObservedTerms()
    settings = replace(plan.protection.settings, participation=1.0)
    brief = short(settings, kind="complete", peers=PEER_COUNT, rounds=ROUND_COUNT, mode="secagg")
    asyncio.run(_run_sums(TappedPlan.of(brief, Tap(), size=CONTRIBUTION_SIZE), terms))
    sent = [term.values for term in terms.by_sender.values()]
    apart = [
        term.values - other.values
        for term in terms.by_sender.values()
        for other in terms.by_sender.values()
        if term.sender == other.sender and term.slot < other.slot
    ]
    return [
        uniform(SUMS, "terms are masked", sent),
        uniform(SUMS, "sums of some terms stay masked", terms.sum_parts()),
        uniform(SUMS, "masks of sums are never used again", apart),
        check_keys(),
    ]


def check_keys() -> ExactClaim:
    """Check that the key of each mask is of one sum and one participant set alone.

    Examples
    --------
    >>> check_keys().broken
    False
    """
    graph, source = complete(PEER_COUNT + 1), SecretSource()
    secrets, keys, masks = swarm_secrets(graph, source=source, run="audit"), set[bytes](), 0
    for receiver, round, step in itertools.product(graph.peers, range(SLOT_RANGE), range(SLOT_RANGE)):
        names, place = graph.neighbours(receiver), graph.peers.index(receiver)
        sum = Sum(SumSlot(receiver, round, step), names, place=place, size=1)
        for here in (names, *itertools.combinations(names, len(names) - 1)):
            for peer in here:
                keys |= {*Sender(sum, peer=peer, secrets=secrets).mask_keys(here).values()}
            masks += len(here) * (len(here) - 1) // 2
    return claim(SUMS, "keys of sums are of one use", masks - len(keys))


def sum_of(values: Sequence[Ring]) -> Ring:
    """Return the sum of rows of the ring, ``[P]``."""
    total: Ring = np.sum(values, axis=0, dtype=values[0].dtype)
    return total


def _to_ring(term: ObservedTerm) -> Ring:
    return np.asarray(term.points.astype(np.int64).view(np.uint64).astype(term.values.dtype))


async def _run_sums(plan: TappedPlan, terms: ObservedTerms) -> None:
    """Run all peers, and record all their contributions."""

    async def one(name: str, incarnation: int) -> None:
        peer = Peer(name, plan, transport=transport, incarnation=incarnation)
        async with peer:
            relay = peer.connection.relay
            assert relay is not None  # noqa: S101 (the mode is secagg)
            relay.sum_sender = TappedSumSender(relay.sum_sender, terms)
            await peer.run()

    transport = MemoryTransport()
    async with asyncio.timeout(RUN_TIMEOUT), asyncio.TaskGroup() as tasks:
        for incarnation, name in enumerate(plan.topology.peers):
            tasks.create_task(one(name, incarnation))


class TappedSumSender(SumSender):
    """Sender of a sum that records its contributions.

    Parameters
    ----------
    sum_sender
        Sender that does the work.
    terms
        Record of contributions.
    """

    def __init__(self, sum_sender: SumSender, terms: ObservedTerms) -> None:
        super().__init__(sum_sender.peer, sums=sum_sender.sums, seal=sum_sender.seal)
        self.terms = terms

    def mask(self, slot: SumSlot, points: Ints) -> Ring:
        """Mask a contribution, and record it."""
        share = super().mask(slot, points)
        self.terms.by_sender[slot, self.peer] = ObservedTerm(slot, self.peer, points.copy(), share.copy())
        return share
