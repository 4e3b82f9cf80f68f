"""Hegedűs, Danner, Jelasity: Decentralized learning works, a comparison of gossip and federated learning (JPDC 2021).

The paper's claim is an order: gossip learning learns about what federated learning does at equal cost, and where
peers are slow or absent it goes on. Digits on 20 peers of a small world, 30 cycles or rounds of one exchange each, the
mean of all peers' accuracies and of three seeds; data alike, and parted by a Dirichlet draw of .3. A slow peer makes
its 30 cycles, too, five times as slowly, and ends last. FedAvg that waits for slow peers makes a fifth of its rounds
in the time in which the fast ones make 30 cycles.
"""

import statistics
from typing import Any

from benchmarks.papers import Line
from p2pfl.experiment import read
from p2pfl.simulation import simulate

SEEDS = (0, 1, 2)
SPLITS: dict[str, dict[str, Any]] = {"alike": {}, "parted": {"split": "dirichlet", "split_options": {"alpha": 0.3}}}
SLOW: dict[str, Any] = {"devices": {"stragglers": 0.2, "slowdown": 5.0}}
WAYS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "FedAvg, nobody slow": ("fedavg", 30, {}),
    "FedAvg that waits for slow peers": ("fedavg", 6, {}),
    "gossip learning, nobody slow": ("gossip_learning", 30, {}),
    "gossip learning, a fifth of the peers slow": ("gossip_learning", 30, SLOW),
    "gossip learning, and models take 2 cycles": ("gossip_learning", 30, SLOW | {"delay": 2.0}),
    "gossip learning, and 30 % of them are lost": ("gossip_learning", 30, SLOW | {"delay": 2.0, "loss": 0.3}),
}
CLAIMS = {
    "gossip learning, nobody slow": ("about that of FedAvg", "FedAvg, nobody slow", -0.03),
    "gossip learning, a fifth of the peers slow": ("above FedAvg that waits", "FedAvg that waits for slow peers", 0.0),
}
"""What is claimed, against which way, and how far above it at least."""


def accuracy(way: str, split: str) -> float:
    """Mean over seeds and peers."""
    algorithm, rounds, faults = WAYS[way]
    table = {"rounds": rounds, "topology": {"kind": "small_world", "peers": 20}, "data": SPLITS[split]}
    table |= {"learning": {"algorithm": algorithm, "device": "cpu"}, "simulation": faults}
    if algorithm == "fedavg":
        table |= {"gossip": {"steps": 1}}
    runs = (simulate(read(table | {"seed": seed}), baselines=False) for seed in SEEDS)
    return statistics.fmean(run.summary["together"] for run in runs)


def lines() -> list[Line]:
    """All ways, on both splits."""
    found = {way: [accuracy(way, split) for split in SPLITS] for way in WAYS}
    table = []
    for way, ours in found.items():
        claim, against, above = CLAIMS.get(way, ("-", way, 0.0))
        met = None if claim == "-" else all(a > b + above for a, b in zip(ours, found[against], strict=True))
        what = f"{way}: accuracy, alike and not"
        table.append(Line(what, claim, ", ".join(f"{each:.2f}" for each in ours), met))
    return table
