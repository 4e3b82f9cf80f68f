"""A member that also masks its releases, with its real slots of masks and the journal of them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ballots import AGAIN
from exploring.members import Invariants, Member, Sent
from p2pfl.network.protocol.ledgers.mask_slots import START, Mask, MaskSlots, Slot


class Released(NamedTuple):
    """A release that left: whose, which of its plaintexts, and the masks that hide it."""

    peer: str
    plaintext: int
    masks: tuple[Mask, ...]


@dataclass(frozen=True)
class Masked(Member):
    """A mask partner in an attempt that may be played again, without the owner of the committee.

    Parameters
    ----------
    journal
        Slot before which all may have been used, on its disk.
    leaving
        The journal that is on its way to the disk, and the release that leaves once it is there.
    plaintexts
        How many different plaintexts it has masked; each is taken for another one, also after a crash.
    masked_again
        Whether this incarnation has masked the update for the next attempt.
    """

    journal: Slot = START
    leaving: tuple[Slot, Released] | None = None
    plaintexts: int = 0
    masked_again: bool = False

    @property
    def key(self) -> Hashable:
        leaving = None if self.leaving is None else self.leaving[1]
        return super().key, self.journal, leaving, self.plaintexts, self.masked_again

    def moves(self) -> list[str]:
        found = super().moves()
        if self.machine is None or self.busy:
            return found
        if self.leaving is not None:
            return [*found, "stores its journal"]
        first = self.plaintexts == 0 and self.name != self.committee.owner
        if first or (self.machine.value == AGAIN and not self.masked_again and self.name != self.committee.owner):
            found.append("masks")
        return found

    def after(self, move: Hashable) -> list[tuple[Masked, Sent]]:
        match move:
            case "masks":
                return [(self.masked(), [])]
            case "stores its journal":
                journal, released = self.leaving
                return [(replace(self, journal=journal, leaving=None), self.sent(released))]
            case "crashes":
                lost = [(replace(each, leaving=None, masked_again=False), sent) for each, sent in super().after(move)]
                if self.leaving is None:
                    return lost
                journal, _ = self.leaving
                return lost + [(replace(each, journal=journal), sent) for each, sent in lost]
        return super().after(move)

    def masked(self) -> Masked:
        """Return it with a release under fresh masks, which leaves once its journal is durable."""
        others = [each for each in self.committee.members if each != self.name]
        again = self.machine.value == AGAIN
        slots = MaskSlots(self.name, partners=others, until=self.journal)
        living = [each for each in others if not (again and each == self.committee.owner)]
        masks = slots.take(Slot(self.journal.attempt + 1, 0), partners=living)
        released = Released(self.name, self.plaintexts, tuple(sorted(masks)))
        after = replace(self, plaintexts=self.plaintexts + 1, masked_again=self.masked_again or again)
        return replace(after, leaving=(slots.until, released))

    def sent(self, released: Released) -> Sent:
        """Return the release as a message to another member; it reaches who reads everything."""
        return [(next(each for each in self.committee.members if each != self.name), released)]

    def receives(self, sender: str, message: Any) -> tuple[Member, Sent] | None:
        return None if isinstance(message, Released) else super().receives(sender, message)


class MaskInvariants(Invariants):
    """Invariants of every state, those of masks included."""

    def messages(self, said: tuple[Any, ...]) -> str:
        used: dict[Hashable, int] = {}
        for released in (each for each in said if isinstance(each, Released)):
            for mask in released.masks:
                if used.setdefault((released.peer, mask), released.plaintext) != released.plaintext:
                    return f"{released.peer} hides two plaintexts under one key"
        return super().messages(tuple(each for each in said if not isinstance(each, Released)))
