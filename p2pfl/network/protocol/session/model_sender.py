"""Messages sent in a gossip step: the model, and an account of the ledgers, once both may be sent."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from p2pfl.network.protocol.interface.effects import Sent
from p2pfl.network.protocol.interface.requests import Offer
from p2pfl.network.protocol.session.model_wait import ModelWait
from p2pfl.network.protocol.session.shared import Shared
from p2pfl.network.protocol.session.streams import Streams
from p2pfl.network.protocol.wire.messages import Account


@dataclass
class ModelSender:
    """Queue of outgoing models and accounts, sent one after another and only once their state is durable.

    Attributes
    ----------
    offered
        Model to send next.
    """

    shared: Shared
    streams: Streams
    waiting: ModelWait
    offered: Offer | None = None
    _stored: bool = False  # True if the state of the offered model is durable
    _stores: deque[tuple[Account | None, bool]] = field(default_factory=deque)  # writes in progress, in order

    @property
    def pending(self) -> bool:
        """True if an account or a model waits to be sent."""
        return bool(self._stores) or self.offered is not None

    def offer(self, offer: Offer) -> None:
        """Send a model, and with it an account if partners should receive one."""
        if offer.newest and self.streams.busy(offer.phase):
            self.shared.do(Sent())  # skipped, because the next model is newer
            return
        self.offered, self._stored = offer, False
        self.shared.active.add("sending")
        account = self._account() if self.shared.ledgers.news() else None
        pace = self.shared.timeouts.pace
        if pace.quantile < 1:
            pace.ready(now=self.shared.now)
        self._store(account, model=True)

    def report(self) -> None:
        """Send an account of the partners' models that this peer has applied."""
        account = self._account()
        if account is not None:
            self._store(account, model=False)

    def finish_write(self) -> None:
        """Complete the oldest write: send its account, and mark its model as ready."""
        account, model = self._stores.popleft()
        self._stored |= model
        if account is not None:
            self.shared.publish("account", account)

    @property
    def active(self) -> bool:
        """True if a model waits to be stored and sent."""
        return self.offered is not None

    @property
    def wake(self) -> float:
        """Time of the next decision if no event arrives before it."""
        return math.inf  # only an event can make room for a model

    def decide(self) -> None:
        """Send the model if it is stored and the previous one is on its way."""
        offer = self.offered
        if offer is None or not self._stored:
            return
        while self.streams.busy(offer.phase):
            behind = [
                each
                for each in self.streams.outboxes[offer.phase].lagging_listeners()
                if self.waiting.is_left_behind(each)
            ]
            if not behind:
                return
            for listener in behind:
                self.streams.give_up(offer.phase, listener)
        self.offered = None
        self.streams.put(offer.model, phase=offer.phase)
        self.waiting.opened = self.shared.now
        self.shared.do(Sent())

    def _account(self) -> Account | None:
        ledgers = self.shared.ledgers
        return ledgers.account(self.shared.me.incarnation) if ledgers.kept else None

    def _store(self, account: Account | None, *, model: bool) -> None:
        self._stores.append((account, model))
        self.shared.store("sending")
