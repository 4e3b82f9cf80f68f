"""Peer-steps a second of a simulation on a GPU, against two cores of the CPU and the GPU's own matrix products.

    python -m benchmarks.gpu [--peers 256 2000 10000 100000] [--repeats 5] [--profile] [--hidden [--device cpu]]

A round is one of D-PSGD as the simulator runs it: 20 steps of 16 samples at each peer (four epochs of 80 samples drawn
by key, random data like digits), and a gossip step on a random regular graph of degree 8. Times are of whole rounds
with all that they draw and copy, but without evaluation, which has columns of its own: each peer on 1,000 common
samples.
On the GPU several rounds run after each other before the clock stops, as nothing waits between them.

Two cores are the better of two ways to use them (``taskset -c 0,1``): one process with two intra-op threads, and two
processes of one thread, each with half of the peers. A CPU simulates ``--cpu-peers`` peers at most, as its time for one
peer does not fall with more of them.

``--hidden`` prints what hides the models of a round instead: milliseconds of a round in plain view, of one with masks
and clipping, and of one with private noise as well, and the nanoseconds that masks and clipping take for each number of
a mask (there are four a parameter). It runs on the CPU as well.

The share of the peak is that of the floating-point operations of all products in a step, over those of a product of two
matrices of 8,192 x 8,192 random numbers of the same type on the same GPU.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.learning import federation
from p2pfl.algorithms import DPSGD, State, start
from p2pfl.core.neighbourhood import run_without_loop
from p2pfl.core.process import keep_freed_memory
from p2pfl.data import Federation
from p2pfl.learning import TorchLearner, build, home
from p2pfl.learning.steps.batching import Batch
from p2pfl.privacy import Masks, Settings, private
from p2pfl.privacy.keys import KEY_BYTES, SeededSource
from p2pfl.simulation.inline import Inline
from p2pfl.simulation.mixing import Mixer
from p2pfl.simulation.round_records import move_state
from p2pfl.simulation.stacked import StackedNeighbourhood
from p2pfl.topology import Weights, metropolis, random_regular

SAMPLES, BATCH, STEPS, TESTED, ROUNDS, DEGREE = 80, 16, 20, 1000, 4, 8
MODELS = {"mlp 32": ("mlp", (64,), (32,)), "cnn 8-16": ("cnn", (1, 8, 8), (8, 16))}
LARGE = 8192
PLAIN, MASKED = Settings(), Settings(mask=1.0, clip=1.0)
NOISED = replace(MASKED, noise=0.1)


@dataclass(frozen=True)
class Task:
    """Experiment that a row of the table simulates."""

    model: str
    peers: int
    device: str
    precision: str = "full"
    settings: Settings = PLAIN

    def learner(self) -> TorchLearner:
        """Return the learner of all peers, with the same test part for each."""
        name, shape, hidden = MODELS[self.model]
        data = federation(self.peers, shape, SAMPLES)
        tested = np.arange(TESTED)
        data = Federation(data.dataset, data.train, {}, dict.fromkeys(data.peers, tested))
        model = build(name, shape=shape, classes=10, seed=0, options={"hidden": hidden})
        how = {"batch": BATCH, "steps": STEPS, "device": self.device, "precision": self.precision}
        return TorchLearner(model, data, seed=0, rate=0.01, **how)

    def weights(self, peers: tuple[str, ...]) -> Weights:
        """Return the weights of a gossip step."""
        return metropolis(random_regular(len(peers), degree=DEGREE, seed=0).named(peers))


class Rounds:
    """Rounds of a simulation, one after the other."""

    def __init__(self, task: Task) -> None:
        self.learner = task.learner()
        self.peers = tuple(self.learner.federation.peers)
        self.weights = [task.weights(self.peers)]
        self.mixer = Mixer(self.weights)
        self.state: State = move_state(start(self.learner, self.peers), home(self.learner))
        there = torch.ones(len(self.peers), dtype=torch.bool)
        self.inline = Inline(self.learner, present=lambda _: there, clock=time.perf_counter)
        self.number = 0
        self.settings, self.masks = task.settings, self._masks(task)

    def _masks(self, task: Task) -> Masks | None:
        """Return masks under secrets that cost no key exchange."""
        graph, source = random_regular(task.peers, degree=DEGREE, seed=0).named(self.peers), SeededSource(0)
        if not task.settings.mask:
            return None
        edges = {(min(a, b), max(a, b)) for a, b in graph.edges}
        secrets = {(a, b): source.bytes(KEY_BYTES, purpose="edge", peer=f"{a}-{b}") for a, b in edges}
        return Masks(secrets, deviation=task.settings.mask, topology=graph)

    def run(self, count: int) -> None:
        """Run some rounds, and wait for them."""
        checks = list[Callable[[], None]]()
        for _ in range(count):
            net = StackedNeighbourhood(self.weights, round=self.number, seed=0, mixer=self.mixer)
            net.postponed = []
            how = {"settings": self.settings, "masks": self.masks, "source": SeededSource(0), "round": self.number}
            self.state = run_without_loop(DPSGD().round(self.state, self.inline, private(net, **how), self.number))
            self.number += 1
            checks.append(net.check)
        self.inline.check()
        for check in checks:
            check()

    def evaluate(self) -> None:
        """Evaluate all peers, and wait for the scores."""
        self.learner.evaluate(self.state.rows, peers=self.peers)["accuracy"].cpu()


def median(body: Callable[[], object], repeats: int) -> tuple[float, float, float]:
    """Return the median, least and largest seconds of some calls, after one to warm up."""
    body()
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        body()
        times.append(time.perf_counter() - begun)
    return statistics.median(times), min(times), max(times)


def operations(learner: TorchLearner) -> int:
    """Return the floating-point operations of all products in a peer's step."""
    parts = list(learner.layout.split(learner.start(learner.federation.peers[:1]).to(learner.device)).values())
    batch = Batch(learner.features[None, :BATCH], learner.targets[None, :BATCH], None, None)
    with FlopCounterMode(display=False) as counted:
        learner.engine.gradient(parts, batch)
    return int(counted.get_total_flops())


def product(dtype: torch.dtype) -> float:
    """Return the floating-point operations a second of a large product."""
    a, b = (torch.randn(LARGE, LARGE, device="cuda", dtype=dtype) for _ in range(2))

    def multiply() -> None:
        for _ in range(3):
            torch.mm(a, b)
        torch.cuda.synchronize()

    return 3 * 2 * LARGE**3 / median(multiply, 5)[0]


def child(task: Task, *, threads: int, repeats: int) -> tuple[float, float]:
    """Measure in this process: seconds of a round, and of an evaluation."""
    torch.set_num_threads(threads)
    keep_freed_memory()
    rounds = Rounds(task)
    trained = median(partial(rounds.run, 1), repeats)[0]
    return trained, median(rounds.evaluate, min(3, repeats))[0]


def cores(task: Task, repeats: int) -> tuple[float, float]:
    """Return the seconds of a round and of an evaluation on two cores, the better way for each."""
    one = _spawned(task, 1, threads=2, cores="0,1", repeats=repeats)
    two = _spawned(task, 2, threads=1, cores="0,1", repeats=repeats)
    return min(one[0], two[0]), min(one[1], two[1])


def _spawned(task: Task, processes: int, *, threads: int, cores: str, repeats: int) -> tuple[float, float]:
    """Return the seconds of the slowest of some processes, each with its share of the peers on its share of cores."""
    command = ["--model", task.model, "--peers", str(task.peers // processes), "--repeats", str(repeats)]
    command = [sys.executable, "-m", "benchmarks.gpu", "--child", str(threads), *command]
    own = cores.split(",") if processes > 1 else [cores]
    pin = shutil.which("taskset")
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "CUDA_VISIBLE_DEVICES": ""}
    running = [
        subprocess.Popen(  # noqa: S603 (this file)
            [*([pin, "-c", core] if pin else []), *command], env=environment, stdout=subprocess.PIPE
        )
        for core in own
    ]
    found = [json.loads(each.communicate()[0]) for each in running]
    return max(each[0] for each in found), max(each[1] for each in found)


def profile(task: Task) -> None:
    """Print what the GPU and the CPU do in two rounds."""
    rounds = Rounds(task)
    rounds.run(2)
    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    begun = time.perf_counter()
    with torch.profiler.profile(activities=kinds) as found:
        rounds.run(2)
        torch.cuda.synchronize()
    wall = time.perf_counter() - begun
    kernels = [each for each in found.events() if each.device_type == torch.autograd.DeviceType.CUDA]
    busy = sum(each.device_time for each in kernels)
    print(
        f"\n{task.model}, {task.peers} peers, profiled: {len(kernels)} kernels in two rounds, GPU busy {busy / 1e3:.1f}"
    )
    print(f"of {1e3 * wall:.1f} ms; by operation, in ms:")
    by_name: dict[str, tuple[float, int]] = {}
    for each in kernels:
        spent, count = by_name.get(each.name, (0.0, 0))
        by_name[each.name] = spent + each.device_time / 1e3, count + 1
    for name, (spent, count) in sorted(by_name.items(), key=lambda item: -item[1][0])[:16]:
        print(f"  {spent:8.2f} {count:6} {name[:140]}")
    begun = time.perf_counter()
    rounds.learner._schedule(rounds.peers, 0, None)  # noqa: SLF001 (what of a round is drawn on the CPU)
    print(f"  drawing and planning a round on the CPU: {1e3 * (time.perf_counter() - begun):.1f} ms")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS)
    parser.add_argument("--peers", type=int, nargs="+", default=[256, 2000, 10_000, 100_000])
    parser.add_argument("--cpu-peers", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--mixed", action="store_true", help="also in mixed precision")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--hidden", action="store_true", help="what hides the models of a round, and nothing else")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="for --hidden")
    options = parser.parse_args()
    if options.child is not None:
        task = Task(options.model, options.peers[0], "cpu")
        print(json.dumps(child(task, threads=options.child, repeats=options.repeats)))
        return
    if not torch.cuda.is_available() and not (options.hidden and options.device == "cpu"):
        parser.error("this machine has no GPU that torch can use by CUDA; --hidden --device cpu runs on the CPU")
    torch.set_num_threads(1)
    if options.hidden:
        hidden([options.model] if options.model else MODELS, options.peers, options.device, options.repeats)
        return
    peak = {"full": product(torch.float32), "mixed": product(torch.bfloat16)}
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}; products of {LARGE}:")
    print(f"  float32 {peak['full'] / 1e12:.1f}, bfloat16 {peak['mixed'] / 1e12:.1f} TFLOP/s")
    print(
        f"{'':24}{'peer-steps/s':>14}{'us':>8}{'two cores, us':>15}{'ratio':>8}{'of peak':>9}{'eval ms':>9}{'ratio':>8}"
    )
    for model in [options.model] if options.model else MODELS:
        slow: dict[int, tuple[float, float]] = {}
        for peers in options.peers:
            few = min(peers, options.cpu_peers)
            if few not in slow:
                slow[few] = cores(Task(model, few, "cpu"), options.repeats)
            for precision in ("full", "mixed") if options.mixed and peers == 2000 else ("full",):
                row(Task(model, peers, "cuda", precision), slow[few], few, peak[precision], options.repeats)
    if options.profile:
        for model in MODELS:
            profile(Task(model, 2000, "cuda"))


def hidden(models: Iterable[str], peers: Sequence[int], device: str, repeats: int) -> None:
    """Print what masks, clipping and private noise add to a round."""
    print(f"{'':24}{'plain ms':>10}{'masks, clip':>13}{'and noise':>11}{'ns a number of a mask':>23}")
    for model in models:
        for count in peers:
            taken = [_hidden(Task(model, count, device, settings=each), repeats) for each in (PLAIN, MASKED, NOISED)]
            numbers = count * DEGREE // 2 * Task(model, 2, "cpu").learner().layout.size
            each = 1e9 * (taken[1] - taken[0]) / numbers
            label = f"{model}, {count:,}"
            print(
                f"{label:<24}{1e3 * taken[0]:>10.1f}{1e3 * taken[1]:>13.1f}{1e3 * taken[2]:>11.1f}{each:>23.2f}",
                flush=True,
            )


def _hidden(task: Task, repeats: int) -> float:
    """Return the seconds of a round."""
    return median(partial(Rounds(task).run, ROUNDS), repeats)[0] / ROUNDS


def row(task: Task, slow: tuple[float, float], few: int, peak: float, repeats: int) -> None:
    """Print one row of the table."""
    torch.cuda.reset_peak_memory_stats()
    rounds = Rounds(task)
    taken, least, most = (each / ROUNDS for each in median(partial(rounds.run, ROUNDS), repeats))
    scored = median(rounds.evaluate, repeats)[0]
    each, other = taken / (task.peers * STEPS), slow[0] / (few * STEPS)
    share = operations(Task(task.model, 2, "cpu").learner()) / each / peak
    label = f"{task.model}, {task.peers:,}{', bf16' if task.precision == 'mixed' else ''}"
    print(
        f"{label:<24}{1 / each:>14,.0f}{1e6 * each:>8.3f}{1e6 * other:>15.1f}{other / each:>8.1f}{share:>9.2%}"
        f"{1e3 * scored:>9.1f}{slow[1] / few * task.peers / scored:>8.1f}"
        f"   rounds {1e3 * least:.1f}-{1e3 * most:.1f} ms, {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB",
        flush=True,
    )
    del rounds
    torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
