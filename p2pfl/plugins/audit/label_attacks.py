"""Attacks on the labels of a split network: from gradients, and from the part of the network that a party trains.

The gradient of a row's embedding points away from its class. A party that knows some labels adds up the gradients of
each row over all steps, and finds the direction in which those of the two classes differ. Noise on gradients averages
out over the steps; labels that were changed once do not. When training is over, it completes the model: it trains a top
of its own on its part of the network, with few labels.

Columns predict labels, and no protection of labels prevents this. So where labels are protected, those of half of the
people are drawn at random beforehand: columns tell nothing about these labels, and randomised response bounds every
guess.

References
----------
Li et al., Label leakage and protection in two-party split learning, ICLR 2022; Fu et al., Label inference attacks
against vertical federated learning, USENIX Security 2022.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
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
from p2pfl.plugins.audit.column_attacks import RecordedTotals, solve_equations
from p2pfl.plugins.audit.pipeline import Fresh
from p2pfl.plugins.vertical.aligned_table import AlignedTable
from p2pfl.plugins.vertical.split_learner import SplitLearner

KNOWN_LABELS = 400
"""Labels that the attacker knows; a third of all if they are fewer."""

MAX_ROUNDS = 10
"""Most rounds that are played."""

COMPLETING_LABELS = 40
"""Labels with which the attacker trains a top of its own; a third of all if they are fewer."""

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
    rounds = min(MAX_ROUNDS, plan.experiment.horizon)
    attacker, epsilon = learner.roles.features[0], learner.model.label_epsilon
    if learner.model.task != "classification":
        return []
    people = len(learner.parties.party(learner.parties.label))
    coins = None if epsilon is None else draw(seed, "audit people with coins").permutation(people) % 2 == 0
    if coins is not None:
        learner = _with_coins(learner, coins, seed=seed)
    learner = learner.drawing(fresh(seed))
    leaks = play_leaks(learner, attacker, rounds=rounds, seed=seed, judged=coins)
    leak, error = leaks.aucs[-1]
    complete = partial(complete_model, learner, leaks, attacker, seed=seed, taught=None if coins is None else ~coins)
    completed, own = complete(judged=None if coins is None else ~coins)
    words = {"attacker": attacker, "rounds": str(rounds)}
    labels = min(COMPLETING_LABELS, len(leaks.table.trained) // 3)
    known = {"attacker": attacker, "known": str(labels), "completed": f"{completed[0]:.2f}", "own": f"{own[0]:.2f}"}
    claims = solve_equations(leaks.table, leaks.tested, equations=learner.model.width) if len(leaks.tested) else []
    if epsilon is None:
        shown = 0.5 + SLACK * completed[1]
        claims += [
            claim(TOTALS, "gradients show labels", 1 - leak, 0.5, **words),
            claim(TOTALS, "a completed network shows labels", 1 - completed[0], shown, **known),
        ]
        return [each for each in claims if math.isfinite(each.measured)]  # an AUC of one class is none
    bound = math.exp(epsilon) / (1 + math.exp(epsilon))
    [tossed, chance], _ = complete(judged=coins)
    claims += [
        claim(TOTALS, "gradients show changed labels alone", leak, bound + SLACK * error, **words),
        claim(TOTALS, "a completed network shows changed labels alone", tossed, bound + SLACK * chance, **known),
    ]
    return [each for each in claims if math.isfinite(each.measured)]


def _with_coins(learner: SplitLearner, people: npt.NDArray[np.bool_], *, seed: int) -> SplitLearner:
    """Return a learner with random labels for some people of the label holder's table."""
    parties = learner.parties
    party = parties.party(parties.label)
    drawn = draw(seed, "audit coins").integers(learner.model.outputs(party), size=len(party))
    target = np.where(people, drawn, party.targets)
    return SplitLearner(
        replace(parties, own={**parties.own, parties.label: replace(party, target=target)}),
        learner.model,
        peers=learner.peers,
        run=learner.run,
        seed=learner.seed,
        test=learner.test,
        steps=learner.steps,
        rounds=learner.rounds,
    )


class Leaks(NamedTuple):
    """Guesses of labels after each round.

    Attributes
    ----------
    aucs
        AUC of the guesses, and its standard error, after each round.
    rows
        Models of all peers after the last round, ``[R, P]``.
    table
        Aligned rows.
    tested
        Embeddings of the test rows that the label holder has received after the last round, ``[n, k]``.
    """

    aucs: list[tuple[float, float]]
    rows: Rows
    table: AlignedTable
    tested: Floats


def play_leaks(
    learner: SplitLearner, attacker: str, *, rounds: int, seed: int = 0, judged: npt.NDArray[np.bool_] | None = None
) -> Leaks:
    """Play some rounds, after each of which a party guesses the labels that it does not know.

    Parameters
    ----------
    learner
        Learner of all parties.
    attacker
        A party without labels.
    rounds, seed
        Number of rounds, and seed of the known labels. Of several classes, one is guessed against the others.
    judged
        Rows of the label holder's table whose guesses count; ``None`` for all.
    """
    peers, roles = learner.peers, learner.roles
    rows = learner.start(peers)
    gathered, aucs = np.zeros((0, learner.model.width)), list[tuple[float, float]]()
    for round in range(rounds):
        gradients, embeddings = RecordedTotals(attacker, (roles.label,)), RecordedTotals(roles.label, roles.features)
        tested = list[Ints]()

        def total(
            question: Question,
            records: tuple[RecordedTotals, ...] = (gradients, embeddings),
            tested: list[Ints] = tested,
        ) -> Ints:
            if question.to is not None and question.to.peer in roles.features:
                tested.clear()  # training goes on: what the label holder has received was of training rows
            before = len(records[1].values)
            for record in records:
                question = record.note(question)
            answer = add_up(question, peers)
            tested += records[1].values[before:]
            return answer

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
        received = gradients.values
        for batch, message in zip(batches, received[len(received) - len(batches) :], strict=True):
            gathered[batch] += message.view(np.float64).reshape(len(batch), -1)
        aucs.append(guess_labels(gathered, _rarest(table), seed=seed, judged=_trained(table, judged)))
    parts = [each.reshape(len(table.held_out), -1) for each in tested] if len(table.held_out) else []
    shown = np.concatenate(parts, axis=1) if parts else np.zeros((0, learner.model.width))
    return Leaks(aucs, rows, table, shown.astype(np.float64))


def complete_model(
    learner: SplitLearner,
    leaks: Leaks,
    attacker: str,
    *,
    seed: int,
    taught: npt.NDArray[np.bool_] | None = None,
    judged: npt.NDArray[np.bool_] | None = None,
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the AUC of guesses from a party's part of the network, and from its columns, with few labels.

    Parameters
    ----------
    learner, leaks
        Learner of all parties, and what :func:`play_leaks` returns.
    attacker, seed
        A party without labels, and seed of the known labels.
    taught, judged
        Rows of the label holder's table some of whose labels are known, and those whose guesses count; ``None`` for
        all.

    Returns
    -------
    tuple[tuple[float, float], tuple[float, float]]
        Both with the standard error.

    References
    ----------
    Fu et al., Label inference attacks against vertical federated learning, USENIX Security 2022: passive model
    completion.
    """
    models = dict(zip(learner.peers, leaks.rows, strict=True))
    parts = learner.embedding(models, attacker).cpu().double().numpy(), leaks.table.standardised(attacker).train
    completed, own = (
        guess_labels(
            part,
            _rarest(leaks.table),
            seed=seed,
            most=COMPLETING_LABELS,
            taught=_trained(leaks.table, taught),
            judged=_trained(leaks.table, judged),
        )
        for part in parts
    )
    return completed, own


def _rarest(table: AlignedTable) -> npt.NDArray[np.bool_]:
    """Return which training rows have the rarest class, ``[n]``."""
    targets = table.targets()
    classes, sizes = np.unique(targets, return_counts=True)
    return np.asarray(targets == classes[sizes.argmin()])


def _trained(table: AlignedTable, judged: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.bool_]:
    """Return which training rows are among some rows of the label holder's table, ``[n]``."""
    if judged is None:
        return np.ones(len(table.trained), bool)
    return np.asarray(judged[table.positions(table.parties.label)[table.trained]])


def guess_labels(
    shown: Floats,
    positive: npt.NDArray[np.bool_],
    *,
    seed: int,
    most: int = KNOWN_LABELS,
    taught: npt.NDArray[np.bool_] | None = None,
    judged: npt.NDArray[np.bool_] | None = None,
) -> tuple[float, float]:
    """Return the AUC of guesses of unknown labels by ridge regression, and its standard error.

    Parameters
    ----------
    shown
        What the attacker knows of each row, such as the sum of its gradients, ``[n, k]``.
    positive
        Labels, ``[n]``.
    seed, most
        Seed of the known ones, and their number; a third of all if they are fewer.
    taught, judged
        Rows some of whose labels are known, and rows whose guesses count, ``[n]``; ``None`` for all.

    Examples
    --------
    >>> labels = np.arange(90) % 2 == 1
    >>> guess_labels(np.where(labels, 1.0, -1.0)[:, None] * np.ones(3), labels, seed=0)[0]
    1.0
    """
    order = draw(seed, "audit known labels").permutation(len(positive))
    many = min(most, len(positive) // 3)
    known = (order if taught is None else order[taught[order]])[:many]
    rest = np.setdiff1d(np.arange(len(positive)) if judged is None else np.flatnonzero(judged), known)
    spread = shown[known].std(axis=0)
    scaled = shown / np.where(spread > 0, spread, 1.0)
    design = np.column_stack([np.ones(len(scaled)), scaled])
    ridge = np.eye(design.shape[1])
    weights = np.linalg.solve(
        design[known].T @ design[known] + ridge, design[known].T @ positive[known].astype(np.float64)
    )
    ones, zeros = int(positive[rest].sum()), int((~positive[rest]).sum())
    error = math.sqrt((ones + zeros + 1) / (12 * ones * zeros)) if ones and zeros else math.inf
    return auc(design[rest] @ weights, positive[rest]), error
