r"""Membership inference: detection of the samples that a peer learned from.

Each peer learns from a random half of its samples, so that the other half differs from it only in
membership. After each round the attacker evaluates a peer's parameters, as the attacker sees them.

- By *loss*: a low loss means member (Yeom et al.).
- By *shadows*: the attacker trains k models from the same public start on random halves of the same
  samples, protects them as the peer does, and compares the log-odds :math:`\varphi` of the true class with
  those of the shadows with and without the sample: the likelihood ratio of LiRA (Carlini et al.).

The membership of a sample changes an update by at most twice the clip, so it is compared with the guarantee
for replacing an update: over t rounds no attack has an area under its ROC curve above
:math:`\Phi(\mu \sqrt{t / 2})` of that :math:`\mu`.

References
----------
S. Yeom et al., "Privacy risk in machine learning", CSF 2018.
N. Carlini et al., "Membership inference attacks from first principles", S&P 2022.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import NormalDist

import numpy as np
import torch
from torch.func import functional_call

from p2pfl.core.draws import draw
from p2pfl.core.neighbourhood import Public, run_without_loop
from p2pfl.core.process import one_thread
from p2pfl.core.rows import Rows
from p2pfl.data import Federation, IntArray
from p2pfl.learning import TorchLearner
from p2pfl.learning.losses import cross_entropy
from p2pfl.plugins.audit.claims import verdict_of
from p2pfl.plugins.audit.pipeline import OPEN_OBSERVER, Floats, Observer, Pipeline, Target, Train
from p2pfl.plugins.audit.statistical_tests import Bools, auc, auc_error
from p2pfl.privacy.accounting import divergence

ATTACKED_ROUNDS = 3
SHADOW_COUNT = 32
"""Number of shadow models of each peer; every sample is in half of them."""

MIN_SAMPLES = 8
"""Smallest number of samples of an attacked peer."""

MAX_ATTACKED = 16
"""Number of attacked peers, those with the most samples."""

MIN_ERRORS = 4.0
"""Standard errors by which an area has to exceed its ceiling, for one false alarm in 30,000 areas."""


@dataclass(frozen=True)
class Inference:
    """Result of one attack of one observer after one round.

    Parameters
    ----------
    observer
        Name of the observer; ``"nothing hidden"`` reads updates as they are, ``"mixed model"`` the results of rounds.
    round
        Round number, from 1.
    attack
        ``"loss"`` or ``"shadows"``.
    auc, error
        Area under the ROC curve, mean over the peers that were attacked, and its standard error.
    ceiling
        Largest area that the guarantee permits; 1 without a guarantee.
    """

    observer: str
    round: int
    attack: str
    auc: float
    error: float
    ceiling: float

    @property
    def broken(self) -> bool:
        """True if the attack learns more than the guarantee permits."""
        return self.auc - MIN_ERRORS * self.error > self.ceiling

    @property
    def fault(self) -> str:
        """Sentence for a broken guarantee."""
        area = f"an area of {self.auc:.3f} instead of at most {self.ceiling:.3f}"
        return f"{self.observer} distinguishes members too well by {self.attack} after round {self.round}: {area}"

    @property
    def figures(self) -> dict[str, str]:
        """Row of a table."""
        names = {"observer": self.observer, "round": str(self.round), "attack": self.attack}
        areas = {"AUC": f"{self.auc:.3f} ± {self.error:.3f}", "ceiling": f"{self.ceiling:.3f}"}
        return {**names, **areas, "verdict": verdict_of(self, bounded=self.ceiling < 1)}


def best_inference(inferences: Sequence[Inference]) -> str:
    """Return the best of several attacks of an observer in words."""
    best = max(inferences, key=lambda each: each.auc)
    likely = NormalDist().inv_cdf(1 - 0.025 / len(inferences))  # quantile of the best of several by chance
    chance = ", which is chance" if best.auc - likely * best.error <= 0.5 else ""
    return (
        f"Distinguishes a sample that a peer learned from and one that it did not in {100 * best.auc:.0f} % "
        f"of pairs (± {100 * best.error:.0f} %, best of {len(inferences)} attacks){chance}."
    )


MIXED_MODEL = "mixed model"
"""Observer of mixed models: every peer, and every receiver of the model."""


@one_thread()
def infer(
    target: Target,
    observers: Sequence[Observer],
    *,
    federation: Federation,
    train: Train,
    steps: int = 1,
    rounds: int = ATTACKED_ROUNDS,
    shadows: int = SHADOW_COUNT,
) -> list[Inference]:
    """Train for some rounds and attack every peer after each of them.

    Parameters
    ----------
    target
        Release that is attacked; shadows have runs of their own.
    observers
        Observers that attack, the one that knows the least first.
    federation, train
        Data, and function that makes a learner.
    steps
        Gossip steps per round.
    rounds, shadows
        Numbers of rounds and shadow models.

    Returns
    -------
    list of Inference
        Result of every attack.
    """
    rich = sorted(federation.train, key=lambda peer: -len(federation.train[peer]))[:MAX_ATTACKED]
    pool = {peer: federation.train[peer] for peer in sorted(rich) if len(federation.train[peer]) >= MIN_SAMPLES}
    if not pool:
        return []
    halve = partial(_halves, seed=target.seed)
    halves = {peer: halve(len(part), 2, purpose="audit halves", peer=peer)[0] for peer, part in pool.items()}
    crowd = {peer: halve(len(part), shadows, purpose="audit shadows", peer=peer) for peer, part in pool.items()}

    def run(number: int, chosen: Mapping[str, Bools]) -> _Run:
        parts = dict(federation.train) | {peer: pool[peer][chosen[peer]] for peer in pool}
        return _Run(train(replace(federation, train=parts)), target.run(number), observers, pool, number == 0)

    real = run(0, halves)
    shades = [run(1 + number, {peer: crowd[peer][number] for peer in pool}) for number in range(shadows)]
    since = real.learner.start(target.graph.peers)  # [N, P]
    inferences: list[Inference] = []
    for round in range(rounds):
        views, mixed = real.views(since, steps=steps, round=round)
        cast = [shade.views(since, steps=steps, round=round)[0] for shade in shades]
        for observer, odds in views.items():
            attacks = {"loss": odds}
            if observer != MIXED_MODEL:  # its shadows would need as many runs
                attacks["shadows"] = {
                    peer: _ratio(odds[peer], np.stack([shadow[observer][peer] for shadow in cast]), crowd[peer])
                    for peer in odds
                }
            ceiling = _ceiling(observer, observers, rounds=round + 1)
            for attack, scores in attacks.items():
                inferences.append(_inference(observer, attack, scores, halves, round=round + 1, ceiling=ceiling))
        since = mixed
    return inferences


@dataclass(frozen=True)
class _Run:
    """Run of all peers, or of shadows of some, with the views of the observers after each round."""

    learner: TorchLearner
    pipeline: Pipeline
    observers: Sequence[Observer]
    pool: Mapping[str, IntArray]
    real: bool

    def views(self, since: Rows, *, steps: int, round: int) -> tuple[dict[str, dict[str, Floats]], Rows]:
        """Return the log-odds of each peer's samples by observer, and the mixed rows."""
        peers, net = self.pipeline.peers, self.pipeline.round(round)
        rows = since.clone()  # [N, P]
        training = peers if self.real else tuple(self.pool)
        indices = [peers.index(peer) for peer in training]
        rows[indices] = self.learner.fit(since[indices], peers=training, round=round).rows
        released = run_without_loop(net.release(rows, since=Public(since)))
        odds = {OPEN_OBSERVER: self._odds(rows.double().numpy(), peers)}
        for observer in self.observers:
            seen = observer.sees(self.pipeline, released, round=round)  # [H, P]
            odds[observer.name] = self._odds(seen, [peers[row] for row in observer.watched])
        if not self.real:
            return odds, since
        for _ in range(steps):
            released = run_without_loop(net.mix(released))
        mixed = released.mean(own=since)  # [N, P]
        odds[MIXED_MODEL] = self._odds(mixed.double().numpy(), peers)
        return odds, mixed

    def _odds(self, rows: Floats, peers: Sequence[str]) -> dict[str, Floats]:
        """Return the confidence of each peer's row on each sample: log-odds of the true class, or the negative loss."""
        learner = self.learner
        learner.model.eval()
        odds = {}
        for row, peer in zip(rows, peers, strict=True):
            if peer not in self.pool:
                continue
            part = torch.from_numpy(self.pool[peer]).to(learner.device)
            state = learner.state_dict(torch.from_numpy(row).to(learner.dtype))
            with torch.no_grad():
                moved = {name: value.to(learner.device) for name, value in state.items()}
                outputs = functional_call(learner.model, moved, (learner.features[part],)).double()  # [n, ...]
                odds[peer] = _sureness(learner, outputs, learner.targets[part]).cpu().numpy()
        return odds


def _sureness(learner: TorchLearner, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    r"""Return :math:`\varphi = \log p_t - \log (1 - p_t)` of each sample, which is nearly normal, ``[n]``."""
    if learner.loss is not cross_entropy:
        return -learner.loss(outputs, targets)
    right = outputs.gather(1, targets.unsqueeze(1))  # [n, 1]
    others = outputs.scatter(1, targets.unsqueeze(1), -math.inf)  # [n, C]
    return (right - torch.logsumexp(others, dim=1, keepdim=True)).squeeze(1)  # [n]


def _halves(samples: int, count: int, *, seed: int, purpose: str, peer: str) -> Bools:
    """Return random halves of a peer's samples, with every sample in half of them, ``[K, n]``."""
    ranks = np.tile(np.arange(count), (samples, 1))  # [n, K]
    return count // 2 > draw(seed, purpose, peer).permuted(ranks, axis=1).T


def _ratio(seen: Floats, shadows: Floats, inside: Bools) -> Floats:
    """Return the log-likelihood ratio ``[n]`` of log-odds ``[n]``, by shadows ``[K, n]`` with and without a sample."""
    ratio = np.zeros(len(seen))  # [n]
    for mine, sign in ((inside, 1.0), (~inside, -1.0)):
        chosen = np.where(mine, shadows, np.nan)  # [K, n]
        centre = np.nanmean(chosen, axis=0)  # [n]
        spread = max(float(np.nanstd(chosen - centre)), 1e-6)  # one for all samples, because there are few shadows
        ratio += sign * (-np.square(seen - centre) / (2 * spread**2) - math.log(spread))
    return ratio


def _inference(
    observer: str, attack: str, scores: Mapping[str, Floats], halves: Mapping[str, Bools], *, round: int, ceiling: float
) -> Inference:
    """Return the mean area over the attacked peers."""
    areas = [auc(scores[peer], halves[peer]) for peer in scores]
    counts = [(int(halves[peer].sum()), int((~halves[peer]).sum())) for peer in scores]
    errors = [
        auc_error(area, positive=positive, negative=negative)
        for area, (positive, negative) in zip(areas, counts, strict=True)
    ]
    error = math.hypot(*errors) / len(errors)
    return Inference(observer, round, attack, float(np.mean(areas)), error, ceiling)


def _ceiling(name: str, observers: Sequence[Observer], *, rounds: int) -> float:
    """Return the largest area that the guarantee of this many rounds permits."""
    name = observers[0].name if name == MIXED_MODEL else name  # the observer that knows the least sees it as well
    for observer in observers:
        if observer.name == name and math.isfinite(observer.promised):
            twice = 2.0 if observer.adjacency == "zero-out" else 1.0  # from one update to zero, and to another
            return divergence.ceilings(twice * observer.promised * math.sqrt(rounds)).auc
    return 1.0
