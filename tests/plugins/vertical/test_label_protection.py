"""Randomised response: its chances, what corrects for it, and models of changed labels."""

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from p2pfl import simulate
from p2pfl.core.errors import DataError, ModelError
from p2pfl.data.data_description import Description
from p2pfl.data.parties import Parties, Party
from p2pfl.plugins.vertical.label_protection import RandomisedResponse, changed_labels
from p2pfl.plugins.vertical.newton import NewtonOptions, fit_newton
from p2pfl.plugins.vertical.vertical_glm import VerticalGLM
from p2pfl.privacy.keys import SeededSource
from vertical_experiments import changed
from vertical_roles import PAIR, joined_table, play, split, two_tables


def keys_of(rows, secret=b""):
    """Return the keys of draws of some rows."""
    return [secret + row.to_bytes(4, "little") for row in range(rows)]


@pytest.mark.parametrize(("epsilon", "classes"), [(0.25, 2), (1.0, 2), (1.0, 5), (3.0, 3)])
def test_a_label_is_changed_with_the_chance_that_epsilon_allows(epsilon, classes):
    protection = RandomisedResponse(epsilon, classes)
    labels = np.arange(12_000) % classes
    changed = protection.labels(labels, keys_of(12_000))
    counts = np.bincount(labels * classes + changed, minlength=classes**2).reshape(classes, classes)
    shares = counts / counts.sum(axis=1, keepdims=True)
    off = protection.changed / (classes - 1)
    assert np.allclose(shares, off + (1 - off * classes) * np.eye(classes), atol=0.035)
    assert (1 - protection.changed) / off == pytest.approx(math.exp(epsilon))


def test_what_runs_of_two_epsilons_show_of_a_label_follows_from_the_larger_one():
    """Given the answer of the larger epsilon, that of the smaller one does not depend on the label."""
    labels, keys = np.repeat([0, 1, 2], 7_000), keys_of(21_000)
    large, small = (RandomisedResponse(epsilon, 3).labels(labels, keys) for epsilon in (2.0, 0.7))
    for answer in range(3):
        shares = [
            np.bincount(small[(labels == label) & (large == answer)], minlength=3)
            / ((labels == label) & (large == answer)).sum()
            for label in range(3)
        ]
        assert np.allclose(shares, shares[0], atol=0.09)
    assert (large != small).mean() > 0.3


def clinic(*, rows=400, keys=("id", "name"), classes=("no", "yes"), secret=None, epsilon=1.0):
    """Return the changed label of each person, of a table that has an order, keys and classes."""
    order = np.arange(400)[:rows] if isinstance(rows, int) else np.asarray(rows)
    values = {"id": [f"n{row}" if row % 10 else None for row in order], "name": [f"n{row + 1}" for row in order]}
    target = (order % 2 == 0).astype(int) if classes[0] == "no" else (order % 2).astype(int)
    party = Party(
        order[:, None].astype(float),
        tuple(tuple(values[key]) for key in keys),
        Description(classes=tuple(classes)),
        target,
        file=secret,
    )
    parties = Parties(("ada", "bob"), "bob", "cleo", tuple(keys), {"bob": party}, 50)
    changed = changed_labels(parties, RandomisedResponse(epsilon), SeededSource(3))
    return {int(who): classes[label] for who, label in zip(order, changed, strict=True)}


@pytest.mark.parametrize(
    "table",
    [
        {"rows": np.random.default_rng(1).permutation(400)},
        {"rows": np.arange(7, 300)},
        {"keys": ("name", "id")},
        {"classes": ("yes", "no")},
    ],
    ids=["order", "fewer", "keys", "classes"],
)
def test_the_draw_of_a_person_is_the_same_wherever_the_row_is(table):
    first, second = clinic(), clinic(**table)
    assert all(first[who] == label for who, label in second.items())
    assert 80 < sum(label != ("yes" if who % 2 == 0 else "no") for who, label in first.items()) < 140


def test_answers_of_a_table_in_several_orders_average_nothing_out():
    """A party that receives the labels of 25 orders of one table knows no more than those of one."""
    orders = np.random.default_rng(2)
    answers = [clinic(rows=orders.permutation(400)) for _ in range(25)]
    means = np.array([np.mean([answer[who] == "yes" for answer in answers]) for who in range(400)])
    assert {*means} == {0.0, 1.0}


@pytest.mark.parametrize("classes", [2, 4])
def test_targets_are_the_true_classes_on_average(classes):
    protection = RandomisedResponse(1.0, classes)
    chances = protection.changed / (classes - 1) * (1 - np.eye(classes)) + (1 - protection.changed) * np.eye(classes)
    assert np.allclose(chances @ protection.targets(np.arange(classes)), np.eye(classes))


def test_probabilities_of_changed_labels_are_those_of_the_draw():
    protection = RandomisedResponse(1.0, 3)
    corrected = protection.probabilities(torch.eye(3, dtype=torch.float64)).numpy()
    assert np.allclose(np.diag(corrected), 1 - protection.changed)
    assert np.allclose(corrected.sum(axis=1), 1)


def test_wrong_options_and_labels_are_refused():
    for epsilon in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ModelError, match=r"model\.options\.label_epsilon is"):
            RandomisedResponse(epsilon)
    with pytest.raises(ModelError, match="protects classes, not numbers"):
        RandomisedResponse(1.0, 1)
    for label in (2, -1, 0.5):
        with pytest.raises(DataError, match="a label is none of 2 classes"):
            RandomisedResponse(1.0).labels(np.array([0, label]), keys_of(2))
    with pytest.raises(ModelError, match="does not work with family"):
        NewtonOptions(family="poisson", label_epsilon=1.0)


def fitted(parts, labels, *, epsilon, key, **options):
    protection = RandomisedResponse(epsilon)
    target = protection.targets(protection.labels(labels, keys_of(len(labels), key)))[:, 1]
    options = NewtonOptions(label_epsilon=epsilon, **options)
    asking = fit_newton(joined_table(parts, target, PAIR), SeededSource(1), options)
    return play(asking, PAIR), target


@pytest.mark.slow
def test_a_fit_solves_the_equations_of_the_changed_targets_and_its_errors_are_those_of_draws():
    rng = np.random.default_rng(1)
    features = rng.normal(size=(3000, 4))
    labels = (rng.random(3000) < 1 / (1 + np.exp(-features @ [1.0, -0.5, 0.5, 0.0]))).astype(int)
    parts = split(features, PAIR)
    whole = np.column_stack([np.ones(3000), parts["ada"] - parts["ada"].mean(axis=0), parts["bob"]])
    found, errors = [], []
    for draw in range(60):
        fit, target = fitted(parts, labels, epsilon=2.0, key=bytes([draw] * 32), predictor_noise=False)
        own = fit.own("ada"), fit.own("bob")
        beta = np.concatenate([own[1]["intercept"], own[0]["coefficients"], own[1]["coefficients"]])
        found.append(beta)
        errors.append(np.concatenate([own[1]["intercept_error"], own[0]["errors"], own[1]["errors"]]))
        mean = 1 / (1 + np.exp(-whole @ beta))
        slope = np.linalg.solve(whole.T @ (whole * (mean * (1 - mean))[:, None]), whole.T @ (target - mean))
        assert np.abs(slope).max() < 1e-6
    sampled = np.linalg.inv(whole.T @ (whole * (mean * (1 - mean))[:, None]))
    spread = np.sqrt(np.var(found, axis=0, ddof=1) + np.diag(sampled))  # of the change, and of the sample
    assert np.allclose(np.median(errors, axis=0), spread, rtol=0.2)


@pytest.mark.slow
def test_epsilon_of_one_costs_little_on_credit(data_dir):
    parts, labels = two_tables(data_dir, "default_credit_hetero")
    order = np.random.default_rng(0).permutation(len(labels))
    train, test = order[:20_000], order[20_000:]
    scores = []
    for draw in range(3):
        learned = {peer: part[train] for peer, part in parts.items()}
        fit, _ = fitted(learned, labels[train].astype(int), epsilon=1.0, key=bytes([draw] * 32))
        eta = sum(parts[peer][test] @ fit.own(peer)["coefficients"] for peer in parts)
        scores.append(roc_auc_score(labels[test], eta))
    assert np.mean(scores) >= 0.715


def test_the_secret_of_a_file_is_kept_beside_it_and_that_of_dealt_columns_is_drawn(tmp_path):
    first, other = (clinic(secret=tmp_path / name) for name in ("bob.csv", "other.csv"))
    assert first == clinic(secret=tmp_path / "bob.csv") != other
    for kept in tmp_path.glob("*.key"):
        assert kept.stat().st_mode & 0o077 == 0
    assert first != clinic() == clinic()


@pytest.mark.slow
def test_a_run_protects_labels_and_says_so_where_they_are_secret():
    experiment = changed(data={"name": "breast_cancer"}, model={"options": {"family": "binomial", "ridge": 30.0}})
    shown = simulate(experiment).summary
    experiment["model"]["options"]["label_epsilon"] = 3.0
    protected = simulate(experiment).summary
    assert shown["difference"] < 1e-4
    assert protected["difference"] is None
    assert 0.9 < protected["together"] != shown["together"]
    assert protected["pooled"] == pytest.approx(shown["pooled"], abs=1e-6)
    assert "guarantee nothing here, because the data are shared" in protected["privacy"]["statement"]
    facts = {"label": "bob", "features": ("ada",), "solver": "cleo", "helper": "cleo"}
    facts |= {"steps": 8, "rows": 100, "columns": 3.0, "keys": 1}
    statement = VerticalGLM(family="binomial", label_epsilon=1.0).statement(**facts).disclosure.statement
    assert "each label of bob has epsilon = 1 against all others" in statement


def test_numbers_have_no_labels_to_protect():
    with pytest.raises(ModelError, match='does not work with family = "gaussian"'):
        VerticalGLM(family="gaussian", label_epsilon=1.0)
