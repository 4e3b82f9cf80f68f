"""Messages that leave a member of a committee only once the record that they state is durable."""

from __future__ import annotations

from abc import ABC, abstractmethod

from p2pfl.network.protocol.agreement.agreement_effects import Effect, MemberRecord, Send, StoreRecord, ValueDecided
from p2pfl.network.protocol.agreement.ballot_messages import Committee, Message, Vote


class Durable(ABC):
    """Record of a member, and the messages that wait for it.

    Attributes
    ----------
    me, committee
        Name of the member, and members that decide.
    record
        Latest record, durable or not.
    """

    me: str
    committee: Committee
    record: MemberRecord
    _durable: MemberRecord
    _written: MemberRecord | None  # write in progress
    _held: list[Send]  # sent once the write in progress is durable
    _next: list[Send]  # sent once the current record is durable
    _effects: list[Effect]

    @abstractmethod
    def _receive(self, sender: str, message: Message) -> None:
        """Handle a message of a member."""

    def _send_all(self, message: Message) -> None:
        for member in self.committee.members:
            if member != self.me:
                self._send(member, message)

    def _send(self, to: str, message: Message) -> None:
        """Send a message once the record is durable; a message to this member itself is handled then."""
        prompt = not (isinstance(message, Vote) and message.ballot == self.committee.first)
        self._next.append(Send(to, message, prompt=prompt))

    def _store(self) -> None:
        """Store the record after the write in progress; if it is durable already, send its messages at once."""
        if self._written is not None:
            return
        if self.record != self._durable:
            self._written = self.record
            self._held, self._next = self._next, []
            self._effects.append(StoreRecord(self.record))
        elif self._next:
            waiting, self._next = self._next, []
            self._release(waiting)

    def _stored(self) -> None:
        """Send the messages that waited for the record, and store the next record."""
        if self._written is None:
            return
        known = self._durable.decided is not None
        self._durable, self._written = self._written, None
        held, self._held = self._held, []
        if self._durable.decided is not None and not known:
            self._effects.append(ValueDecided(self._durable.decided))
        self._store()
        self._release(held)

    def _release(self, messages: list[Send]) -> None:
        """Send messages to others, and handle those to this member."""
        self._effects += [each for each in messages if each.to != self.me]
        for each in messages:
            if each.to == self.me:
                self._receive(self.me, each.message)
