"""Memory and start of `p2pfl peer` without torch, as on a board, and with torch.

    python -m benchmarks.board [--rounds 20] [--set KEY=VALUE ...]

Four peers on a ring train the linear model of the digits under masks, over mosquitto: one without torch, and three with
it. Each is the command itself, in a process of its own. Its start is the processor time until it waits for its
neighbours, which are not there yet; processor time hardly depends on other work on the machine. Memory is the most that
was resident until the peer ended, with the shared pages of libraries.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import tomli_w

from p2pfl.network.transport.broker import embedded

PEERS = 4
TABLE = {
    "name": "board",
    "topology": {"kind": "ring", "peers": PEERS},
    "data": {"name": "digits"},
    "model": {"name": "linear"},
    "privacy": {"mode": "pairwise"},
    "transport": {"gather": 300.0},
}
COMMAND = "import sys; {without}from p2pfl.cli import main; sys.exit(main())"
WITHOUT = "sys.modules['torch'] = None; "
"""Statement after which torch cannot be imported, as if it were not installed."""

WAITING = "gathering, waiting for"


@dataclass(frozen=True)
class Cost:
    """Cost of a peer.

    Attributes
    ----------
    start, processor
        Seconds of processor time until it waits for its neighbours, and until its end.
    resident
        Most MiB of memory.
    """

    start: float
    processor: float
    resident: float


class Process:
    """Process of a peer.

    Parameters
    ----------
    name
        Name of the peer.
    folder
        Folder with the experiment, which takes the run directory.
    torch
        True if the peer has torch.
    words
        Further words of the command.
    """

    def __init__(self, name: str, folder: Path, *, torch: bool, words: list[str]) -> None:
        code = COMMAND.format(without="" if torch else WITHOUT)
        command = [sys.executable, "-c", code, "peer", "board.toml", "--name", name, "--no-baselines", *words]
        self.log = (folder / f"{name}.log").open("w+")
        self.process = subprocess.Popen(  # noqa: S603 (our own command line)
            command, cwd=folder, stderr=subprocess.PIPE, stdout=self.log, text=True
        )
        self.start = 0.0

    def wait(self) -> None:
        """Wait until the peer waits for its neighbours, and note what its start took."""
        for line in self.process.stderr:
            self.log.write(line)
            if WAITING in line:
                fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
                self.start = sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
                return

    def end(self) -> Cost:
        """Wait for the end of the peer."""
        for line in self.process.stderr:
            self.log.write(line)
        _, status, used = os.wait4(self.process.pid, 0)
        self.log.seek(0)
        if status:
            raise SystemExit(self.log.read())
        return Cost(self.start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def measure(rounds: int, changes: list[str]) -> dict[str, Cost]:
    """Run the peers; return the cost of one without and one with torch."""
    words = [word for change in changes for word in ("--set", change)]
    with tempfile.TemporaryDirectory() as place, embedded(kind="mosquitto") as broker:
        folder = Path(place)
        table = TABLE | {"rounds": rounds, "transport": TABLE["transport"] | {"broker": broker.url}}
        (folder / "board.toml").write_text(tomli_w.dumps(table))
        peers = []
        for number in range(PEERS):
            peers.append(Process(f"peer{number}", folder, torch=number > 0, words=words))
            if number < 2:
                peers[-1].wait()
        costs = [each.end() for each in peers]
    return dict(zip(("without torch", "with torch"), costs, strict=False))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20, help="default: %(default)s")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="changed key of the experiment")
    given = parser.parse_args()
    measure(1, given.set)  # modules are compiled to bytecode first
    print(f"{'peer':15} {'resident':>9} {'start':>7} {f'{given.rounds} rounds':>10}")
    for name, cost in measure(given.rounds, given.set).items():
        rest = cost.processor - cost.start
        print(f"{name:15} {cost.resident:5.1f} MiB {cost.start:5.2f} s {rest:8.2f} s")


if __name__ == "__main__":
    main()
