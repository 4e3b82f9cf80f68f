r"""Canaries in text: random token sequences among the training samples of a peer, which its models may give away.

A coin decides for each sequence whether the peer trains on it. After each round an observer adds up by how much the
loss of each sequence falls from the model that the peer received to the one that the observer sees, and guesses. The
sequences of one run bound :math:`\varepsilon` from below, as planted updates do. The *exposure* of a sequence that was
there is :math:`\log_2 (m' + 1) - \log_2 \text{rank}` among the m' that were not.

With ``learning.example_noise`` a sequence that is not there is a sample that counts nothing, so the batches stay, and
one sequence is the one sample of the guarantee. Private noise hides all sequences of a peer together.

References
----------
N. Carlini, C. Liu, Ú. Erlingsson, J. Kos, D. Song, "The secret sharer", USENIX Security 2019.
T. Steinke, M. Nasr, M. Jagielski, "Privacy auditing with one (1) training run", NeurIPS 2023.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch.func import functional_call
from torch.nn import functional as F  # noqa: N812 -- torch's own convention

from p2pfl.core.draws import draw
from p2pfl.core.neighbourhood import Public, run_without_loop
from p2pfl.core.process import one_thread
from p2pfl.data import Federation, IntArray
from p2pfl.data.dataset import IGNORED
from p2pfl.learning import Learner, TorchLearner
from p2pfl.plugins.audit.attacks.canaries import Guesses, count_guesses
from p2pfl.plugins.audit.attacks.membership_inference import ATTACKED_ROUNDS, MIN_SAMPLES
from p2pfl.plugins.audit.pipeline import OPEN_OBSERVER, Floats, Observer, Target, Train
from p2pfl.plugins.audit.statistical_tests import BOUNDS_PER_OBSERVER, Bools
from p2pfl.privacy.accounting import divergence

TEXT_COUNT = 256
"""Most sequences that are planted."""

GUESSED_SHARE = 0.5
"""Share of the sequences that the observer guesses; a few guesses prove little even if all are right."""


@runtime_checkable
class TakesTexts(Protocol):
    """A learner of models of language among whose training samples an audit plants texts."""

    def text_size(self, peer: str) -> tuple[int, int]:
        """Return the number of tokens of a text of a peer, and the number of different tokens."""
        ...

    def with_texts(self, texts: torch.Tensor, places: IntArray, there: Bools, *, peer: str) -> Learner:
        """Return a learner with texts in place of samples of a peer, whose number stays.

        Parameters
        ----------
        texts
            Tokens, ``[m, T]``.
        places
            Numbers of the samples of the peer, ``[m]``.
        there
            Whether the peer trains on each text, ``[m]``. The sample of another stays, or counts nothing.
        peer
            Name of the peer.
        """
        ...

    def text_losses(self, row: torch.Tensor, texts: torch.Tensor, *, peer: str) -> torch.Tensor:
        """Return the losses of texts ``[m, T]`` by a model ``[P]``, ``[m]`` float64."""
        ...


@dataclass(frozen=True)
class TextCanaries(Guesses):
    """Result of one observer: how well it recognises the sequences on which a peer trained.

    Parameters
    ----------
    exposure, most
        Median exposure in bits of the sequences that were there, and the largest one possible.
    """

    exposure: float
    most: float

    @property
    def fault(self) -> str:
        """Sentence for a broken guarantee."""
        return f"{self.observer} tells planted texts too well: {self.excess}"

    @property
    def figures(self) -> dict[str, str]:
        """Row of a table."""
        first, *others = super().figures.items()
        return {**dict([first]), "exposure": f"{self.exposure:.1f} of {self.most:.1f} bits", **dict(others)}

    @property
    def sentence(self) -> str:
        """Result in words."""
        return (
            f"Of {self.count} random texts, planted or not, the observer orders {100 * self.auc:.0f} % of pairs "
            f"correctly by their loss (exposure {self.exposure:.1f} of {self.most:.1f} bits); {self.proof}."
        )


@dataclass(frozen=True)
class TorchTexts:
    """Texts of a torch model that predicts the next token.

    Parameters
    ----------
    federation, train
        Data, and function that makes a learner.
    """

    federation: Federation
    train: Train

    @classmethod
    def of(cls, federation: Federation, train: Train) -> TorchTexts | None:
        """Return the texts of a data set; ``None`` if its targets are not the next tokens of its samples."""
        features, targets = federation.dataset.features, federation.dataset.targets
        if federation.dataset.classes is None or features.is_floating_point() or features.dim() != 2:
            return None
        if features.shape != targets.shape or features.shape[1] < 2:
            return None
        follows = (targets[:, :-1] == features[:, 1:]) | (targets[:, :-1] == IGNORED)
        return cls(federation, train) if bool(follows.all() and (targets[:, -1] == IGNORED).all()) else None

    @cached_property
    def learner(self) -> TorchLearner:
        """Learner whose model evaluates texts."""
        return self.train(self.federation)

    def text_size(self, peer: str) -> tuple[int, int]:
        """Return the length of texts, and the number of different tokens."""
        del peer
        assert self.federation.dataset.classes is not None  # noqa: S101 (`of` has looked)
        return self.federation.dataset.shape[0], self.federation.dataset.classes

    def with_texts(self, texts: torch.Tensor, places: IntArray, there: Bools, *, peer: str) -> Learner:
        """Return a learner with texts at some places, and samples that count nothing where they are not there."""
        data, own = self.federation.dataset, torch.from_numpy(self.federation.train[peer][places])
        features, targets = data.features.clone(), data.targets.clone()
        features[own], targets[own] = texts.to(features), _next_tokens(texts).to(targets)
        targets[own[torch.from_numpy(~there)]] = IGNORED
        return self.train(replace(self.federation, dataset=replace(data, features=features, targets=targets)))

    def text_losses(self, row: torch.Tensor, texts: torch.Tensor, *, peer: str) -> torch.Tensor:
        """Return the loss of each text, ``[m]`` float64."""
        del peer
        learner = self.learner
        learner.model.eval()
        state = {name: value.to(learner.device) for name, value in learner.state_dict(row.to(learner.dtype)).items()}
        with learner.alone, torch.no_grad():
            outputs = functional_call(learner.model, state, (texts.to(learner.device),)).double()  # [m, C, T]
        targets = _next_tokens(texts).to(outputs.device)
        return F.cross_entropy(outputs, targets, ignore_index=IGNORED, reduction="none").sum(1).cpu()


def _next_tokens(texts: torch.Tensor) -> torch.Tensor:
    """Return the targets of texts, ``[m, T]``."""
    return torch.cat([texts[:, 1:], texts.new_full((len(texts), 1), IGNORED)], dim=1)


@one_thread()
def plant_texts(
    target: Target,
    observers: Sequence[Observer],
    texts: TakesTexts,
    *,
    samples: Sequence[int],
    stated: Callable[[str, float], float],
    delta: float,
    steps: int = 1,
    rounds: int = ATTACKED_ROUNDS,
    count: int = TEXT_COUNT,
) -> list[TextCanaries]:
    r"""Train the peer with the most samples on texts of which a coin has chosen half, and let every observer guess.

    The other peers send what they received, as colluders may.

    Parameters
    ----------
    target
        Release that is attacked.
    observers
        Observers that guess; one that reads updates as they are is added.
    texts
        Learner that takes texts.
    samples
        Number of training samples of each peer.
    stated
        Function of a peer and a delta: :math:`\varepsilon` of a sample of a peer that trains in each of these rounds;
        infinite without a guarantee.
    delta
        The delta of guarantees.
    steps, rounds
        Gossip steps of a round, and rounds.
    count
        Most texts.

    Returns
    -------
    list of TextCanaries
        Result of each observer; none if no peer has enough samples.
    """
    victim = int(np.argmax(samples))
    own, peers = int(samples[victim]), target.graph.peers
    if own < MIN_SAMPLES:
        return []
    peer, rng = peers[victim], draw(target.seed, "audit texts")
    length, words = texts.text_size(peer)
    planted = torch.from_numpy(rng.integers(words, size=(min(count, own), length)))  # [m, T]
    there = rng.random(len(planted)) < 0.5  # [m]
    learner = texts.with_texts(planted, rng.permutation(own)[: len(planted)], there, peer=peer)
    watching = {each.name: each for each in observers if victim in each.watched}
    scores = {name: np.zeros(len(planted)) for name in (OPEN_OBSERVER, *watching)}  # [m] each
    since, memory, pipeline = learner.start(peers), None, target.run(0)  # [N, P]
    for round in range(rounds):
        fitted = learner.fit(since[victim : victim + 1], peers=[peer], round=round, memory=memory)
        rows, memory = since.clone(), fitted.memory  # [N, P]
        rows[victim] = fitted.rows[0]
        net = pipeline.round(round)
        released = run_without_loop(net.release(rows, since=Public(since)))
        before = texts.text_losses(since[victim], planted, peer=peer).numpy()
        seen = {OPEN_OBSERVER: rows[victim]}
        for name, observer in watching.items():
            view = observer.sees(pipeline, released, round=round)  # [H, P]
            seen[name] = torch.from_numpy(view[observer.watched.tolist().index(victim)])
        for name, row in seen.items():
            scores[name] += before - texts.text_losses(row, planted, peer=peer).numpy()
        for _ in range(steps):
            released = run_without_loop(net.mix(released))
        since = released.mean(own=since)  # [N, P]
    tests = BOUNDS_PER_OBSERVER * len(scores)
    of_sample = cache(lambda delta: stated(peer, delta))

    def result(name: str) -> TextCanaries:
        def bound(delta: float) -> float:
            return min(of_sample(delta), _replacing(watching.get(name), rounds, delta=delta))

        return _result(name, scores[name], there, bound=bound, delta=delta, tests=tests)

    return [result(name) for name in scores]


def _replacing(observer: Observer | None, rounds: int, *, delta: float) -> float:
    """Return the epsilon of replacing all updates of a peer in some rounds; infinite without a guarantee."""
    if observer is None or math.isinf(observer.promised):
        return math.inf
    twice = 2.0 if observer.adjacency == "zero-out" else 1.0  # from one update to zero, and to another
    return divergence.epsilon(twice * observer.promised * math.sqrt(rounds), delta=delta)


def _result(
    name: str, scores: Floats, there: Bools, *, bound: Callable[[float], float], delta: float, tests: int
) -> TextCanaries:
    figures: Any = count_guesses(
        scores, there, promised=math.inf, bound=bound, delta=delta, tests=tests, share=GUESSED_SHARE
    )
    bits = _exposures(scores, there)
    return TextCanaries(
        observer=name,
        **figures,
        exposure=float(np.median(bits)) if bits.size else 0.0,
        most=math.log2((~there).sum() + 1),
    )


def _exposures(scores: Floats, there: Bools) -> Floats:
    """Return the exposure of each text that was there, ``[m]`` bits: by its rank among those that were not."""
    others = np.sort(scores[~there])
    ranks = 1 + len(others) - np.searchsorted(others, scores[there], side="left")
    return np.asarray(np.log2(len(others) + 1) - np.log2(ranks), np.float64)
