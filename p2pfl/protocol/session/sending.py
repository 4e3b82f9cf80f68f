"""What leaves with a gossip step: the model, and an account of what was exchanged, once both may leave."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from p2pfl.protocol.session.effects import Sent, Store
from p2pfl.protocol.session.events import Offer
from p2pfl.protocol.session.shared import Shared
from p2pfl.protocol.session.streams import Streams
from p2pfl.protocol.session.waiting import Waiting
from p2pfl.protocol.wire.messages import Account


@dataclass
class Sending:
    """Send nothing that must not be forgotten before it is on the disk, and one model after another.

    Attributes
    ----------
    offered
        The model that is to be sent next.
    """

    shared: Shared
    streams: Streams
    waiting: Waiting
    offered: Offer | None = None
    _stored: bool = False  # what the offered model says
    _stores: deque[tuple[Account | None, bool]] = field(default_factory=deque)  # what waits for the disk, in order

    @property
    def pending(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self._stores) or self.offered is not None

    def offer(self, offer: Offer) -> None:
        """Send a model, and with it an account where partners should have one."""
        if offer.newest and self.streams.busy(offer.phase):
            self.shared.do(Sent())  # left out: the next will be newer
            return
        self.offered, self._stored = offer, False
        account = self._account() if self.shared.books.news(released=offer.masked) else None
        self.shared.timeouts.pace.ready(now=self.shared.now)
        self._store(account, model=True)

    def tell(self) -> None:
        """Send an account of what is applied of partners' models and masks."""
        account = self._account()
        if account is not None:
            self._store(account, model=False)

    def stored(self) -> None:
        """Send what was written down first."""
        account, model = self._stores.popleft()
        self._stored |= model
        if account is not None:
            self.shared.publish("account", account)

    @property
    def active(self) -> bool:
        """Whether a model waits to be sent."""
        return self.offered is not None and self._stored

    @property
    def wake(self) -> float:
        """When to decide again although nothing came."""
        return math.inf  # what makes room for a model comes as an event

    def decide(self) -> None:
        """Send the model, if the one before is on its way."""
        offer = self.offered
        assert offer is not None  # noqa: S101 (there is one while this is active)
        while self.streams.busy(offer.phase):
            behind = [each for each in self.streams.outboxes[offer.phase].lagging() if self.waiting.left_behind(each)]
            if not behind:
                return
            for listener in behind:
                self.streams.give_up(offer.phase, listener)
        self.offered = None
        self.streams.put(offer.model, phase=offer.phase)
        self.waiting.opened = self.shared.now
        self.shared.do(Sent())

    def _account(self) -> Account | None:
        books = self.shared.books
        return books.account(self.shared.me.incarnation) if books.kept else None

    def _store(self, account: Account | None, *, model: bool) -> None:
        self._stores.append((account, model))
        self.shared.do(Store())
