"""Journal of a peer: what it has used and spent, which no checkpoint may take back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

import blake3
import msgspec

from p2pfl.core.errors import StorageError
from p2pfl.network.protocol.agreement.agreement_effects import VerdictRecord
from p2pfl.network.protocol.ledgers import mask_ledger as ledger
from p2pfl.network.protocol.ledgers.drawn_slots import DrawnSlots, Epochs
from p2pfl.network.protocol.ledgers.slots import END, Run, Slot
from p2pfl.privacy.accounting.examples import SampledSteps
from p2pfl.privacy.accounting.spending import Cost


class Journal(msgspec.Struct, frozen=True):
    """State that never goes back to an older one; see :mod:`p2pfl.network.peer.storage.checkpoint`.

    Attributes
    ----------
    incarnation
        Of the last incarnation.
    key
        The private X25519 key of all incarnations in this run; erased when the run has ended.
    released
        The last round of which anything hidden may have been sent; -1 before.
    until, notes
        The mask ledger's.
    costs
        Costs of releases so far: mu, probability, number.
    ended
        Number of rounds, once the last has been played; -1 before.
    alone
        Releases that count as hidden by their private noise alone: attempt and round.
    samplings
        How the peer has trained so far, where that has a price for single samples: noise, rate, steps, how often.
    verdicts
        Promises, votes and decisions on releases of the last rounds.
    """

    incarnation: int
    key: bytes
    released: int = -1
    until: tuple[int, int] = (0, 0)
    notes: dict[str, _Masks] = {}
    costs: tuple[tuple[float, float, int], ...] = ()
    ended: int = -1
    alone: tuple[tuple[int, int], ...] = ()
    samplings: tuple[tuple[float, float, int, int], ...] = ()
    verdicts: tuple[VerdictRecord, ...] = ()

    @property
    def sampled(self) -> Counter[SampledSteps]:
        """Rounds of training by kind of sampling, from :attr:`samplings`."""
        return Counter({SampledSteps(noise, rate, steps): count for noise, rate, steps, count in self.samplings})

    @property
    def uncovered(self) -> frozenset[Slot]:
        """Releases that count as hidden by private noise alone, from :attr:`alone`."""
        return frozenset(Slot(*each) for each in self.alone)

    @property
    def over(self) -> bool:
        """True if it was promised that nothing more is released."""
        return self.until == END

    @property
    def masks(self) -> ledger.MaskJournal:
        """Journal of the mask ledger, from :attr:`until` and :attr:`notes`."""
        return ledger.MaskJournal(Slot(*self.until), {name: note.read() for name, note in self.notes.items()})

    @property
    def spent(self) -> Counter[Cost]:
        """Number of releases by cost, from :attr:`costs`."""
        return Counter({Cost(mu, probability): count for mu, probability, count in self.costs})

    def after(
        self,
        *,
        round: int,
        masks: ledger.MaskJournal,
        spent: Mapping[Cost, int],
        alone: Collection[Slot] = (),
        sampled: Mapping[SampledSteps, int] | None = None,
        verdicts: tuple[VerdictRecord, ...] = (),
    ) -> Journal:
        """Return the journal with a release, before it is sent."""
        return msgspec.structs.replace(
            self,
            released=max(self.released, round),
            until=tuple(masks.until),
            notes={name: _Masks.of(note) for name, note in masks.notes.items()},
            costs=tuple((cost.mu, cost.probability, count) for cost, count in sorted(spent.items())),
            alone=tuple((slot.attempt, slot.round) for slot in sorted(alone)),
            samplings=tuple(
                (each.noise, each.rate, each.steps, count) for each, count in sorted((sampled or {}).items())
            ),
            verdicts=verdicts,
        )


class _Masks(msgspec.Struct, frozen=True):
    """:class:`p2pfl.network.protocol.ledgers.account_statements.MaskNotes` as they are written."""

    own: tuple[Run, ...]
    received: tuple[Run, ...]
    until: tuple[int, int]
    paid: tuple[int, int]
    known: tuple[int, int]
    confirmed: tuple[int, int]
    key: bytes = b""
    own_epochs: Epochs = ()
    received_epochs: Epochs = ()

    @staticmethod
    def of(note: ledger.MaskNotes) -> _Masks:
        points = note.until, note.paid, note.known, note.confirmed
        return _Masks(note.own.runs, note.received.runs, *points, note.key, note.own.epochs, note.received.epochs)

    def read(self) -> ledger.MaskNotes:
        own, received = DrawnSlots.read(self.own, self.own_epochs), DrawnSlots.read(self.received, self.received_epochs)
        until, paid, known, confirmed = (Slot(*each) for each in (self.until, self.paid, self.known, self.confirmed))
        return ledger.MaskNotes(own, received, until, paid, known, confirmed, self.key)


def sealed(journal: Journal) -> bytes:
    """Return the bytes of a journal, which begin with a hash."""
    data = msgspec.msgpack.encode(journal)
    return blake3.blake3(data).digest() + data


def opened(data: bytes) -> Journal:
    """Read what :func:`sealed` wrote.

    Raises
    ------
    StorageError
        If it is not that; then no mask may be used again, and nothing can be resumed.
    """
    if blake3.blake3(data[32:]).digest() != data[:32]:
        raise StorageError("the journal has changed since it was written")
    try:
        return msgspec.msgpack.decode(data[32:], type=Journal)
    except msgspec.MsgspecError as error:
        raise StorageError(f"the file is no journal ({error})") from None
