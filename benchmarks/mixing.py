"""Mixing 2,000 rows of 10,000 numbers on a graph of degree 8.

    python -m benchmarks.mixing

The baseline is one pass over that memory for every neighbour and oneself: nine times
``sum += weight * rows``. The products of scipy and torch's CSR are there for comparison.
"""

import warnings

import numpy as np
import torch

from benchmarks.timing import pair
from p2pfl.simulation.mixing import product
from p2pfl.topology import metropolis, random_regular

PEERS, LENGTH, DEGREE, REPEATS = 2000, 10_000, 8, 9


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


if __name__ == "__main__":
    main()
