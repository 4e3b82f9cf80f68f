"""Members with valid keys that break the protocol of settled rounds, at most one in a world of four and more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from p2pfl.core.draws import draw
from p2pfl.network.peer import Peer
from p2pfl.network.protocol.agreement.attempt_reports import FAILED
from p2pfl.network.protocol.interface.effects import Answer, Effect, Publish
from p2pfl.network.protocol.interface.requests import ReportAttempt, Request
from p2pfl.network.protocol.wire.verdict_messages import Decision, Report, Reports, Vote

WITHHELD = {"acceptances": Vote, "reports": Reports, "decisions": Decision}
"""Messages that an insider may never send, by its fault."""

FAULTS = (*WITHHELD, "failures", "two reports")
"""Faults: these, false failures of every other attempt, and signed reports that contradict each other."""

MEMBERS = 4
"""Fewest members of an attempt of which one may be malicious."""


@dataclass
class Insider:
    """A malicious member.

    Attributes
    ----------
    peer, fault
        Name of the member, and its fault.
    reports
        Attempts that it has completed.
    """

    peer: str
    fault: str
    reports: int = 0

    def corrupt(self, peer: Peer) -> None:
        """Let a peer that has joined break the protocol."""
        connection = peer.connection
        carry_out, ask, withheld = connection._carry_out, connection.ask, WITHHELD.get(self.fault)

        def carried_out(effect: Effect) -> None:
            if not (withheld and isinstance(effect, Publish) and isinstance(effect.message, withheld)):
                carry_out(effect)

        async def asked(request: Request) -> Answer:
            if isinstance(request, ReportAttempt) and request.complete:
                self.reports += 1
                if self.fault == "failures" and self.reports % 2:
                    return await ask(ReportAttempt(complete=False, incarnations=b""))
                if self.fault == "two reports":
                    _contradict(peer)
            return await ask(request)

        connection._carry_out, connection.ask = carried_out, asked  # type: ignore[method-assign]


def _contradict(peer: Peer) -> None:
    """Send half of the committee a signed failure."""
    assert peer.session.commits is not None
    settlement = peer.session.commits._settlement
    false = Report(settlement.subject, peer.name, FAILED, incarnation=settlement.incarnation)
    false = replace(false, signature=settlement.sign(false.statement), tags=settlement.tag(false.statement))
    for member in settlement.committee.members[::2]:
        if member != peer.name:
            peer.connection.post(f"in/{member}", Reports(settlement.subject, (false,)))


def insider(seed: int, peers: Sequence[str]) -> Insider:
    """Draw who breaks the protocol in the world of a seed, and how."""
    random = draw(seed, "world insider")
    return Insider(peers[int(random.integers(len(peers)))], FAULTS[int(random.integers(len(FAULTS)))])
