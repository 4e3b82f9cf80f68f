"""Journal of a peer: what it has used and spent, which no checkpoint may take back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

import blake3
import msgspec

from p2pfl.core.errors import StorageError
from p2pfl.network.peer.storage.later_versions import check_known
from p2pfl.network.protocol.agreement.agreement_effects import VerdictRecord
from p2pfl.network.protocol.ledgers.mask_slots import END, START, Slot
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
    until
        Slot before which all names of masks may have been used.
    costs
        Costs of releases so far, and how many there were of each.
    ended
        Number of rounds, once the last has been played; -1 before.
    alone
        Releases that count as hidden by their private noise alone.
    samplings
        How the peer has trained so far, where that has a price for single samples, and how often.
    verdicts
        Promises, votes and decisions on releases of the last rounds.
    """

    incarnation: int
    key: bytes
    released: int = -1
    until: Slot = START
    costs: tuple[tuple[Cost, int], ...] = ()
    ended: int = -1
    alone: tuple[Slot, ...] = ()
    samplings: tuple[tuple[SampledSteps, int], ...] = ()
    verdicts: tuple[VerdictRecord, ...] = ()

    @property
    def sampled(self) -> Counter[SampledSteps]:
        """Rounds of training by kind of sampling, from :attr:`samplings`."""
        return Counter(dict(self.samplings))

    @property
    def uncovered(self) -> frozenset[Slot]:
        """Releases that count as hidden by private noise alone, from :attr:`alone`."""
        return frozenset(self.alone)

    @property
    def over(self) -> bool:
        """True if it was promised that nothing more is released."""
        return self.until == END

    @property
    def spent(self) -> Counter[Cost]:
        """Number of releases by cost, from :attr:`costs`."""
        return Counter(dict(self.costs))

    def after(
        self,
        *,
        round: int,
        until: Slot,
        spent: Mapping[Cost, int],
        alone: Collection[Slot] = (),
        sampled: Mapping[SampledSteps, int] | None = None,
        verdicts: tuple[VerdictRecord, ...] = (),
    ) -> Journal:
        """Return the journal with a release, before it is sent."""
        return msgspec.structs.replace(
            self,
            released=max(self.released, round),
            until=until,
            costs=tuple(sorted(spent.items())),
            alone=tuple(sorted(alone)),
            samplings=tuple(sorted((sampled or {}).items())),
            verdicts=verdicts,
        )


def encode_journal(journal: Journal) -> bytes:
    """Return the bytes of a journal, which begin with a hash."""
    data = msgspec.msgpack.encode(journal)
    return blake3.blake3(data).digest() + data


def decode_journal(data: bytes) -> Journal:
    """Read what :func:`encode_journal` wrote.

    Raises
    ------
    StorageError
        If it is not that; then no mask may be used again, and nothing can be resumed.
    LaterVersionError
        If a later version has written it, with fields that the next write would lose.
    """
    if blake3.blake3(data[32:]).digest() != data[:32]:
        raise StorageError("the journal has changed since it was written")
    try:
        journal = msgspec.msgpack.decode(data[32:], type=Journal)
    except msgspec.MsgspecError as error:
        raise StorageError(f"another version of p2pfl has written it ({error})") from None
    check_known(msgspec.msgpack.decode(data[32:]), msgspec.msgpack.decode(msgspec.msgpack.encode(journal)))
    return journal
