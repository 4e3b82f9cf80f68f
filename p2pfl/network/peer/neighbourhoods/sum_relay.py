"""Part of one live peer in secure sums: messages that arrive, its terms, and its sums."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from p2pfl.core.errors import BudgetError, DecodeError, PrivacyError
from p2pfl.experiment import Plan
from p2pfl.network.protocol.ledgers.peer_ledgers import heaviest
from p2pfl.network.protocol.wire.messages import ForOne
from p2pfl.network.protocol.wire.sum_messages import Ready, RollCall
from p2pfl.network.protocol.wire.total_messages import Again, Subtotal, Total
from p2pfl.network.secagg.receiver import SumReceiver
from p2pfl.network.secagg.seal import Seal, Sums
from p2pfl.network.secagg.sender import SumSender
from p2pfl.privacy.secagg.protocol import Sum, SumSlot
from p2pfl.results.spending.meter import Meter
from p2pfl.topology import Weights


def common_sums(weights: Weights, *, size: int, width: int, colluders: int) -> Sums:
    """Return what all peers know about the sums of an experiment, whose gossip steps have these weights.

    ``size``, ``width`` and ``colluders`` are those of :class:`p2pfl.privacy.secagg.protocol.Sum`.
    """
    places = {peer: place for place, peer in enumerate(weights.peers)}

    def find(slot: SumSlot) -> Sum | None:
        senders = tuple(peer for peer in weights.row(slot.receiver) if peer != slot.receiver)
        given = {"place": places[slot.receiver], "size": size, "width": width, "colluders": colluders}
        return Sum(slot, senders, **given) if senders else None

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
        Called before anything is sent for a sum that lacks a contribution: then sums show more than was looked at.
        Where it raises :class:`~p2pfl.core.errors.BudgetError` nothing is sent, so that nothing is shown.
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

    def receive(self, sender: str, message: ForOne | Total) -> list[tuple[str, ForOne | Total]]:
        """Handle a neighbour's message; return the messages to send, with their receivers.

        Raises
        ------
        DecodeError
            The message is not credible, or must not be answered.
        """
        try:
            return self._receive(sender, message)
        except (PrivacyError, BudgetError) as error:
            raise DecodeError(str(error)) from None

    def _receive(self, sender: str, message: ForOne | Total) -> list[tuple[str, ForOne | Total]]:
        mine, answers = self.sum_receiver, list[Subtotal | Total]()
        match message:
            case Ready():
                call = mine.take(sender, message)
                return [] if call is None else [(sender, call)]
            case RollCall():
                answers = self.sum_sender.take(sender, message)
                if not self.sum_sender.is_whole(sender, message):
                    self._check(sender)
            case Subtotal():
                return [(peer, each) for each in mine.receive(sender, message) for peer in mine.called]
            case Again() if message.number == mine.number:
                answers = mine.receive(sender, message)
            case Again() | Total():
                answers = self.sum_sender.receive(sender, message)
        return [(sender, each) for each in answers]

    def _check(self, receiver: str) -> None:
        try:
            self.lacking()
        except BudgetError:
            self.sum_sender.withhold(receiver)
            raise


def sum_relay(plan: Plan, peer: str, *, seal: Seal, meter: Meter) -> SumRelay:
    """Return one peer's part in the sums of an experiment.

    Parameters
    ----------
    seal
        Signs what it says of sums, and reads what others do.
    meter
        Counts what sums show that lack a term.
    """
    colluders = plan.experiment.privacy.colluders
    sums = common_sums(plan.weights[0], size=plan.shared, width=plan.ring, colluders=colluders)
    return SumRelay(
        bits=plan.protection.settings.bits,
        sum_sender=SumSender(peer, sums=sums, seal=seal),
        sum_receiver=SumReceiver(peer, sums=sums, seal=seal, heaviest=heaviest(len(plan.topology.peers))),
        lacking=meter.expose,
        lacked=lambda accepted: meter.exposed() if accepted else meter.doubt(),
    )
