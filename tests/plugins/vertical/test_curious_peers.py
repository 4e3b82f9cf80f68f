"""Insiders of split networks, joint kernels, hidden rows and dealt products: what each reads, and how it is stopped."""

from dataclasses import replace
from functools import partial
from itertools import count

import numpy as np
import pytest
import torch

from p2pfl.core.errors import DataError, PrivacyError
from p2pfl.learning.additive import add_up, answer_questions
from p2pfl.learning.steps.optimisers import Recipe
from p2pfl.plugins.audit.column_attacks import explained_columns
from p2pfl.plugins.vertical import split_training
from p2pfl.plugins.vertical.aligned_table import AlignedTable
from p2pfl.plugins.vertical.gram import JoinedTable
from p2pfl.plugins.vertical.hidden_rows import fit_hidden
from p2pfl.plugins.vertical.joint_kernel import VerticalKernel
from p2pfl.plugins.vertical.party_roles import MAX_FITS
from p2pfl.plugins.vertical.products import Factors, Products
from p2pfl.plugins.vertical.ring import words
from p2pfl.plugins.vertical.split_network import SplitNetwork
from p2pfl.plugins.vertical.split_training import SplitRound
from p2pfl.privacy.keys import SeededSource
from split_parties import dealt, learner, play
from vertical_roles import PAIR, THREE
from vertical_roles import play as answer

ROWS, KNOWN = 400, 150
RANDOM = np.random.default_rng(6)
TABLES = {"ada": RANDOM.normal(size=(ROWS, 6)), "bob": RANDOM.normal(size=(ROWS, 2))}
TARGET = (TABLES["ada"][:, 0] + TABLES["bob"][:, 0] > 0).astype(np.int64)
SHOWN = SplitNetwork(labels="shown", width=2, hidden=(16,))
STEPS = {"recipe": Recipe("adam", 0.02), "batch": 40, "epochs": 10, "dtype": torch.float64}


@pytest.fixture
def parties():
    return dealt(TABLES, TARGET)


# ---------------------------------------------------------------------- split networks


class Wiretap:
    """Record of what the label holder sees of each row, and of the gradients that the feature holder receives."""

    def __init__(self, monkeypatch, craft=None):
        self.embeddings, self.gradients, self.predicted = np.zeros((ROWS, 2)), np.zeros((ROWS, 2)), np.zeros(ROWS)
        learn = SplitRound._learn

        def tapped(playing, number, rows, foreign):
            self.embeddings[rows] = foreign().reshape(-1, 2)
            learn(playing, number, rows, foreign)
            self.gradients[rows] = playing.gradient.reshape(-1, 2)
            if craft is not None:
                playing.gradient = craft(rows, self.embeddings[rows]).ravel()

        monkeypatch.setattr(SplitRound, "_learn", tapped)


def aligned(learning, rows):
    """Return the common rows of all parties."""
    before = {each: learning.tensors(row, peer=each) for each, row in zip(learning.peers, rows, strict=True)}
    return learning.table(rows[0], before)


@pytest.mark.slow
def test_a_label_holder_that_crafts_gradients_reads_the_columns_that_it_asks_for(parties, monkeypatch):
    """It knows 150 of 400 people, and has the network of ada return their columns 4 and 5, which the target lacks."""
    learning = learner(parties, SHOWN, **STEPS)
    secret = aligned(learning, play(learning)).standardised("ada").train
    shares = []
    for craft in (None, lambda rows, shown: np.where(rows[:, None] < KNOWN, shown - secret[rows][:, 4:], 0.0)):
        with monkeypatch.context() as patched:
            tap = Wiretap(patched, craft)
            play(learner(parties, SHOWN, **STEPS, source=7))
        shares.append(explained_columns(np.arange(KNOWN), tap.embeddings, secret[:, 4:]))
    honest, crafted = shares
    assert honest < 0.25
    assert crafted > 0.85


@pytest.mark.slow
def test_gradients_show_a_feature_holder_something_of_the_label_holders_columns(parties, monkeypatch):
    """Their sizes are how far predictions are from labels, so with the labels they show predictions."""
    tap, learning = Wiretap(monkeypatch), learner(parties, SHOWN, **STEPS)
    table = aligned(learning, play(learning))
    own, labels = table.standardised("ada").train, table.targets()[:, None] * 1.0
    known = np.column_stack([labels, own])
    logits = np.log(np.abs(tap.gradients) + 1e-9) * (2 * labels - 1)
    column = table.standardised("bob").train[:, :1]
    without = explained_columns(np.arange(KNOWN), known, column)
    assert explained_columns(np.arange(KNOWN), np.column_stack([known, logits]), column) > without + 0.1


@pytest.mark.slow
def test_embeddings_of_zeros_have_gradients_show_what_the_label_holders_columns_alone_predict(parties, monkeypatch):
    points = split_training._points
    monkeypatch.setattr(split_training, "_points", lambda peer, part: 0 * points(peer, part))
    tap, learning = Wiretap(monkeypatch), learner(parties, SHOWN, **STEPS)
    table = aligned(learning, play(learning))
    labels, column = table.targets()[:, None] * 1.0, table.standardised("bob").train[:, :1]
    logits = np.log(np.abs(tap.gradients) + 1e-9) * (2 * labels - 1)
    assert explained_columns(np.arange(KNOWN), np.column_stack([labels, logits]), column) > 0.8


@pytest.mark.parametrize(
    ("receiver", "number", "sentence"),
    [
        ("bob", 2**62, "bob receives numbers from ada beyond the range of embeddings"),
        (
            "ada",
            int(np.array(np.nan).view(np.int64)),
            "ada receives a gradient from bob with numbers that are not finite",
        ),
    ],
)
def test_numbers_that_no_embedding_or_gradient_has_end_the_run(parties, receiver, number, sentence):
    learning, seen = learner(parties, SHOWN, **STEPS | {"epochs": 1}), count()

    def total(question):
        to = question.to
        if to is not None and to.peer == receiver and question.size == 40 * SHOWN.width and next(seen) == 1:
            to = replace(to, take=lambda values: question.to.take(np.full_like(values, number)))
        return add_up(replace(question, to=to), learning.peers)

    asking = learning.asking_from(learning.start(learning.peers), peers=learning.peers, round=0)
    with pytest.raises(PrivacyError, match=sentence):
        answer_questions(asking, total).own("ada")


def test_a_peer_that_leaves_again_and_again_has_no_round_of_a_network_played_three_times(parties):
    learning = learner(parties, SHOWN, **STEPS)
    start = learning.start(learning.peers)
    for _ in range(MAX_FITS):
        next(learning.asking_from(start, peers=learning.peers, round=0))
    with pytest.raises(PrivacyError, match="a peer was lost in 2 fits of round 0"):
        next(learning.asking_from(start, peers=learning.peers, round=0))
    next(learning.asking_from(start, peers=learning.peers, round=1))


# ---------------------------------------------------------------------- joint kernels


@pytest.fixture
def kernel():
    parties = dealt({**TABLES, "eve": TABLES["ada"][:, :2]}, TABLES["bob"][:, 0])
    table = AlignedTable(parties, lambda peer: np.argsort(np.array(parties.party(peer).keys[0], int)), ROWS, 7, 0.25)
    return VerticalKernel(consent="distances").fit(table, THREE, SeededSource(1))


@pytest.mark.parametrize("number", [-(2**45), 2**60])
def test_numbers_that_no_distances_are_end_a_joint_kernel(kernel, number):
    def total(question):
        to = question.to
        if to is not None:
            to = replace(to, take=lambda values: question.to.take(values + number * (np.arange(len(values)) == 5)))
        return add_up(replace(question, to=to), THREE.peers)

    fit = answer_questions(kernel, total)
    with pytest.raises(PrivacyError, match="the sums of distances of ada and eve are out of range"):
        fit.fitted.own("bob")


@pytest.mark.parametrize("width", [-40, 2**31])
def test_numbers_of_columns_that_no_party_has_end_a_joint_kernel(kernel, width):
    own = next(kernel).answer("bob")
    with pytest.raises(PrivacyError, match=f"ada states {width} columns"):
        kernel.send(own + np.array([width, 0, 0]))


# ---------------------------------------------------------------------- hidden rows

UNION, SHARED = 300, np.arange(100, 220)
"""People of both tables; ada has the first 220, bob those from 100 on."""

GUESSES = np.array([110, 150, 250, 290])
"""People in bob's table; the first two are in ada's, too."""


def hidden(bob_enters, *, common):
    """Return the questions of a hidden fit in which bob enters his own choice of numbers instead of his presence."""
    presence = {"ada": np.arange(UNION) < 220, "bob": bob_enters}
    rng = np.random.default_rng(4)
    columns = {"ada": rng.normal(size=(UNION, 2)), "bob": rng.normal(size=(UNION, 2))}
    columns = {peer: each * (presence[peer] != 0)[:, None] for peer, each in columns.items()}
    table = JoinedTable(PAIR, UNION, columns.get, lambda _: columns["bob"].sum(axis=1), 50, presence.get)
    return fit_hidden(table, SeededSource(1), test=0, ridge=1.0, common=common)


def published(asking):
    """Return the numbers that all peers see, up to the end of a fit or of a run."""
    numbers = []

    def total(question):
        answered = add_up(question, PAIR.peers)
        if question.to is None:
            numbers.append(answered)
        return answered

    try:
        answer_questions(asking, total)
    except (DataError, PrivacyError) as error:
        return numbers, str(error)
    return numbers, ""


def test_weights_in_place_of_presence_no_longer_tell_all_peers_who_is_in_the_other_table():
    """Without the number that the helper has counted, sums of powers of two would say it of each guessed person."""
    weights = (np.arange(UNION) >= 100).astype(int)
    weights[GUESSES] += 1000 * 2 ** np.arange(len(GUESSES))
    shown, _ = published(hidden(weights, common=None))
    _, counted, *_ = (each for each in shown if each.size == 2)  # after the numbers of columns
    assert (int(counted.astype("<u4").view("<f8")[0]) - len(SHARED)) // 1000 == 0b0011
    honest, none = published(hidden((np.arange(UNION) >= 100).astype(int), common=len(SHARED)))
    stopped, sentence = published(hidden(weights, common=len(SHARED)))
    assert none == ""
    assert "a party has entered other rows than it was aligned with" in sentence
    assert len(stopped) == 1 < len(honest)  # the numbers of columns alone


def test_a_column_that_is_1_for_one_person_has_no_coefficient_if_they_are_not_in_the_other_table():
    """It stays open, and is stated: of the two, ada has the first alone."""
    rng, read = np.random.default_rng(4), []
    for guess in GUESSES[[0, 2]]:
        presence = {"ada": np.arange(UNION) < 220, "bob": np.arange(UNION) >= 100}
        chosen = np.column_stack([rng.normal(size=UNION), np.arange(UNION) == guess])
        columns = {
            "ada": rng.normal(size=(UNION, 2)) * presence["ada"][:, None],
            "bob": chosen * presence["bob"][:, None],
        }
        target = (rng.normal(size=UNION) + 3 * chosen[:, 1]) * presence["bob"]
        table = JoinedTable(PAIR, UNION, columns.get, lambda _, target=target: target, 50, presence.get)
        fit = answer(fit_hidden(table, SeededSource(1), test=0, ridge=0.0, common=len(SHARED)), PAIR)
        read.append(fit.linear.own("bob")["coefficients"][1])
    assert abs(read[0]) > 0.5
    assert not abs(read[1]) > 1e-6


# ---------------------------------------------------------------------- dealt products


class RepeatedKeys(SeededSource):
    """Source of a dealer that deals the keys of an earlier fit once more, and of parties that draw new ones."""

    def __init__(self, seed):
        super().__init__(seed)
        self.dealt = SeededSource(1)

    def bytes(self, size, *, purpose, peer):
        chosen = self.dealt if peer == "cleo" else super()
        return chosen.bytes(size, purpose=purpose, peer=peer)


def test_a_dealer_that_repeats_its_keys_shows_nobody_how_factors_of_two_fits_differ():
    factors = {"ada": TABLES["ada"][:, :1], "bob": TABLES["bob"]}
    seen = []
    for seed, extra in ((1, 0), (2, 5)):
        products, received = Products(PAIR, RepeatedKeys(seed), ROWS), []

        def entered(peer, extra=extra):
            return words(np.rint(factors[peer] * 100).astype(np.int64) + extra)

        def total(question, received=received):
            if question.to is not None and question.to.peer == "bob" and question.size == 2 * ROWS:
                received.append(question.answer("ada"))
            return add_up(question, PAIR.peers)

        left, right = (products.matrix(peer, factors[peer].shape[1], partial(entered, peer)) for peer in PAIR.parties)
        answer_questions(products.multiply([Factors(left, right)]), total)
        seen.append(received[0].reshape(ROWS, 2)[:, 0])
    difference = seen[1] - seen[0]
    assert np.abs(difference.astype(float)).min() > 5
    assert len(np.unique(difference)) == ROWS
