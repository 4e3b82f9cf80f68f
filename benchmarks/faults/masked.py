"""A peer dies between masking and sending: what its masks do to the models of the others."""

import argparse
import os
import random
import signal
import statistics
import time
from pathlib import Path

from benchmarks.faults.mortal import Mortal
from benchmarks.faults.nursery import Nursery
from benchmarks.faults.page import Shown
from p2pfl.errors import RunError
from p2pfl.experiment import Experiment, plan, read
from p2pfl.report.notices.damage import Alarm

AFTER = 5
"""Rounds after a death in which the survivors recover."""

LONGEST = 120.0
"""Seconds within which a round must end."""

ROUND = 0.5
"""Seconds within which a peer is killed at random, a little longer than a round takes."""


def masked(options: argparse.Namespace, folder: Path) -> Shown:
    """Stop one of a masked swarm in a round, and kill it once the others wait; each kill has a swarm of its own."""
    broker = Mortal()
    url = broker.start()
    falls, later, alarms = [], [], 0
    for number in range(options.kills):
        wanted = _experiment(options, url, seed=number)
        moment = random.Random(number).uniform(0, ROUND) if options.anytime else None  # noqa: S311 (of a benchmark)
        before, now, after, said = _died(wanted, folder / f"run{number}", url=url, at=options.at, moment=moment)
        falls.append(now - before)
        later.append(after - before)
        alarms += said
    broker.stop(in_order=True)
    size = "without masks" if options.mask == 0 else f"mask {plan(wanted).protection.settings.mask:g}"
    when = "at any time" if options.anytime else "that had masked with the others and not sent"
    return Shown(
        options.command,
        f"{options.kills} times `kill -9` of a peer {when}, {size}, departures {options.departures}",
        f"{options.peers} peers on digits, a swarm for each kill",
        f"accuracy of the others in that round: median {statistics.median(falls):+.3f}, worst {min(falls):+.3f}; after "
        f"{AFTER} more: median {statistics.median(later):+.3f}, worst {min(later):+.3f}; an alarm in {alarms} of them",
    )


def _experiment(options: argparse.Namespace, url: str, *, seed: int) -> Experiment:
    privacy = {"mode": "pairwise"} if options.mask is None else {"mode": "pairwise", "mask": options.mask}
    decided = options.departures != "unsettled"
    if decided:  # one of three peers has one partner left after a death
        privacy |= {"departures": options.departures, "partners": 1}
    return read(
        {
            "name": f"masked{seed}",
            "seed": seed,
            "rounds": options.at + AFTER + 3,
            "topology": {"kind": options.kind, "peers": options.peers},
            "data": {"name": "digits"},
            "learning": {"device": "cpu", "rate": 0.2, "epochs": 5},
            "privacy": {"mode": "none"} if options.mask == 0 else privacy,
            "gossip": {"steps": options.steps} if decided else {},
            "transport": {"broker": url, "gather": 300.0},
        }
    )


def _died(
    wanted: Experiment, folder: Path, *, url: str, at: int, moment: float | None
) -> tuple[float, float, float, bool]:
    """Return the others' mean accuracy before the round of the death, after it and later, and whether they said so.

    The peer is killed so many seconds after a round, or, without a ``moment``, once the others wait for it.
    """
    names = plan(wanted).topology.peers
    victim, others = names[-1], names[:-1]
    with Nursery(wanted, folder, urls=dict.fromkeys(names, url), takes=dict.fromkeys(names, 0.05)) as nursery:

        def ended(round: int) -> None:
            while min(map(nursery.last, others)) < round:
                if not nursery.listen(0.05):
                    raise RunError(f"expected round {round} to end, got {nursery.phases}")

        ended(at)
        before = -1
        if moment is None:
            os.kill(nursery.processes[victim].pid or 0, signal.SIGSTOP)
        else:
            time.sleep(moment)
            before = min(map(nursery.last, others))
        while moment is None and before != (before := min(map(nursery.last, others))):
            nursery.listen(1.0)  # until they wait for the one that is stopped
        nursery.kill(victim)
        ended(before + AFTER + 1)
    said = any(isinstance(notice, Alarm) for notice in nursery.said)

    def mean(round: int) -> float:
        return statistics.mean(nursery.records[name, round].scores["accuracy"] for name in others)

    return mean(before), mean(before + 1), mean(before + 1 + AFTER), said
