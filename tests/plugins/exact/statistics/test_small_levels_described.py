"""Descriptions and components of columns with values that few people have."""

import numpy as np
import pytest
import torch

from p2pfl import topology
from p2pfl.algorithms import Exact
from p2pfl.core.errors import DataError
from p2pfl.data import Dataset, Federation
from p2pfl.data.data_description import Description as Meaning
from p2pfl.data.data_description import Field
from p2pfl.learning import ExactLearner
from p2pfl.plugins.exact import PCA, Description
from p2pfl.plugins.exact.additive.componentwise import Componentwise
from p2pfl.plugins.exact.statistics.described import described
from p2pfl.simulation import simulate

FIELDS = (Field("icd", ("A", "B", "C")), Field("smoker"), Field("income"))
MEANING = Meaning(columns=FIELDS, target="age")
PEERS = topology.complete(4).peers


def federation(rare=2, smokers=30, incomes=None):
    """Return 100 people of four hospitals."""
    rng = np.random.default_rng(0)
    levels = np.repeat(np.arange(3), [60, 40 - rare, rare])
    income = rng.uniform(10, 90, 100) if incomes is None else np.resize(incomes, 100)
    features = np.column_stack([np.eye(3)[levels], np.arange(100) < smokers, income])
    dataset = Dataset(
        torch.from_numpy(features), torch.from_numpy(rng.uniform(20, 90, 100)).float(), None, description=MEANING
    )
    own = {peer: np.arange(number, 100, 4) for number, peer in enumerate(PEERS)}
    nothing = dict.fromkeys(PEERS, np.arange(0))
    return Federation(dataset, own, nothing, dict.fromkeys(PEERS, np.arange(100)))


def description(data, **options):
    """Return the description that peers make."""
    model = Description(features=5, classes=None, fields=FIELDS, **options)
    run = simulate(Exact(), ExactLearner(model, data), topology.complete(4), rounds=1, baselines=False)
    tensors = {name: value.numpy() for name, value in run.models["peer0"].items()}
    return described(tensors, model, MEANING)


def result(data, **options):
    """Return the columns by name, and the warnings, of a description that peers make."""
    found = description(data, **options)
    return {column["name"]: column for column in found["columns"]}, found["warnings"]


def test_a_rare_level_is_described_with_the_next_one_and_not_alone():
    columns, warnings = result(federation())
    assert columns["icd"]["levels"] == {"A": 60, "B+C": 40}
    assert warnings == []
    assert result(federation(), least=1)[0]["icd"]["levels"] == {"A": 60, "B": 38, "C": 2}


def test_correlations_of_levels_that_are_one_have_the_names_of_both():
    data = federation()
    found = description(data)
    b, income = found["names"].index("icd: B+C"), found["names"].index("income")
    features = data.dataset.features.numpy()
    wanted = np.corrcoef(features[:, 1] + features[:, 2], features[:, 4])[0, 1]
    assert found["correlations"][b][income] == pytest.approx(wanted, abs=1e-6)
    assert found["correlations"][found["names"].index("icd: C")][income] is None


def test_a_column_of_two_values_is_left_out_where_few_have_one():
    columns, warnings = result(federation(smokers=3))
    assert columns["smoker"]["count"] == 0
    assert columns["smoker"]["mean"] is None
    assert any('column "smoker" is left out' in warning for warning in warnings)
    assert result(federation(smokers=30))[0]["smoker"]["mean"] == pytest.approx(0.3)


def test_no_mean_is_stated_where_one_person_has_nearly_the_whole_sum():
    def mean(*others):
        incomes = np.linspace(1.1, 1.9, 100)
        incomes[: len(others)] = others
        return result(federation(incomes=incomes))[0]["income"]["mean"]

    assert mean() == pytest.approx(1.5)
    assert mean(5000.5) is None  # the others have 149 together
    assert mean(5000.5, 4000.5) is None
    assert mean(5000.5, -4000.5) is not None
    assert mean(5000.5, 4000.5, 501.5) is not None


@pytest.mark.parametrize(
    "model", [PCA(features=5, fields=FIELDS), Componentwise(features=5, classes=None, rounds=1, fields=FIELDS)]
)
def test_components_and_functions_of_a_rare_level_are_refused_by_its_name(model):
    with pytest.raises(DataError, match=r"people share a value of icd=C, .* people; merge levels"):
        simulate(Exact(), ExactLearner(model, federation()), topology.complete(4), rounds=1, baselines=False)
    simulate(Exact(), ExactLearner(model, federation(rare=8)), topology.complete(4), rounds=1, baselines=False)
