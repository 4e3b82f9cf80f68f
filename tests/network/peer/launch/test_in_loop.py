"""All peers of an experiment in the running loop of this process."""

import asyncio

import pytest
import torch

import p2pfl
from p2pfl.core.errors import ExperimentError, RunError
from p2pfl.experiment import read
from p2pfl.network.peer.rounds import Rounds
from p2pfl.privacy.keys import SeededSource
from p2pfl.results.notices.kinds import PeerFinished
from swarms import SMALL

pytestmark = pytest.mark.slow

GRID = 2.0**-20
"""Step of the grid of masks, on which live peers and the simulation may round differently."""

MASKED = SMALL | {"topology": {"kind": "ring", "peers": 4}, "privacy": {"mode": "pairwise"}}
QUICK = MASKED | {"rounds": 1}


@pytest.fixture(scope="module")
def runs():
    seen = []
    alive = asyncio.run(p2pfl.live(MASKED, source=SeededSource(11), observe=seen.append))
    return alive, p2pfl.simulate(MASKED, source=SeededSource(11)), seen


def test_live_peers_on_a_masked_ring_end_where_the_simulation_ends(runs):
    alive, simulated, _ = runs
    assert list(alive.models) == list(simulated.models)
    for name, model in alive.models.items():
        for key, value in simulated.models[name].items():
            assert torch.allclose(value, model[key], rtol=0, atol=GRID)


def test_the_summary_has_what_that_of_a_simulation_has(runs):
    alive, simulated, _ = runs
    assert alive.summary.keys() == simulated.summary.keys()
    for key in ("name", "peers", "rounds", "metric", "alone", "pooled"):
        assert alive.summary[key] == simulated.summary[key]
    assert alive.summary["together"] == pytest.approx(simulated.summary["together"], abs=0.02)
    assert 0 < alive.summary["wall_s"] <= alive.summary["total_s"]
    assert alive.description == simulated.description
    assert not alive.summary.get("predicted")


def test_records_and_events_are_kept_and_each_round_is_observed(runs):
    alive, simulated, seen = runs
    assert [{record.round for record in records} for records in seen] == [{0}, {1}, {2}]
    assert {record.peer for record in seen[0]} == {record.peer for record in simulated.metrics}
    assert len(alive.metrics) == len(simulated.metrics)
    assert sum(isinstance(event, PeerFinished) for event in alive.events) == 4


def parts(peers=4):
    graph = p2pfl.topology.ring(peers)
    random = torch.Generator().manual_seed(7)
    x = torch.randn(100, 3, generator=random)
    data = {peer: (x[row::peers], (x[row::peers].sum(1) > 0).long()) for row, peer in enumerate(graph.peers)}
    model = torch.nn.Linear(3, 2)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    return p2pfl.FedAvg(), p2pfl.TorchLearner(model, data, rate=0.5), graph


@pytest.mark.slow
@pytest.mark.fast
async def test_parts_run_live_as_they_are_simulated():
    simulated = p2pfl.simulate(*parts(), rounds=2, seed=3)
    run = await p2pfl.live(*parts(), rounds=2, seed=3)
    for name, model in run.models.items():
        for key, value in simulated.models[name].items():
            torch.testing.assert_close(model[key], value)
    assert run.summary.keys() == simulated.summary.keys()
    for key in ("alone", "together", "pooled"):
        assert run.summary[key] == pytest.approx(simulated.summary[key])
    assert {(each.peer, each.round) for each in run.metrics} == {(each.peer, each.round) for each in simulated.metrics}


@pytest.mark.parametrize("ending", [["rounds=3"], ["rounds=6", "learning.patience=1"]], ids=["rounds", "patience"])
async def test_the_best_models_are_those_of_the_simulation(ending):
    changes = ["data.validation=0.3", "learning.rate=4.0", *ending]  # the losses rise at once
    simulated = p2pfl.simulate(read(SMALL, changes=changes), baselines=False)
    run = await p2pfl.live(read(SMALL, changes=changes), baselines=False)
    assert list(run.best) == list(simulated.best) == list(run.models)
    assert list(run.summary["best"]) == list(simulated.summary["best"])
    for name, model in run.best.items():
        torch.testing.assert_close(dict(model), dict(simulated.best[name]))
        wanted = simulated.summary["best"][name]
        assert run.summary["best"][name] == wanted | {"loss": pytest.approx(wanted["loss"], rel=1e-4)}
        assert wanted["round"] < 2 == run.metrics[-1].round  # so it is not the last model


async def test_a_plan_runs_live():
    made = p2pfl.compose(*parts(), rounds=1, seed=3)
    run = await p2pfl.live(made, baselines=False)
    assert run.summary["together"] == p2pfl.simulate(made, baselines=False).summary["together"]


async def test_missing_parts_are_named():
    algorithm, learner, _ = parts()
    with pytest.raises(p2pfl.errors.InputError, match="pass a learner and a topology"):
        await p2pfl.live(algorithm, learner)
    with pytest.raises(ExperimentError, match=r"peer00, peer01.*no data.*data of peer0, peer1"):
        await p2pfl.live(algorithm, learner, p2pfl.topology.ring(11))


async def test_the_number_of_peers_replaces_that_of_the_file():
    run = await p2pfl.live({"rounds": 1, "data": {"name": "wine"}}, peers=2, baselines=False)
    assert sorted(run.models) == ["peer0", "peer1"]


async def test_it_works_where_a_loop_runs():
    run = await p2pfl.live(read(QUICK), baselines=False)
    assert run.summary["together"] is not None
    assert run.summary["alone"] is None
    assert "together" in run._repr_html_().lower()


async def test_features_are_scaled_by_the_peers_together():
    table = QUICK | {"data": {"name": "wine", "scale": True}}
    run = await p2pfl.live(table, baselines=False)
    assert run.summary["statistics"] == pytest.approx(p2pfl.simulate(table, baselines=False).summary["statistics"])


@pytest.mark.fast
async def test_a_peer_that_fails_ends_the_others_with_its_error(monkeypatch):
    evaluated = Rounds._after

    async def failing(self, *arguments):
        if self.parts.name == "peer2":
            raise RunError("the disk is on fire")
        await evaluated(self, *arguments)

    monkeypatch.setattr(Rounds, "_after", failing)
    with pytest.raises(RunError, match=r"^peer2: the disk is on fire$"):
        await p2pfl.live(MASKED)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_error_of_the_users_own_code_ends_the_run_and_names_the_peer():
    def observe(records):
        raise LookupError(records[0].round)

    with pytest.raises(LookupError) as caught:
        await p2pfl.live(MASKED, observe=observe)
    assert caught.value.args == (0,)
    assert caught.value.__notes__[0].startswith("raised in peer")
