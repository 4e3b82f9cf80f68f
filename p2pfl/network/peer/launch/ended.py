"""Records and results of peers that run in this process, and the summary of their run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from p2pfl.algorithms import State
from p2pfl.experiment import Plan
from p2pfl.experiment.swarm_agreement import alike, reported, scaled
from p2pfl.network.peer.launch.event_log import EventLog
from p2pfl.network.peer.peer import Peer
from p2pfl.network.peer.storage.best import kept
from p2pfl.privacy.accounting.examples import SampledSteps
from p2pfl.results import Record, Run
from p2pfl.results.content import Summary
from p2pfl.results.models.model_description import described
from p2pfl.results.spending.meter import stopped
from p2pfl.results.summary import Durations, scores, summarise


@dataclass
class Ended:
    """Records of peers while they run, and the peers that have ended.

    Parameters
    ----------
    run
        Run of the peers.
    log
        Files of the run.
    peers
        Number of peers.
    observe
        Function that is called with the records of a round, once all peers have ended it.
    """

    run: Run
    log: EventLog
    peers: int
    observe: Callable[[list[Record]], None] | None = None
    states: dict[str, tuple[Peer, State]] = field(default_factory=dict)
    rounds: dict[int, list[Record]] = field(default_factory=lambda: defaultdict(list))

    def record(self, record: Record) -> None:
        """Store a record, and show a round that all peers have ended."""
        self.log.record(record)
        self.rounds[record.round].append(record)
        if self.observe is not None and len(self.rounds[record.round]) == self.peers:
            self.observe(self.rounds[record.round])

    def keep(self) -> dict[str, Mapping[str, float]]:
        """Store the final and the best models, on the scale of their training; return the scores of the final ones."""
        names = next(iter(self.states.values()))[0].plan.topology.peers
        return {name: _kept(*self.states[name], self.run) for name in names}

    def summary(
        self,
        resolved: Plan,
        together: Mapping[str, Mapping[str, float]],
        *,
        seconds: Durations,
        baselines: bool,
    ) -> Summary:
        """Return the summary of the run.

        Parameters
        ----------
        resolved
            Plan with the data of all peers.
        together
            Scores of the final models.
        seconds
            Durations of the run.
        baselines
            Argument of :func:`p2pfl.results.summary.summarise`.
        """
        peers = [peer for peer, _ in self.states.values()]
        agreed: dict[str, Any] = {"statistics": None, "common": alike([peer.ended.common for peer in peers])}
        if peers[0].statistics is not None:
            agreed["statistics"] = reported(peers[0].statistics)
            resolved = scaled(resolved, peers[0].statistics)
        return summarise(
            resolved,
            together=together,
            records=self.run.metrics,
            seconds=seconds,
            agreed=agreed,
            stopped=stopped([peer.stopped for peer in peers]),
            spent=max((spent for peer in peers if (spent := peer.meter.spent) is not None), default=None),
            played=_trained(peers),
            baselines=baselines,
            alarms=self.log.alarms,
            best={name: kept(name, best) for name in together if (best := self.states[name][0].best.best) is not None},
            models=lambda: {name: state.rows[0] for name, (_, state) in self.states.items()},
        )


def _trained(peers: Sequence[Peer]) -> dict[str, Mapping[SampledSteps, int]] | None:
    """Return by peer the number of rounds for each sampling of DP-SGD; ``None`` without a guarantee for samples."""
    return {name: rounds for peer in peers for name, rounds in (peer.meter.samples.played or {}).items()} or None


def _kept(peer: Peer, state: State, run: Run) -> Mapping[str, float]:
    """Describe and store the final and the best model of a peer; return the scores of the final one."""
    run.describe(described(peer.plan))  # all peers agree
    last = run.metrics[-1].round if run.metrics else 0  # a budget may pay for no round
    own = peer.plan.owned(state.rows[0], peer=peer.name)
    run.save({peer.name: peer.plan.saved(state.rows[0])}, round=last, own={peer.name: own} if own else {})
    if peer.best.best is not None and peer.best.rows is not None:
        run.save_best(peer.name, peer.plan.saved(peer.best.rows[0]), kept(peer.name, peer.best.best))
    return scores(peer.plan.learner.evaluate(state.rows, peers=(peer.name,)), 0)
