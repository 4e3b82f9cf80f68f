"""Time, processor time and memory of p2pfl beside other simulators on tasks with a few of many clients, in one run.

    python -m benchmarks.simulators [--only mnist cifar10 femnist stackoverflow registered uneven mnist-2000 mnist-10000
                                     stacks] [--repeats 3]
                                    [--systems p2pfl pfl] [--limit 1800] [--environments FOLDER] [--install]
                                    [--registered 30000 1000000]
    python -m benchmarks.simulators --only cifar10 --systems p2pfl --device cuda --rounds 1500 --repeats 1

Each row has its goal and what others publish. ``systems/task.py`` has the first four, which are tasks. Each framework
runs in a virtual environment of its own, which ``--install`` makes, in a process that is ended after ``--limit``
seconds; the frameworks take turns. ``learning`` is the time of the framework without imports and without samples that
are made before; other tasks make the samples of a client where it trains. ``processor`` is the time of its process
and of the children that have ended, with both; workers of Ray are not among these. A machine that is busy lengthens
the first more than the second. ``registered`` measures rounds of 100 out of so many clients in p2pfl: processor
seconds of a round and of all before it, and memory beyond the data. ``uneven`` and the two after it are whole commands
``p2pfl simulate`` with peers that do not change from round to round; ``P2PFL_DATA`` names the folder of MNIST.
``stacks`` is :mod:`benchmarks.stacks`.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.peers.__main__ import end, environment
from benchmarks.peers.frameworks import Framework
from p2pfl import FedAvg, TorchLearner, simulate
from p2pfl.algorithms import Averaging
from p2pfl.core.process import peak_memory, resident_memory
from p2pfl.data import Dataset, Federation
from p2pfl.topology import complete

SYSTEMS = Path(__file__).with_name("systems")
ROOT = Path(__file__).parents[2]

SIMULATORS = {
    "p2pfl": Framework("ours"),
    "loop over torch models": Framework("loop"),
    "flwr": Framework("flower", ("flwr[simulation]==1.42.0",)),
    "pfl": Framework("pfl_research", ("pfl==0.6.0",)),
    "FedML": Framework("fedml_single", ("fedml==0.9.6", "setuptools<81", "numpy<2")),
    "FedJAX": Framework(
        "jax_fedavg",
        ("fedjax==0.0.17", "jax==0.4.25", "jaxlib==0.4.25", "dm-haiku==0.0.12", "optax<0.2.3", "numpy<2", "scipy<1.13"),
    ),
}
"""All simulators, ours first; each of the last two with the dependencies of its time."""

ABSENT = {"FLUTE": "cannot be installed, as it is a repository (microsoft/msrflute) and no package of the index"}
"""Simulators with published times that no table measures, and why."""

COHORT, ROUNDS, SAMPLES, FEATURES, TESTED = 100, 30, 5, 16, 1000
"""Size of the runs with registered clients: participants, rounds, samples and features of each, and test samples."""


@dataclass(frozen=True)
class Result:
    """One run: what it took, or the reason why it has no figures."""

    learning: float = 0.0
    processor: float = 0.0
    memory: float = 0.0
    accuracy: float = 0.0
    version: str = ""
    fault: str = ""


ROWS = {
    "mnist": ("below 5 s, and the fastest", "FLUTE 200 s and Flower 1,814 s on a CPU"),
    "cifar10": ("a third of pfl, in 24 GiB", "pfl: 1,500 rounds, no time in a stored copy"),
    "femnist": ("a third of pfl", "1,500 rounds: FLUTE 502 s and FedML 20,992 s on GPUs"),
    "stackoverflow": ("below 2 GiB", "FedJAX: about an hour on a TPU"),
    "registered": ("below 1 GiB beyond the data, in a time that does not depend on the number", "Flower: 15 million"),
    "uneven": ("8 s", "none"),
    "mnist-2000": ("15 s", "none"),
    "mnist-10000": ("30 s", "none"),
    "stacks": ("beside a busy loop 1.3 times the time of one thread", "none"),
}
"""All rows, each with its goal and what others publish."""

MNIST = """rounds = 3
topology = {{ kind = "random_regular", degree = 8, peers = {peers} }}
data.name = "mnist"
model = {{ name = "mlp", hidden = [32] }}
learning.algorithm = "dpsgd"
gossip.steps = 1
privacy.mode = "none"
"""

EXPERIMENTS = {
    "uneven": """rounds = 10
topology = { kind = "complete", peers = 1000 }
data.name = "synthetic"
model = { name = "mlp", hidden = [32] }
learning = { algorithm = "fedavg", batch = 32, epochs = 1 }
privacy.mode = "none"
""",
    "mnist-2000": MNIST.format(peers=2000),
    "mnist-10000": MNIST.format(peers=10_000),
}
"""Experiment files of the rows that are whole commands; ``uneven`` has 45 to 23,483 samples a peer, and baselines."""

TASKS = ("mnist", "cifar10", "femnist", "stackoverflow")
"""Names of the rows that are tasks."""


def attempt(framework: Framework, python: Path, *, task: str, limit: float) -> Result:
    """Run a framework once."""
    inherited = os.environ.get("PYTHONPATH", "")
    here = "" if framework.requirements else os.pathsep.join([str(ROOT), *filter(None, [inherited])])
    environ = os.environ | {"PYTHONPATH": here, "SIMULATED_TASK": task}
    with tempfile.TemporaryDirectory() as folder:
        out, log = Path(folder) / "out.json", Path(folder) / "log"
        with log.open("w") as file:
            process = subprocess.Popen(  # noqa: S603 (a script of this folder)
                [str(python), str(SYSTEMS / f"{framework.script}.py"), str(out)],
                cwd=folder,
                env=environ,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
            try:
                process.wait(limit)
            except subprocess.TimeoutExpired:
                return Result(fault=f"not done after {limit:.0f} s")
            finally:
                end(process)
        if out.exists():
            return Result(**json.loads(out.read_text(encoding="utf-8")))
        last = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-1:]
        return Result(fault="".join(last)[:160] or f"exit status {process.returncode}")


def compared(names: list[str], *, task: str, repeats: int, limit: float, folder: Path) -> dict[str, list[Result]]:
    """Return the results of some simulators on a task, which take turns."""
    results: dict[str, list[Result]] = {name: [] for name in names}
    for _ in range(repeats):
        for name, listed in results.items():
            if any(result.fault for result in listed):
                continue
            try:
                python = environment(SIMULATORS[name], folder)
                listed.append(attempt(SIMULATORS[name], python, task=task, limit=limit))
            except subprocess.CalledProcessError as error:
                last = (error.stderr or "").strip().rpartition("\n")[2]
                listed.append(Result(fault=f"pip: {last}"))
            print(f"{task}, {name}: {listed[-1]}", file=sys.stderr, flush=True)
    return results


def lines(task: str, results: dict[str, list[Result]]) -> list[str]:
    """Return the table of a task in Markdown, of medians."""
    table = [f"| {task} | version | learning, s | processor, s | memory, MiB | accuracy |", "| --- " * 6 + "|"]
    for name, listed in results.items():
        if faults := [result.fault for result in listed if result.fault]:
            table.append(f"| {name} | no result: {faults[0]} | | | | |")
            continue
        taken = [statistics.median(getattr(each, field) for each in listed) for field in ("learning", "processor")]
        memory = max(each.memory for each in listed) / 2**20
        cells = [f"{taken[0]:.1f}", f"{taken[1]:.1f}", f"{memory:.0f}", f"{listed[0].accuracy:.3f}"]
        table.append(f"| {name} | {listed[0].version} | {' | '.join(cells)} |")
    table += [f"| {name} | {reason} | | | | |" for name, reason in ABSENT.items()]
    return table


def register(clients: int) -> dict[str, float]:
    """Run a few rounds of so many clients in this process; return seconds and bytes."""
    begun, random = time.process_time(), torch.Generator().manual_seed(0)
    topology = complete(clients)
    x = torch.randn(clients * SAMPLES + TESTED, FEATURES, generator=random)
    y = (x[:, 0] > 0).long() + 2 * (x[:, 1] > 0).long()
    train = {peer: np.arange(SAMPLES * i, SAMPLES * (i + 1)) for i, peer in enumerate(topology.peers)}
    tests = dict.fromkeys(topology.peers, np.arange(clients * SAMPLES, len(y)))
    federation = Federation(Dataset(x, y, classes=4), train, dict.fromkeys(topology.peers, np.arange(0)), tests)
    model = torch.nn.Sequential(torch.nn.Linear(FEATURES, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
    held, ends = resident_memory(), list[float]()
    learner = TorchLearner(model, federation, batch=10, device="cpu")

    def note(_records: Any) -> None:
        ends.append(time.process_time())

    algorithm = FedAvg(average=Averaging(fraction=COHORT / clients))
    simulate(algorithm, learner, topology, rounds=ROUNDS, seed=3, baselines=False, observe=note)
    rounds = [after - before for before, after in pairwise(ends)]
    return {"before": ends[0] - begun, "round": statistics.median(rounds), "beyond": (peak_memory() or 0) - held}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=ROWS, default=list(ROWS))
    parser.add_argument("--systems", nargs="*", choices=SIMULATORS, default=list(SIMULATORS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--limit", type=float, default=1800)
    parser.add_argument("--environments", type=Path, default=ROOT / "build" / "simulators")
    parser.add_argument("--install", action="store_true", help="only make the environments")
    parser.add_argument("--registered", type=float, nargs="*", default=[3e4, 1e6])
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="of p2pfl in the tasks")
    parser.add_argument("--rounds", type=int, help="of each task, in place of its own number")
    options = parser.parse_args()
    os.environ["SIMULATED_DEVICE"] = options.device
    if options.rounds is not None:
        os.environ["SIMULATED_ROUNDS"] = str(options.rounds)
    if options.device != "cpu" and options.systems != ["p2pfl"]:
        parser.error("only p2pfl takes --device; add --systems p2pfl")
    if options.child is not None:
        print(json.dumps(register(options.child)))
        return
    if options.install:
        for name in options.systems:
            environment(SIMULATORS[name], options.environments)
        return
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    for row in options.only:
        goal, published = ROWS[row]
        print(f"\n**{row}**. Goal: {goal}. Published: {published}.", flush=True)
        if row in TASKS:
            found = compared(
                options.systems, task=row, repeats=options.repeats, limit=options.limit, folder=options.environments
            )
            print("\n" + "\n".join(lines(row, found)), flush=True)
        elif row == "registered":
            print_registered(options.registered)
        elif row in EXPERIMENTS:
            print_command(row, repeats=options.repeats, limit=options.limit)
        else:
            subprocess.run([sys.executable, "-m", "benchmarks.stacks"], check=True)


def print_registered(counts: list[float]) -> None:
    """Print the table of so many registered clients, each measured in a process of its own."""
    header = "| registered clients | a round, processor s | before it, processor s | MiB beyond the data |"
    print(f"\n{header}\n| ---: | ---: | ---: | ---: |", flush=True)
    for count in counts:
        command = [sys.executable, "-m", "benchmarks.simulators", "--child", str(int(count))]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)  # noqa: S603 (this file)
        each = json.loads(done.stdout.splitlines()[-1])
        cells = [f"{each['round']:.4f}", f"{each['before']:.1f}", f"{each['beyond'] / 2**20:.0f}"]
        print(f"| {count:,.0f} | {' | '.join(cells)} |", flush=True)


def print_command(row: str, *, repeats: int, limit: float) -> None:
    """Print what ``p2pfl simulate`` takes for an experiment, imports and the run directory included."""
    print("\n| command, s | processor, s | memory, MiB |\n| ---: | ---: | ---: |", flush=True)
    options = [] if row == "uneven" else ["--no-baselines"]
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            file, log = Path(folder) / "experiment.toml", Path(folder) / "log"
            file.write_text(EXPERIMENTS[row])
            command = [sys.executable, "-m", "p2pfl", "simulate", str(file), "--runs", folder, *options]
            begun = time.perf_counter()
            with log.open("w") as out:
                process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out)  # noqa: S603 (this package)
            watch = threading.Timer(limit, process.kill)
            watch.start()
            _, status, used = os.wait4(process.pid, 0)
            watch.cancel()
            process.returncode = os.waitstatus_to_exitcode(status)
            took = time.perf_counter() - begun
            if process.returncode:
                print(f"| no result: {log.read_text().strip().rpartition(chr(10))[2][:160]} | | |", flush=True)
                return
        print(f"| {took:.1f} | {used.ru_utime + used.ru_stime:.1f} | {used.ru_maxrss / 1024:.0f} |", flush=True)


if __name__ == "__main__":
    main()
