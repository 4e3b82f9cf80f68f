"""Largest memory of simulations, estimated and measured: ``python -m benchmarks.memory``.

Each simulation has a process of its own. ``P2PFL_DATA`` names the folder of MNIST.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

SIZES = {
    "1,000 of an MLP 784-32-10 on MNIST": (1000, "mnist", 32),
    "10,000 small (784-4-10)": (10_000, "mnist", 4),
    "100 large (784-2048-10)": (100, "mnist", 2048),
}
"""Peers, data set and hidden units."""


def measure(peers: int, data: str, hidden: int) -> dict[str, float]:
    """Return the estimated and the measured memory of a simulation of D-PSGD in this process, in bytes."""
    from p2pfl.core.process import peak_memory  # noqa: PLC0415
    from p2pfl.experiment import plan, read  # noqa: PLC0415 (in a process of its own)
    from p2pfl.simulation import simulate  # noqa: PLC0415
    from p2pfl.simulation.memory_estimate import estimate  # noqa: PLC0415

    table = {
        "rounds": 2,
        "topology": {"kind": "random_regular", "degree": 8, "peers": peers},
        "data": {"name": data},
        "model": {"name": "mlp", "hidden": [hidden]},
        "learning": {"algorithm": "dpsgd", "steps": 2, "batch": 16},
        "gossip": {"steps": 1},
        "privacy": {"mode": "none"},
    }
    made = plan(read(table))
    needed = estimate(made, baselines=False)
    with tempfile.TemporaryDirectory() as folder:
        simulate(made, baselines=False, folder=Path(folder) / "run")
    return {"estimated": needed.total, "measured": peak_memory() or 0, "models": needed.models}


def main() -> None:
    """Print one line for each size."""
    if len(sys.argv) > 1:
        peers, data, hidden = sys.argv[1:]
        print(json.dumps(measure(int(peers), data, int(hidden))))
        return
    for name, given in SIZES.items():
        command = [sys.executable, "-m", "benchmarks.memory", *map(str, given)]
        found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)  # noqa: S603 (this module)
        estimate, measured = found["estimated"], found["measured"]
        print(f"| {name} | {estimate / 1e6:.0f} | {measured / 1e6:.0f} | {estimate / measured:.2f} |")


if __name__ == "__main__":
    main()
