"""Memory of simulations of a transformer with LoRA adapters, whose frozen backbone exists once.

    python -m benchmarks.adapters [--peers 16 64 256]

A small BERT of 14.7 MiB that needs no download, with adapters of 8 dimensions, learns to classify random tokens in two
rounds of one step and one gossip step. Each simulation is a process of its own. The table has its largest resident
memory; and, between each line and the one before it, by how much the memory grows with a peer, in kB, in copies of what
a peer trains, and in copies of the backbone.
"""

import argparse
import json
import subprocess
import sys
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from p2pfl.core.draws import draw

WORDS, LENGTH = 8000, 4

BERT = {
    "model_type": "bert",
    "vocab_size": WORDS,
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
    "max_position_embeddings": 16,
}
"""Configuration of the backbone."""


class Measured(NamedTuple):
    """Time and memory of one simulation.

    Attributes
    ----------
    peers
        Number of peers.
    memory
        Largest resident memory, in bytes.
    trained, backbone
        Bytes of the parameters that a peer trains, and of the others.
    """

    peers: int
    memory: int
    trained: int
    backbone: int


def tokens(
    *, peer: str, peers: tuple[str, ...], seed: int, samples: int = 10
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the sentences of a peer ``[samples, 4]``, and whether the first word is in the first half.

    Examples
    --------
    >>> features, targets = tokens(peer="ada", peers=("ada",), seed=0)
    >>> features.shape, targets.shape
    ((10, 4), (10,))
    """
    del peers  # a peer's samples do not depend on the others
    words = draw(seed, "tokens", peer).integers(WORDS, size=(samples, LENGTH))
    return words, (words[:, 0] < WORDS // 2).astype(np.int64)


def table(peers: int) -> dict[str, Any]:
    """Return the experiment."""
    lora = {"r": 8, "target_modules": ["query", "value"]}
    return {
        "rounds": 2,
        "topology": {"kind": "ring", "peers": peers},
        "data": {"name": "benchmarks.adapters:tokens", "options": {"classes": 2}},
        "model": {"name": "transformers:AutoModelForSequenceClassification", "options": {"config": BERT, "lora": lora}},
        "learning": {"algorithm": "dpsgd", "steps": 1, "batch": 4, "device": "cpu"},
        "gossip": {"steps": 1},
    }


def measured(peers: int) -> Measured:
    """Simulate in this process, and return what it needed."""
    from p2pfl.core.process import peak_memory  # noqa: PLC0415 (the same)
    from p2pfl.experiment import plan, read  # noqa: PLC0415 (the parent of the processes needs neither of them)
    from p2pfl.simulation import simulate  # noqa: PLC0415 (the same)

    planned = plan(read(table(peers)))
    simulate(planned, baselines=False)
    trained = 4 * planned.learner.layout.size
    whole = sum(each.nbytes for each in planned.learner.model.parameters())
    return Measured(peers, peak_memory() or 0, trained, whole - trained)


def spawned(peers: int) -> Measured:
    """Simulate in a process of its own, and return what it needed."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.adapters", "--child", str(peers)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)  # noqa: S603 (this file)
    return Measured(*json.loads(done.stdout.splitlines()[-1]))


def growth(less: Measured, more: Measured) -> float:
    """Return the bytes by which memory grows with a peer.

    Examples
    --------
    >>> growth(Measured(10, 2000, 5, 900), Measured(20, 2300, 5, 900))
    30.0
    """
    return (more.memory - less.memory) / (more.peers - less.peers)


def main() -> None:
    """Print a line for each number of peers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", nargs="+", type=int, default=[16, 64, 256])
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        print(json.dumps(measured(options.child)))
        return
    found = [spawned(peers) for peers in options.peers]
    first = found[0]
    print(f"trained by a peer {first.trained / 1000:.1f} kB, backbone {first.backbone / 1e6:.1f} MB")
    print("| peers | MB | kB more for a peer | in copies of what it trains | in copies of the backbone |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    print(f"| {first.peers} | {first.memory / 1e6:.0f} | | | |")
    for less, more in pairwise(found):
        each = growth(less, more)
        print(
            f"| {more.peers} | {more.memory / 1e6:.0f} | {each / 1000:.0f} | {each / more.trained:.1f} | "
            f"{each / more.backbone:.3f} |"
        )


if __name__ == "__main__":
    main()
