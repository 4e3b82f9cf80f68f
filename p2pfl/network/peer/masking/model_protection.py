"""Protection of one live peer's models: masks, noise, and their cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import p2pfl.privacy.release  # noqa: F401 (the first round would import it in the loop)
from p2pfl.core.neighbourhood import Neighbourhood
from p2pfl.experiment import Plan
from p2pfl.experiment.swarm_agreement import masks_of
from p2pfl.network.peer.connection import Connection
from p2pfl.network.peer.masking.mask_cover import MaskCover
from p2pfl.network.peer.masking.round_attempts import Attempts, MaskedRelease
from p2pfl.network.peer.neighbourhoods.live import LiveNeighbourhood
from p2pfl.network.peer.neighbourhoods.sum_relay import SumRelay
from p2pfl.network.peer.storage.journal import Journal
from p2pfl.network.peer.threads import ThreadedNeighbourhood
from p2pfl.network.protocol.ledgers.mask_slots import END, Slot
from p2pfl.network.protocol.session.session import Session
from p2pfl.privacy import Masks, neighbour_secrets
from p2pfl.privacy.keys import ExchangeKey, Source
from p2pfl.privacy.masks import Edge
from p2pfl.privacy.total_masks import TotalMasks
from p2pfl.results.spending.meter import Meter


def last(kept: Journal, reached: int) -> frozenset[Slot]:
    """Return the last release of an earlier incarnation unless its checkpoint shows that the round counts.

    The others may have played the round again without it. Not if it is charged already.
    """
    until = kept.until
    previous = {Slot(until.attempt, until.round - 1)} if 0 <= reached < until.round and until != END else set()
    return frozenset(previous) - kept.uncovered


class ModelProtection:
    """Masks, noise and sums in secret, as far as the experiment asks for them.

    Parameters
    ----------
    plan
        The experiment, resolved for this peer.
    session
        Session of this peer, which knows who is there.
    relay
        Part of this peer in secure sums; ``None`` without secure sums.
    kept
        The private key of all its incarnations, and their releases that private noise alone hides.
    reached
        The round with which its newest checkpoint goes on.
    agreed
        Name of the run and the roster, on which the keys of all edges depend.
    meter
        Is charged.
    source
        Of private noise.

    Attributes
    ----------
    cover
        The masks of its releases; ``None`` without masks.
    attempts
        Its attempts at rounds; ``None`` unless the members of a round commit it together.
    released
        The last round of which something hidden may have left; -1 before.
    """

    def __init__(
        self,
        plan: Plan,
        session: Session,
        *,
        relay: SumRelay | None,
        kept: Journal,
        reached: int,
        agreed: str,
        meter: Meter,
        source: Source,
    ) -> None:
        self.plan, self._total_masks = plan, masks_of(plan)
        self.session, self.relay, self.key = session, relay, ExchangeKey(kept.key)
        self.agreed, self.meter, self.source = agreed, meter, source
        self.membership = self.session.membership
        self.name = self.membership.me.peer
        self.cover: MaskCover | None = None
        self.attempts: Attempts | None = None
        self._masks: tuple[dict[str, bytes], Masks] | None = None  # the last ones, with the keys that they follow from
        self.released = -1
        self._goes_on = plan.protection.wanted.departures == "go_on"
        self._doubtful = last(kept, reached) if self._goes_on else frozenset[Slot]()
        self._alone = kept.uncovered

    def extend(self, journal: Journal) -> Journal | None:
        """Return the journal with the releases so far; ``None`` as long as there is nothing to write."""
        # First of all: a thread that charges adds the cost of a release before it names the release here.
        alone = self._alone if self.cover is None else frozenset(self.cover.charged)
        masks, sampled = self.session.ledgers.masks, Counter(self.meter.samples.own.get(self.name))
        if self.released < 0 and not masks.partners and not sampled:
            return None
        return journal.after(
            round=self.released,
            until=masks.until,
            spent=self.meter.costs,
            alone=alone,
            sampled=sampled,
            verdicts=self.session.records,
        )

    def begin(self, connection: Connection) -> None:
        """Share secrets with whoever is there before the first round."""
        for slot in sorted(self._doubtful):  # an earlier incarnation sent it, and others may have dropped it
            self.meter.correct(slot.round)
        self._alone, self._doubtful = self._alone | self._doubtful, frozenset()
        plan, slots = self.plan, self.session.ledgers.masks
        if plan.masked:  # where totals alone leave, nothing decides masks, so that no model can
            self.cover = MaskCover(self.masks(), slots, least=plan.protection.partners, charged=self._alone)
        if self.cover is not None and self.session.commits is not None:
            admitted = self.session.commits.admissions.admitted
            self.attempts = Attempts(
                connection,
                self.cover,
                self.masks,
                self.meter,
                plan.topology,
                plan.weights,
                plan.stop,
                goes_on=self._goes_on,
                members=plan.topology.peers if admitted is None else admitted.members,
                attempt=slots.attempt if admitted is None else admitted.attempt,
            )
        self._share()

    def masks(self) -> Masks:
        """Return masks with every neighbour that came; the same ones as long as these have the same keys."""
        publics = self._publics()
        if self._masks is None or publics != self._masks[0]:
            protection = self.plan.protection
            settings, graph = protection.settings, protection.graph
            self._masks = publics, Masks(self._secrets(), deviation=settings.mask, bits=settings.bits, topology=graph)
        return self._masks[1]

    def totals(self) -> TotalMasks | None:
        """Return the masks of totals, in the present epochs; ``None`` where everybody may see contributions."""
        if self._total_masks is None:
            return None
        return replace(self._total_masks, secrets=self._secrets(self._epochs()))

    def private(self, net: LiveNeighbourhood, *, round: int) -> Neighbourhood:
        """Hide rows behind masks shared with the neighbours that are there when they leave."""
        plan = self.plan.protection
        # A total costs the same as a release. Releases under masks and in sums are charged as they are prepared.
        within = bool(plan.totals) or (self.relay is None and self.cover is None)
        hidden = plan.mode.wrap(
            net,
            settings=plan.settings,
            masks=self.cover,
            source=self.source,
            round=round,
            charge=partial(self._charge, round) if within else None,
        )
        threaded = net if hidden is net else ThreadedNeighbourhood(hidden, prepare=partial(self._prepare, round))
        return threaded if self.attempts is None else MaskedRelease(threaded, self.attempts, round=round)

    def _charge(self, round: int, *, whole: bool = True) -> None:
        """Charge the release of a round; ``whole`` if it has all masks of the graph."""
        settings = self.plan.protection.settings
        if settings.hidden or settings.participation < 1:
            self.released = round
        self.meter.charge(round, whole=whole)

    async def _prepare(self, round: int) -> None:
        """Charge a release and choose its masks."""
        if self.attempts is not None:
            await self.attempts.pay(round, partial(self._charge, round))
            await self.attempts.hide(round)
        if self.relay is not None:
            self._share()
            self._charge(round)  # here, where rolls are heard that change what it costs

    def _secrets(self, epochs: Mapping[str, bytes] | None = None) -> dict[Edge, bytes]:
        """Return what is shared with every neighbour that came, in these epochs; without them, what all follow from."""
        return neighbour_secrets(self.key, peer=self.name, publics=self._publics(), run=self.agreed, epochs=epochs)

    def _publics(self) -> dict[str, bytes]:
        """Return the public key of every neighbour that came."""
        return {peer: self.membership.up[peer].key for peer in self.membership.proven}

    def _epochs(self) -> dict[str, bytes]:
        """Return the present epoch with every neighbour that came."""
        return {peer: self.membership.epoch(peer) for peer in self.membership.proven}

    def _share(self) -> None:
        """Pass the secrets to the part that computes secure sums."""
        if self.relay is not None:
            self.relay.sum_sender.acquaint(self._secrets(self._epochs()))
