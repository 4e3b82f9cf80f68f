"""Attack on the labels of a split network: from the gradients that a party without labels receives.

The gradient of a row's embedding points away from its class. A party that knows some labels adds up the gradients of
each row over all steps, and finds the direction in which those of the two classes differ. Noise on gradients averages
out over the steps; labels that were changed once do not.

References
----------
Li et al., Label leakage and protection in two-party split learning, ICLR 2022; Fu et al., Label inference attacks
against vertical federated learning, USENIX Security 2022.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from p2pfl.core.draws import draw
from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.rows import Rows
from p2pfl.experiment import Plan
from p2pfl.learning.additive import Question, add_up, answer_questions
from p2pfl.learning.metrics import auc
from p2pfl.plugins.audit.claims import TOTALS, ExactClaim, claim
from p2pfl.plugins.audit.pipeline import Fresh
from p2pfl.plugins.vertical.split_learner import SplitLearner

KNOWN_LABELS = 400
"""Labels that the attacker knows; a third of all if they are fewer."""

MAX_ROUNDS = 10
"""Most rounds that are played."""

SLACK = 3.0
"""Standard errors of an AUC by which it may exceed the bound of randomised response by chance."""


def attack_labels(plan: Plan, *, fresh: Fresh, seed: int = 0) -> list[ExactClaim]:
    """Attack the labels of a split network whose tables are all in this process; nothing of other runs.

    Parameters
    ----------
    plan
        Resolved experiment.
    fresh
        Function that makes the sources of new runs.
    seed
        Seed of the known labels.
    """
    learner = plan.learner.bare
    if not isinstance(learner, SplitLearner) or {*learner.parties.own} != {*learner.parties.names}:
        return []
    rounds = min(MAX_ROUNDS, plan.experiment.rounds)
    attacker, model = learner.roles.features[0], learner.model
    if model.task != "classification":
        return []
    leak, error = play_leaks(learner.drawing(fresh(seed)), attacker, rounds=rounds, seed=seed).aucs[-1]
    words = {"attacker": attacker, "rounds": str(rounds)}
    if model.label_epsilon is None:
        return [claim(TOTALS, "gradients show labels", 1 - leak, 0.5, **words)]
    bound = math.exp(model.label_epsilon) / (1 + math.exp(model.label_epsilon))
    return [claim(TOTALS, "gradients show changed labels alone", leak, bound + SLACK * error, **words)]


class Leaks(NamedTuple):
    """Guesses of labels after each round.

    Attributes
    ----------
    aucs
        AUC of the guesses, and its standard error, after each round.
    rows
        Models of all peers after the last round, ``[R, P]``.
    """

    aucs: list[tuple[float, float]]
    rows: Rows


def play_leaks(learner: SplitLearner, attacker: str, *, rounds: int, seed: int = 0) -> Leaks:
    """Play some rounds, after each of which a party guesses the labels that it does not know.

    Parameters
    ----------
    learner
        Learner of all parties.
    attacker
        A party without labels.
    rounds, seed
        Number of rounds, and seed of the known labels. Of several classes, one is guessed against the others.
    """
    peers = learner.peers
    rows = learner.start(peers)
    gathered, aucs = np.zeros((0, learner.model.width)), list[tuple[float, float]]()
    for round in range(rounds):
        received = list[Ints]()

        def total(question: Question, received: list[Ints] = received) -> Ints:
            return add_up(_overheard(question, learner.roles.label, attacker, received), peers)

        asking = learner.asking_from(rows, peers=peers, round=round)
        step = answer_questions(asking, total)
        assert step.own is not None  # noqa: S101 (each party has its own)
        rows = torch.stack([step.own(peer) for peer in peers])
        before = {peer: learner.tensors(row, peer=peer) for peer, row in zip(peers, rows, strict=True)}
        table = learner.table(rows[0], before)
        count = len(table.trained)
        if not round:
            gathered = np.zeros((count, learner.model.width))
        present = learner.steps.present(attacker, learner.steps.count(count), round=round)
        batches = [
            batch for batch, here in zip(learner.steps.batches(count, round=round), present, strict=True) if here
        ]
        for batch, message in zip(batches, received[len(received) - len(batches) :], strict=True):
            gathered[batch] += message.view(np.float64).reshape(len(batch), -1)
        classes, sizes = np.unique(targets := table.targets(), return_counts=True)
        aucs.append(guess_labels(gathered, targets == classes[sizes.argmin()], seed=seed))
    return Leaks(aucs, rows)


def _overheard(question: Question, label: str, attacker: str, received: list[Ints]) -> Question:
    """Return a question whose message from the label holder to the attacker is kept."""
    to = question.to
    if to is None or to.peer != attacker or to.among != (label,):
        return question
    take = to.take

    def taken(values: Ints) -> None:
        received.append(values)
        take(values)

    return replace(question, to=replace(to, take=taken))


def guess_labels(gradients: Floats, positive: npt.NDArray[np.bool_], *, seed: int) -> tuple[float, float]:
    """Return the AUC of guesses of unknown labels from gradients, and its standard error.

    Parameters
    ----------
    gradients
        Sums of the gradients of each row, ``[n, k]``.
    positive
        Labels, ``[n]``.
    seed
        Seed of the known ones.

    Examples
    --------
    >>> labels = np.arange(90) % 2 == 1
    >>> guess_labels(np.where(labels, 1.0, -1.0)[:, None] * np.ones(3), labels, seed=0)[0]
    1.0
    """
    order = draw(seed, "audit known labels").permutation(len(positive))
    many = min(KNOWN_LABELS, len(positive) // 3)
    known, rest = order[:many], order[many:]
    spread = gradients[known].std(axis=0)
    scaled = gradients / np.where(spread > 0, spread, 1.0)
    design = np.column_stack([np.ones(len(scaled)), scaled])
    ridge = np.eye(design.shape[1])
    weights = np.linalg.solve(
        design[known].T @ design[known] + ridge, design[known].T @ positive[known].astype(np.float64)
    )
    ones, zeros = int(positive[rest].sum()), int((~positive[rest]).sum())
    error = math.sqrt((ones + zeros + 1) / (12 * ones * zeros)) if ones and zeros else math.inf
    return auc(design[rest] @ weights, positive[rest]), error
