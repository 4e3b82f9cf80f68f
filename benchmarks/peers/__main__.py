"""Time and accuracy of p2pfl beside other frameworks on the same task, in one run.

    python -m benchmarks.peers [--only gossipy flwr] [--peers 8 100 1000] [--repeats 3] [--enough 60] [--limit 120]
                               [--results FILE] [--environments FOLDER] [--install]

Digits, MLP 64-32-10, ten rounds of five epochs in batches of 32, SGD with rate 0.1. Eight peers share the training
data; of 100 and 1,000 peers, each draws 180 samples. Each framework runs in a virtual environment that the command
creates, with one thread for each process, in a process that is ended after ``--limit`` seconds. The frameworks take
turns, so that other work on the machine disturbs all of them. One whose runs took more than ``--enough`` seconds
together is not repeated. Pieces that write to the same ``--results`` print one table. ``command`` is the time of the
whole process, imports included; ``learning`` is the time from the first round to the last. None of them evaluates
models in between.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from benchmarks.peers.frameworks import FRAMEWORKS, Framework
from benchmarks.timing import seconds

TORCH = "torch==2.13.0"
SAMPLES = 180
SYSTEMS = Path(__file__).with_name("systems")
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Result:
    """One run: seconds and accuracy, or the reason why there are none."""

    command: float = 0.0
    learning: float = 0.0
    mean: float = 0.0
    least: float = 0.0
    version: str = ""
    fault: str = ""


def task(peers: int, path: Path) -> None:
    """Write the shards of all peers and the test set."""
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype(np.float32)
    x, x_test, y, y_test = train_test_split(x, y, test_size=0.2, random_state=0, stratify=y)
    draws = np.random.default_rng(0)
    order = draws.permutation(len(x))
    some = len(x) // 8
    shards = (
        [order[i * some : (i + 1) * some] for i in range(peers)]
        if peers <= 8
        else draws.integers(0, len(x), (peers, SAMPLES))
    )
    np.savez(path, x=x, y=y, x_test=x_test, y_test=y_test, shards=np.stack(list(shards)))


def environment(framework: Framework, folder: Path) -> Path:
    """Return the interpreter of a framework, after its first installation.

    Raises
    ------
    subprocess.CalledProcessError
        pip cannot install it.
    """
    if not framework.requirements:
        return Path(sys.executable)
    place = folder / framework.script
    python = place / "bin" / "python"
    done = place / "installed"
    if not done.exists():
        venv.create(place, with_pip=True, clear=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--no-compile"]
        subprocess.run([*pip, TORCH, "numpy"], check=True, capture_output=True, text=True)  # noqa: S603 (pip)
        wanted = [*pip, *framework.requirements]
        subprocess.run(wanted, check=True, capture_output=True, text=True)  # noqa: S603 (pip)
        done.touch()
    return python


def attempt(framework: Framework, python: Path, data: Path, *, limit: float) -> Result:
    """Run a framework once."""
    ours = {"PYTHONPATH": str(ROOT)} if not framework.requirements else {"PYTHONPATH": ""}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1") if framework.requirements else {}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        command = [str(python), str(SYSTEMS / f"{framework.script}.py"), str(data), str(out)]
        log = Path(folder) / "log"
        with log.open("w") as file:
            environ = os.environ | threads | ours
            process = subprocess.Popen(  # noqa: S603 (a script of this folder)
                command, cwd=folder, env=environ, stdout=file, stderr=file, start_new_session=True
            )
            try:
                took = seconds(lambda: process.wait(limit))
            except subprocess.TimeoutExpired:
                return Result(fault=f"not done after {limit:.0f} s")
            finally:
                end(process)
        if not out.exists():
            last = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-1:]
            return Result(fault="".join(last)[:160] or f"exit status {process.returncode}")
        return Result(command=took, **json.loads(out.read_text(encoding="utf-8")))


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started, first by SIGTERM."""
    for number in signal.SIGTERM, signal.SIGKILL:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)


def middle(results: Sequence[Result]) -> Result:
    """Return medians over runs; the first fault if a run has one."""
    if faults := [result for result in results if result.fault]:
        return faults[0]
    names = "command", "learning", "mean", "least"
    medians = {name: statistics.median(getattr(result, name) for result in results) for name in names}
    return Result(version=results[0].version, **medians)


def lines(peers: int, found: Mapping[str, Sequence[Result]]) -> list[str]:
    """Return a table in Markdown; ratios are to p2pfl, simulated."""
    medians = {name: middle(found[name]) for name in FRAMEWORKS if found.get(name)}
    ours = medians.get("p2pfl, simulated")
    columns = "version", "runs", "command, s", "learning, s", "ratio", "accuracy", "worst peer", "what it does"
    table = [[f"{peers:,} peers", *columns], ["---", "---", *["---:"] * 6, "---"]]
    for name, result in medians.items():
        if result.fault:
            table.append([name, *[""] * 7, f"no result: {result.fault}"])
            continue
        ratio = f"{result.command / ours.command:.1f}" if ours and not ours.fault else ""
        times = [f"{result.command:.1f}", f"{result.learning:.2f}", ratio]
        scores = [f"{result.mean:.3f}", f"{result.least:.3f}"]
        table.append([name, result.version, str(len(found[name])), *times, *scores, FRAMEWORKS[name].does])
    return [f"| {' | '.join(row)} |" for row in table]


@dataclass
class Results:
    """Runs so far, also those of earlier calls that wrote to the same file.

    Attributes
    ----------
    file
        JSON, a line for each run; ``None`` keeps them in memory.
    found
        Runs by number of peers and framework.
    """

    file: Path | None
    found: dict[tuple[int, str], list[Result]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read the file."""
        if self.file is not None and self.file.exists():
            for line in self.file.read_text(encoding="utf-8").splitlines():
                peers, name, result = json.loads(line)
                self.found.setdefault((peers, name), []).append(Result(**result))

    def add(self, peers: int, name: str, result: Result) -> None:
        """Add a run, and write it."""
        self.found.setdefault((peers, name), []).append(result)
        if self.file is not None:
            with self.file.open("a", encoding="utf-8") as file:
                file.write(json.dumps([peers, name, asdict(result)]) + "\n")

    def enough(self, peers: int, name: str, *, repeats: int, seconds: float) -> bool:
        """Return whether a framework needs no further run."""
        runs = self.found.get((peers, name), [])
        failed = any(run.fault for run in runs)
        return failed or len(runs) >= repeats or sum(run.command for run in runs) > seconds

    def of(self, peers: int) -> dict[str, list[Result]]:
        """Return the runs with so many peers by framework."""
        return {name: runs for (count, name), runs in self.found.items() if count == peers}


def measure(peers: int, pythons: Mapping[str, Path | Result], results: Results, options: argparse.Namespace) -> None:
    """Run all frameworks in turn, until each has enough runs."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / f"{peers}.npz"
        task(peers, data)
        for _ in range(options.repeats):
            for name, python in pythons.items():
                if results.enough(peers, name, repeats=options.repeats, seconds=options.enough):
                    continue
                if isinstance(python, Result):
                    result = python
                elif peers not in FRAMEWORKS[name].peers:
                    result = Result(fault="cannot run so many peers on one machine")
                else:
                    result = attempt(FRAMEWORKS[name], python, data, limit=options.limit)
                results.add(peers, name, result)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, run all frameworks in turn, and print a table for each number of peers."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--only", nargs="+", choices=list(FRAMEWORKS), default=list(FRAMEWORKS), metavar="NAME")
    parser.add_argument("--peers", nargs="+", type=int, default=[8, 100, 1000], metavar="N")
    parser.add_argument("--repeats", type=int, default=3, metavar="N")
    parser.add_argument("--enough", type=float, default=60.0, metavar="SECONDS")
    parser.add_argument("--limit", type=float, default=120.0, metavar="SECONDS")
    parser.add_argument("--results", type=Path, metavar="FILE")
    parser.add_argument("--environments", type=Path, default=Path("build/peers"), metavar="FOLDER")
    parser.add_argument("--install", action="store_true", help="only create the environments")
    options = parser.parse_args(arguments)
    pythons: dict[str, Path | Result] = {}
    for name in options.only:
        try:
            pythons[name] = environment(FRAMEWORKS[name], options.environments.resolve())
        except subprocess.CalledProcessError as error:
            pythons[name] = Result(fault=f"pip: {(error.stderr or '').strip().splitlines()[-1:] or error}")
    if options.install:
        print(*(f"{name}: {getattr(python, 'fault', python)}" for name, python in pythons.items()), sep="\n")
        return
    results = Results(options.results)
    for peers in options.peers:
        measure(peers, pythons, results, options)
        print("\n".join(lines(peers, results.of(peers))), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
