import numpy as np
import torch

from p2pfl.data import batches, orders


def test_uneven_peers_at_once_have_the_batches_that_each_has_alone():
    random = np.random.default_rng(0)
    sizes, epochs = random.integers(0, 60, 40), random.integers(0, 4, 40)
    peers = [f"peer{number}" for number in range(40)]
    drawn = orders(sizes, epochs, seed=3, peers=peers, round=2, device=torch.device("cpu"))
    for row, (size, count) in enumerate(zip(sizes.tolist(), epochs.tolist(), strict=True)):
        alone = batches(size, seed=3, peer=peers[row], round=2, batch=max(1, size - 1), epochs=count, steps=None)
        for epoch in range(count if size > 1 else 0):
            begin = drawn.base[row] + epoch * drawn.stride[row]
            assert (
                drawn.flat[begin : begin + size].tolist() == np.concatenate(alone[2 * epoch : 2 * epoch + 2]).tolist()
            )
