"""Seconds of boosting on a9a with FedTree's settings: live peers over MQTT with masks, and the simulation.

    P2PFL_DATA=FOLDER python -m benchmarks.boosting [--peers 4] [--rounds 50]

The folder has a9a as FedTree ships it (a9a/a9a_horizontal_p0.gz, ..._p1.gz). 50 trees of depth 6, learning rate .1;
each peer holds as many of the 32,561 samples. FedTree publishes 124.4 s for 4 parties on several machines with secure
aggregation, and FATE 214.7 s (docs/source/Experiments.rst). Processor time changes less than time on a busy machine.
It fails unless live peers have the trees of the simulation and the scores of one peer with all data, to the last bit.
"""

import argparse
import gzip
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import p2pfl
from p2pfl.experiment import Experiment, read
from p2pfl.network.peer.launch import fork_server as server
from p2pfl.network.peer.launch import swarm

FEATURES = 123


def load(*, peer: str, peers: tuple[str, ...], seed: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the samples of one peer: every so many of the training part."""
    del seed
    features, targets = [], []
    for part in ("p0", "p1"):
        path = Path(os.environ["P2PFL_DATA"]) / "a9a" / f"a9a_horizontal_{part}.gz"
        with gzip.open(path, "rt") as file:
            for line in file:
                label, *pairs = line.split()
                row = np.zeros(FEATURES, np.float32)
                row[[int(pair.partition(":")[0]) - 1 for pair in pairs]] = 1
                features.append(row)
                targets.append(int(float(label) > 0))
    mine = slice(peers.index(peer), None, len(peers))
    return np.stack(features)[mine], np.array(targets)[mine]


def experiment(*, peers: int, rounds: int) -> Experiment:
    """Return the experiment."""
    options = {"max_depth": 6, "max_leaf_nodes": 0, "min_samples_leaf": 1, "min_hessian": 1.0, "l2_regularization": 1.0}
    return read(
        {
            "name": "a9a",
            "rounds": rounds,
            "topology": {"kind": "complete", "peers": peers},
            "data": {"name": "benchmarks.boosting:load", "test": 0.01, "options": {"classes": 2}},
            "model": {"name": "boosting", "options": options},
            "privacy": {"mode": "pairwise"},
        }
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=50)
    options = parser.parse_args()
    wanted = experiment(peers=options.peers, rounds=options.rounds)
    with server.run_server():
        marks = list[float]()
        simulated = p2pfl.simulate(wanted, baselines=False, observe=lambda _: marks.append(time.process_time()))
        busy = (marks[-1] - marks[0]) * options.rounds / (options.rounds - 1)
        with tempfile.TemporaryDirectory() as folder:
            live = swarm.run(wanted, folder=Path(folder)).summary
    load_average = os.getloadavg()[0]
    print(f"{options.peers} peers, {options.rounds} trees, load {load_average:.1f} on {os.cpu_count()} cores")
    print(f"simulated: {simulated.summary['wall_s']:.1f} s of rounds, {busy:.1f} s of processor time")
    print(f"live:      {live['wall_s']:.1f} s of rounds, {live['bytes_sent'] / 1e6:.1f} MB sent")
    same = live["explained"] == simulated.summary["explained"]
    answers = {True: "yes", False: "NO"}
    print(f"gains and splits of live peers are those of the simulation: {answers[same]}")
    print(f"live peers have the scores of one peer with all data, to the last bit: {answers[bool(live['lossless'])]}")
    if not same or not live["lossless"]:
        sys.exit(1)


if __name__ == "__main__":
    sys.exit(main())
