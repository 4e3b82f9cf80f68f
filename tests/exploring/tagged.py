"""Acceptances that tags prove in place of signatures: each tag convinces one member, which can convince nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import msgspec

from exploring.malicious import Malicious
from exploring.members import Member, Sent
from p2pfl.network.protocol.agreement.agreement import Agreement
from p2pfl.network.protocol.agreement.agreement_effects import Event, MessageReceived
from p2pfl.network.protocol.wire.verdict_messages import COMMITS, Decision, Vote


class Tagging(Malicious):
    """Malicious member whose acceptance that the attempt counts convinces one or two others alone, as it likes."""

    def _votes(self) -> Iterator[Vote]:
        yield from super()._votes()
        accepted = next(value for value in self.values if value.startswith(COMMITS))
        vote = Vote(self.subject, self.name, self.committee.first, accepted, final=False)
        for convinced in (self.others[:1], self.others[:2]):
            yield msgspec.structs.replace(vote, signature=" ".join(convinced).encode())


class Convinced(Member):
    """Member that uses no message with a statement whose tag does not convince it."""

    def _followed(self, event: Event, after: float) -> tuple[Member, Sent]:
        if isinstance(event, MessageReceived) and isinstance(event.message, Vote | Decision):
            votes = event.message.votes if isinstance(event.message, Decision) else (event.message,)
            if any(each.signature and self.name not in each.signature.decode().split() for each in votes):
                return self, []
        return super()._followed(event, after)

    @cached_property
    def holds(self) -> set[str]:
        early = getattr(self.machine, "early", None)
        return super().holds | (set() if early is None else {early.value})


@dataclass
class Continuing(Agreement):
    """Member that acts on acceptances of all, and takes part in ballots until votes prove the decision to anybody."""

    early: Decision | None = None

    def _decide(self, decision: Decision) -> None:
        if decision.votes[0].final:
            super()._decide(decision)
        else:
            self.early = decision
