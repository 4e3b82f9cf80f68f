"""Live peers with different columns of the same people end as the simulation does, and after a kill as well."""

import asyncio

import numpy as np
import pytest

from p2pfl import live
from p2pfl.experiment import read
from p2pfl.network.transport import MemoryTransport
from p2pfl.plugins.vertical import encrypted_products, vertical_descent
from p2pfl.plugins.vertical.label_trees import GrowingTrees
from p2pfl.plugins.vertical.vertical_glm import VerticalGLM
from p2pfl.privacy.keys import SeededSource
from p2pfl.simulation import simulate
from restarts import RestartablePeers
from vertical_experiments import LINEAR, PARTIES, changed
from waiting import wait_until

pytestmark = pytest.mark.slow


LOGISTIC = changed(
    data={"name": "breast_cancer"},
    model={"options": {"family": "binomial", "ridge": 1.0, "predictor_noise": False}},
)


def alone(experiment):
    """Return the experiment of two parties with nobody else."""
    two = {"topology": {"kind": "complete", "peers": ["ada", "bob"]}, "privacy": {"mode": "none"}}
    return experiment | two | {"data": {**experiment["data"], "split_options": {"label": "bob"}}}


DESCENT = changed(
    topology={"peers": ["ada", "bob", "cleo"]}, model={"name": "vertical_descent", "options": {"steps": 2}}
)

SPLIT = changed(
    data={"name": "breast_cancer"},
    model={"name": "split_network", "options": {"label_epsilon": 2.0, "absent": 0.2}},
    learning={"batch": 64, "steps": 6, "optimizer": "adam", "rate": 0.01},
) | {"rounds": 3}
EXPERIMENTS = {"split": SPLIT, "descent": DESCENT, "linear": LINEAR, "logistic": LOGISTIC, "linear, two": alone(LINEAR)}
EXPERIMENTS |= {"logistic, two": pytest.param(alone(LOGISTIC), marks=pytest.mark.nightly)}  # a minute without gmpy2


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
async def test_live_peers_end_with_the_parts_of_the_simulation_to_the_last_bit(experiment, monkeypatch):
    monkeypatch.setattr(encrypted_products, "MODULUS_BITS", 448)
    monkeypatch.setattr(vertical_descent, "MODULUS_BITS", 448)
    ended = await live(experiment, source=SeededSource(7))
    wanted = simulate(experiment, source=SeededSource(7))
    for peer, model in wanted.models.items():
        for name, tensor in model.items():
            assert np.array_equal(ended.models[peer][name].numpy(), tensor.numpy(), equal_nan=True), (peer, name)
    assert ended.summary["together"] == wanted.summary["together"]
    assert ended.summary["alone"] == wanted.summary["alone"]


async def resumed(experiment, folder, reached, killed):
    """Kill peers once a point is reached, resume all, and return what became of each."""
    async with asyncio.timeout(120):
        lives = RestartablePeers(experiment, MemoryTransport(), folder)
        lives.start()
        await reached.wait()
        await lives.kill(*killed)
        await asyncio.gather(*(task for task in lives.tasks.values() if not task.done()), return_exceptions=True)
        assert not any(lives.records.values())
        lives.start(resume=True)
        return await lives.end()


@pytest.mark.parametrize("killed", [[], ["eve"], ["bob"]], ids=["all", "feature holder", "label holder"])
async def test_peers_that_are_killed_while_they_fit_go_on_and_end_with_the_same_model(tmp_path, monkeypatch, killed):
    experiment = read(changed(data={"test": 0.0}, transport={"patience": 4.0}))
    fitting, fit = asyncio.Event(), VerticalGLM.fit

    def fitted(self, table, roles, source):
        fitting.set()
        return fit(self, table, roles, source)

    monkeypatch.setattr(VerticalGLM, "fit", fitted)
    ended = await resumed(experiment, tmp_path, fitting, killed)
    wanted = simulate(experiment, source=SeededSource(5), baselines=False).models
    for name in PARTIES:
        end = ended[name]
        weight = end.peer.plan.saved(end.state.rows[0], peer=name)["weight"].numpy()
        assert weight == pytest.approx(wanted[name]["weight"].numpy(), rel=1e-9)


@pytest.mark.parametrize(
    "killed",
    [["bob"], pytest.param(["eve"], marks=pytest.mark.nightly), pytest.param(["cleo"], marks=pytest.mark.nightly)],
    ids=["label holder", "feature holder", "helper"],
)
async def test_a_peer_that_is_killed_between_two_trees_leaves_the_trees_as_they_are_to_the_last_bit(
    tmp_path, monkeypatch, killed
):
    options = {"loss": "squared_error", "max_depth": 3, "learning_rate": 0.3}
    trees = changed(data={"test": 0.0}, model={"name": "boosting", "options": options}, transport={"patience": 4.0})
    experiment = read(trees | {"rounds": 3})
    growing, begun, begin = asyncio.Event(), [], GrowingTrees.begin_round

    def begin_round(self):
        begun.append(self)
        if len(begun) == 2:
            growing.set()
        return begin(self)

    monkeypatch.setattr(GrowingTrees, "begin_round", begin_round)
    ended = await resumed(experiment, tmp_path, growing, killed)
    wanted = simulate(experiment, source=SeededSource(5), baselines=False).models
    for name in PARTIES:
        kept = ended[name].peer.plan.saved(ended[name].state.rows[0], peer=name)
        for tensor, value in wanted[name].items():
            assert np.array_equal(kept[tensor].numpy(), value.numpy()), (name, tensor)


@pytest.mark.parametrize(
    "killed",
    [["bob"], pytest.param(["eve"], marks=pytest.mark.nightly), pytest.param(["cleo"], marks=pytest.mark.nightly)],
    ids=["label holder", "feature holder", "helper"],
)
async def test_a_killed_party_of_a_split_network_goes_on_from_its_own_checkpoint(tmp_path, killed):
    experiment = read(SPLIT | {"transport": {"patience": 4.0}})
    async with asyncio.timeout(120):
        lives = RestartablePeers(experiment, MemoryTransport(), tmp_path)
        lives.start()
        await wait_until(lambda: all(lives.records.values()), "the first round is over")
        await lives.kill(*killed)
        await asyncio.gather(*(task for task in lives.tasks.values() if not task.done()), return_exceptions=True)
        lives.start(resume=True)
        ended = await lives.end()
    wanted = simulate(experiment, source=SeededSource(5), baselines=False).models
    for name in PARTIES:
        kept = ended[name].peer.plan.saved(ended[name].state.rows[0], peer=name)
        for tensor, value in wanted[name].items():
            assert np.array_equal(kept[tensor].numpy(), value.numpy()), (name, tensor)
