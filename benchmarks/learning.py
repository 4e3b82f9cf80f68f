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
    all steps of a block before the next block: taken; blocks of 8 to 16 MiB, see BLOCK in engine_trial.py
    scratch memory that lives on: 24 page faults for each row and step of a CNN less, a quarter of its time: taken
    ReLU after pooling rather than before: a tenth of a CNN's time: taken
    gradient of pooling by differences and threshold_backward rather than by booleans: 10 times quicker: taken
    update within the product, W.baddbmm_(g, x, alpha=-rate): 5 percent, but rounds otherwise than a gradient that
        is corrected, so that a correction of zero would not be neutral: left
    a column of ones for the bias: as slow as adding it, 65 columns are worse than 64: left
    convolutions as grouped convolutions: within 15 percent of patches and products over two layers (the first slower,
        the second quicker), but they want samples first, where pooling and softmax are slow: left
    torch.optim on a stack: 20 to 60 microseconds a call, so plain SGD has an update of its own, equal bit for bit

What bounds a CNN 1x8x8 of 8 and 16 channels, 2.1 MFLOP for each peer and step, in microseconds on ONE such core, of
operations timed one by one, the least of several; other work kept the second core and the caches busy:

    products, second convolution     24.5   forward 7.9, weights 8.9, inputs 7.7; 65 to 75 GFLOP/s, a large one 97
    products, first convolution       8.8   forward 3.4, weights 5.4; nine patches wide, 27 to 43 GFLOP/s
    products, linear                  1.2
    patches, cut and added up again   8     110 KB of them
    pooling                           9
    bias, ReLU, softmax, update, ...  5     about
    drawing, gathering, copies        7

They make 64; whole rounds take 80 to 85 of processor time, 94 by the clock of that machine, and the loop 830 to 880: a
ratio of 9.4 on one core (6.7 before the lines marked * below), and 16.2 (12.0) for channels 4-8. A ratio of 25 leaves
34 microseconds: less than the products alone on one core. On two, with drawing and planning on one of them, it leaves
some 23 microseconds of a core for all else than products, which now takes 42; two cores were not timed anew.

What was tried on these CNNs, all on one core, and what it gave (processor time, old over new, both in turn):

    * adding patches up along the width, then the height, the middle one in place: 3.4 rather than 5.9 us: taken
    * gradients of patches over the patches, ReLU after pooling in place: 90 KB less for each row: taken; 1.13 to 1.18
        with the line above
    * counting patches in the footprint of a row, so blocks of 50 rows rather than 93, in the cache again: with the
        lines above 1.28 to 1.41: taken
    * gradient of pooling over its inputs, if nobody needs these: another 2 to 10 percent: taken; all 1.25 to 1.5
    patches of rows only, three products each on shifted views: cutting 1.1 rather than 2.7, but the products
        8.2 and 10.6 rather than 7.9 and 8.9, and weights must be copied into another order: left
    gradient of inputs as a convolution with turned weights: 13.1 rather than 7.7 + 3.4 microseconds: left
    nine copies, or widths then heights, rather than one copy of windows: 3.1 and 3.9 rather than 2.7 + 0.3: left
    windows of pooling in four slabs: pooling 7 rather than 8, but patches 4 (first) and 13 (second layer) more: left
    Winograd F(2x2, 3x3): products 5.8 rather than 7.9, transforms move 100 KB for it: bound only, not written
    samples first in the product, patches transposed: as quick or up to 7 times slower: left
    vmap with rules of one's own for convolution and pooling (autograd.Function under a TorchFunctionMode, 90 lines):
        0.94 to 0.97 for channels 8-16, 1.13 to 1.2 for 4-8; adding biases, ReLU and its gradient on fresh memory
        is what then costs: left
    vmap, blocks of 24 rather than 12 MiB: 1.0; malloc set to keep its memory: 1.05 to 1.2,
        not in turn, and a matter of the environment: left
    torch.compile of vmap: 28 seconds to compile, needs g++, and 278 rather than 208 microseconds: left
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
