"""Records and notices of a run in the order of their times."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from datetime import datetime

from p2pfl.experiment import Experiment
from p2pfl.results.records import Record
from p2pfl.results.run import Run
from p2pfl.results.swarm.alerts import Alert, alerts
from p2pfl.results.swarm.state import Entry, Setting, Swarm, swarm_of


def find_start(provenance: str | None, entries: Iterable[Entry]) -> datetime | None:
    """Return when a run began: as its provenance or else its first entry has it; ``None`` without any time."""
    if provenance is not None:
        with contextlib.suppress(ValueError):  # the file was edited by hand
            return datetime.fromisoformat(provenance)
    return min((entry.time for entry in entries if entry.time is not None), default=None)


def seconds_of(entry: Entry, *, began: datetime | None) -> float:
    """Return the time of an entry in seconds since the start of the run.

    An entry without a time is one of a simulation, in which a round counts as one second.
    """
    if entry.time is not None and began is not None:
        return max(0.0, (entry.time - began).total_seconds())
    return float(entry.round + 1) if isinstance(entry, Record) else 0.0


def merge_entries(entries: Iterable[Entry], *, began: datetime | None) -> list[tuple[float, Entry]]:
    """Return entries with their times, in order; at equal times, in the order in which they are given.

    Examples
    --------
    >>> merge_entries([], began=None)
    []
    """
    return sorted(((seconds_of(entry, began=began), entry) for entry in entries), key=lambda pair: pair[0])


def setting_of(experiment: Experiment, *, trusted: bool = True) -> Setting:
    """Return the facts that the events of an experiment do not repeat; its code is imported only if ``trusted``.

    Raises
    ------
    P2PFLError
        The topology cannot be built or read.
    """
    from p2pfl.experiment.parts.peer_graph import built  # noqa: PLC0415 (it needs the library of graphs)

    topology = built(experiment, trusted=trusted).union
    return Setting(
        name=experiment.name,
        peers=topology.peers,
        edges=topology.edges,
        rounds=0 if experiment.endless else experiment.horizon,
        epsilon=experiment.privacy.epsilon,
    )


def swarm_of_run(run: Run) -> Swarm:
    """Return the last state of the swarm of a run; the topology need not be readable."""
    experiment = run.experiment
    began = find_start(run.provenance.get("began"), [*run.events, *run.metrics])
    setting = Setting(
        name=experiment.name, rounds=0 if experiment.endless else experiment.horizon, epsilon=experiment.privacy.epsilon
    )
    return swarm_of(setting, merge_entries([*run.events, *run.metrics], began=began))


def alerts_of_run(run: Run) -> list[Alert]:
    """Return the alerts of a run at its last event."""
    swarm = swarm_of_run(run)
    return alerts(swarm, now=swarm.at)
