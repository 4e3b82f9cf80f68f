"""Invariants of settled rounds: one decision on an attempt, one outcome of an attempt, and no mask that stays."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import networkx as nx
import torch

from p2pfl.core.rows import Rows
from p2pfl.experiment import Plan
from p2pfl.network.peer import Peer
from p2pfl.network.protocol.interface.effects import Concluded
from p2pfl.network.protocol.wire.verdict_messages import Place, Value
from p2pfl.network.virtual.timed_learner import Goals
from p2pfl.results.notices.kinds import LearningStopped, Notice
from worlds.insiders import Insider
from worlds.totals import Result

HARMLESS = frozenset({"latency", "duplication", "overtaking", "clocks", "forgeries"})
"""Faults under which every message arrives long before the peers stop waiting for it."""


class Ending(Result, Protocol):
    """End of a peer that settles rounds."""

    @property
    def lives(self) -> int:
        """Number of its lives."""

    @property
    def late(self) -> bool:
        """True if a life began later than its last checkpoint."""

    @property
    def rounds(self) -> list[int]:
        """Rounds that it played."""

    @property
    def words(self) -> list[Notice]:
        """Notices of its last life."""


@dataclass
class SettledWatch:
    """Remembers what all peers of a world have decided, and the rows with which their rounds ended.

    Parameters
    ----------
    fail
        Told of what must not be.

    Attributes
    ----------
    verdicts
        By round and attempt, the decision of its committee.
    outcomes
        By round and attempt, its outcome.
    rows
        By round and attempt, the row of each peer after it.
    begun
        Peers that have begun to learn.
    lost
        True if a peer has lost its disk, and with it what it has signed.
    """

    fail: Callable[[str], None]
    verdicts: dict[Place, Value] = field(default_factory=dict)
    outcomes: dict[Place, Concluded] = field(default_factory=dict)
    rows: dict[Place, dict[str, Rows]] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)
    lost: bool = False

    def watch(self, peer: Peer) -> None:
        """Watch the outcomes that a session reports."""
        connection, carry_out = peer.connection, peer.connection._carry_out

        def carried_out(effect: object) -> None:
            attempts = peer.hiding.attempts
            if isinstance(effect, Concluded) and attempts is not None:
                self._concluded(peer.name, Place(attempts._round, attempts.attempt), effect)
            carry_out(effect)  # type: ignore[arg-type]

        connection._carry_out = carried_out  # type: ignore[method-assign]

    def _concluded(self, name: str, place: Place, found: Concluded) -> None:
        if self.outcomes.setdefault(place, found) != found and not self.lost:
            self.fail(f"{name} learned {found} of attempt {place}, and another peer {self.outcomes[place]}")

    def after(self, peer: Peer) -> None:
        """Compare the verdicts that a peer knows with those of all others."""
        if peer.phase == "learning":
            self.begun.add(peer.name)
        if peer.session.commits is not None:
            for place, settlement in peer.session.commits.ballots.open.items():
                decided = settlement.agreement.record.decided
                if decided is not None and self.verdicts.setdefault(place, decided.value) != decided.value:
                    self._contradicted(peer.name, place, decided.value)

    def _contradicted(self, name: str, place: Place, value: Value) -> None:
        if not self.lost:
            self.fail(f"{name} decided {value!r} on {place}, and another peer {self.verdicts[place]!r}")

    def ended(self, peer: Peer, round: int, row: Rows) -> None:
        """Note the row with which a peer ends a round."""
        attempt = 0 if peer.hiding.attempts is None else peer.hiding.attempts.attempt
        self.rows.setdefault(Place(round, attempt), {})[peer.name] = row.clone()


def verdict(
    plan: Plan,
    seen: SettledWatch,
    ended: Mapping[str, Ending],
    *,
    kinds: frozenset[str],
    insiders: Mapping[str, Insider],
) -> str:
    """Return why settled rounds must not have ended like this; empty if they may.

    Where a peer came back, it shares masks of its new life with the others after a round, so rows are not compared.
    """
    if any(each.lives > 1 or each.late for each in ended.values()):
        return ""
    if not isinstance(plan.learner, Goals):
        return ""
    goals = {name: plan.learner.goal(name) for name in plan.topology.peers}
    most = plan.experiment.horizon * 2.0 ** (1 - plan.protection.settings.bits)
    added = Counter[int]()
    for each in insiders.values():
        added.update(each.added)
    if plan.experiment.learning.weighted:
        most = math.inf  # false numbers of samples move a mean by them
    return _committed(seen, goals, most, added) or _went_on(plan, seen, ended, kinds=kinds, insiders=insiders)


def _committed(seen: SettledWatch, goals: Mapping[str, torch.Tensor], most: float, added: Mapping[int, float]) -> str:
    """The mean of the members' rows is that from before the round, of which a mask that stays would be a part.

    What an insider has added to one parameter of its models moves it by the share of one member at most.
    """
    last = {name: goal.unsqueeze(0) for name, goal in goals.items()}
    for place, rows in sorted(seen.rows.items()):
        found = seen.outcomes.get(place)
        if found is None or not found.committed:
            return f"{', '.join(sorted(rows))} ended round {place[0]} with attempt {place[1]}, which does not count"
        if not {*rows} <= {*found.members}:
            return f"{', '.join(sorted({*rows} - {*found.members}))} ended round {place[0]} and is no member of it"
        if {*rows} == {*found.members}:
            before = torch.cat([last[name] for name in found.members]).mean(0)  # [P]
            off = float((torch.cat([rows[name] for name in found.members]).mean(0) - before).abs().max())
            if off > most + added.get(place[0], 0.0) / len(found.members):
                return f"the mean of the members' rows changes by {off:.3g} in round {place[0]}"
        last |= rows
    return ""


def _fail_in_turn(insiders: Mapping[str, Insider]) -> bool:
    """Two that each let every other attempt fail may let all of them fail."""
    return len(insiders) > 1 and all(each.fault in {"failures", "sample numbers"} for each in insiders.values())


def _went_on(
    plan: Plan,
    seen: SettledWatch,
    ended: Mapping[str, Ending],
    *,
    kinds: frozenset[str],
    insiders: Mapping[str, Insider],
) -> str:
    """The others play all rounds if one or two are malicious, or one died after all had begun; or else all do."""
    dead = {name for name, each in ended.items() if each.killed or name in insiders}
    others = sorted({*ended} - dead)
    apart = kinds - HARMLESS - {"deaths"} or not {*ended} <= seen.begun
    if (
        apart
        or (dead and plan.protection.wanted.departures != "go_on")
        or len(dead) > max(1, len(insiders))
        or _fail_in_turn(insiders)
    ):
        return ""
    graph = plan.topology.at(0)
    if not nx.is_connected(nx.Graph(graph.edges).subgraph(others)):
        return ""
    for name in others:
        if plan.experiment.horizon - 1 not in ended[name].rounds:
            said = [each.message for each in ended[name].words if isinstance(each, LearningStopped)]
            return f"{name} did not go on after {', '.join(sorted(dead)) or 'nobody'} died: {' '.join(said)}"
    return ""
