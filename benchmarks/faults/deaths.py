"""Peers and brokers that are killed in the middle of a run."""

import argparse
import sys
from pathlib import Path

from benchmarks.faults.mortal import Mortal
from benchmarks.faults.nursery import Nursery, apart, reported
from benchmarks.faults.page import Shown
from p2pfl.core.draws import draw
from p2pfl.experiment import Experiment, plan, read
from p2pfl.simulation import simulate
from p2pfl.topology import ring

LONGEST = 3600.0
"""Seconds within which any run must end."""


def experiment(options: argparse.Namespace, url: str, *, mode: str = "none") -> Experiment:
    """Digits on a ring in double precision, so that the rows can be compared with those of the simulation."""
    return read(
        {
            "name": "faults",
            "rounds": options.rounds,
            "topology": {"kind": "ring", "peers": options.peers},
            "data": {"name": "digits"},
            "learning": {"dtype": "float64", "device": "cpu"},
            "gossip": {"steps": 3},
            "privacy": {"mode": mode},
            "transport": {"broker": url, "gather": 300.0, "patience": 60.0},
        }
    )


def kills(options: argparse.Namespace, folder: Path) -> Shown:
    """``kill -9`` of random peers, at moments of a Poisson process; each is started again."""
    dice = draw(options.seed, "kills")
    broker = Mortal()
    url = broker.start()
    wanted = experiment(options, url, mode=options.privacy)
    names = ring(options.peers).peers
    nursery = Nursery(
        wanted,
        folder / "run",
        urls=dict.fromkeys(names, url),
        takes=dict.fromkeys(names, options.takes),
    )
    killed, learning = 0, 0
    with nursery:
        while nursery.began is None:
            nursery.listen(0.1)
        while killed < options.kills and nursery.listen(dice.exponential(options.every)):
            alive = [name for name in names if name not in nursery.done and nursery.phases[name] != "killed"]
            if not alive:
                continue
            name = alive[int(dice.integers(len(alive)))]
            learning += nursery.phases[name] == "learning"
            nursery.kill(name)
            killed += 1
            nursery.start(name, after=options.down)
        seconds = nursery.end(within=LONGEST)
    broker.stop(in_order=True)
    enough(killed, options.kills, "kills")
    others = ", the others while it came back" if killed > learning else ""
    return Shown(
        options.command,
        f"{killed} times `kill -9` of a random peer ({learning} while it learned{others}), "
        f"started again {f'after {options.down:g} s' if options.down else 'immediately'}",
        f"{options.peers} peers, {options.rounds} rounds, {seconds:.0f} s",
        found(nursery, wanted),
    )


def enough(made: int, wanted: int, what: str) -> None:
    """Refuse to show what did not take place."""
    if made < wanted:
        sys.exit(f"expected {wanted} {what}, got {made} before the run had ended: raise --rounds, or lower --every")


def brokers(options: argparse.Namespace, folder: Path) -> Shown:
    """The broker is killed, or ends in order, which publishes all wills; with and without what it had kept on disk."""
    (folder / "kept").mkdir(parents=True)
    broker = Mortal(None if options.forgetful else folder / "kept")
    url = broker.start()
    wanted = experiment(options, url)
    names = ring(options.peers).peers
    nursery = Nursery(wanted, folder / "run", urls=dict.fromkeys(names, url))
    made = 0
    with nursery:
        while nursery.began is None:
            nursery.listen(0.1)
        while made < options.restarts and nursery.listen(options.every):
            broker.restart(in_order=options.in_order)
            made += 1
        seconds = nursery.end(within=LONGEST)
    broker.stop(in_order=True)
    enough(made, options.restarts, "restarts")
    how = "SIGTERM" if options.in_order else "`kill -9`"
    kept = "nothing" if options.forgetful else "its disk"
    return Shown(
        options.command,
        f"{made} restarts of mosquitto ({how}, it keeps {kept})",
        f"{options.peers} peers, {options.rounds} rounds, {seconds:.0f} s",
        found(nursery, wanted),
    )


def bereaved(options: argparse.Namespace, folder: Path) -> Shown:
    """Some peers are killed for good, no two neighbours on a ring; how far apart the others' models are at the end."""
    broker = Mortal()
    url = broker.start()
    wanted = read(
        {
            "name": "faults",
            "rounds": options.rounds,
            "topology": {"kind": options.kind, "peers": options.peers},
            "data": {"name": "digits", "split": "shards"},
            "learning": {"dtype": "float64", "device": "cpu"},
            "transport": {"broker": url, "gather": 300.0, "patience": 60.0},
        }
    )
    names = plan(wanted).topology.peers
    dying = names[2 :: len(names) // options.kill][: options.kill]
    with Nursery(wanted, folder / "run", urls=dict.fromkeys(names, url)) as nursery:
        while min(map(nursery.last, dying)) < options.rounds // 4:
            nursery.listen(0.1)
        for name in dying:
            nursery.kill(name)
        seconds = nursery.end(within=LONGEST)
    broker.stop(in_order=True)
    left = {name: model for name, model in nursery.models().items() if name not in dying}
    wide = max(apart({name: model}, {name: other}) for name, model in left.items() for other in left.values())
    return Shown(
        options.command,
        f"{len(dying)} of {len(names)} peers killed for good ({options.kind}, each with digits of its own)",
        f"{len(names)} peers, {options.rounds} rounds, {seconds:.0f} s",
        f"{len(nursery.done)} ended; {nursery.missed} models missed; the models of the survivors differ by {wide:.2g}",
    )


def found(nursery: Nursery, wanted: Experiment) -> str:
    """What became of a run, beside the simulation."""
    oracle = simulate(wanted, baselines=False)
    score = {name: done.scores["accuracy"] for name, done in nursery.done.items()}
    mean, wanted_mean = sum(score.values()) / len(score), oracle.summary["together"]
    sentences = [
        f"all {len(nursery.done)} ended",
        f"{nursery.missed} models missed, {nursery.left_out} rounds left out",
        f"largest difference to `simulate` {apart(nursery.models(), oracle.models):.1g}",
        f"accuracy {mean:.3f} ({wanted_mean:.3f})",
    ]
    return "; ".join([*sentences, *reported(nursery)])
