"""Compare masks and sums as tensor operations with numpy, and estimate what they cost a GPU.

    python -m benchmarks.device_draws [--repeats 7]

Both run on one thread of the CPU, which needs no accelerator and gives the same integers; a simulation uses the tensor
operations on an accelerator alone. A GPU starts one kernel for each operation and reads and writes its operands once.
So the table counts both, and says how long a GPU needs whose memory moves 3.35 TB/s, as that of an H100.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from p2pfl.privacy.device_masks import key_words, keystream, mask_sums, weighted_sums
from p2pfl.privacy.keys import KEY_BYTES, SeededSource
from p2pfl.privacy.masks import Masks
from p2pfl.privacy.secagg.weighted_sums import portions
from p2pfl.topology import metropolis, random_regular

PEERS, DEGREE, SIZE = 200, 8, 2410
CPU, BANDWIDTH = torch.device("cpu"), 3.35e12
VIEWS = ("view", "expand", "slice", "select", "split", "permute", "t", "transpose", "unsqueeze", "alias", "unbind")


class Counted(TorchDispatchMode):
    """Context that counts kernels, and the bytes of their operands."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels = self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        """Run an operation and count it."""
        out = func(*args, **(kwargs or {}))
        if not func.overloadpacket.__name__.startswith(VIEWS):
            self.kernels += 1
            moved = [each for each in tree_leaves((args, kwargs, out)) if isinstance(each, torch.Tensor)]
            self.bytes += sum(each.untyped_storage().nbytes() if 0 in each.stride() else each.nbytes for each in moved)
        return out


def median(body: Callable[[], object], repeats: int) -> float:
    """Return the median seconds of processor time of some calls, after one to warm up."""
    body()
    times = []
    for _ in range(repeats):
        begun = time.process_time()
        body()
        times.append(time.process_time() - begun)
    return statistics.median(times)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    swarm, source = random_regular(PEERS, degree=DEGREE, seed=0), SeededSource(0)
    edges = sorted({(min(a, b), max(a, b)) for a, b in swarm.edges})
    secrets = {(a, b): source.bytes(KEY_BYTES, purpose="edge", peer=f"{a}-{b}") for a, b in edges}
    masks, weights = Masks(secrets, deviation=10.0, topology=swarm), metropolis(swarm).matrix
    keys = [source.bytes(KEY_BYTES, purpose="mask", peer=peer) for peer in swarm.peers]
    words, counts = key_words(keys, CPU), torch.arange(-(-SIZE // 8), dtype=torch.int32)
    points = np.rint(np.random.default_rng(0).normal(scale=2.0**30, size=(PEERS, SIZE)))
    held = torch.from_numpy(points)
    rows: list[tuple[str, int, Callable[[], object] | None, Callable[[], object]]] = [
        ("keystream", PEERS * SIZE, None, lambda: keystream(words, counts)),
        (
            "masks",
            len(edges) * SIZE,
            lambda: masks.sums(swarm.peers, round=0, size=SIZE),
            lambda: mask_sums(masks, swarm.peers, round=0, size=SIZE, device=CPU),
        ),
        ("weighted sums", weights.nnz * SIZE, lambda: portions(weights, points), lambda: weighted_sums(weights, held)),
    ]
    print("ns a number        numpy  tensors  ratio    kernels  bytes a number  GPU ns")
    for name, numbers, usual, tensors in rows:
        slow = 1e9 * median(tensors, repeats) / numbers
        fast = None if usual is None else 1e9 * median(usual, repeats) / numbers
        with Counted() as counted:
            tensors()
        moved = counted.bytes / numbers
        beside = f"{'':>8}{slow:>9.1f}{'':>7}" if fast is None else f"{fast:>8.1f}{slow:>9.1f}{slow / fast:>7.1f}"
        print(f"{name:<16}{beside}{counted.kernels:>11,}{moved:>16,.0f}{1e9 * moved / BANDWIDTH:>8.2f}")
    keyed = 1e6 * median(lambda: masks.keys(swarm.peers, round=0), repeats) / len(edges)
    print(f"keys of masks, on the CPU in any case: {keyed:.1f} us an edge")


if __name__ == "__main__":
    main()
