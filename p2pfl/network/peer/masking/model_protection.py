"""Protection of one live peer's models: masks with present partners, noise, and their cost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial

from p2pfl.algorithms import places
from p2pfl.core.neighbourhood import Neighbourhood
from p2pfl.core.traits import UNDECLARED
from p2pfl.experiment import Plan
from p2pfl.experiment.catalogue import declared_traits
from p2pfl.experiment.swarm_agreement import masks_of
from p2pfl.network.peer.connection import Connection
from p2pfl.network.peer.masking.mask_cover import Cover
from p2pfl.network.peer.masking.round_attempts import AttemptCover, Attempts, MaskedRelease
from p2pfl.network.peer.neighbourhoods.live import LiveNeighbourhood
from p2pfl.network.peer.neighbourhoods.sum_relay import SumRelay
from p2pfl.network.peer.storage.journal import Journal
from p2pfl.network.peer.storage.writer import Keeper
from p2pfl.network.peer.threads import ThreadedNeighbourhood
from p2pfl.network.protocol.ledgers.slots import END, Slot
from p2pfl.network.protocol.session.session import Session
from p2pfl.privacy import Masks, neighbour_secrets
from p2pfl.privacy.keys import ExchangeKey, Source
from p2pfl.privacy.masks import Edge
from p2pfl.privacy.normal_stream import Ints
from p2pfl.privacy.total_masks import TotalMasks
from p2pfl.results.notices.kinds import Notice, PartnersAwaited
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
    notify
        Called with a notice of the partners that a release waits for.

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
        notify: Callable[[Notice], None],
    ) -> None:
        self.plan, self._total_masks = plan, masks_of(plan, {})
        self.session, self.relay, self.key = session, relay, ExchangeKey(kept.key)
        self.agreed, self.meter, self.source, self.notify = agreed, meter, source, notify
        self.membership = self.session.membership
        self.name = self.membership.me.peer
        self.cover: Cover | None = None
        self.attempts: Attempts | None = None
        self.released = -1
        self._goes_on = plan.protection.wanted.departures == "go_on"
        self._doubtful = last(kept, reached) if self._goes_on else frozenset[Slot]()
        self._alone = kept.uncovered

    async def record(self, keeper: Keeper) -> None:
        """Make durable what a later incarnation must know of the releases so far."""
        self.correct()
        await keeper.durable(self.extend)

    def extend(self, journal: Journal) -> Journal | None:
        """Return the journal with the releases so far; ``None`` as long as there is nothing to write."""
        # First of all: a thread that charges adds the cost of a release before it names the release here.
        alone = self._alone if self.cover is None else frozenset(self.cover.charged)
        masks, sampled = self.session.ledgers.masks.journal(), Counter(self.meter.samples.own.get(self.name))
        if self.released < 0 and not masks.notes and not sampled:
            return None
        return journal.after(
            round=self.released,
            masks=masks,
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
        plan, ledger = self.plan, self.session.ledgers.masks
        if plan.masked:
            kind = AttemptCover if plan.commits else Cover
            least = plan.protection.partners
            self.cover = kind(self.masks(), ledger, positions=self._places, least=least, charged=self._alone)
        if isinstance(self.cover, AttemptCover) and self.session.commits is not None:
            admitted = self.session.commits.admissions.admitted
            self.attempts = Attempts(
                connection,
                self.cover,
                self.masks,
                self.meter,
                plan.topology.at(0),
                steps=1 if declared_traits(plan.algorithm, UNDECLARED).single_step else plan.gossip.steps,
                goes_on=self._goes_on,
                members=plan.topology.peers if admitted is None else admitted.members,
                attempt=ledger.attempt if admitted is None else admitted.attempt,
            )
        self._share()

    def masks(self) -> Masks:
        """Return masks with every neighbour that came, in whichever epoch the ledger draws them."""
        protection = self.plan.protection
        settings, graph = protection.settings, protection.graph
        return Masks(self._secrets(), deviation=settings.mask, bits=settings.bits, topology=graph)

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
        threaded = net if hidden is net else ThreadedNeighbourhood(hidden, prepare=partial(self._prepare, net, round))
        return threaded if self.attempts is None else MaskedRelease(threaded, self.attempts, round=round)

    def _charge(self, round: int, *, whole: bool = True) -> None:
        """Charge the release of a round; ``whole`` if it has all masks of the graph."""
        settings = self.plan.protection.settings
        if settings.hidden or settings.participation < 1:
            self.released = round
        self.correct()
        self.meter.charge(round, whole=whole)

    async def _prepare(self, net: LiveNeighbourhood, round: int) -> None:
        """Charge a release and choose its masks, once enough partners are present."""
        cover = self.cover
        if self.attempts is not None:
            await self.attempts.pay(round, partial(self._charge, round))
            await self.attempts.hide(round)
        elif cover is not None:
            await await_partners(net.connection, lambda: self._missing_partners(cover, round), notify=self.notify)
            present = self._here(round)
            whole = cover.covers(round, present=present)
            # First, because a slot that is taken cannot be given back.
            await asyncio.to_thread(self._charge, round, whole=whole)
            cover.decide(round, present=present)
        if self.relay is not None:
            self._share()
            self._charge(round)  # here, where rolls are heard that change what it costs

    def lost(self, missed: Collection[str]) -> frozenset[str]:
        """Return the mask partners that disappeared after this peer masked its last release with them.

        Parameters
        ----------
        missed
            Neighbours from which something did not come in this round.
        """
        if self.cover is None or self.cover.slot is None:
            return frozenset()
        present = self.membership.present
        return frozenset(
            each
            for each in self.session.ledgers.masks.unmatched_partners(self.cover.slot)
            if each in missed or each not in present
        )

    def correct(self) -> None:
        """Record releases that turned out to lack half of a mask as hidden by their private noise alone.

        They have left, so this never refuses anything: what is left of the budget decides about the next release.
        """
        if self.cover is not None:
            for slot in self.cover.find_uncovered(self.session.ledgers.halves):
                self.meter.correct(slot.round)
                self.cover.charged.add(slot)

    def _missing_partners(self, cover: Cover, round: int) -> frozenset[str]:
        """Return the mask partners to wait for before a release."""
        cover.masks = self.masks()  # somebody may have come back
        return cover.missing_partners(round, present=self._here(round))

    def _secrets(self, epochs: Mapping[str, bytes] | None = None) -> dict[Edge, bytes]:
        """Return what is shared with every neighbour that came, in these epochs; without them, what all follow from."""
        publics = {peer: self.membership.up[peer].key for peer in self.membership.proven}
        return neighbour_secrets(self.key, peer=self.name, publics=publics, run=self.agreed, epochs=epochs)

    def _epochs(self) -> dict[str, bytes]:
        """Return the present epoch with every neighbour that came."""
        return {peer: self.membership.epoch(peer) for peer in self.membership.proven}

    def _places(self, round: int) -> Ints:
        """Return the places of a row that a round releases, ``[Q]``."""
        return places(self.plan.algorithm, self.plan.learner.layout.size, round=round).numpy()

    def _share(self) -> None:
        """Pass the secrets to the part that computes secure sums."""
        if self.relay is not None:
            self.relay.sum_sender.acquaint(self._secrets(self._epochs()))

    def _here(self, round: int) -> frozenset[str]:
        """Return the neighbours that take part in a round."""
        return frozenset(peer for peer in self.membership.present if self.session.waiting.expects(peer, round))


async def await_partners(
    connection: Connection, lacking: Callable[[], frozenset[str]], *, notify: Callable[[Notice], None]
) -> None:
    """Wait for missing mask partners, at most for the timeout of the session.

    What follows decides whether those that came are enough.

    Parameters
    ----------
    connection
        Looks again whenever somebody comes or goes.
    lacking
        Returns the partners to wait for; none once enough are present.
    notify
        Called with a notice of the partners that the release waits for.
    """
    missing = lacking()
    if not missing:
        return
    patience = connection.session.shared.patience
    me = connection.session.shared.me.peer
    notify(PartnersAwaited(peer=me, partners=tuple(sorted(missing)), seconds=patience))
    await connection.until(lambda: not lacking(), by=connection.clock() + patience)
