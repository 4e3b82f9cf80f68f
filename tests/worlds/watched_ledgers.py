"""Ledgers that keep all that ever entered a row, as no peer's own need to."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from p2pfl.network.protocol.ledgers.flows import FlowLedger, GossipStep, Row
from p2pfl.network.protocol.ledgers.mask_slots import Mask, MaskSlots, Slot
from p2pfl.network.protocol.wire.messages import FlowStatement


@dataclass
class Entered:
    """Flows that have entered a row for good, by partner and exchange, and their sum by round."""

    net: dict[str, dict[GossipStep, Row]] = field(default_factory=dict)
    moved: dict[int, Row] = field(default_factory=dict)

    def copy(self) -> Entered:
        """The same so far."""
        return Entered({partner: dict(each) for partner, each in self.net.items()}, dict(self.moved))


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


class WatchedMasks(MaskSlots):
    """Slots of masks that remember the masks of the latest release."""

    latest: dict[Mask, int] | None

    @classmethod
    def of(cls, slots: MaskSlots) -> WatchedMasks:
        """The same, watched."""
        watched = cls.__new__(cls)
        watched.__dict__.update(vars(slots))
        watched.latest = None
        return watched

    def take(self, slot: Slot, *, partners: Collection[str]) -> dict[Mask, int]:
        """Decide the masks of a release."""
        self.latest = super().take(slot, partners=partners)
        return self.latest
