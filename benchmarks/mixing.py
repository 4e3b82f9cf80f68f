"""Mixing 2,000 rows of 10,000 numbers on a graph of degree 8, and many steps of fewer rows at once.

    python -m benchmarks.mixing

The baseline is one pass over that memory for every neighbour and oneself: nine times
``sum += weight * rows``. The products of scipy and torch's CSR are there for comparison.

Several gossip steps are one product with a dense matrix. The second table compares that with one sparse product; their
ratio times the ratio of the numbers of weights is the gain, from which ``p2pfl.simulation.mixing.GAIN`` follows.
"""

import warnings
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from benchmarks.timing import pair
from p2pfl.core.neighbourhood import Released
from p2pfl.core.process import one_thread
from p2pfl.simulation.mixing import Mixer, product
from p2pfl.topology import metropolis, random_regular

PEERS, LENGTH, DEGREE, REPEATS = 2000, 10_000, 8, 9

STEPS = ((8, 3, 4810), (64, 4, 4810), (64, 4, 100_000), (300, 8, 10_000), (1000, 8, 2410), (2000, 8, 2410))
"""Peers, degree and numbers of a row of the second table."""


def main() -> None:
    """Print the table."""
    warnings.simplefilter("ignore")  # torch's CSR is in beta
    matrix = metropolis(random_regular(PEERS, degree=DEGREE, seed=0)).matrix
    rows = torch.randn(PEERS, LENGTH)
    total = torch.zeros_like(rows)
    single = matrix.astype(np.float32)
    sparse = torch.sparse_csr_tensor(
        torch.from_numpy(single.indptr).long(),
        torch.from_numpy(single.indices).long(),
        torch.from_numpy(single.data),
        single.shape,
    )

    def passes() -> None:
        for _ in range(DEGREE + 1):
            total.add_(rows, alpha=0.1)

    bodies = {
        "product (embedding_bag)": lambda: product(matrix, rows),
        "torch CSR": lambda: sparse @ rows,
        "scipy CSR": lambda: single @ rows.numpy(),
    }
    print(f"{'':<26} {'ms':>8} {'9 passes, ms':>14} {'ratio':>18}")
    for name, body in bodies.items():
        mine, other, ratio = pair(body, passes, repeats=REPEATS)
        print(f"{name:<26} {1e3 * mine:>8.1f} {1e3 * other:>14.1f} {ratio:>18}")
    with one_thread():
        many()


def many() -> None:
    """Print what all gossip steps of a round cost as one product."""
    heads = f"{'one step, ms':>13} {'at once, ms':>12} {'ratio':>18} {'gain':>5}"
    print(f"\n{'peers':>6} {'degree':>6} {'numbers':>8} {heads}")
    for peers, degree, length in STEPS:
        weights = metropolis(random_regular(peers, degree=degree, seed=0))
        rows, calls = torch.randn(peers, length), max(1, 10_000_000 // (peers * length))
        mixer, released = Mixer([weights]), Released(rows)
        power = mixer.power(weights.matrix, (1.0,) * 20, like=rows)
        stepwise = partial(repeated, partial(mixer, weights.matrix, rows), calls)
        sparse, dense, ratio = pair(stepwise, partial(repeated, partial(power, released), calls), repeats=REPEATS)
        gain = peers**2 / weights.matrix.nnz * sparse / dense
        times = f"{1e3 * sparse / calls:>13.2f} {1e3 * dense / calls:>12.2f}"
        print(f"{peers:>6} {degree:>6} {length:>8} {times} {ratio:>18} {gain:>5.0f}")


def repeated(call: Callable[[], object], times: int) -> None:
    """Call a function so many times."""
    for _ in range(times):
        call()


if __name__ == "__main__":
    main()
