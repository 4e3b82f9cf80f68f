"""Attacks where peers hold different columns of the same people: from predictors, with one person, and by guesses.

The label holder knows the columns of some people, and predicts those of all others from its own columns and from the
sums of linear predictors that it has received. A party enters the indicator of one person as a column, and the solver
reads that person's row in the products: this always succeeds, and the privacy statement says so. A party adds guessed
people to its table, which the agreed sizes of tables prevent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from p2pfl.core.draws import draw
from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import DataError
from p2pfl.data.parties import Parties, Party
from p2pfl.experiment import Plan
from p2pfl.learning.additive import Question, Questions, Result, add_up, answer_questions
from p2pfl.plugins.audit.claims import TOTALS, ExactClaim, claim
from p2pfl.plugins.audit.pipeline import Fresh
from p2pfl.plugins.vertical.aligned_table import AlignedTable, joined_table
from p2pfl.plugins.vertical.alignment import align
from p2pfl.plugins.vertical.gram import Blocks, FactoredColumns, ask_design
from p2pfl.plugins.vertical.joint_kernel import VerticalKernel
from p2pfl.plugins.vertical.kernel_block import squared_distances
from p2pfl.plugins.vertical.linear import ask_moments
from p2pfl.plugins.vertical.products import Products
from p2pfl.plugins.vertical.vertical_descent import VerticalDescent
from p2pfl.plugins.vertical.vertical_learner import VerticalLearner
from p2pfl.plugins.vertical.vertical_regression import VerticalRegression
from p2pfl.plugins.vertical.vertical_trees import VerticalBoosting
from p2pfl.privacy.keys import Source

KNOWN_PEOPLE = 300
"""People whose columns the attacker knows; a third of all if they are fewer."""

REPEATS = 10
"""Choices of known people, for each fit, over which the result is averaged."""

FITS = 3
"""Fits with other noise over which it is averaged."""

ALLOWED_RISE = 0.1
"""Largest rise of R² by all predictors above that by the last one."""

GUESSED = "a guessed person"


@dataclass
class RecordedTotals:
    """Totals that one peer alone receives from some peers.

    Parameters
    ----------
    peer, among, size
        Receiver, contributors or some of them, and number of integers; ``None`` for any number.
    """

    peer: str
    among: tuple[str, ...]
    size: int | None = None

    def __post_init__(self) -> None:
        self.values: list[Ints] = []

    def note(self, question: Question) -> Question:
        """Return a question whose total is kept where it is one of these."""
        to = question.to
        if to is None or to.peer != self.peer or to.among is None or not {*to.among} <= {*self.among}:
            return question
        if self.size not in (None, question.size):
            return question
        take = to.take

        def taken(total: Ints) -> None:
            self.values.append(total)
            take(total)

        return replace(question, to=replace(to, take=taken))


def attack_columns(plan: Plan, *, fresh: Fresh, seed: int = 0) -> list[ExactClaim]:
    """Attack the columns of a vertical run whose tables are all in this process; nothing of other runs.

    Parameters
    ----------
    plan
        Resolved experiment.
    fresh
        Function that makes the sources of new runs.
    seed
        Seed of the known people.
    """
    learner = plan.learner.bare
    if not isinstance(learner, VerticalLearner) or {*learner.parties.own} != {*learner.parties.names}:
        return []
    peers = plan.topology.peers
    if isinstance(learner.model, VerticalBoosting):  # shows neither predictors nor products of columns
        return [_guessed_people(learner.parties, fresh(seed), peers)]
    source = fresh(seed)
    aligned = _play(align(learner.parties, source, run=b"audit"), peers)
    table = AlignedTable(learner.parties, aligned.positions, aligned.rows, learner.seed, learner.test, source)
    claims, roles = [], learner.roles
    regression = isinstance(
        learner.model, VerticalRegression
    )  # other models count as predictors what are no linear predictors
    if regression and learner.model.predictors:
        fits = []
        for number in range(FITS):
            received = RecordedTotals(roles.label, roles.features, len(table.trained))
            _play(learner.model.fit(table, roles, fresh(seed + number)), peers, received.note)
            fits.append(received.values)
        claims.append(_columns_from_predictors(table, fits, seed=seed))
    if regression and table.parties.rows != "hidden" and len(table.held_out):
        fit = _play(learner.model.fit(table, roles, fresh(seed)), peers)
        received = RecordedTotals(roles.label, roles.features)
        _play(learner.model.score(table, roles, fit), peers, received.note)
        claims += solve_equations(table, np.array(received.values, np.float64).T, equations=1)
    if isinstance(learner.model, VerticalKernel):
        claims.append(_columns_from_distances(table, seed=seed))
    elif not isinstance(learner.model, VerticalDescent):  # whose solver receives no products
        claims.append(_row_of_one_person(table, learner, fresh, peers))
    return [*claims, _guessed_people(learner.parties, fresh(seed), peers)]


def _play(
    asking: Questions[Result],
    peers: Sequence[str],
    note: Callable[[Question], Question] = lambda question: question,
) -> Result:
    """Return the result of questions that all peers answer in this process."""
    return answer_questions(asking, lambda question: add_up(note(question), peers))


def _columns_from_predictors(table: AlignedTable, fits: Sequence[Sequence[Ints]], *, seed: int) -> ExactClaim:
    """Predict the others' columns from the label holder's own, with the last predictor and with all of them."""
    label = table.parties.label
    own = np.column_stack([table.standardised(label).train, table.targets()])
    foreign = np.concatenate([table.standardised(peer).train for peer in table.parties.names if peer != label], axis=1)
    scores = []
    for number, fit in enumerate(fits):
        predictors = np.array(fit, np.float64).T  # [n, T]
        knowledge = own, np.column_stack([own, predictors[:, -1]]), np.column_stack([own, predictors])
        for repeat in range(REPEATS):
            order = draw(seed, "audit known people", round=number * REPEATS + repeat).permutation(len(own))
            people = order[: min(KNOWN_PEOPLE, len(own) // 3)]
            scores.append([explained_columns(people, each, foreign) for each in knowledge])
    alone, last, everything = np.mean(scores, axis=0).tolist()
    words = {"alone": f"{alone:.2f}", "last": f"{last:.2f}", "everything": f"{everything:.2f}"}
    return claim(TOTALS, "predictors do not give columns away", everything - last, ALLOWED_RISE, **words)


def solve_equations(table: AlignedTable, received: Floats, *, equations: int) -> list[ExactClaim]:
    """Return the claim that predictions of the test rows are few equations in the others' columns.

    A party that knows all coefficients solves them. The share of the columns that follows is at most the number of
    equations divided by that of unknowns. Rows that are too few to tell give no claim.

    Parameters
    ----------
    table
        Aligned rows, all of whose columns are in this process.
    received
        What the label holder receives to predict the test rows, ``[n, E]``.
    equations
        Numbers that it may receive for a row.

    References
    ----------
    Luo et al., Feature inference attack on model predictions in vertical federated learning, ICDE 2021.
    """
    label = table.parties.label
    own = np.column_stack([np.ones(len(received)), table.standardised(label).test])
    foreign = np.concatenate([table.standardised(peer).test for peer in table.parties.names if peer != label], axis=1)
    unknown, known = (_basis_of(part - own @ np.linalg.lstsq(own, part)[0]) for part in (foreign, received))
    columns = unknown.shape[1]
    if not columns or len(received) <= own.shape[1] + foreign.shape[1]:
        return []
    shown = float(((known.T @ unknown) ** 2).sum()) / columns
    words = {"numbers": f"{equations} numbers" if equations > 1 else "one number", "columns": str(columns)}
    return [claim(TOTALS, "a prediction is a few equations", shown, min(1.0, equations / columns) + 1e-9, **words)]


def _basis_of(columns: Floats) -> Floats:
    """Return orthonormal columns that span given ones, ``[n, rank]``."""
    vectors, sizes, _ = np.linalg.svd(columns, full_matrices=False)
    return np.asarray(vectors[:, sizes > 1e-7 * max(sizes.max(initial=0.0), 1e-300)])


def explained_columns(people: Ints, known: Floats, columns: Floats) -> float:
    """Return the median R² of columns of other people, predicted by least squares from numbers known of everybody.

    Parameters
    ----------
    people
        People whose columns are known.
    known, columns
        Numbers known of everybody ``[n, g]``, and columns ``[n, a]``.

    Examples
    --------
    >>> known = np.arange(8.0)[:, None]
    >>> round(explained_columns(np.arange(4), known, 3 * known), 6)
    1.0
    """
    spread = known.std(axis=0)
    standard = (known - known.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    design = np.column_stack([np.ones(len(known)), standard])
    rest = np.setdiff1d(np.arange(len(known)), people)
    beta = np.linalg.lstsq(design[people], columns[people], rcond=1e-10)[0]
    away = ((columns[rest] - design[rest] @ beta) ** 2).sum(axis=0)
    whole = ((columns[rest] - columns[rest].mean(axis=0)) ** 2).sum(axis=0)
    return float(np.median(1 - away[whole > 0] / whole[whole > 0]))


def _columns_from_distances(table: AlignedTable, *, seed: int) -> ExactClaim:
    """Place rows by the sums of their distances (Torgerson's scaling), and predict columns by those of a few people."""
    others = [table.standardised(peer).train for peer in table.parties.names if peer != table.parties.label]
    foreign = np.concatenate(others, axis=1)
    rows, width = foreign.shape
    squares = sum((squared_distances(each, each) for each in others), np.zeros((rows, rows)))
    centre = np.eye(rows) - 1 / rows
    values, vectors = np.linalg.eigh(-centre @ squares @ centre / 2)
    places = vectors[:, -width:] * np.sqrt(np.maximum(values[-width:], 0.0))
    people = draw(seed, "audit known people").permutation(rows)[: width + 1]
    missing = 1 - explained_columns(people, places, foreign)
    return claim(TOTALS, "distances show the columns of everybody", missing, 1e-3, known=width + 1)


def _row_of_one_person(table: AlignedTable, learner: VerticalLearner, fresh: Fresh, peers: Sequence[str]) -> ExactClaim:
    """Enter the indicator of one person as a party's first column, and read that person's row at the solver."""
    roles, rows = learner.roles, len(table.trained)
    attacker, victim = roles.features[0], roles.label

    honest = joined_table(table, roles)

    def columns(peer: str) -> Floats:
        own = honest.columns(peer)
        if peer != attacker:
            return own
        return np.column_stack([np.arange(rows) == 0, own[:, 1:]]).astype(np.float64)

    def asked() -> Questions[tuple[Floats, slice]]:
        joined = replace(honest, columns=columns, least=1)
        design = yield from ask_design(joined)
        moments = yield from ask_moments(
            FactoredColumns(Blocks(design, joined), Products(roles, fresh(1), rows), slice(None)), every=True
        )
        return moments().matrix[design.where(attacker).start], design.where(victim)

    products, own = _play(asked(), peers)
    row = table.standardised(victim).train[0]
    away = np.abs(products[own] - (row - table.standardised(victim).train.mean(axis=0)))
    return claim(TOTALS, "the indicator of one person shows their row", float(away.max(initial=0.0)), 1e-5)


def _guessed_people(parties: Parties, source: Source, peers: Sequence[str]) -> ExactClaim:
    """Enter one guessed person more than the sizes on which parties have agreed."""
    sizes = {peer: len(parties.party(peer)) for peer in parties.names}
    attacker = next(peer for peer in parties.names if peer != parties.label)
    own = dict(parties.own)
    own[attacker] = _with_guess(own[attacker])
    agreed = replace(parties, own=own, sizes=sizes)
    try:
        _play(align(agreed, source, run=b"audit guesses"), peers)
    except DataError:
        return claim(TOTALS, "guessed people are refused", 0)
    return claim(TOTALS, "guessed people are refused", 1)


def _with_guess(party: Party) -> Party:
    """Return a table with one person more."""
    keys = tuple((*values, GUESSED) for values in party.keys)
    return replace(party, features=np.concatenate([party.features, party.features[:1]]), keys=keys)
