"""A peer dies between masking and sending: what its masks do to the models of the others."""

import argparse
import os
import random
import signal
import statistics
import sys
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.faults.mortal import Mortal
from benchmarks.faults.nursery import Nursery
from benchmarks.faults.page import Shown
from p2pfl.core.errors import RunError
from p2pfl.experiment import Experiment, plan, read
from p2pfl.results.notices.kinds import LossRose

AFTER = 5
"""Rounds after a death in which the survivors recover."""

LONGEST = 300.0
"""Seconds within which a round must end, the first one with the start of the swarm."""


@dataclass(frozen=True)
class Death:
    """Accuracy of the survivors of a death, on average.

    Attributes
    ----------
    before
        After the last round of the peer that died.
    now
        After the next two rounds, the lower one: a death is noticed in one of them.
    later
        ``AFTER`` rounds after the first of these.
    unsent
        Whether no survivor received the model of the peer that died in the first of these rounds, on a complete graph.
    """

    before: float
    now: float
    later: float
    unsent: bool


def masked(options: argparse.Namespace, folder: Path) -> Shown:
    """Kill peers of masked swarms one after another, while the others wait for their models or at any time."""
    check(options)
    broker = Mortal()
    url = broker.start()
    deaths, alarms, swarms = list[Death](), 0, 0
    while len(deaths) < options.kills:
        wanted = _experiment(options, url, seed=swarms)
        names = plan(wanted).topology.peers
        place = folder / f"run{swarms}"
        with Nursery(wanted, place, urls=dict.fromkeys(names, url), takes=dict.fromkeys(names, 0.05)) as nursery:
            count = min(options.deaths, options.kills - len(deaths))
            for death in killed(nursery, count, at=options.at, anytime=options.anytime):
                deaths.append(death)
                print(f"kill {len(deaths)} in swarm {swarms}: {death}", file=sys.stderr, flush=True)
        alarms += any(isinstance(notice, LossRose) for notice in nursery.said)
        swarms += 1
    broker.stop(in_order=True)
    falls = [death.now - death.before for death in deaths]
    later = [death.later - death.before for death in deaths]
    size = "without masks" if options.mask == 0 else f"mask {plan(wanted).protection.settings.mask:g}"
    unsent = f"; {sum(death.unsent for death in deaths)} died before they sent" if options.kind == "complete" else ""
    when = "at any time" if options.anytime else "that had masked with the others and not sent"
    return Shown(
        options.command,
        f"{options.kills} times `kill -9` of a peer {when}, {size}",
        f"{swarms} swarms of {options.peers} peers on digits",
        f"accuracy of the others, the lower one of that round and the next: median {statistics.median(falls):+.3f}, "
        f"worst {min(falls):+.3f}; {AFTER} rounds later: median {statistics.median(later):+.3f}, "
        f"worst {min(later):+.3f}{unsent}; an alarm in {alarms} of the swarms",
    )


def check(options: argparse.Namespace) -> None:
    """Refuse more deaths, one after another, than leave two peers.

    Examples
    --------
    >>> check(argparse.Namespace(peers=8, deaths=3))
    """
    most = options.peers - 2
    if not 1 <= options.deaths <= most:
        sys.exit(f"expected --deaths from 1 to {most} with {options.peers} peers, got {options.deaths}")


def _experiment(options: argparse.Namespace, url: str, *, seed: int) -> Experiment:
    privacy = {"mode": "pairwise"} if options.mask is None else {"mode": "pairwise", "mask": options.mask}
    privacy |= {"departures": "go_on", "partners": 1}  # one of three peers has one partner left after a death
    return read(
        {
            "name": f"masked{seed}",
            "seed": seed,
            "rounds": options.at + options.deaths * (AFTER + 3) + 3,
            "topology": {"kind": options.kind, "peers": options.peers},
            "data": {"name": "digits"},
            "learning": {"device": "cpu", "rate": 0.2, "epochs": 5},
            "privacy": {"mode": "none"} if options.mask == 0 else privacy,
            "gossip": {"steps": options.steps},
            "transport": {"broker": url, "gather": 300.0},
        }
    )


def killed(nursery: Nursery, count: int, *, at: int, anytime: bool) -> Iterator[Death]:
    """Kill so many peers, the first one after round ``at``; yield each death once the survivors had time to recover.

    A peer is killed at a random moment of a round, or, without ``anytime``, once the others wait for it.
    """
    draws = random.Random(nursery.experiment.seed)  # noqa: S311 (of a benchmark)
    alive = set(nursery.names)
    for victim in draws.sample(nursery.names, count):
        _ended(nursery, alive, at)
        began = time.perf_counter()
        _ended(nursery, alive, at + 1)
        alive.remove(victim)
        if anytime:
            nursery.listen(draws.uniform(0, time.perf_counter() - began))
            nursery.kill(victim)
            before = nursery.last(victim)
        else:
            os.kill(nursery.processes[victim].pid or 0, signal.SIGSTOP)
            before = -1
            while before != (before := min(map(nursery.last, alive))):
                nursery.listen(1.0)  # until they wait for the one that is stopped
            nursery.kill(victim)
        at = before + 1 + AFTER
        _ended(nursery, alive, at)
        mean = [
            statistics.mean(nursery.records[name, round].scores["accuracy"] for name in alive)
            for round in range(before, at + 1)
        ]
        unsent = all(victim in nursery.records[name, before + 1].missed for name in alive)
        yield Death(mean[0], min(mean[1:3]), mean[-1], unsent)


def _ended(nursery: Nursery, names: Collection[str], round: int) -> None:
    """Wait until some peers have ended a round.

    Raises
    ------
    RunError
        A round did not end in time, or one of the peers has left the run.
    """
    last, since = -1, time.perf_counter()
    while (now := min(map(nursery.last, names))) < round:
        if now > last:
            last, since = now, time.perf_counter()
        late = time.perf_counter() - since > LONGEST
        if late or nursery.done.keys() & names or not nursery.listen(0.05):
            raise RunError(f"expected round {round} to end, got {nursery.phases}; ended: {sorted(nursery.done)}")
