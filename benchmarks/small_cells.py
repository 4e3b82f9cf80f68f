"""Cost of the check of small cells: totals, bytes and seconds of the slowest peer in round 0, without and with it.

python -m benchmarks.small_cells [--repeats 5]

Both sides run in turn in one process; bytes are the same each time, seconds are medians, and the cost is the median of
the differences of neighbours.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch

from p2pfl.core.encodings import Ints
from p2pfl.data import Dataset, Federation
from p2pfl.data.data_description import Description, Field
from p2pfl.learning import ExactLearner
from p2pfl.learning.additive import Question, answer_questions
from p2pfl.learning.exact_model import ExactModel
from p2pfl.plugins.exact import GLM, Boosting, Cox
from p2pfl.privacy.keys import SecretSource

LEVELS = ("a", "b", "c", "d")
"""Levels of a column."""


def federation(fields: Sequence[Field], targets: torch.Tensor, *, classes: int | None, peers: int) -> Federation:
    """Return random features of some columns, at peers in turn."""
    rng, count = np.random.default_rng(0), len(targets)
    columns = [
        rng.normal(size=(count, 1))
        if field.levels is None
        else np.eye(len(field.levels))[rng.integers(0, len(field.levels), count)]
        for field in fields
    ]
    features = torch.from_numpy(np.concatenate(columns, axis=1))
    dataset = Dataset(features, targets, classes, description=Description(columns=tuple(fields)))
    own = {f"peer{number}": np.arange(number, count, peers) for number in range(peers)}
    nothing = dict.fromkeys(own, np.arange(0))
    return Federation(dataset, own, nothing, nothing)


def cost(model: ExactModel, data: Federation) -> tuple[int, int, float]:
    """Return the totals of round 0, their bytes for each peer, and the processor seconds of the slowest peer."""
    peers = tuple(data.peers)
    learner = ExactLearner(model, data).checking_cells(SecretSource(), peers=peers, least=1)
    asked, seconds = list[int](), dict.fromkeys(peers, 0.0)

    def total(question: Question) -> Ints:
        asked.append(question.size * question.bits // 8)
        answers = []
        for peer in peers:
            began = time.process_time()
            answers.append(question.answer(peer))
            seconds[peer] += time.process_time() - began
        return np.asarray(np.sum(answers, axis=0))

    answer_questions(learner.asking(learner.start(peers[:1])[0], round=0), total)
    return len(asked), sum(asked), max(seconds.values())


def main() -> None:
    """Print a table."""
    rng = np.random.default_rng(1)
    mixed = [*(Field(f"c{number}", LEVELS) for number in range(5)), *(Field(f"x{number}") for number in range(5))]
    numbers, patients = [Field(f"x{number}") for number in range(30)], [Field("sex", ("f", "m")), Field("age")]
    times = torch.from_numpy(rng.exponential(100, 2000).clip(0.1, 360) * np.where(rng.random(2000) < 0.7, 1, -1))
    classes = torch.from_numpy(rng.integers(0, 2, 20_000))
    cases: list[tuple[str, Callable[[int], ExactModel], Callable[[int], Federation], tuple[int, ...]]] = [
        (
            "glm, 25 columns",
            lambda least: GLM(features=25, classes=2, least=least, fields=tuple(mixed)),
            lambda peers: federation(mixed, classes[:2000], classes=2, peers=peers),
            (4, 10),
        ),
        (
            "cox, 4 cells",
            lambda least: Cox(features=3, classes=None, horizon=364.0, width=91.0, least=least, fields=tuple(patients)),
            lambda peers: federation(patients, times, classes=None, peers=peers),
            (4, 10),
        ),
        (
            "cox, width = auto, 26 cells without",
            lambda least: Cox(
                features=3,
                classes=None,
                horizon=364.0,
                width="auto" if least > 1 else 14.0,
                least=least,
                fields=tuple(patients),
            ),
            lambda peers: federation(patients, times, classes=None, peers=peers),
            (4, 10),
        ),
        (
            "boosting, 30 columns of 128 bins",
            lambda least: Boosting(features=30, classes=2, rounds=1, max_bins=128, least=least, fields=tuple(numbers)),
            lambda peers: federation(numbers, classes, classes=2, peers=peers),
            (4,),
        ),
    ]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    print(f"{'':40} {'without':>23} {'with the check':>23} {'cost':>15}")
    heads = f" {'totals':>7} {'kB':>7} {'s':>7}"
    print(f"{'model':34} {'peers':>5}{heads}{heads} {'kB':>7} {'s':>7}")
    for name, model, data, counts in cases:
        for peers in counts:
            own = data(peers)
            pairs = [(cost(model(1), own), cost(model(5), own)) for _ in range(repeats)]
            sides = [(*side[0][:2], statistics.median(each[2] for each in side)) for side in zip(*pairs, strict=True)]
            columns = "".join(f" {totals:7} {size / 1000:7.0f} {seconds:7.3f}" for totals, size, seconds in sides)
            more = statistics.median(checked[2] - plain[2] for plain, checked in pairs)
            print(f"{name:34} {peers:5}{columns} {(sides[1][1] - sides[0][1]) / 1000:7.0f} {more:7.3f}", flush=True)


if __name__ == "__main__":
    main()
