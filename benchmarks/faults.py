"""What live peers survive, with real processes and a real mosquitto.

    python -m benchmarks.faults broker [--restarts 20] [--peers 6] [--rounds 60] [--every 2.0] [--in-order]

Kills the broker of one run again and again (or ends it in order, which publishes all wills), starts it anew on the same
port, with what it had kept on disk or without, and holds the rows at the end against the simulation.

    python -m benchmarks.faults deaths [--peers 8] [--rounds 40] [--kill 2] [--kind ring]

Starts every peer by ``p2pfl peer``, kills some by ``kill -9`` after a quarter of the rounds, no two neighbours on a
ring, and says how far apart the models of the others are at the end, with ``topology.heal`` and without.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from p2pfl.experiment import plan, read
from p2pfl.experiment.reading import write
from p2pfl.peer import swarm
from p2pfl.report import Record
from p2pfl.simulation import simulate
from p2pfl.transport.broker import Broker, Program, mosquitto, running


class Mortal:
    """A mosquitto that can be killed and started again on its port.

    Parameters
    ----------
    folder
        Where it keeps what is retained; ``None`` to keep nothing.
    more
        Lines of its configuration, in place of the usual ones.
    """

    def __init__(self, folder: Path | None = None, *, more: str = "") -> None:
        found = mosquitto()
        if found is None:
            raise SystemExit("expected mosquitto, found none: apt install mosquitto")
        kept = f"persistence true\npersistence_location {folder}/\nautosave_interval 1\n"
        lines = (more if folder is None else kept + more).splitlines()
        said = tuple(line.split()[0] + " " for line in lines)

        def configuration(host: str, port: int) -> str:
            usual = [line for line in found.configuration(host, port).splitlines() if not line.startswith(said or "\n")]
            return "\n".join([*usual, *lines]) + "\n"

        self.program = Program(found.kind, found.command, configuration)
        self.port = 0
        self._stack = ExitStack()
        self.broker: Broker | None = None

    def start(self) -> str:
        """Start it; its address stays the same."""
        self.broker = self._stack.enter_context(running(self.program, host="127.0.0.1", port=self.port))
        self.port = int(self.broker.url.rpartition(":")[2])
        return self.broker.url

    def stop(self, *, in_order: bool = False) -> None:
        """Kill it, or ask it to end."""
        if not in_order and self.broker is not None:
            os.kill(self.broker.pid, signal.SIGKILL)
        self._stack.close()
        self.broker = None

    def restart(self, *, in_order: bool = False) -> None:
        """Stop it and start it."""
        self.stop(in_order=in_order)
        self.start()


def restarted(options: argparse.Namespace, folder: Path) -> dict[str, float]:
    """One run under restarts: what became of it."""
    (folder / "kept").mkdir()
    broker = Mortal(None if options.forgetful else folder / "kept")
    changes = {
        "name": "faults",
        "rounds": options.rounds,
        "topology": {"kind": "ring", "peers": options.peers},
        "data": {"name": "digits"},
        "learning": {"dtype": "float64", "device": "cpu"},
        "privacy": {"mode": "none"},  # masks are drawn anew in each run, and gossip brings them near to zero alone
        "transport": {"broker": broker.start(), "patience": 60.0},
    }
    experiment = read(changes)
    ended, begun = threading.Event(), threading.Event()
    made = 0

    def kill() -> None:
        nonlocal made
        begun.wait()
        while made < options.restarts and not ended.wait(options.every):
            broker.restart(in_order=options.in_order)
            made += 1
        ended.wait()  # a broker dies with the thread that started it

    thread = threading.Thread(target=kill)
    thread.start()
    start = time.perf_counter()
    try:
        result = swarm.run(
            experiment, folder=folder / "run", observe=lambda event: isinstance(event, Record) and begun.set()
        )
    finally:
        ended.set()
        begun.set()
        thread.join()
        seconds = time.perf_counter() - start
        broker.stop(in_order=True)
    wanted = simulate(experiment, baselines=False)
    found = {path.stem: safetensors.torch.load_file(path) for path in (folder / "run" / "peers").glob("*.safetensors")}
    apart = max(
        float((model[key] - value).abs().max())
        for name, model in found.items()
        for key, value in wanted.models[name].items()
    )
    missed = sum(len(record.missed) for record in result.metrics)
    return {"restarts": made, "seconds": seconds, "rows missed": missed, "largest difference": apart}


def bereaved(options: argparse.Namespace, folder: Path, *, heal: bool) -> dict[str, float]:
    """One run in which peers die: what became of the others."""
    broker = Mortal()
    experiment = folder / "faults.toml"
    settings = {
        "name": "faults",
        "rounds": options.rounds,
        "topology": {"kind": options.kind, "peers": options.peers, "heal": heal},
        "data": {"name": "digits", "split": "shards"},
        "learning": {"dtype": "float64", "device": "cpu"},
        "transport": {"patience": 60.0, "gather": 120.0},
    }
    wanted = read(settings)
    experiment.write_text(write(wanted), "utf-8")
    names = plan(wanted).topology.peers
    dying = names[2 :: len(names) // options.kill][: options.kill]
    command = [sys.executable, "-m", "p2pfl", "peer", str(experiment), "--broker", broker.start(), "--json"]
    running = {
        name: subprocess.Popen(  # noqa: S603 - our own command line
            [*command, "--name", name, "--runs", str(folder / name)], stdout=subprocess.DEVNULL, stderr=sys.stderr
        )
        for name in names
    }
    start = time.perf_counter()
    while min(map(len, records(folder, dying))) < options.rounds // 4:
        time.sleep(0.1)
    for name in dying:
        running[name].kill()
    status = {name: process.wait() for name, process in running.items() if name not in dying}
    seconds = time.perf_counter() - start
    broker.stop(in_order=True)
    left = [name for name, code in status.items() if not code]
    missed = sum(len(record["missed"]) for each in records(folder, left) for record in each)
    return {
        "killed": len(dying),
        "ended well": len(left),
        "rounds of each": min(map(len, records(folder, left))),
        "seconds": seconds,
        "rows missed": missed,
        "models apart": apart([next((folder / name).rglob(f"{name}.safetensors")) for name in left]),
    }


def records(folder: Path, names: Sequence[str]) -> list[list[dict[str, Any]]]:
    """What each of some peers has noted, by round."""
    found = [list((folder / name).rglob("metrics.jsonl")) for name in names]
    return [[json.loads(line) for path in each for line in path.read_text("utf-8").splitlines()] for each in found]


def apart(paths: Sequence[Path]) -> float:
    """The largest difference between a number of two models."""
    models = [safetensors.torch.load_file(path) for path in paths]
    stacks = (torch.stack([model[key] for model in models]) for key in models[0])
    return max(float((each.amax(0) - each.amin(0)).max()) for each in stacks)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("fault", choices=["broker", "deaths"])
    parser.add_argument("--kill", type=int, default=2, metavar="PEERS")
    parser.add_argument("--kind", default="ring")
    parser.add_argument("--restarts", type=int, default=20)
    parser.add_argument("--peers", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--every", type=float, default=2.0, metavar="SECONDS")
    parser.add_argument("--in-order", action="store_true", help="end the broker by SIGTERM, not SIGKILL")
    parser.add_argument("--forgetful", action="store_true", help="it keeps nothing on disk")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.fault == "broker":
            show(restarted(options, Path(folder)))
            return
        for heal in (True, False):
            (Path(folder) / str(heal)).mkdir()
            print(f"topology.heal = {str(heal).lower()}")
            show(bereaved(options, Path(folder) / str(heal), heal=heal))


def show(found: dict[str, float]) -> None:
    """Print a table."""
    for name, value in found.items():
        print(f"{name:>20} {value:.3g}")


if __name__ == "__main__":
    main()
