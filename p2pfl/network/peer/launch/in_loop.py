""":func:`live`, which runs all peers of an experiment in the running loop of this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from p2pfl import topology as graphs
from p2pfl.algorithms import Algorithm
from p2pfl.experiment import Experiment, Plan, plan
from p2pfl.experiment.composing import RunParts, check_data, check_live, wanted_experiment
from p2pfl.learning import Learner
from p2pfl.network.peer.launch.ended import Ended
from p2pfl.network.peer.launch.event_log import EventLog
from p2pfl.network.transport import MemoryTransport
from p2pfl.privacy.keys import Source
from p2pfl.results import Record, Run
from p2pfl.results.progress import show_progress


async def live(
    experiment: str | Path | Experiment | Mapping[str, Any] | Plan | Algorithm,
    learner: Learner | None = None,
    topology: graphs.Topology | graphs.Schedule | graphs.NetworkxGraph | None = None,
    *,
    peers: int | None = None,
    source: Source | None = None,
    observe: Callable[[list[Record]], None] | None = None,
    progress: bool = False,
    baselines: bool = True,
    unaccounted: bool = False,
    **parts: Unpack[RunParts],
) -> Run:
    """Run the live peers of an experiment in the running loop, and keep the run in memory.

    The peers exchange their messages in this process, so ``[transport]`` names no broker, and ``[trust]`` and
    ``[telemetry]`` have no effect.

    Parameters
    ----------
    experiment
        Algorithm; or a file, name of a shipped experiment, table, an experiment already read, or its plan.
    learner, topology
        The other parts of a run, if the first argument is an algorithm.
    peers
        Number of peers in place of ``topology.peers`` of a file or table.
    source
        Source of keys and private noise; the operating system's secrets by default. With that of a simulation, such as
        ``SeededSource(seed)``, the models are those of the simulation, and no epsilon is stated.
    observe
        Function called with the records of each round, once all peers have ended it.
    progress, baselines, unaccounted
        Arguments as in :func:`p2pfl.simulate`.
    **parts
        ``rounds``, ``seed``, ``privacy``, ``codec``, ``rule``, ``attack`` and ``settings`` of :func:`p2pfl.compose`, if
        the first argument is an algorithm.

    Returns
    -------
    Run
        Run with ``metrics``, ``models``, ``events``, ``summary`` and ``plot()``.

    Raises
    ------
    InputError
        The experiment cannot run, a part is missing, or it needs peers that remember their votes, as
        ``privacy.departures`` does.
    RunError
        A peer failed; the others have been ended.

    Examples
    --------
    In a notebook ``run = await p2pfl.live("digits")``, as a loop runs there; elsewhere:

    >>> table = {"rounds": 1, "topology": {"kind": "complete", "peers": 2}, "data": {"name": "wine"}}
    >>> sorted(asyncio.run(live(table, baselines=False)).models)
    ['peer0', 'peer1']

    The same without an experiment file:

    >>> import torch
    >>> from p2pfl.algorithms import FedAvg
    >>> from p2pfl.learning import TorchLearner
    >>> data = {peer: (torch.eye(4), torch.tensor([0, 1, 0, 1])) for peer in graphs.ring(3).peers}
    >>> learner = TorchLearner(torch.nn.Linear(4, 2), data, rate=0.5)
    >>> sorted(asyncio.run(live(FedAvg(), learner, graphs.ring(3), rounds=1, baselines=False)).models)
    ['peer0', 'peer1', 'peer2']
    """
    first, began = time.perf_counter(), datetime.now(UTC)
    made = wanted_experiment(experiment, learner, topology, peers=peers, parts=parts)
    make: Callable[[], Plan]
    if isinstance(made, Plan):
        make = partial(check_live, made)
    elif isinstance(made, Experiment):
        make = partial(plan, made, live=True, unaccounted=unaccounted)
    else:
        check_data(*made.args[1:])
        make = partial(made, live=True, unaccounted=unaccounted)
    resolved = await asyncio.to_thread(make)
    resolved = resolved if source is None else resolved.drawing(source, unaccounted=unaccounted)
    names = resolved.topology.peers
    if isinstance(made, Experiment):  # each peer loads its own data
        plans = {name: await asyncio.to_thread(plan, resolved.pinned, only=[name], unaccounted=True) for name in names}
        plans = {
            name: replace(own, unaccounted=resolved.unaccounted, unpinned=resolved.experiment)
            for name, own in plans.items()
        }
    else:
        plans = dict.fromkeys(names, resolved)
    run = Run(resolved.experiment, began=began)
    log = EventLog(run, now=lambda: began + timedelta(seconds=time.perf_counter() - first))
    with show_progress(observe, rounds=resolved.experiment.horizon, wanted=progress) as seen:
        ended = Ended(run, log, len(names), seen)
        await ended.run_peers(plans, transport=MemoryTransport(), source=source)
    done = await asyncio.to_thread(ended.keep)
    for each in done.values():
        log.observe(each)
    total = time.perf_counter() - first
    run.finish(await asyncio.to_thread(ended.summary, resolved, done, began=began, total=total, baselines=baselines))
    return run
