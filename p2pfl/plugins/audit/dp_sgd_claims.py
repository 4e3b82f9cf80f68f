r"""Claims about training that hides single samples (DP-SGD): what runs is what is accounted.

The learner of the experiment trains a linear model, with its own clip, noise, batch and steps, on samples whose
gradients are chosen: of any length, or zero. Everything else is real. What one sample moves, what noise moves, and who
is in a batch then follow from the trained parameters alone:

.. math:: \text{start} - \text{after} = \frac{1}{q n} \Big(\sum_{i \in S} \text{clip}(g_i) + z C\, N(0, I)\Big)
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.stats import binom

from p2pfl.algorithms import average_of
from p2pfl.core.draws import draw
from p2pfl.core.rows import Layout
from p2pfl.data import Dataset, Federation
from p2pfl.experiment import Experiment, Plan
from p2pfl.experiment.file.reading import check
from p2pfl.experiment.parts.learner_parts import learner as made
from p2pfl.learning.example_private import ExamplePrivateLearner
from p2pfl.learning.steps.batching import Batch
from p2pfl.plugins.audit import statistical_tests
from p2pfl.plugins.audit.claims import CLIP_LENGTHS, TRAINING, ExactClaim, claim, list_lengths
from p2pfl.plugins.audit.noise_claims import Noise
from p2pfl.plugins.audit.pipeline import FIRST_RUN, Floats, Fresh, drop_budget
from p2pfl.plugins.audit.second_accountant import sampled_epsilon
from p2pfl.privacy.accounting.examples import SampledSteps
from p2pfl.privacy.keys import SeededSource, Source
from p2pfl.results.spending.sampling import SamplingMeter

PEER_COUNT = 2
"""Number of peers that train."""

FEATURE_COUNT = 1024
"""Features of the linear model whose noise is looked at."""

ROUND_COUNT = 12
"""Rounds of each run whose noise is looked at."""

RUN_COUNT = 2
"""Runs, each with its own secrets."""

BATCH_COUNT = 400
"""Batches of which it is looked at who is in them."""

MAX_SAMPLES = 4096
"""Most samples of the peer whose steps are counted."""

POINTS_PER_DEVIATION = 2.0**14
"""Points of a grid in a deviation of the noise, as which the tests take it."""

TRIED_BATCHES = 6
"""Batches in which a sample of each length is tried."""

GRADIENT_POSITIONS = (None, 0, -1)
"""Parameters in which its gradient lies: all, the first alone, or the last alone."""

CLIP_SLACK = 1e-3
"""Share of the clip by which rounding to a grid may exceed it."""

ALLOWED_SURPRISE = -math.log10(statistical_tests.FALSE_ALARM_RATE)
"""Surprise in powers of ten that a correct build exceeds as often as any other limit."""


@dataclass
class ChosenGradients:
    """Engine whose gradients are chosen, in place of that of a model.

    Attributes
    ----------
    layout
        Places of the tensors in a row.
    length
        Length of the gradient of each sample, in its own random direction.
    position
        Number of the only parameter whose derivative is not zero, in place of a random direction; ``None`` for all.
    blank
        Number of the sample whose gradient is zero; -1 for none.
    chosen
        Numbers of the samples whose gradients were asked for, in order.
    """

    layout: Layout
    length: float = 0.0
    position: int | None = None
    blank: int = -1
    chosen: list[int] = field(default_factory=list)

    def block(self, width: int) -> int:
        """Return the number of samples whose gradients are computed at a time."""
        del width
        return 256

    def gradient(self, parts: Sequence[torch.Tensor], batch: Batch) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return losses of zero ``[B]`` and the gradients, ``[B, *shape]`` each; a feature numbers the samples."""
        numbers = batch.features.flatten(1)[:, 0].long()  # [B]
        self.chosen += numbers.tolist()
        rows = torch.zeros(len(numbers), self.layout.size, dtype=parts[0].dtype)  # [B, P]
        if self.length:
            for row, number in enumerate(numbers.tolist()):
                if number != self.blank and self.position is not None:
                    rows[row, self.position] = self.length
                elif number != self.blank:
                    direction = draw(0, "audit gradient", round=number).standard_normal(self.layout.size)
                    rows[row] = torch.from_numpy(direction * (self.length / np.linalg.norm(direction)))
        return torch.zeros(len(numbers), dtype=parts[0].dtype), list(self.layout.split(rows).values())


@dataclass(frozen=True)
class _Trainee:
    """Learner of an experiment on samples whose gradients are chosen.

    Parameters
    ----------
    experiment
        Experiment, of which clip, noise, batch and steps are used.
    samples
        Number of samples of each peer.
    features
        Number of features.
    steps
        Steps of a round; ``None`` for those of the experiment.
    """

    experiment: Experiment
    samples: int
    features: int
    steps: int | None = 1

    @property
    def peers(self) -> tuple[str, ...]:
        """Names of the peers."""
        return tuple(f"peer{number}" for number in range(PEER_COUNT))

    @property
    def federation(self) -> Federation:
        """Samples that a feature numbers."""
        features = torch.zeros(PEER_COUNT * self.samples, self.features)  # [n, F]
        features[:, 0] = torch.arange(len(features))
        data = Dataset(features, torch.arange(len(features)) % 2, classes=2)
        own = {
            peer: np.arange(row * self.samples, (row + 1) * self.samples, dtype=np.int64)
            for row, peer in enumerate(self.peers)
        }
        none = dict.fromkeys(self.peers, np.zeros(0, np.int64))
        return Federation(data, own, none, none)

    @property
    def scale(self) -> float:
        """Mean number of samples in a batch, by which a step divides."""
        return float(min(int(self.experiment.learning.batch), self.samples))

    def learner(self, source: Source) -> tuple[ExamplePrivateLearner, ChosenGradients]:
        """Return the learner with secrets from a source, and its engine."""
        settings = self.experiment.learning
        steps = self.steps or settings.steps
        learning: dict[str, Any] = {
            "device": "cpu",
            "dtype": "float64",
            "optimizer": "sgd",
            "rate": 1.0,
            "batch": settings.batch,
            "epochs": settings.epochs,
            "example_noise": settings.example_noise,
            "max_norm": settings.example_clip,
        } | ({} if steps is None else {"steps": steps})
        table = {"data": {"name": "wine"}, "model": {"name": "linear"}, "learning": learning}
        learner = copy.copy(made(check(table), self.federation, source=source))
        assert isinstance(learner, ExamplePrivateLearner)  # noqa: S101 (the experiment asks for noise)
        engine = ChosenGradients(learner.layout)
        object.__setattr__(learner, "engine", engine)
        return learner, engine

    def move(self, learner: ExamplePrivateLearner, *, round: int) -> Floats:
        """Return by how much a round moves the parameters of each peer, times :attr:`scale`, ``[N, P]``."""
        rows = torch.zeros(PEER_COUNT, learner.layout.size, dtype=torch.float64)  # [N, P]
        after = learner.fit(rows, peers=self.peers, round=round).rows
        movement: Floats = -after.numpy() * self.scale
        return movement


def check_training(plan: Plan, *, fresh: Fresh) -> list[ExactClaim]:
    """Check all claims on training that hides samples; there are none where it does not.

    Parameters
    ----------
    plan
        Resolved experiment.
    fresh
        Function that makes the sources of new runs.

    Examples
    --------
    >>> from p2pfl.experiment import plan, read
    >>> from p2pfl.privacy.keys import SeededSource
    >>> check_training(plan(read({"topology": {"peers": 2}})), fresh=SeededSource)
    []
    """
    learning = plan.experiment.learning
    if not learning.example_noise or learning.learner is not None:
        return []
    few = 3 * int(learning.batch)  # so the rate is 1/3, and differs from that of samples that are left out
    one = _Trainee(plan.experiment, few, FEATURE_COUNT)
    return [
        _check_clip(one),
        *_noises(one, fresh=fresh),
        *_batches(_Trainee(plan.experiment, few, 1), fresh=fresh),
        *_steps(plan, fresh=fresh),
        _check_epsilon(plan),
        _check_separation(plan),
    ]


def _check_clip(one: _Trainee) -> ExactClaim:
    """Check that a gradient of any length moves a step by no more than the clip: with and without one sample.

    Both steps have the same batch and the same noise, so their secrets come from a seed.
    """
    clip, reach = one.experiment.learning.example_clip, 0.0
    learner, engine = one.learner(SeededSource(0))
    for length in CLIP_LENGTHS:
        engine.length = length * clip
        for round in range(TRIED_BATCHES):
            engine.blank, engine.position = -1, GRADIENT_POSITIONS[round % len(GRADIENT_POSITIONS)]
            engine.chosen.clear()
            there = one.move(learner, round=round)
            if engine.chosen:
                engine.blank = engine.chosen[0]
                reach = max(reach, float(np.linalg.norm(there - one.move(learner, round=round))))
    allowed = clip * (1 + CLIP_SLACK)
    return claim(TRAINING, "gradients of samples are clipped", reach or math.inf, allowed, lengths=list_lengths())


def _noises(one: _Trainee, *, fresh: Fresh) -> list[ExactClaim]:
    """Check the noise of single steps on gradients of zero, over peers, rounds and runs."""
    learning, rows = one.experiment.learning, list[Floats]()
    for run in range(RUN_COUNT):
        learner, _ = one.learner(fresh(FIRST_RUN + run))
        rows += [one.move(learner, round=round) for round in range(ROUND_COUNT)]
    points = np.rint(np.concatenate(rows) * (POINTS_PER_DEVIATION / (learning.example_noise * learning.example_clip)))
    return Noise("noise of a step", TRAINING, points.astype(np.int64), POINTS_PER_DEVIATION).claims()


def _batches(one: _Trainee, *, fresh: Fresh) -> list[ExactClaim]:
    """Check that each sample is in each batch with the accounted probability, whoever else is, by exact tests."""
    learner, engine = one.learner(fresh(FIRST_RUN))
    count, first = one.samples, one.peers[:1]
    joined = np.zeros((BATCH_COUNT, count), np.int64)  # [T, n]
    row = torch.zeros(1, learner.layout.size, dtype=torch.float64)  # [1, P]
    for round in range(BATCH_COUNT):
        engine.chosen.clear()
        learner.fit(row, peers=first, round=round)
        np.add.at(joined[round], engine.chosen, 1)
    rate = one.scale / count
    again = 0  # samples that join both steps of a round
    learner, engine = replace(one, steps=2).learner(fresh(FIRST_RUN + 1))
    for round in range(BATCH_COUNT):
        engine.chosen.clear()
        learner.fit(row, peers=first, round=round)
        again += len(engine.chosen) - len({*engine.chosen})
    pairs = (joined.T @ joined)[np.triu_indices(count, 1)]
    later = (joined[1:].T @ joined[:-1]).ravel()
    sizes = joined.sum(axis=1)
    spread = (sizes - count * rate) ** 2 / (count * rate * (1 - rate))
    likely = 2 + (1 - 6 * rate * (1 - rate)) / (count * rate * (1 - rate))  # variance of such a square
    surprises = {
        "batches have the accounted rate": _surprise(np.array([joined.sum()]), joined.size, rate),
        "each sample has its rate": _surprise(joined.sum(axis=0), BATCH_COUNT, rate),
        "samples join independently": max(
            _surprise(pairs, BATCH_COUNT, rate**2),
            _surprise(later, BATCH_COUNT - 1, rate**2),
            _surprise(np.array([again]), joined.size, rate**2),
        ),
    }
    off = abs(float(spread.sum()) - BATCH_COUNT) / math.sqrt(BATCH_COUNT * likely)
    return [
        *(claim(TRAINING, name, surprise, ALLOWED_SURPRISE) for name, surprise in surprises.items()),
        claim(TRAINING, "sizes of batches vary", off, statistical_tests.normal(tests=1)),
    ]


def _surprise(counts: npt.NDArray[np.int64], trials: int, rate: float) -> float:
    r"""Return the surprise of the least likely of some binomial counts, :math:`-\log_{10} p` for all together."""
    tails = np.minimum(binom.cdf(counts, trials, rate), binom.sf(counts - 1, trials, rate))
    return -math.log10(max(min(1.0, 2 * float(tails.min()) * counts.size), 1e-300))


def _steps(plan: Plan, *, fresh: Fresh) -> list[ExactClaim]:
    """Compare the steps and samples of whole rounds with what the meter and the summary account for them."""
    learning = plan.experiment.learning
    samples = max((len(part) for part in plan.federation.train.values()), default=0)
    one = _Trainee(plan.experiment, max(2, min(samples, MAX_SAMPLES)), FEATURE_COUNT, steps=None)
    learner, engine = one.learner(fresh(FIRST_RUN))
    moved = np.concatenate([one.move(learner, round=round) for round in range(2)])
    steps = float(np.square(moved / (learning.example_noise * learning.example_clip)).mean())
    error = statistical_tests.normal(tests=1) * math.sqrt(2 / moved.size)
    own = _expected_steps(plan.experiment, learner, one.samples)
    trained = _count_accounted(plan, learner, one)
    lacking = max(_shortfall(replace(own, steps=2 * own.steps), each) for each in trained)
    drawn = _surprise(np.array([len(engine.chosen)]), 2 * PEER_COUNT * one.samples * own.steps, own.rate)
    return [
        claim(TRAINING, "a round has its steps", abs(steps / own.steps - 1), error * 1.1),
        claim(TRAINING, "a round has its samples", drawn, ALLOWED_SURPRISE),
        claim(TRAINING, "steps are accounted as they are made", lacking, 1 + 1e-9),
    ]


def _expected_steps(experiment: Experiment, learner: ExamplePrivateLearner, samples: int) -> SampledSteps:
    """Return the steps of a peer with so many samples in a round, from the keys of the experiment file."""
    learning = experiment.learning
    batch = int(learning.batch)
    steps = learner.epochs * -(-samples // batch) if learner.steps is None else learner.steps
    return SampledSteps(learning.example_noise, min(1.0, batch / samples) if samples else 0.0, steps if samples else 0)


def _count_accounted(plan: Plan, learner: ExamplePrivateLearner, one: _Trainee) -> list[SampledSteps]:
    """Return the steps that meter and summary account for in two rounds of the trainee."""
    asked = replace(plan.asked, experiment=drop_budget(plan.experiment))
    trained = replace(
        plan,
        asked=asked,
        learner=learner,
        federation=one.federation,
        sized=None,
    )
    meter = SamplingMeter(trained, one.peers, run="audit")
    for round in range(2):
        meter.count(round, None)
    counted = [replace(each, steps=each.steps * count) for peer in one.peers for each, count in meter.own[peer].items()]
    played = {peer: dict(rounds) for peer, rounds in meter.own.items()}
    stated = [trained.examples(2, played=played), trained.examples(2)]
    return counted + [  # nobody may take part in a round
        SampledSteps(each["noise_multiplier"], each["sampling_rate"], int(each["steps"]))
        for each in stated
        if each is not None and each["steps"]
    ]


def _shortfall(own: SampledSteps, accounted: SampledSteps) -> float:
    """Return by which factor a number of what is accounted is too favourable at most."""
    if not accounted.steps or not accounted.rate:
        return math.inf
    return max(own.rate / accounted.rate, own.steps / accounted.steps, accounted.noise / own.noise)


def _check_epsilon(plan: Plan) -> ExactClaim:
    """Compare the epsilon that is stated for samples with that of all steps of the peer that is worst off."""
    learner, rounds = plan.learner.bare, plan.experiment.horizon
    stated = plan.examples(rounds)
    average = average_of(plan.algorithm)
    if stated is None or average is None or not plan.asked.algorithm.private_examples:
        return claim(TRAINING, "epsilon of samples is that of their steps", 0.0, math.inf)
    assert isinstance(learner, ExamplePrivateLearner)  # noqa: S101 (the experiment asks for noise)
    peers = plan.federation.peers
    active = [average.participants(peers, round=round).tolist() for round in range(rounds)]
    kinds = {
        (_expected_steps(plan.experiment, learner, len(plan.federation.train[peer])), sum(here))
        for peer, *here in zip(peers, *active, strict=True)
    }
    worst = max(kinds, key=lambda kind: kind[0].rate ** 2 * kind[0].steps * kind[1])
    (sampling, times), delta = worst, plan.experiment.privacy.delta
    own = sampled_epsilon({(1 / sampling.noise, sampling.rate): sampling.steps * times}, delta=delta)
    return claim(TRAINING, "epsilon of samples is that of their steps", own, stated["epsilon"] * 1.01 + 0.01)


def _check_separation(plan: Plan) -> ExactClaim:
    """Check that the gradient of a sample does not depend on others of its batch, by the engine and data that train."""
    learner, name = plan.learner.bare, "gradients of samples are their own"
    assert isinstance(learner, ExamplePrivateLearner)  # noqa: S101 (the experiment asks for noise)
    peer = max(plan.federation.peers, key=lambda each: len(plan.federation.train[each]))
    some = plan.federation.train[peer][:8]
    if len(some) < 3:
        return claim(TRAINING, name, 0.0)
    parts = list(learner.layout.split(learner.start([peer])[:1].to(learner.device, learner.dtype)).values())
    learner.model.train()

    def first(numbers: npt.NDArray[np.int64]) -> torch.Tensor:
        chosen = torch.from_numpy(numbers).to(learner.device)
        batch = Batch(learner.features[chosen].unsqueeze(1), learner.targets[chosen].unsqueeze(1), None, None)
        stack = [part.expand(len(numbers), *part.shape[1:]) for part in parts]
        with learner.alone:
            gradients = learner.engine.gradient(stack, batch)[1]
        row: torch.Tensor = learner.layout.join(dict(zip(learner.layout.names, gradients, strict=True)))[0]
        return row.double()

    whole, other = first(some), first(np.concatenate([some[:1], some[:0:-1]]))
    off = float((whole - other).norm() / whole.norm().clamp_min(1e-12))
    return claim(TRAINING, name, off, 1e-3)
