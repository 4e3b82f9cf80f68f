"""Ledgers that keep all that ever entered a row, as no peer's own need to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from p2pfl.network.protocol.ledgers import mask_ledger as ledger
from p2pfl.network.protocol.ledgers.flows import FlowLedger, GossipStep, Row
from p2pfl.network.protocol.ledgers.mask_ledger import MaskLedger
from p2pfl.network.protocol.ledgers.payments import Mask, Payment
from p2pfl.network.protocol.ledgers.slots import Slot
from p2pfl.network.protocol.wire.messages import FlowStatement


@dataclass
class Entered:
    """What has entered a row for good: flows by partner and exchange, and masks."""

    net: dict[str, dict[GossipStep, Row]] = field(default_factory=dict)
    terms: Counter[Mask] = field(default_factory=Counter)
    keys: dict[str, bytes] = field(default_factory=dict)
    """By partner, under which the masks are."""


class WatchedFlows(FlowLedger):
    """A ledger of flows that keeps all that entered the row, for good, and tells when it has changed."""

    owner: str
    changed: Callable[[], None]
    fail: Callable[[str], None]
    net: dict[str, dict[GossipStep, Row]]

    @classmethod
    def of(
        cls,
        flows: FlowLedger,
        entered: Entered,
        *,
        owner: str,
        changed: Callable[[], None],
        fail: Callable[[str], None],
    ) -> WatchedFlows:
        """The same, watched."""
        watched = cls.__new__(cls)
        watched.__dict__.update(vars(flows))
        watched.owner, watched.changed, watched.fail, watched.net = owner, changed, fail, entered.net
        return watched

    def deliver(self, partner: str, gossip_step: GossipStep, row: Row) -> Row | None:
        """Return the flow of a row."""
        moved = super().deliver(partner, gossip_step, row)
        if moved is not None:
            entered = self.net.setdefault(partner, {})
            if gossip_step in entered:
                self.fail(f"{self.owner} applied the row of {partner} of exchange {gossip_step} twice")
            entered[gossip_step] = moved
            self.changed()
        return moved

    def receive(self, partner: str, statement: FlowStatement) -> dict[GossipStep, Row]:
        """Learn what a partner stated; return what is taken back."""
        return self._taken(partner, super().receive(partner, statement))

    def revive(self, partner: str, since: GossipStep) -> dict[GossipStep, Row]:
        """Listen to a partner's next life; return what is taken back."""
        return self._taken(partner, super().revive(partner, since))

    def _taken(self, partner: str, back: dict[GossipStep, Row]) -> dict[GossipStep, Row]:
        for gossip_step in back:
            del self.net[partner][gossip_step]
        self.changed()
        return back


class WatchedMasks(MaskLedger):
    """A ledger of masks that does the same."""

    changed: Callable[[], None]
    terms: Counter[Mask]
    latest: Payment | None

    @classmethod
    def of(cls, masks: MaskLedger, entered: Entered, *, changed: Callable[[], None]) -> WatchedMasks:
        """The same, watched."""
        watched = cls.__new__(cls)
        watched.__dict__.update(vars(masks))
        watched.changed, watched.terms, watched.latest = changed, entered.terms, None
        return watched

    def release(
        self,
        round: int,
        *,
        partners: Collection[str] | None = None,
        shared: Collection[str] | None = None,
        payable: Callable[[Slot], bool] = lambda _: True,
        most: int = ledger.MAX_LATE_MASKS,
    ) -> Payment:
        """Decide the masks of the next release."""
        self.latest = self._noted(super().release(round, partners=partners, shared=shared, payable=payable, most=most))
        return self.latest

    def take(self, slot: Slot, *, partners: Collection[str]) -> Payment:
        """Decide the masks of an attempt."""
        self.latest = self._noted(super().take(slot, partners=partners))
        return self.latest

    def settle(self, *, shared: Collection[str] | None = None, most: int = ledger.MAX_LATE_MASKS) -> Payment:
        """Pay all differences."""
        return self._noted(super().settle(shared=shared, most=most))

    def receive(self, partner: str, statement: ledger.MaskStatement) -> None:
        """Learn what a partner stated."""
        super().receive(partner, statement)
        self.changed()

    def renew(self, partner: str) -> None:
        """Begin anew with a partner under other keys: what was shared under the old ones is another mask."""
        super().renew(partner)
        edge = min(self.peer, partner), max(self.peer, partner)
        self.terms = Counter({mask: count for mask, count in self.terms.items() if mask.edge != edge})

    def _noted(self, payment: Payment) -> Payment:
        self.terms.update(payment.terms)
        self.changed()
        return payment
