"""Features and targets of exact models in double precision, against numpy, R and live peers."""

import csv

import numpy as np
import pytest
import torch

from p2pfl.core.draws import draw
from p2pfl.data import Table, gather
from p2pfl.experiment import read
from p2pfl.experiment.resolving import federate_data
from p2pfl.learning import ExactLearner
from p2pfl.network.transport import MemoryTransport
from p2pfl.plugins.exact import GLM, Boosting, Cox
from p2pfl.privacy.keys import SeededSource
from p2pfl.simulation import simulate
from plugins.exact.rscript import computed_by_r
from plugins.exact.tables import trained
from swarms import live

R_CODE = """
control <- glm.control(epsilon = 1e-14, maxit = 50)
table <- function(fit, error = 2) show(summary(fit)$coefficients[, c(1, error)])
table(lm(y ~ a + b, d)); table(glm(ill ~ a + b, binomial, d, control = control))
table(coxph(Surv(days, died) ~ a + b, d, control = coxph.control(eps = 1e-14, iter.max = 50)), error = 3)
"""


def decimals(rows=240):
    """Return columns of decimals that no number of single precision equals."""
    rng = draw(7, "decimals")
    a, b = rng.normal(63.1, 9.3, rows).round(3), rng.exponential(2.7, rows).round(4)
    y = (0.31 * a - 1.7 * b + rng.normal(0, 4, rows)).round(3)
    ill = (rng.random(rows) < 1 / (1 + np.exp(0.06 * (63 - a) + 0.3 * b))).astype(int)
    days = np.ceil(rng.exponential(60, rows)).astype(int)
    died = (rng.random(rows) < 0.7).astype(int)
    return {"a": a, "b": b, "y": y, "ill": ill, "days": days, "died": died}


def written(path, columns, rows):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*(values[rows].tolist() for values in columns.values()), strict=True))
    return path


def held(folder, target, *, event=None, levels=None):
    """Return the federation of three owners, whose training parts have all rows."""
    columns, owners = decimals(), 3
    used = ["a", "b", target, *([event] if event else [])]
    declared = dict.fromkeys(used, "number") | ({target: levels} if levels else {})
    table = Table(declared, target=target, event=event)
    names = {
        f"peer{owner}": written(folder / f"{target}{owner}.csv", columns, slice(owner, None, owners))
        for owner in range(owners)
    }
    data = gather(names, seed=0, table=table, test=0.01, dtype=torch.float64)
    whole = {peer: np.sort(np.concatenate([data.train[peer], data.test[peer]])) for peer in data.peers}
    return type(data)(data.dataset, whole, data.validation, data.test)


def fitted(model, data, *, rounds=40):
    """Return coefficients and errors of an exact model, the intercept first where there is one."""
    learner, tensors = trained(model, data, rounds=rounds)
    found = model.explained(tensors, fields=learner.federation.dataset.description.columns, classes=("0", "1"))
    found = found.regression.coefficients
    order = sorted(range(len(found)), key=lambda place: found[place].name != "(intercept)")
    return [found[place].estimate for place in order] + [found[place].error for place in order]


def test_a_regression_of_decimals_is_that_of_doubles(tmp_path):
    columns = decimals()
    design = np.column_stack([np.ones(len(columns["a"])), columns["a"], columns["b"]])
    exact = np.linalg.lstsq(design, columns["y"], rcond=None)[0]
    single = np.linalg.lstsq(design.astype(np.float32).astype(float), columns["y"], rcond=None)[0]
    estimates = fitted(GLM(features=2, classes=None), held(tmp_path, "y"), rounds=3)[:3]
    assert np.allclose(estimates, exact, rtol=1e-11, atol=0)
    assert not np.allclose(single, exact, rtol=1e-9, atol=0)


@pytest.mark.slow  # R starts
def test_regressions_of_decimals_equal_those_of_r_to_a_billionth(tmp_path, against_r):
    models = [
        ("lm", GLM(features=2, classes=None), held(tmp_path, "y")),
        ("glm(binomial)", GLM(features=2, classes=2), held(tmp_path, "ill", levels=[0, 1])),
        ("coxph", Cox(features=2, classes=None, horizon=1000.0), held(tmp_path, "days", event="died")),
    ]
    expected = computed_by_r(R_CODE, decimals(), tmp_path)
    for (call, model, data), numbers in zip(models, expected, strict=True):
        against_r(f"{call} of decimals: coefficients, errors", fitted(model, data), numbers)


@pytest.fixture
def experiment(tmp_path):
    """Return an experiment with tables of decimals."""
    for owner in range(3):
        written(tmp_path / f"peer{owner}.csv", decimals(), slice(owner, None, 3))
    columns = dict.fromkeys(("a", "b", "y"), "number")
    return {
        "rounds": 9,
        "topology": {"kind": "complete", "peers": 3},
        "data": {"name": "table", "options": {"path": str(tmp_path / "{peer}.csv"), "target": "y", "columns": columns}},
        "model": {"name": "glm"},
        "privacy": {"mode": "pairwise"},
    }


@pytest.mark.parametrize(
    ("model", "dtype"), [("glm", torch.float64), ("boosting", torch.float32), ("linear", torch.float32)]
)
def test_torch_models_and_trees_keep_the_memory_of_single_precision(experiment, model, dtype):
    privacy = {} if model == "linear" else experiment["privacy"]
    data = federate_data(read(experiment | {"model": {"name": model}, "privacy": privacy}), ("peer0", "peer1", "peer2"))
    assert data.dataset.features.dtype == data.dataset.targets.dtype == dtype


def test_trees_convert_what_they_are_given_to_single_precision(tmp_path):
    learner = ExactLearner(Boosting(features=2, classes=None, rounds=1), held(tmp_path, "y"))
    assert learner.own("peer0").train.features.dtype == np.float32


@pytest.mark.slow
async def test_live_peers_end_with_the_doubles_of_the_simulation(experiment):
    models = simulate(read(experiment), baselines=False, source=SeededSource(3)).models
    for name, end in (await live(read(experiment), MemoryTransport(), source=SeededSource(3))).items():
        for key, tensor in end.peer.plan.learner.state_dict(end.state.rows[0]).items():
            assert np.array_equal(tensor.numpy(), models[name][key].numpy(), equal_nan=True), (name, key)
