"""Time and memory of a simulation by several workers, and bytes between them.

    python -m benchmarks.shards [--peers 2000] [--rounds 3] [--steps 20] [--degree 8] [--hidden 32] [--workers 1 2 4]
                               [--delay CYCLES]

It simulates D-PSGD on noisy digits (an MLP, batches of 16, one gossip step) on a random regular graph by 1, 2 and 4
workers of this machine, each run in processes of its own, and on a ring, whose partition cuts few edges. With --delay
it simulates gossip learning, whose models travel for so many cycles on average. The table has the seconds of all
rounds, the largest resident memory of a worker and how much of it is above that of a run of 8 peers, and what the
workers sent to each other in a round.

The last lines say what the network would bound with 64 workers, one on each machine: the largest number of boundary
models that a worker takes in a round, from the partition of the same graph, over a link of 1 and of 10 Gbit/s.
"""

import argparse
import json
import os
import subprocess
import sys
from typing import Any

from p2pfl.experiment import Experiment, Plan, plan, read
from p2pfl.simulation import simulate
from p2pfl.simulation.sharding.part import boundary
from p2pfl.topology import owners, partition

FAR = 64
"""Workers of the extrapolation."""

LINKS = {"1 Gbit/s": 1e9 / 8, "10 Gbit/s": 1e10 / 8}
"""Bytes a second of a link."""


def wanted(options: argparse.Namespace) -> Experiment:
    """Return the simulated experiment."""
    late = options.delay is not None
    return read(
        {
            "rounds": options.rounds,
            "topology": {"kind": options.kind, "peers": options.peers}
            | ({"degree": options.degree} if options.kind == "random_regular" else {}),
            "data": {"name": "benchmarks.pixels:load", "options": {"classes": 10}},
            "model": {"name": "mlp", "hidden": [options.hidden]},
            "learning": {
                "algorithm": "gossip_learning" if late else "dpsgd",
                "batch": 16,
                "steps": options.steps,
                "device": "cpu",
            },
        }
        | ({"simulation": {"delay": options.delay}} if late else {"gossip": {"steps": 1}})
    )


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Simulate in this process and those that it starts; return the summary."""
    from p2pfl.core.process import peak_memory  # noqa: PLC0415 (of the process that simulates)

    summary = simulate(wanted(options), baselines=False, workers=options.child).summary
    if not summary["workers"]:
        summary["workers"] = [{"memory": peak_memory(), "bytes_sent": 0}]
    return summary


def spawned(options: argparse.Namespace, *, kind: str, workers: int, peers: int) -> dict[str, Any]:
    """Simulate in a process of its own."""
    given = {**vars(options), "kind": kind, "peers": peers, "child": workers}
    names = ("peers", "rounds", "steps", "degree", "hidden", "kind", "child", "delay")
    more = [f"--{name}={given[name]}" for name in names if given[name] is not None]
    command = [sys.executable, "-m", "benchmarks.shards", *more]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)  # noqa: S603 (this file)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def far(resolved: Plan, *, workers: int) -> int:
    """Return the largest number of models that one of so many workers takes in a gossip step."""
    owner = owners(partition(resolved.weights, workers))
    matrix = resolved.weights[0].matrix
    steps = [boundary(matrix, owner=owner, worker=each, workers=workers) for each in range(workers)]
    return max(len(step.outside) for step in steps)


def table(options: argparse.Namespace, kind: str) -> None:
    """Print the figures of one topology."""
    options.kind = kind
    resolved = plan(wanted(options))
    size = resolved.learner.layout.size
    print(f"{kind}, {options.peers} peers, {size} parameters, {options.rounds} rounds of {options.steps} steps:")
    for workers in options.workers:
        found = spawned(options, kind=kind, workers=workers, peers=options.peers)
        little = spawned(options, kind="ring", workers=workers, peers=8)
        memory, base = (max(each["memory"] or 0 for each in one["workers"]) for one in (found, little))
        sent = sum(each["bytes_sent"] for each in found["workers"]) / options.rounds
        print(
            f"  {workers} worker{'s' * (workers > 1):<1} {found['wall_s']:7.2f} s, {memory / 2**20:6.0f} MiB a worker "
            f"({(memory - base) / 2**20:.0f} above 8 peers), {sent / 2**20:.1f} MiB between them a round"
        )
    if options.peers >= FAR:
        models = far(resolved, workers=FAR)
        each = models * size * 4
        times = ", ".join(f"{each / rate * 1e3:.1f} ms over {name}" for name, rate in LINKS.items())
        print(f"  {FAR} workers: up to {models} boundary models each, {each / 2**20:.1f} MiB a round: {times}")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--degree", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--delay", type=float)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--kind", help=argparse.SUPPRESS)
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        print(json.dumps(measured(options)))
        return
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for kind in ("random_regular", "ring"):
        table(options, kind)


if __name__ == "__main__":
    main()
