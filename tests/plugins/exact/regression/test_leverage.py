"""Combinations of columns in which one person is alone: a regression refuses them before a total shows the person."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from p2pfl import simulate, topology
from p2pfl.algorithms import Exact
from p2pfl.core.errors import DataError
from p2pfl.data import Dataset, Federation
from p2pfl.data.data_description import Description, Field
from p2pfl.learning import ExactLearner
from p2pfl.learning.additive import answer_questions
from p2pfl.plugins.exact import GLM
from p2pfl.plugins.exact import Description as DescriptionModel
from p2pfl.plugins.exact.leverage import MAX_LEVERAGE, WeightedRows, similar_rows
from p2pfl.privacy.keys import SecretSource

PEOPLE, ALONE = 140, 17
"""Number of people, and the one who is alone in a combination of columns."""


def one_differs(rng):
    """Return two codes that one person alone has differently."""
    first = rng.integers(0, 2, PEOPLE)
    second = first.copy()
    second[ALONE] = 1 - first[ALONE]
    return {"a": first, "b": second}, np.array([1.0, -1.0, 0.0, 0.0, 0.0])


def square(rng):
    """Return a number and its square; one person alone has 2 rather than 0 or 1."""
    number = rng.integers(0, 2, PEOPLE)
    number[ALONE] = 2
    return {"a": number, "b": number**2}, np.array([-1.0, 1.0, 0.0, 0.0, 0.0])


def other_codes(rng):
    """Return a column of 0.5 and 1.5, of which one person alone has the first."""
    number = np.where(np.arange(PEOPLE) == ALONE, 0.5, 1.5)
    return {"a": number, "b": rng.normal(size=PEOPLE)}, np.array([1.0, 0.0, 0.0, 0.0, -1.5])


def federation(columns, targets, *, peers=4, classes=None, owner=None):
    """Return hospitals with some columns, and with the age and the blood pressure of each person, in turn."""
    rng = np.random.default_rng(1)
    columns = columns | {"age": rng.uniform(20, 90, len(targets)), "pressure": rng.normal(120, 15, len(targets))}
    features = torch.from_numpy(np.column_stack(list(columns.values())).astype(float))
    fields = tuple(Field(name) for name in columns)
    dataset = Dataset(features, torch.from_numpy(targets), classes, description=Description(columns=fields))
    owner = np.arange(len(targets)) % peers if owner is None else owner
    own = {peer: np.flatnonzero(owner == number) for number, peer in enumerate(topology.complete(peers).peers)}
    nothing = dict.fromkeys(own, np.arange(0))
    return fields, Federation(dataset, own, nothing, nothing)


def totals_of(model, data):
    """Return the totals that peers take in their first round, with their secrets."""
    peers, totals = tuple(data.peers), []
    learner = ExactLearner(model, data).checking_cells(SecretSource(), peers=peers, least=1)

    def total(question):
        totals.append(np.sum([question.answer(peer) for peer in peers], axis=0))
        return totals[-1]

    step = answer_questions(learner.asking(learner.start(peers[:1])[0], round=0), total)
    return totals, learner.tensors(step.row)


def run(model, data, **options):
    graph = topology.complete(len(data.peers))
    return simulate(Exact(), ExactLearner(model, data), graph, rounds=40, baselines=False, **options)


def glm(fields, **options):
    return GLM(**{"features": len(fields), "classes": None, "fields": fields} | options)


@pytest.mark.parametrize("design", [one_differs, square, other_codes])
def test_the_row_of_a_person_who_is_alone_in_a_combination_follows_from_totals_unless_they_are_refused(design):
    columns, combination = design(np.random.default_rng(0))
    fields, data = federation(columns, np.random.default_rng(2).normal(size=PEOPLE))
    _, tensors = totals_of(glm(fields, least=1), data)
    information = np.linalg.inv(tensors["covariance"] / tensors["dispersion"])  # as every peer of an open run knows it
    stolen = information @ combination
    person = np.append(data.dataset.features[ALONE].numpy(), 1.0)
    np.testing.assert_allclose(stolen / stolen[-1], person, rtol=1e-6, atol=1e-9)
    with pytest.raises(DataError, match=r"one person may have more than 91% of a combination of .*\ba\b.* with other"):
        totals_of(glm(fields), data)


def test_nothing_but_means_of_groups_and_a_verdict_leaves_before_a_refusal():
    columns, _ = one_differs(np.random.default_rng(0))
    fields, data = federation(columns, np.random.default_rng(2).normal(size=PEOPLE))
    peers, sizes = tuple(data.peers), []
    learner = ExactLearner(glm(fields), data).checking_cells(SecretSource(), peers=peers, least=1)

    def total(question):
        sizes.append(question.size)
        return np.sum([question.answer(peer) for peer in peers], axis=0)

    with pytest.raises(DataError, match="one person may have"):
        answer_questions(learner.asking(learner.start(peers[:1])[0], round=0), total)
    assert sizes[-3:] == [len(peers), 4 * 5 * 6 // 2, 5]  # who takes part, the lower bound, and the columns


def test_correlations_leave_out_a_column_that_differs_from_another_in_one_person_alone():
    columns, _ = one_differs(np.random.default_rng(0))
    fields, data = federation(columns, np.random.default_rng(2).normal(size=PEOPLE))
    found, shown = (
        run(DescriptionModel(features=4, classes=None, fields=fields, least=least), data).models["peer0"]
        for least in (5, 1)
    )
    assert found["paired"].tolist() == [1, 0, 1, 1, 1]
    assert found["correlation"].isnan().any(dim=1).tolist() == [True] * 5
    assert not found["correlation"][[0, 2, 3, 4]][:, [0, 2, 3, 4]].isnan().any()
    assert not shown["correlation"].isnan().any()


@pytest.mark.parametrize("peers", [3, 7])
def test_a_combination_of_many_people_is_accepted_even_where_each_hospital_has_one(peers):
    rng = np.random.default_rng(0)
    first = rng.integers(0, 2, PEOPLE)
    second = np.where(np.arange(PEOPLE) < 7, 1 - first, first)
    fields, data = federation({"a": first, "b": second}, rng.normal(size=PEOPLE), peers=peers)
    assert run(glm(fields), data).models["peer0"]["converged"].item()


@pytest.mark.parametrize("role", ["var_weights", "exposure"])
def test_a_person_with_nearly_the_whole_weight_is_refused(role):
    rng = np.random.default_rng(0)
    weights = np.where(np.arange(PEOPLE) == ALONE, 50_000.0, rng.uniform(1, 9, PEOPLE))
    fields, data = federation({"weight": weights}, rng.integers(0, 9, PEOPLE).astype(float))
    with pytest.raises(DataError, match="one person may have"):
        run(glm(fields, family="poisson", **{role: "weight"}), data)
    run(glm(fields, family="poisson", least=1, **{role: "weight"}), data)


def test_a_row_of_many_people_is_no_person_alone():
    rng = np.random.default_rng(0)
    counts = np.where(np.arange(PEOPLE) == ALONE, 50_000.0, rng.integers(1, 9, PEOPLE))
    fields, data = federation({"count": counts}, rng.normal(size=PEOPLE))
    run(glm(fields, freq_weights="count"), data)


def test_a_code_of_one_person_is_refused_at_the_step_in_which_all_others_with_it_have_no_weight():
    """Of twelve people with a code all but one are certain, so its total is the weight of that one, and their row."""
    rng = np.random.default_rng(0)
    targets = rng.integers(0, 2, PEOPLE)
    targets[:12] = np.arange(12) % 2
    code = (np.arange(PEOPLE) < 12).astype(float)
    sure = np.where((code > 0) & (np.arange(PEOPLE) > 0), 40.0 * (2 * targets - 1), 0.0)
    fields, data = federation({"a": code, "sure": sure}, targets, classes=2)
    with pytest.raises(DataError, match="one person may have"):
        run(glm(fields, classes=2, offset="sure"), data)


def test_each_of_two_hospitals_counts_its_own_people_alone():
    rng = np.random.default_rng(0)
    columns = {"a": np.where(np.isin(np.arange(PEOPLE), [0, 1, 2, 3, 4, 5]), 1.5, 0.5)}
    owner = np.where(np.arange(PEOPLE) < 5, 0, np.arange(PEOPLE) % 2)
    fields, data = federation(columns, rng.normal(size=PEOPLE), peers=2, owner=owner)
    with pytest.raises(DataError, match=r"one person may have .* a and"):
        run(glm(fields), data)


def test_a_refusal_does_not_show_how_many_hospitals_have_such_a_person():
    columns, _ = one_differs(np.random.default_rng(0))
    fields, data = federation(columns, np.random.default_rng(2).normal(size=PEOPLE))
    verdicts = []
    peers = tuple(data.peers)
    learner = ExactLearner(glm(fields), data).checking_cells(SecretSource(), peers=peers, least=1)

    def total(question):
        verdicts.append(np.sum([question.answer(peer) for peer in peers], axis=0))
        return verdicts[-1]

    with pytest.raises(DataError):
        answer_questions(learner.asking(learner.start(peers[:1])[0], round=0), total)
    assert max(verdicts[-1]) > 2**20


@given(
    count=st.integers(5, 60),
    width=st.integers(1, 4),
    least=st.integers(1, 6),
    seed=st.integers(0, 1000),
    spread=st.floats(0, 3),
)
def test_groups_have_the_least_number_of_rows_and_their_sums_of_products_at_most_those_of_all(
    count, width, least, seed, spread
):
    rng = np.random.default_rng(seed)
    columns, weights = rng.normal(size=(count, width)), np.exp(spread * rng.normal(size=(count, 2)))
    groups = similar_rows(columns, least)
    assert len(groups) == count // least
    assert all(len(group) >= least for group in groups)
    assert sorted(np.concatenate([*groups, np.empty(0, np.int64)]).tolist()) == [*range(count)] * bool(groups)
    rows = WeightedRows.of(columns, weights)
    rest = rows.products() - rows.grouped(least).products()
    assert np.linalg.eigvalsh(rest).min() > -1e-9 * np.abs(rows.products()).max()


@given(seed=st.integers(0, 1000), outlier=st.floats(1, 60))
def test_a_row_is_found_whenever_its_leverage_in_the_pooled_rows_is_beyond_the_limit(seed, outlier):
    rng = np.random.default_rng(seed)
    columns = np.column_stack([rng.normal(size=(60, 3)), np.ones(60)])
    columns[0, 0] = outlier
    parts = [WeightedRows.of(each, np.ones((len(each), 1))) for each in np.array_split(columns, 4)]
    lower = sum(part.grouped(5).products() for part in parts)
    found = [part.crowding(lower - part.grouped(5).products() + part.products()) for part in parts]
    leverage = np.einsum("ij,jk,ik->i", columns, np.linalg.inv(columns.T @ columns), columns)
    assert np.any(found) or leverage.max() <= MAX_LEVERAGE
    if leverage.max() > MAX_LEVERAGE:
        assert found[0][0]
