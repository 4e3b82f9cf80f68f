"""An experiment on all rows at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from p2pfl.algorithms import State, learn, start
from p2pfl.experiment import Experiment, Plan, plan, read
from p2pfl.identity import SeededSource, Source
from p2pfl.learning import Fitted, Learner, Memory
from p2pfl.neighbourhood import Neighbourhood, settled
from p2pfl.privacy import Masks, private, swarm_secrets
from p2pfl.report import Record, Run
from p2pfl.report.summary import scores, summarise
from p2pfl.rows import Rows
from p2pfl.simulation.stacked import Faults, StackedNeighbourhood


class Inline:
    """A learner that trains where it stands.

    Attributes
    ----------
    seconds
        Spent training so far.
    """

    def __init__(self, learner: Learner, *, present: Callable[[int], torch.Tensor], clock: Callable[[], float]) -> None:
        self.learner = learner
        self.present = present
        self.clock = clock
        self.seconds = 0.0

    async def fit(
        self,
        rows: Rows,
        *,
        peers: tuple[str, ...],
        round: int,
        memory: Memory | None = None,
        active: torch.Tensor | None = None,
    ) -> Fitted:
        """Train all rows but those of absent peers."""
        present = self.present(round)  # [N]
        active = present if active is None else active & present
        begun = self.clock()
        fitted = self.learner.fit(rows, peers=peers, round=round, memory=memory, active=active)
        self.seconds += self.clock() - begun
        return fitted


def simulate(
    experiment: str | Path | Experiment | Mapping[str, Any],
    *,
    peers: int | None = None,
    folder: Path | None = None,
    source: Source | None = None,
    observe: Callable[[list[Record]], None] | None = None,
    baselines: bool = True,
) -> Run:
    """Simulate an experiment.

    Parameters
    ----------
    experiment
        A file, the name of a shipped experiment, a table, or an experiment already read.
    peers
        Instead of ``topology.peers``.
    folder
        Where the run directory is to be made; in memory by default.
    source
        Of keys and private noise; derived from the experiment's seed by default.
    observe
        Called with the records of each round.
    baselines
        Whether to train every peer alone and one model on all data, to compare.

    Returns
    -------
    Run
        With ``metrics``, ``models``, ``summary`` and ``plot()``.

    Examples
    --------
    >>> run = simulate({"rounds": 2, "topology": {"kind": "complete", "peers": 4}})
    >>> run.summary["together"] > 0.1
    True
    """
    changes = [] if peers is None else [f"topology.peers={peers}"]
    settled = read(experiment, changes=changes)
    resolved = plan(settled)
    run = Run(settled, folder=folder)
    begun = time.perf_counter()
    state, seconds = _rounds(resolved, run, source or SeededSource(settled.seed), observe)
    wall = time.perf_counter() - begun
    names = resolved.topology.peers
    for index, name in enumerate(names):
        tensors = {key: value[index] for key, value in state.tensors().items()}
        run.checkpoint(name, resolved.learner.state_dict(state.rows[index]), tensors, round=run.metrics[-1].round)
    if baselines:
        final = resolved.learner.evaluate(state.rows, peers=names)
        together = {name: scores(final, index) for index, name in enumerate(names)}
        durations = {"wall_s": wall, "training_s": seconds}
        run.finish(summarise(resolved, together=together, records=run.metrics, seconds=durations))
    return run


def _rounds(
    resolved: Plan, run: Run, source: Source, observe: Callable[[list[Record]], None] | None
) -> tuple[State, float]:
    """All rounds; the last state, and the seconds spent training."""
    settings, names = resolved.experiment, resolved.topology.peers
    faults = Faults(settings.simulation.loss, settings.simulation.absence)
    masks = _masks(resolved, source) if resolved.masked else None
    learner = Inline(
        resolved.learner,
        present=lambda round: faults.present(names, seed=settings.seed, round=round),
        clock=time.perf_counter,
    )
    sent = torch.zeros(len(names), dtype=torch.int64)

    def neighbourhood(round: int) -> StackedNeighbourhood:
        return StackedNeighbourhood(resolved.weights, round=round, seed=settings.seed, faults=faults)

    def hidden(net: StackedNeighbourhood, round: int) -> Neighbourhood:
        return private(net, settings=resolved.privacy, masks=masks, source=source, round=round)

    async def after(round: int, state: State, net: StackedNeighbourhood) -> None:
        sent.add_(net.bytes_out)
        evaluated = resolved.learner.evaluate(state.rows, peers=names)
        records = _records(round, state, net, evaluated=evaluated, sent=sent)
        run.record(records)
        if observe is not None:
            observe(records)

    coroutine = learn(
        resolved.algorithm,
        learner,
        start(resolved.learner, names),
        rounds=range(settings.rounds),
        neighbourhood=neighbourhood,
        private=hidden,
        observe=after,
        stop=resolved.stop,
    )
    return settled(coroutine), learner.seconds


def _masks(resolved: Plan, source: Source) -> Masks:
    secrets = swarm_secrets(resolved.topology, source=source, run=resolved.experiment.name)
    settings = resolved.privacy
    return Masks(secrets, deviation=settings.mask, bits=settings.bits, topology=resolved.topology)


def _records(
    round: int, state: State, net: StackedNeighbourhood, *, evaluated: Mapping[str, torch.Tensor], sent: torch.Tensor
) -> list[Record]:
    fitted = state.fitted
    received = net.heard.tolist()
    return [
        Record(
            peer=name,
            round=round,
            scores=scores(evaluated, index),
            training_loss=float(fitted.loss[index]) if fitted is not None and fitted.steps[index] else None,
            distance=float(net.distance[index]),
            bytes_out=int(sent[index]),
            bytes_in=0,
            seconds_training=0.0,
            seconds_waiting=0.0,
            heard=received[index],
        )
        for index, name in enumerate(net.peers)
    ]
