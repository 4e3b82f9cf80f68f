"""Growth of time and memory with peers, parameters and degree, of simulations and of live rounds.

    python -m benchmarks.growth [--peers 10 100 1000 10000 100000] [--parameters 1e3 1e4 1e5 1e6 1e7 1e8]
                                [--degrees 2 4 8 16 32 64] [--live 4 8 16 32] [--live-parameters 1e3 1e4 1e5 1e6 1e7]
                                [--live-degrees 2 4 8 15] [--draw docs/notes/growth.svg]

D-PSGD on noisy digits with an MLP of one hidden layer, batches of 16, ten rounds of one step and one gossip step, on
random regular graphs. What does not vary is 1,000 peers, 2,410 parameters and degree 8, or 8 peers and degree 4 where
the number of parameters varies and for live peers; 16 live peers where their degree varies. An option without values
leaves its table out. Each run is a process of its own. Seconds are those of the rounds,
and of everything outside of them; memory is the largest resident memory of the process, or the private memory of a live
peer. Copies are that memory, above the smallest run of the table, in copies of all models. The exponents are slopes of
least squares in logarithms over the larger half of the points, of memory above the smallest run: 1 is proportional.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from p2pfl.experiment import Experiment, plan, read
from p2pfl.simulation import simulate

MANY, SOME, FEW, HIDDEN, DEGREE, LOW, ROUNDS = 1000, 16, 8, 32, 8, 4, 10
FEATURES, CLASSES = 64, 10
COLUMNS = 3

Point = tuple[float, float, float]
"""A size, with the seconds and the bytes of a run."""


def hidden(parameters: float) -> int:
    """Return the width of the hidden layer that has about so many parameters.

    Examples
    --------
    >>> hidden(2410)
    32
    """
    return max(1, round((parameters - CLASSES) / (FEATURES + 1 + CLASSES)))


def wanted(*, peers: int, degree: int, width: int) -> Experiment:
    """Return the experiment of one run."""
    degree = min(degree, peers - 1)
    kind = {"kind": "complete"} if degree == peers - 1 else {"kind": "random_regular", "degree": degree}
    return read(
        {
            "name": "growth",
            "rounds": ROUNDS,
            "topology": {"peers": peers, **kind},
            "data": {"name": "benchmarks.pixels:load", "options": {"classes": CLASSES}},
            "model": {"name": "mlp", "hidden": [width]},
            "learning": {"algorithm": "dpsgd", "batch": 16, "steps": 1, "device": "cpu"},
            "gossip": {"steps": 1},
        }
    )


def measured(*, live: bool, **sizes: int) -> dict[str, float]:
    """Run one experiment in this process; return its seconds and bytes."""
    from p2pfl.core.process import peak_memory  # noqa: PLC0415 (of the process that runs)
    from p2pfl.network.peer.launch.swarm import run  # noqa: PLC0415 (simulations need no processes)

    experiment = wanted(**sizes)
    if not live:
        summary = simulate(plan(experiment), baselines=False).summary
        memory = peak_memory()
    else:
        with tempfile.TemporaryDirectory() as folder:
            summary = run(experiment, folder=Path(folder) / "run").summary
        memory = summary["peer_memory"]
    return {"rounds": summary["wall_s"], "bytes": float(memory or 0)}


def spawned(**given: Any) -> dict[str, float]:
    """Run one experiment in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.growth", "--child", json.dumps(given)]
    begun = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)  # noqa: S603 (this file)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found | {"outside": time.perf_counter() - begun - found["rounds"]}


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """Return the slope of the larger half of the points in logarithms; not a number for fewer than two.

    Examples
    --------
    >>> exponent([(1, 5), (10, 2), (100, 20), (1000, 200)])
    1.0
    """
    half = [(math.log(size), math.log(value)) for size, value in points[len(points) // 2 :] if value > 0]
    if len(half) < 2:
        return math.nan
    x, y = (sum(values) / len(half) for values in zip(*half, strict=True))
    return sum((a - x) * (b - y) for a, b in half) / sum((a - x) ** 2 for a, _ in half)


def parameters(width: int) -> int:
    """Return the number of parameters of a model with a hidden layer of this width.

    Examples
    --------
    >>> parameters(32)
    2410
    """
    return FEATURES * width + width + CLASSES * (width + 1)


def column(sizes: Sequence[float], *, of: str, live: bool) -> list[Point]:
    """Print and return the points of one table."""
    kind = "live" if live else "simulated"
    print(f"\n| {of}, {kind} | s per round | s outside | MiB | copies |\n| ---: | ---: | ---: | ---: | ---: |")
    points, least = list[Point](), math.inf
    few = live or of == "parameters"
    for size in sizes:
        peers = SOME if live and of == "degree" else FEW if few else MANY
        given = {"peers": peers, "degree": LOW if few else DEGREE, "width": HIDDEN}
        given |= {"width": hidden(size)} if of == "parameters" else {of: int(size)}
        found = spawned(live=live, **given)
        length, least = parameters(given["width"]), min(least, found["bytes"])
        points.append((length if of == "parameters" else size, found["rounds"] / ROUNDS, found["bytes"]))
        copies = (found["bytes"] - least) / (4 * length * (1 if live else given["peers"]))
        print(
            f"| {points[-1][0]:,.0f} | {points[-1][1]:.4f} | {found['outside']:.1f} | {found['bytes'] / 2**20:,.0f} | "
            f"{copies:.1f} |",
            flush=True,
        )
    slopes = exponent([(size, seconds) for size, seconds, _ in points])
    grown = exponent([(size, memory - least) for size, _, memory in points])
    print(f"exponent of time {slopes:.2f}, of memory above the smallest run {grown:.2f}")
    return points


def brief(size: float) -> str:
    """Return a size in few characters.

    Examples
    --------
    >>> brief(8), brief(2410), brief(999_985)
    ('8', '2k', '1M')
    """
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if size >= 0.95 * unit:
            return f"{size / unit:.0f}{name}"
    return f"{size:.0f}"


def drawn(tables: Mapping[str, Sequence[Point]], path: Path) -> None:
    """Draw time and memory against each size."""
    import matplotlib as mpl  # noqa: PLC0415 (only a figure needs it)

    mpl.use("svg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 (after the choice of what draws)

    with mpl.rc_context({"svg.hashsalt": "growth", "font.size": 9}):
        lines = math.ceil(len(tables) / COLUMNS)
        figure, axes = plt.subplots(2 * lines, COLUMNS, figsize=(2.7 * COLUMNS, 4.6 * lines), squeeze=False)
        for place, (name, points) in enumerate(tables.items()):
            sizes, times, memory = zip(*points, strict=True)
            line, column = divmod(place, COLUMNS)
            above, below = axes[2 * line : 2 * line + 2, column]
            for axis, values in ((above, times), (below, [each / 2**20 for each in memory])):
                axis.loglog(sizes, values, marker="o", markersize=3, linewidth=1)
                middle = math.sqrt(min(values) * max(values))
                axis.set_ylim(min(min(values) / 1.5, middle / 10), max(max(values) * 1.5, middle * 10))
                axis.set_xticks(sizes, [brief(size) for size in sizes])
                axis.minorticks_off()
                axis.grid(linewidth=0.3)
            above.set_title(name)
            below.set_xlabel(name.partition(",")[0])
            if column == 0:
                above.set_ylabel("seconds per round")
                below.set_ylabel("MiB of memory")
        for axis in axes.flat:
            axis.set_visible(axis.has_data())
        figure.tight_layout()
        figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Print the tables, and draw them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=float, nargs="*", default=[10, 100, 1000, 1e4, 1e5])
    parser.add_argument("--parameters", type=float, nargs="*", default=[1e3, 1e4, 1e5, 1e6, 1e7, 1e8])
    parser.add_argument("--degrees", type=float, nargs="*", default=[2, 4, 8, 16, 32, 64])
    parser.add_argument("--live", type=float, nargs="*", default=[4, 8, 16, 32])
    parser.add_argument("--live-parameters", type=float, nargs="*", default=[1e3, 1e4, 1e5, 1e6, 1e7])
    parser.add_argument("--live-degrees", type=float, nargs="*", default=[2, 4, 8, 15])
    parser.add_argument("--draw", type=Path, help="an SVG file")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        print(json.dumps(measured(**json.loads(options.child))))
        return
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    wished = {
        "peers, simulated": (options.peers, "peers", False),
        "parameters, simulated": (options.parameters, "parameters", False),
        "degree, simulated": (options.degrees, "degree", False),
        "peers, live": (options.live, "peers", True),
        "parameters, live": (options.live_parameters, "parameters", True),
        "degree, live": (options.live_degrees, "degree", True),
    }
    tables = {name: column(sizes, of=of, live=live) for name, (sizes, of, live) in wished.items() if sizes}
    if options.draw is not None:
        drawn(tables, options.draw)


if __name__ == "__main__":
    main()
