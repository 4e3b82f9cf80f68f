"""Processor time of drawing the batches of a round, beside a generator and permutations for each peer.

    python -m benchmarks.drawing [--repeats 5]

``orders`` draws the permutations of all peers by one hash and one sort. The other way is what numpy offers for one
peer: a generator with the peer's key, and ``permutation`` for each epoch.
"""

import argparse
import time
from functools import partial

import numpy as np
import torch

from benchmarks.timing import pair
from p2pfl.core.draws import draw
from p2pfl.core.process import keep_freed_memory, one_thread
from p2pfl.data import IntArray, orders

CPU = torch.device("cpu")


def shuffled(sizes: IntArray, epochs: IntArray, *, peers: tuple[str, ...]) -> None:
    """Draw the permutations of a round peer by peer."""
    for peer, size, count in zip(peers, sizes.tolist(), epochs.tolist(), strict=True):
        generator = draw(0, "batches", peer, 0)
        for _ in range(count):
            generator.permutation(size)


@one_thread()
def main() -> None:
    """Print the times of both ways, and the ratio of the first to the second."""
    keep_freed_memory()  # as simulations do
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    uneven = np.random.default_rng(0).lognormal(4, 2, 1000).astype(np.int64) + 50
    cases = {
        "2,000 peers, 4 epochs of 80 samples": (np.full(2000, 80), np.full(2000, 4)),
        "10,000 peers, 1 epoch of 40 samples": (np.full(10_000, 40), np.full(10_000, 1)),
        f"1,000 peers, 1 epoch of 50 to {uneven.max():,} samples": (uneven, np.full(1000, 1)),
    }
    for label, (sizes, epochs) in cases.items():
        peers = tuple(f"peer{number}" for number in range(len(sizes)))
        all_at_once = partial(orders, sizes, epochs, seed=0, peers=peers, round=0, device=CPU)
        each = partial(shuffled, sizes, epochs, peers=peers)
        together, apart, ratio = pair(all_at_once, each, repeats=repeats, clock=time.process_time)
        print(f"{label}: {1e3 * together:.1f} ms, peer by peer {1e3 * apart:.1f} ms, ratio {ratio}")


if __name__ == "__main__":
    main()
