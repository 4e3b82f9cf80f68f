"""How well ``p2pfl simulate EXPERIMENT --network FILE`` foretells a real run over such lines."""

import argparse
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from benchmarks.faults.mortal import Mortal
from benchmarks.faults.nursery import Nursery
from benchmarks.faults.page import Shown
from benchmarks.faults.relay import Relays
from p2pfl.experiment import Experiment, read
from p2pfl.network.virtual.forecast import forecast, network
from p2pfl.results import Record
from p2pfl.topology import ring


def experiment(options: argparse.Namespace, url: str) -> Experiment:
    """Digits, with rows of the size that is asked for."""
    return read(
        {
            "name": "faults",
            "rounds": options.rounds,
            "topology": {"kind": "small_world", "peers": options.peers, "degree": 4, "options": {"rewire": 0.2}},
            "data": {"name": "digits"},
            "model": {"name": "mlp", "hidden": [options.hidden]},
            "learning": {"device": "cpu"},
            "gossip": {"steps": 3},
            "privacy": {"mode": "pairwise"},
            "transport": {"broker": url, "gather": 300.0, "patience": 120.0},
        }
    )


def foretold(options: argparse.Namespace, folder: Path) -> Shown:
    """A run in virtual time beside the same in real time, over relays that delay and limit as the network file says."""
    over = network(options.network)
    names = ring(options.peers).peers
    broker = Mortal()
    url = broker.start()
    wanted = experiment(options, url)
    virtual = forecast(wanted, over, folder=folder / "foretold", baselines=False)
    said = virtual.summary
    with Relays("127.0.0.1", broker.port, {name: over.conditions(name) for name in names}) as relays:
        takes = {name: over.takes(name, seed=wanted.seed) for name in names}
        with Nursery(wanted, folder / "run", urls=relays.urls, takes=takes) as nursery:
            nursery.end(within=3600.0)
    broker.stop(in_order=True)
    first, last = max(nursery.began_at.values()), max(nursery.heard_at.values())
    seconds, foretold = last - first, said["wall_s"]
    return Shown(
        options.command,
        f"links as in `{options.network}`, models of {4 * (65 * options.hidden + 10 * (options.hidden + 1)):,} bytes",
        f"{options.peers} peers, {options.rounds} rounds, {seconds:.0f} s",
        f"predicted {foretold:.1f} s, measured {seconds:.1f} s: {100 * (seconds / foretold - 1):+.1f} %; "
        f"training of the slowest peer of each round {trained(virtual.metrics):.1f} s and "
        f"{trained(nursery.records.values()):.1f} s; "
        f"{options.rounds / foretold:.3f} and {options.rounds / seconds:.3f} rounds a second; "
        f"bytes of a peer {said['bytes_sent'] / options.peers:,.0f} and "
        f"{sum(nursery.records[name, options.rounds - 1].bytes_out for name in names) / options.peers:,.0f}; "
        f"{nursery.missed} models missed",
    )


def trained(records: Iterable[Record]) -> float:
    """Seconds that the slowest peer of each round trained, in all rounds."""
    slowest: dict[int, float] = defaultdict(float)
    for record in records:
        slowest[record.round] = max(slowest[record.round], record.seconds_training)
    return sum(slowest.values())
