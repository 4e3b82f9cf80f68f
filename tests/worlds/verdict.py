"""What must have come of a world in which all has ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations

import msgspec
import numpy as np
import torch

from p2pfl.algorithms import State, average_of
from p2pfl.core.errors import LostModelError, PeerError, ResumeError, RunError
from p2pfl.core.neighbourhood import run_without_loop as completed
from p2pfl.experiment import Plan
from p2pfl.network.protocol.ledgers.flows import GossipStep, Row
from p2pfl.network.virtual.timed_learner import Goals
from p2pfl.privacy.keys import Source
from p2pfl.results.notices.kinds import (
    LearningStopped,
    NeighboursMissing,
    Notice,
    ReleasesEnded,
    RestartUnsettled,
    StepsUnsettled,
    SumsUnsettled,
)
from p2pfl.simulation.playing import play_rounds
from p2pfl.simulation.stacked import Faults
from worlds import settled, totals
from worlds.absences import MEET, NARROW, Span, excuse, meet
from worlds.faults import History
from worlds.insiders import MODEL_FAULTS, Insider
from worlds.settings import Setting
from worlds.settled import SettledWatch

EXACT = 1e-9
"""Of sums of few numbers of size 16 in double precision."""


@dataclass
class Ended:
    """How one peer's last life ended: with a state, an error, or by a death.

    Attributes
    ----------
    lives
        That it has had.
    killed
        Whether the last ended for good before its time.
    missed, rounds
        Rows, and which rounds it played, in all lives.
    left, words
        What it said of what stays open, in all lives and in the last.
    late
        Whether a life has come later than its last checkpoint: its weight was given up.
    planned
        Whether it had all the edges and masks that were planned, to its end.
    age
        Of its row, where nobody waits for anybody.
    spans
        When lives of it were there, from their announcement to their goodbye or end.
    last, trained
        Its state after the last round that it ended, and whether its goal is in it.
    rows
        Its row after each round that it ended, ``[P]``.
    """

    state: State | None = None
    error: BaseException | None = None
    lives: int = 0
    killed: bool = False
    missed: int = 0
    left: list[Notice] = field(default_factory=list)
    words: list[Notice] = field(default_factory=list)
    late: bool = False
    planned: bool = False
    age: float = 0.0
    rounds: list[int] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    last: State | None = None
    trained: bool = False
    rows: dict[int, Row] = field(default_factory=dict)


@dataclass(frozen=True)
class End:
    """A world in which all has ended.

    Attributes
    ----------
    setting, plan, history
        What the peers did, and what went wrong.
    ended
        How each of them ended.
    flows
        What a peer's row has at its end of those of each partner, see :meth:`~worlds.invariants.Watch.flows`.
    moved
        What has entered a peer's row, see :meth:`~worlds.invariants.Watch.moved`.
    faults
        How often which happened; what becomes known here is counted there, too.
    source, agreed
        Of the peers' keys, and what the keys of all edges depend on.
    belated
        Peers whose row something entered, or left, after the exchange that it belongs to.
    settled
        What peers that settle rounds have decided.
    insiders
        Malicious members by name.
    """

    setting: Setting
    plan: Plan
    history: History
    ended: Mapping[str, Ended]
    flows: Callable[[str], dict[str, dict[GossipStep, Row]] | None]
    moved: Callable[[str], dict[int, Row]]
    faults: Counter[str]
    source: Source
    agreed: str
    belated: Collection[str]
    settled: SettledWatch
    insiders: Mapping[str, Insider] = field(default_factory=dict)

    @property
    def killed(self) -> set[str]:
        """Who ended for good before its time."""
        return {name for name, ended in self.ended.items() if ended.killed}

    @property
    def states(self) -> list[State]:
        """Of all peers."""
        states = [self.ended[name].state for name in self.plan.topology.peers]
        found = [state for state in states if state is not None]
        if len(found) != len(states):
            raise RunError("expected all peers to have a state")
        return found

    @property
    def goals(self) -> torch.Tensor:
        """Of all peers, ``[N, P]``."""
        goals = self.plan.learner
        if not isinstance(goals, Goals):
            raise RunError("expected a world of goals")
        return torch.stack([goals.goal(name) for name in self.plan.topology.peers])  # [N, P]


def verdict(end: End) -> str:
    """Why this must not have been the end; empty if it may."""
    if isinstance(end.plan.algorithm, totals.Adding):
        rounds, kinds = end.plan.experiment.horizon, end.history.kinds
        return totals.verdict(end.plan.algorithm, end.ended, rounds=rounds, kinds=kinds, faults=end.faults)
    for name in end.plan.topology.peers:
        ended = end.ended[name]
        if isinstance(ended.error, LostModelError):
            end.faults["peers that lost their last model"] += 1
            continue
        if ended.state is not None and not _whole(end, ended):
            return f"{name} ended without its last round, and did not say why"
        if isinstance(ended.error, ResumeError) and end.setting.settles and ended.lives > 1:
            end.faults["peers that came back alone while the others went on"] += 1
            continue
        if ended.state is None and name not in end.killed:
            if why := _excused(end, name):
                end.faults["peers that ended because neighbours were missing"] += 1
                end.faults.update(f"missing neighbours: {each}" for each in why)
                continue
            return f"{name} ended with {type(ended.error).__name__}: {ended.error}"
        if ended.missed and not end.history.kinds:
            return f"{name} missed {ended.missed} rows although nothing went wrong"
    if not isinstance(end.plan.learner, Goals):  # only of averaging alone is the result known
        return ""
    return _known(end, end.plan.learner)


def _whole(end: End, ended: Ended) -> bool:
    """Whether somebody has played the last round, or has said why not: it gave up, or came when all was over."""
    played = end.plan.experiment.horizon - 1 in ended.rounds
    gave_up = any(isinstance(each, LearningStopped | NeighboursMissing | ReleasesEnded) for each in ended.words)
    end.faults["peers that gave up"] += gave_up
    return played or gave_up or ended.late


def _known(end: End, goals: Goals) -> str:
    """Why the rows must not be what they are."""
    if end.setting.settles:
        failure = settled.verdict(end.plan, end.settled, end.ended, kinds=end.history.kinds, insiders=end.insiders)
        falsified = any(each.fault in MODEL_FAULTS for each in end.insiders.values())
        return failure or (_differs(end) if undisturbed(end) and not end.killed and not falsified else "")
    if failure := _accounted(end) or (_within(end, goals) if end.setting.convex else ""):
        return failure
    whole = not end.killed and not any(ended.state is None or ended.late for ended in end.ended.values())
    if whole and undisturbed(end) and (failure := _left_out(end) or ("" if end.belated else _differs(end))):
        return failure
    return _averaged(end) if whole and end.setting.averages else ""


def _excused(end: End, name: str) -> list[str]:
    """Why a peer may have ended without its neighbours; empty if it may not.

    Each that is missing is explained, and there was no time in which all were there so that it could have begun.
    """
    error, mine = end.ended[name].error, end.ended[name].spans[-1:]
    if not isinstance(error, PeerError) or not mine:
        return []
    missing = (*error.absent, *error.gone)
    around = sorted({*end.plan.topology.neighbours(name), *missing})
    apart = {other: end.history.apart(other) for other in (name, *around)}
    all_there = mine, *(end.ended[other].spans for other in around)
    within = NARROW if "bandwidth" in end.history.kinds else MEET
    if meet(*all_there, apart=[span for each in apart.values() for span in each], within=within):
        return []
    why = [
        excuse(end.ended[other], mine[0], apart=(*apart[name], *apart[other]), met=other in error.gone, within=within)
        for other in missing
    ]
    return why if all(why) else []


def undisturbed(end: End) -> bool:
    """Return True if all peers have played all rounds, as planned, and missed nothing.

    Peers may have several incarnations, except where rows are masked, compressed or accelerated. A later incarnation
    has other masks, of which something stays in each row, though not in their mean. Differences that are taken back
    were mixed before. No record names the neighbour that an accelerated peer mixed without before it died in the same
    round (seed 100633).
    """
    whole = {*range(end.plan.experiment.horizon)}
    once = end.plan.codec is not None or (end.plan.masked and end.plan.protection.sums is None)
    once |= any(omega != 1 for omega in end.plan.gossip.omegas)
    return not end.setting.asynchronous and all(
        ended.state is not None
        and not (once and ended.lives > 1)
        and {*ended.rounds} == whole
        and ended.planned
        and not (ended.missed or ended.left or ended.late)
        for ended in end.ended.values()
    )


def _left_out(end: End) -> str:
    """What was exchanged along one edge, but not along another, where nobody missed anything."""
    graph = end.plan.topology
    flows = {name: each for name in graph.peers if (each := end.flows(name)) is not None}
    if graph.period > 1 or end.plan.codec is not None:
        return ""
    every = {gossip_step for edges in flows.values() for edge in edges.values() for gossip_step in edge}
    for name, edges in flows.items():
        for other in graph.neighbours(name):
            if without := every - edges.get(other, {}).keys():
                return f"{name} and {other} left out {sorted(without)}, and neither says that it missed a row"
    return ""


def _differs(end: End) -> str:
    """The rows are those of the simulation of all rows at once, with the same secrets.

    Sums in secret are the same to the last bit. Other rows are added up in another order, so that they may differ by
    some units in the last place; where they are rounded onto the grid of masks, those can tip a number that lies
    half-way, by a step in each release, which counts more where a small mass is divided by.
    """
    end.faults["compared with simulate"] += 1
    end.faults["compared with simulate although peers came back"] += any(
        ended.lives > 1 for ended in end.ended.values()
    )
    plan, settings = end.plan, end.plan.protection.settings
    agreed = msgspec.structs.replace(plan.experiment, name=end.agreed)
    named = replace(plan, asked=replace(plan.asked, experiment=agreed))
    simulated, _ = completed(
        play_rounds(named, source=end.source, rounds=range(plan.experiment.horizon), faults=Faults())
    )
    rows = torch.cat([state.rows for state in end.states])  # [N, P]
    exact = plan.protection.sums is not None
    grid = plan.experiment.horizon * 2.0**-settings.bits / min(1.0, plan.masses[0])
    most = 0.0 if exact else grid if plan.masked else 1e-12
    off = float((rows - simulated.rows).abs().max())
    return f"the rows are off by {off:.3g} from those of the simulation, though nobody missed any" if off > most else ""


def _within(end: End, goals: Goals) -> str:
    """Every number of a row lies between those of the goals, or of the start where somebody begins late."""
    hull = end.goals  # [N, P]
    if any(ended.lives > 1 or ended.late for ended in end.ended.values()):
        hull = torch.cat([hull, goals.start(end.plan.topology.peers[:1])])  # [N + 1, P]
    low, high = hull.amin(0), hull.amax(0)  # [P]
    for name, ended in end.ended.items():
        if ended.state is not None:
            row = ended.state.rows[0]
            off = float(torch.maximum(low - row, row - high).max())
            if off > 1e-9:
                return f"the row of {name} is off by {off:.3g} from what lies between the goals"
    return ""


def _averaged(end: End) -> str:
    """The mean of the rows is that of the goals, by their weights, unless peers say that it may not be."""
    if not all(weights.symmetric for weights in end.plan.weights) and any(e.missed for e in end.ended.values()):
        return ""  # nothing is conserved along edges that weigh otherwise at their other end
    if any(ended.left for ended in end.ended.values()):
        end.faults["open masks or flows"] += 1
        return ""
    rows = torch.cat([state.rows for state in end.states])  # [N, P]
    weights = torch.ones(2, len(rows), 1, dtype=rows.dtype)  # [2, N, 1], of the goals and of the rows
    if end.setting.weighted:
        if end.plan.experiment.horizon > 1:
            return ""  # they begin anew in each round
        if any(end.flows(name) is None for name in end.plan.topology.peers):
            return ""  # nothing is conserved
        entries = [_entry(end, name) for name in end.plan.topology.peers]
        weights[:, :, 0] = torch.tensor([(each.share, each.mass) for each in entries], dtype=rows.dtype).T
    (before, after), (shares, masses) = (end.goals, rows), weights
    off = float(((after * masses).sum(0) / masses.sum() - (before * shares).sum(0) / shares.sum()).abs().max())
    settings = end.plan.protection.settings
    grid = end.plan.experiment.horizon * 2.0**-settings.bits if end.plan.masked else 1e-9  # each release rounds
    if end.plan.protection.sums is not None:
        grid = end.plan.experiment.horizon * len(rows) * 2.0**-settings.bits  # and so does each term
    return "" if off <= grid else f"the mean of the rows is off by {off:.3g}, and nobody said so"


@dataclass(frozen=True)
class Entry:
    """Weights of a peer, and how far its row is off.

    Attributes
    ----------
    share, mass
        Weight of its goal, and of the row.
    off
        Largest distance of a round's row from the one before, or the goal, and what was moved to it.
    """

    share: float
    mass: float
    off: float


def _entry(end: End, name: str) -> Entry:
    """Compare a row with its goal and what was moved to it.

    With sample weights a row is a point in homogeneous coordinates, whose first weight all peers derive alike, and
    which begins anew in each round.
    """
    goals, state, flows = end.plan.learner, end.ended[name].state, end.flows(name)
    assert isinstance(goals, Goals)
    assert state is not None
    assert flows is not None
    row, before = state.rows[0].numpy(), goals.goal(name).numpy()  # [P]
    total = sum((each for flow in flows.values() for each in flow.values()), np.zeros(1))  # [P], or [P + 1] if weighted
    if not end.setting.weighted:
        return Entry(1.0, 1.0, float(np.abs(row - before - total).max()))
    average = average_of(end.plan.algorithm)
    assert average is not None
    assert average.mean_samples is not None
    share = mass = float(goals.samples([name])) / average.mean_samples
    entered, rows = end.moved(name), dict(end.ended[name].rows)
    rows[max(rows)] = row  # it may have changed since
    settled = not any(isinstance(each, StepsUnsettled) for each in end.ended[name].left)
    off = float(np.abs(total - sum(entered.values(), np.zeros(1))).max()) if settled else 0.0
    for round, after in sorted(rows.items()):
        moved = np.broadcast_to(entered.get(round, np.zeros(1)), len(row) + 1)  # [P + 1]
        mass = share + float(moved[-1])
        off = max(off, float(np.abs(after - (share * before + moved[:-1]) / mass).max()))
        before = after
    return Entry(share, mass, off)


def _accounted(end: End) -> str:
    """A row is its goal and what was moved to it, and what is moved between two that were not lost is the same.

    So whoever dies, the mean of the survivors is that of their goals and of what they had exchanged with the dead.
    """
    entered = {}
    for name, ended in end.ended.items():
        flows = None if ended.state is None or ended.late else end.flows(name)
        if ended.state is None or flows is None or not end.setting.averages:
            continue
        entered[name] = flows
        if not end.plan.masked and (off := _entry(end, name).off) > EXACT:
            return f"the row of {name} is off by {off:.3g} from its goal and what was moved to it"
    for one, other in combinations(sorted(entered), 2):
        here, there = entered[one].get(other, {}), entered[other].get(one, {})
        said = any(
            isinstance(each, StepsUnsettled | SumsUnsettled | RestartUnsettled)
            for name in (one, other)
            for each in end.ended[name].left
        )
        even = here.keys() == there.keys() and all(np.array_equal(here[each], -there[each]) for each in here)
        if not even and not said:
            return f"{one} and {other} ended with different flows, and neither said so"
    return ""
