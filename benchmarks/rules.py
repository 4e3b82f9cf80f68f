"""Robust rules of a simulation: all receivers at once, against one receiver after the other.

    python -m benchmarks.rules [--peers 1000] [--degree 8] [--parameters 2410] [--repeats 5]

Each line is a gossip step of random models on a random regular graph. "At once" is what a simulation does;
"one by one" gathers the models of each receiver and calls the same rule on them. Both take one thread, and seconds are
those of the processor, so that other work on the machine does not count.
"""

import argparse
import time

import torch

from benchmarks.timing import pair
from p2pfl.algorithms.robust import ClippedGossip, Krum, Median, NearestMixed, Rule, SelfCentredClipping, TrimmedMean
from p2pfl.algorithms.robust.net import aggregate_received, groups
from p2pfl.core.neighbourhood import ReceivedModels, Released, run_without_loop
from p2pfl.core.process import keep_freed_memory, set_threads
from p2pfl.core.rows import Rows
from p2pfl.simulation.stacked import StackedNeighbourhood
from p2pfl.topology import metropolis, random_regular

RULES: dict[str, Rule] = {
    "ClippedGossip": ClippedGossip(2),
    "self-centred clipping": SelfCentredClipping(1.5),
    "trimmed mean": TrimmedMean(2),
    "median": Median(2),
    "Krum": Krum(2),
    "multi-Krum": Krum(2, several=True),
    "NNM, trimmed mean": NearestMixed(TrimmedMean(2), 2),
}


def one_by_one(rule: Rule, received: ReceivedModels, own: Rows) -> Rows:
    """Return what the rule makes of the models of each receiver, one after the other."""
    out = torch.empty_like(own)
    for group in groups(received, len(own)):
        for listener, sender, weights in zip(*group, strict=True):
            rows = torch.cat([own[listener].unsqueeze(0), received.rows[sender]])
            out[listener] = rule(rows, weights)
    return out


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", type=int, default=1000)
    parser.add_argument("--degree", type=int, default=8)
    parser.add_argument("--parameters", type=int, default=2410)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    set_threads(1)
    keep_freed_memory()
    graph = random_regular(options.peers, degree=options.degree, seed=0)
    rows = torch.randn(options.peers, options.parameters, generator=torch.Generator().manual_seed(0))
    net = StackedNeighbourhood([metropolis(graph)], round=0, seed=0)
    received = run_without_loop(net.receive(Released(rows)))
    print(f"{'':24}{'at once, ms':>14}{'one by one, ms':>16}   ratio")
    for name, rule in RULES.items():
        ours, other, ratio = pair(
            lambda rule=rule: aggregate_received(rule, received, rows),  # type: ignore[misc]
            lambda rule=rule: one_by_one(rule, received, rows),  # type: ignore[misc]
            repeats=options.repeats,
            clock=time.process_time,
        )
        print(f"{name:24}{1e3 * ours:14.0f}{1e3 * other:16.0f}   {ratio}")


if __name__ == "__main__":
    main()
