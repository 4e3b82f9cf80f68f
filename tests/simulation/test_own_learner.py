"""A training loop of one's own, simulated."""

import dataclasses

import pytest
import torch

from p2pfl.core.errors import ModelError
from p2pfl.experiment import plan, read
from p2pfl.learning import ExternalLearner
from p2pfl.network.transport import MemoryTransport
from p2pfl.simulation import simulate
from swarms import live

TARGETS = {"peer0": 1.0, "peer1": 2.0, "peer2": 3.0, "peer3": 6.0}
TABLE = {"rounds": 5, "topology": {"peers": 4}, "data": {"name": "wine"}, "learning": {"weighted": False}}


def halfway(row, *, peer, round):
    del round
    return row + 0.5 * (TARGETS[peer] - row)


def resolved(evaluate=None):
    learner = ExternalLearner(halfway, start=torch.zeros(10), samples=dict.fromkeys(TARGETS, 1), evaluate=evaluate)
    return dataclasses.replace(plan(read(TABLE)), learner=learner)


@pytest.mark.parametrize("baselines", [True, False])
def test_without_scores_there_is_a_summary_without_scores(baselines):
    run = simulate(resolved(), baselines=baselines)
    assert run.summary["metric"] is run.summary["together"] is run.summary["pooled"] is None
    assert run.models["peer0"]["row"].tolist() == pytest.approx([3 * (1 - 0.5**5)] * 10, abs=0.01)


def test_with_scores_peers_are_compared_with_themselves_alone():
    run = simulate(resolved(lambda row, _: {"score": float(row[0])}))
    assert run.summary["metric"] == "score"
    assert run.summary["alone"] == pytest.approx(3 * (1 - 0.5**5), abs=1e-6)
    assert run.summary["pooled"] is None


def test_nobody_else_can_scale_its_features():
    scaled = plan(read(TABLE, changes=["data.scale=true"]))
    with pytest.raises(
        ModelError,
        match=r"data\.scale needs a torch model, but this is a training loop of your own; scale the features in",
    ):
        simulate(dataclasses.replace(scaled, learner=resolved().learner))


def test_what_it_scores_is_not_what_one_model_scores_on_all_test_data():
    found = resolved(lambda row, _: {"score": float(row[0])})
    agreeing = plan(read(TABLE, changes=["learning.consensus=true"]))
    run = simulate(dataclasses.replace(agreeing, learner=found.learner))
    assert run.summary["common"] is None


@pytest.mark.slow
async def test_it_ends_where_live_peers_end(monkeypatch):
    run = simulate(resolved())
    monkeypatch.setattr("swarms.plan", lambda *_args, **_only: resolved())
    ended = await live(read(TABLE), MemoryTransport())
    for name, end in ended.items():
        torch.testing.assert_close(end.state.rows[0], run.models[name]["row"], rtol=0, atol=1e-5)
