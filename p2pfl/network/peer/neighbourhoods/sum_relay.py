"""Part of one live peer in secure sums: messages that arrive, its terms, and its sums."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from p2pfl.core.errors import BudgetError, DecodeError, PrivacyError
from p2pfl.experiment import Plan
from p2pfl.network.protocol.interface.effects import SLOW
from p2pfl.network.protocol.ledgers.peer_ledgers import heaviest
from p2pfl.network.protocol.wire.messages import ForOne
from p2pfl.network.protocol.wire.sum_messages import Agreements, ParticipantsConfirmed, RollCall, Term, Unmasking
from p2pfl.network.secagg.receiver import SumReceiver
from p2pfl.network.secagg.seal import Seal, Sums
from p2pfl.network.secagg.sender import SumSender
from p2pfl.privacy.keys import Source
from p2pfl.privacy.secagg.protocol import Sum, SumSlot
from p2pfl.results.spending.meter import Meter
from p2pfl.topology import Weights


def common_sums(weights: Weights, *, size: int, width: int, colluders: int) -> Sums:
    """Return what all peers know about the sums of an experiment, whose gossip steps have these weights.

    ``size``, ``width`` and ``colluders`` are those of :class:`p2pfl.privacy.secagg.protocol.Sum`.
    """

    def find(slot: SumSlot) -> Sum | None:
        senders = tuple(peer for peer in weights.row(slot.receiver) if peer != slot.receiver)
        return Sum(slot, senders, size=size, width=width, colluders=colluders) if senders else None

    return find


class SumRelay:
    """Carries out what both parts of a peer in sums decide.

    Parameters
    ----------
    bits
        Fraction bits of the grid.
    sum_sender, sum_receiver
        Its terms, and its sums.
    lacking
        Called before anything is said for a sum that lacks a term: then sums show more than was looked at. Where it
        raises :class:`~p2pfl.core.errors.BudgetError` nothing is said, so that nothing is shown.
    lacked
        Called with whether a sum was given, after one that lacks a term: it records what has happened, and never
        refuses anything.

    Attributes
    ----------
    turn
        Of who masks and sends a term: one row at a time is held for that.
    missed
        By neighbour, how many sums lacked its term: their receiver kept its own row in its place, and the neighbour
        may not have done so likewise.
    """

    def __init__(
        self,
        *,
        bits: int,
        sum_sender: SumSender,
        sum_receiver: SumReceiver,
        lacking: Callable[[], None],
        lacked: Callable[[bool], None],
    ) -> None:
        self.bits = bits
        self.sum_sender = sum_sender
        self.sum_receiver = sum_receiver
        self.lacking = lacking
        self.lacked = lacked
        self.turn = asyncio.Lock()
        self.missed: Counter[str] = Counter()

    async def receive(self, sender: str, message: ForOne) -> list[tuple[str, ForOne]]:
        """Take a neighbour's word; what is to be said to whom.

        Raises
        ------
        DecodeError
            It is not to be listened to.
        """
        try:
            return await self._receive(sender, message)
        except (PrivacyError, BudgetError) as error:
            raise DecodeError(str(error)) from None

    async def _receive(self, sender: str, message: ForOne) -> list[tuple[str, ForOne]]:
        match message:
            case Term():
                self.sum_receiver.take(sender, message)
            case RollCall():
                answer = self.sum_sender.consent(sender, message)
                if not self.sum_sender.is_whole(sender, message):
                    self._check(sender)
                return [] if answer is None else [(sender, answer)]
            case ParticipantsConfirmed():
                agreed = self.sum_receiver.receive_consent(sender, message)
                return [] if agreed is None else [(peer, agreed) for peer in self.sum_receiver.called]
            case Agreements():
                return [(sender, self.sum_sender.unlock(sender, message))]
            case Unmasking() if self.sum_receiver.size > SLOW:
                await asyncio.to_thread(self.sum_receiver.unlock, sender, message)
            case Unmasking():
                self.sum_receiver.unlock(sender, message)
        return []

    def _check(self, receiver: str) -> None:
        try:
            self.lacking()
        except BudgetError:
            self.sum_sender.withhold(receiver)
            raise


def sum_relay(plan: Plan, peer: str, *, seal: Seal, source: Source, meter: Meter) -> SumRelay:
    """Return one peer's part in the sums of an experiment.

    Parameters
    ----------
    seal
        Signs what it says of sums, and reads what others do.
    source
        Of its own masks.
    meter
        Counts what sums show that lack a term.
    """
    colluders = plan.experiment.privacy.colluders
    sums = common_sums(plan.weights[0], size=plan.shared, width=plan.ring, colluders=colluders)
    return SumRelay(
        bits=plan.protection.settings.bits,
        sum_sender=SumSender(peer, sums=sums, seal=seal, source=source),
        sum_receiver=SumReceiver(peer, sums=sums, seal=seal, heaviest=heaviest(len(plan.topology.peers))),
        lacking=meter.expose,
        lacked=lambda accepted: meter.exposed() if accepted else meter.doubt(),
    )
