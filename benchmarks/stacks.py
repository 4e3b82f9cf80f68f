"""What a simulation of many peers costs beside its arithmetic: threads, page faults, distances.

    python -m benchmarks.stacks [--peers 1000] [--rounds 5] [--steps 20] [--repeats 3]

It simulates D-PSGD on digits (MLP 64-32-10, batches of 16, one gossip step a round) on a random regular graph, and 15
rounds of the shipped experiment ``digits`` with 64 peers (masks, and many gossip steps a round). Each simulation runs
in a process of its own, net of imports and data, in turn: as a user starts it, under ``OMP_NUM_THREADS=1``, without
the one thread that ``simulate`` sets, and without the memory that it keeps. Then eight large models train in a stack,
in one thread and in torch's own number. All of that is measured twice: on the machine as it is, and beside a process
that only counts. Ratios are taken turn by turn.

The cost of distances is that of 140 gossip steps of 64 peers where the distance is read after every step, over that of
steps after which it is read once, as the records of a round read it.
"""

import argparse
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial

import torch

from benchmarks.learning import federation
from benchmarks.timing import pair
from p2pfl.core.neighbourhood import Released, run_without_loop
from p2pfl.core.process import one_thread
from p2pfl.experiment import Experiment, plan, read
from p2pfl.learning import TorchLearner, build
from p2pfl.simulation import StackedNeighbourhood, engine
from p2pfl.topology import metropolis, random_regular

LENGTH = 4810
"""Numbers of an MLP 64-64-10, the model of the shipped experiment ``digits``."""

KINDS = {
    "default": "by default",
    "single": "OMP_NUM_THREADS=1",
    "threads": "torch's own threads",
    "memory": "freed memory returned",
}

LARGE = (
    ("mlp", (784,), (200, 200), 320),
    ("mlp", (64,), (512, 512), 320),
    ("cnn", (1, 28, 28), (16, 32), 160),
    ("cnn", (3, 32, 32), (32, 64), 96),
)
"""Model, shape of a sample, layers, and samples of each of eight peers."""


@dataclass(frozen=True)
class Cost:
    """Seconds by the clock, of the processor and of these in the kernel; minor page faults."""

    wall: float
    processor: float
    kernel: float
    faults: int


def wanted(options: argparse.Namespace) -> Experiment:
    """Return the simulated experiment."""
    if options.load == "digits":
        return read("digits", changes=["topology.peers=64", "rounds=15"])
    return read(
        {
            "rounds": options.rounds,
            "topology": {"kind": "random_regular", "peers": options.peers},
            "data": {"name": "digits"},
            "model": {"name": "mlp", "hidden": [32]},
            "learning": {"algorithm": "dpsgd", "batch": 16, "steps": options.steps},
            "gossip": {"steps": 1},
        }
    )


def measured(options: argparse.Namespace) -> Cost:
    """Simulate in this process."""
    resolved = plan(wanted(options))
    simulate = engine.simulate
    if options.child == "memory":
        engine.keep_freed_memory = lambda: None
    if options.child == "threads":
        simulate = simulate.__wrapped__  # what `one_thread` decorates
    before, begun = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    simulate(resolved, baselines=False)
    wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF)
    kernel = after.ru_stime - before.ru_stime
    return Cost(wall, after.ru_utime - before.ru_utime + kernel, kernel, after.ru_minflt - before.ru_minflt)


def spawned(load: str, kind: str) -> Cost:
    """Simulate in a process of its own, with the same arguments."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    if kind == "single":
        environment["OMP_NUM_THREADS"] = "1"
    command = [sys.executable, "-m", "benchmarks.stacks", *sys.argv[1:], "--load", load, "--child", kind]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)  # noqa: S603 (this file)
    return Cost(**json.loads(done.stdout))


@contextlib.contextmanager
def counting() -> Iterator[None]:
    """Keep one core busy."""
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        busy.kill()
        busy.wait()


def table(load: str, *, repeats: int) -> None:
    """Print what each kind of simulation costs, and its ratio to one under ``OMP_NUM_THREADS=1``."""
    kinds = [*KINDS]
    turns = []
    for turn in range(repeats):
        first = turn % len(kinds)  # a machine whose speed drifts favours no kind
        turns.append({kind: spawned(load, kind) for kind in kinds[first:] + kinds[:first]})
    for kind, label in KINDS.items():
        costs = [turn[kind] for turn in turns]
        ratios = sorted(turn[kind].wall / turn["single"].wall for turn in turns)
        medians = {name: statistics.median(getattr(cost, name) for cost in costs) for name in asdict(costs[0])}
        print(
            f"  {label:<22} {medians['wall']:6.2f} s, {medians['processor']:6.2f} s of processor time "
            f"({medians['kernel']:.2f} in the kernel), {medians['faults']:>9,.0f} page faults, "
            f"ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})"
        )


def large(repeats: int) -> None:
    """Print what a round of eight large models costs in one thread, and its ratio to torch's own number."""
    for name, shape, hidden, samples in LARGE:
        data = federation(8, shape, samples)
        model = build(name, shape=shape, classes=10, seed=0, options={"hidden": hidden})
        learner = TorchLearner(model, data, seed=0, rate=0.01, batch=32, device="cpu")
        fit = partial(learner.fit, learner.start(data.peers), peers=data.peers, round=0)
        single, several, ratio = pair(one_thread()(fit), fit, repeats=repeats)
        label = f"{name} {'-'.join(map(str, hidden))} on {'x'.join(map(str, shape))}"
        print(
            f"  {label:<22} one thread {single:.3f} s, {torch.get_num_threads()} threads {several:.3f} s, ratio {ratio}"
        )


@one_thread()
def distances(repeats: int) -> None:
    """Print what 140 gossip steps cost where the distance is read after every one, and where it is read once."""
    weights = [metropolis(random_regular(64, degree=4, seed=0))]
    rows = torch.randn(64, LENGTH, generator=torch.Generator().manual_seed(0))

    def steps(*, every: bool) -> None:
        net, released = StackedNeighbourhood(weights, round=0, seed=0), Released(rows)
        for _ in range(140):
            released = run_without_loop(net.mix(released))
            if every:
                _ = net.distance
        _ = net.distance

    each, once, ratio = pair(lambda: steps(every=True), lambda: steps(every=False), repeats=10 * repeats)
    print(f"140 gossip steps of 64 peers, distance read after each: {1e3 * each:.1f} ms", end=", ")
    print(f"once: {1e3 * once:.1f} ms, ratio {ratio}")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--load", default="dpsgd", help=argparse.SUPPRESS)
    parser.add_argument("--child", choices=KINDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        print(json.dumps(asdict(measured(options))))
        return
    loads = {
        "dpsgd": f"{options.peers} peers, {options.rounds} rounds of {options.steps} steps",
        "digits": "digits, 64 peers, 15 rounds",
    }
    for place, busy in ((f"{os.cpu_count()} cores", contextlib.nullcontext()), ("beside a busy loop", counting())):
        with busy:
            for load, label in loads.items():
                print(f"{label}, {place}:")
                table(load, repeats=options.repeats)
            print("eight large models:")
            large(options.repeats)
    distances(options.repeats)


if __name__ == "__main__":
    main()
