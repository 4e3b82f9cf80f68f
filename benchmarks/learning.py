"""Peer-steps a second of stacked training against a loop over models, and of one row against a hand-written loop.

    python benchmarks/learning.py [--peers 256 2000] [--threads 2] [--repeats 5]

Every figure is the median over repeats of a ratio within one repeat (loop and learner run back to back, so
that a busy machine disturbs both), of whole calls of ``fit``: drawing the batches, gathering them, gradients, updates
and all copies. The data are like digits: 64 features, ten classes; five steps of 16 samples for each peer.

What bounds it, for 2,000 peers of an MLP 64-32-10 on two cores (AMD EPYC, Zen 4; 1 MiB of L2 each, 32 MiB of L3),
in microseconds for each peer and step, of operations timed one by one; the loop takes about 275:

    products                          1.4   at 120 GFLOP/s, which is what MKL's batched product gives at these sizes
    all other arithmetic              1.1   bias, ReLU, softmax, losses, updates
    gathering                         0.1
    Python, 25 calls for each block   0.3
    drawing batches by key            3.2   SHA-256 and a new Philox for each peer and round, over five steps
    planning, copies in and out       2.0   also once a round

What was tried, and what it gave:

    samples last in memory, [K, units, B], rather than first: softmax over ten classes 12 times quicker (it was
        a third of all time), pooling 40 times, patches of convolutions 8 times, flattening a view: taken
    all steps of a block before the next block: taken; blocks of 8 to 16 MiB, see BLOCK in torch_learner.py
    scratch memory that lives on: 24 page faults for each row and step of a CNN less, a quarter of its time: taken
    ReLU after pooling rather than before: a tenth of a CNN's time: taken
    gradient of pooling by differences and threshold_backward rather than by booleans: 10 times quicker: taken
    update within the product, W.baddbmm_(g, x, alpha=-rate): 5 percent, but rounds otherwise than a gradient that
        is corrected, so that a correction of zero would not be neutral: left
    a column of ones for the bias: as slow as adding it, 65 columns are worse than 64: left
    convolutions as grouped convolutions: within 15 percent of patches and products over two layers (the first slower,
        the second quicker), but they want samples first, where pooling and softmax are slow: left
    torch.optim on a stack: 20 to 60 microseconds a call, so plain SGD has an update of its own, equal bit for bit

A convolution of 8x4x4 to 16 channels moves 75 KB of patches for each row and step. Such a CNN is bound by memory and by
the products themselves, of which a loop does as many, so the larger the CNN, the smaller the ratio.
"""

import argparse
import copy
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 -- torch's own convention

from p2pfl.data import Dataset, Federation, batches
from p2pfl.learning import TorchLearner, build

SAMPLES, BATCH, RATE = 80, 16, 0.01
LOOPED = 64
"""Peers in the loop that is compared against; its time does not depend on how many there are."""


class Opaque(nn.Module):
    """Hides a model from the hand-written gradients, so that vmap takes it."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Outputs of the model inside."""
        outputs: torch.Tensor = self.inner(x)
        return outputs


def federation(peers: int, shape: Sequence[int], samples: int = SAMPLES) -> Federation:
    """Random data like digits, as many samples for every peer."""
    random = torch.Generator().manual_seed(0)
    features = torch.randn(20_000, *shape, generator=random)
    targets = torch.randint(10, (20_000,), generator=random)
    draws = np.random.default_rng(0)
    train = {f"peer{i:04}": draws.integers(0, 20_000, samples) for i in range(peers)}
    return Federation(Dataset(features, targets, 10), train, {}, {})


def loop(model: nn.Module, data: Federation, peers: Sequence[str]) -> Callable[[], None]:
    """Return the loop that anybody would write: a model and an optimiser for every peer."""
    models = [copy.deepcopy(model) for _ in peers]
    optimisers = [torch.optim.SGD(each.parameters(), lr=RATE) for each in models]
    features, targets = data.dataset.features, data.dataset.targets

    def run() -> None:
        for peer, each, optimiser in zip(peers, models, optimisers, strict=True):
            part = data.train[peer]
            for chosen in batches(len(part), seed=0, peer=peer, round=0, batch=BATCH, epochs=1, steps=None):
                index = torch.from_numpy(part[chosen])
                optimiser.zero_grad()
                F.cross_entropy(each(features[index]), targets[index]).backward()
                optimiser.step()

    return run


def seconds(run: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def compare(base: Callable[[], object], ours: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Medians of our time and of the loop's over ours, after one call each to warm up."""
    base(), ours()
    pairs = [(seconds(base), seconds(ours)) for _ in range(repeats)]
    return statistics.median(b for _, b in pairs), statistics.median(a / b for a, b in pairs)


def stacked(name: str, shape: Sequence[int], hidden: Sequence[int], peers: int, repeats: int) -> None:
    """Print rows for a stack by hand-written gradients and by vmap."""
    model = build(name, shape=shape, classes=10, seed=0, options={"hidden": hidden})
    data = federation(peers, shape)
    few = data.peers[:LOOPED]
    base = loop(model, data, few)
    for how, each, target in (("kernels", model, 25), ("vmap", Opaque(model), 15)):
        learner = TorchLearner(each, data, seed=0, rate=RATE, batch=BATCH, device="cpu")
        rows = learner.start(data.peers)

        def fit(learner: TorchLearner = learner, rows: torch.Tensor = rows) -> object:
            return learner.fit(rows, peers=data.peers, round=0)

        time_taken, ratio = compare(base, fit, repeats)
        each_step = time_taken / (peers * (SAMPLES // BATCH))
        ratio *= peers / len(few)
        label = f"{name} {'-'.join(map(str, hidden))}"
        figures = f"{1 / each_step:>12,.0f}{1e6 * each_step:>8.1f}{ratio:>8.1f}"
        print(f"{label:<12}{peers:>6}  {how:<8}{figures}  (target {target})")


def alone(repeats: int) -> None:
    """Print rows for one peer: an MLP and a larger one, few steps and many."""
    for hidden, samples in (((32,), 80), ((32,), 400), ((512, 512), 80), ((512, 512), 400)):
        data = federation(8, (64,), samples)
        model = build("mlp", shape=(64,), classes=10, seed=0, options={"hidden": hidden})
        learner = TorchLearner(model, data, seed=0, rate=RATE, batch=BATCH, device="cpu")
        row = learner.start(data.peers[:1])

        def fit(learner: TorchLearner = learner, row: torch.Tensor = row, data: Federation = data) -> None:
            for peer in data.peers:
                learner.fit(row, peers=[peer], round=0)

        _, ratio = compare(loop(model, data, data.peers), fit, 3 * repeats)
        label = f"mlp {'-'.join(map(str, hidden))}"
        print(f"{label:<14}{samples // BATCH:>3} steps a round: {1 / ratio:.2f} of a hand-written loop (target 1.10)")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", type=int, nargs="+", default=[256, 2000])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"{'model':<12}{'peers':>6}  {'how':<8}{'peer-steps/s':>12}{'us':>8}{'ratio':>8}")
    for peers in arguments.peers:
        stacked("mlp", (64,), (32,), peers, arguments.repeats)
        stacked("cnn", (1, 8, 8), (4, 8), peers, arguments.repeats)
        stacked("cnn", (1, 8, 8), (8, 16), peers, arguments.repeats)
    alone(arguments.repeats)


if __name__ == "__main__":
    main()
