"""Loops of other frameworks learn as a learner of p2pfl does: from Python, from the file, and in live peers."""

import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import own_loops
import p2pfl
from composed import DATA, RING, equal, gathered, learner, swarm
from own_loops import KINDS, made, own_table
from p2pfl.cli import main
from p2pfl.cli.planning.explain import explain
from p2pfl.core.errors import InputError
from p2pfl.experiment import plan, read
from p2pfl.experiment.parts.learner_parts import shown_names
from p2pfl.learning import Adjustable, Federated, Learner, Pools
from p2pfl.network.transport import MemoryTransport


@pytest.mark.slow
@KINDS
def test_a_loop_of_another_framework_learns_in_a_simulation_from_python_and_from_the_file_alike(kind):
    here = p2pfl.simulate(p2pfl.FedAvg(), made(kind, gathered()), RING, rounds=4, seed=7)
    there = p2pfl.simulate(read(own_table(kind)))
    equal(here.models, there.models)
    assert here.summary["together"] > 0.7
    assert here.summary["together"] == there.summary["together"]
    assert here.summary["pooled"] is None


@pytest.mark.slow
def test_a_loop_goes_on_from_the_models_of_a_run_and_is_shown_by_its_name(tmp_path):
    table = own_table("sklearn")
    assert shown_names(read(table))[0] == "own_loops:sklearn_learner"
    alone = {"learning": {"learner": "own_loops:loop_with_data"}}
    assert shown_names(read(table | alone)) == ("own_loops:loop_with_data", "data of its own")
    assert explain(plan(read(table | alone)))["data"]["name"] == "data of its own"
    whole = p2pfl.simulate(read(table | {"rounds": 4}), baselines=False)
    p2pfl.simulate(read(table | {"rounds": 2}), folder=tmp_path / "first", baselines=False)
    models = {"pretrained": str(tmp_path / "first" / "peers" / "{peer}.safetensors")}
    then = p2pfl.simulate(read(table | {"rounds": 2, "model": models}), baselines=False)
    equal(whole.models, then.models)


def test_a_file_for_all_peers_is_the_start_that_they_compare(tmp_path):
    table = own_table("sklearn") | {"learning": {"learner": "own_loops:loop_with_data"}}
    resolved = plan(read(table))
    save_file({"row": torch.ones(3)}, tmp_path / "start.safetensors")
    begun = plan(read(table | {"model": {"pretrained": str(tmp_path / "start.safetensors")}}))
    assert torch.equal(begun.learner.start(("peer0",)), torch.ones(1, 3))
    assert begun.facts["start"] != resolved.facts["start"]


def test_noise_on_gradients_of_samples_is_refused_where_p2pfl_does_not_see_them():
    """It would have no effect, and the run would state nothing about samples."""
    table = own_table("sklearn")
    table["learning"] = table["learning"] | {"example_noise": 1.0, "batch": 4}
    with pytest.raises(
        InputError, match=r"learning.example_noise = 1 does not work with a learner of your own, in whic"
    ):
        plan(read(table))


def test_saved_models_of_another_learner_and_learners_that_take_none_are_refused(tmp_path, monkeypatch):
    table = own_table("sklearn")
    save_file({"row": torch.zeros(3)}, tmp_path / "other.safetensors")
    table |= {"model": {"pretrained": str(tmp_path / "other.safetensors")}}
    with pytest.raises(InputError, match="not the tensors of this model"):
        plan(read(table))
    learner_of = own_loops.sklearn_learner
    monkeypatch.setattr(
        own_loops, "sklearn_learner", lambda federation, epochs: Foreign(learner_of(federation, epochs))
    )
    with pytest.raises(InputError, match="returned Foreign, which begins with a model of its own"):
        plan(read(table))


class Foreign:
    """A learner that is none of p2pfl's classes."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_models_of_few_samples_are_averaged_with_all_digits_of_their_numbers(dtype):
    start = torch.full((4,), 0.011, dtype=dtype)
    own = p2pfl.ExternalLearner(lambda row, **_: row, start=start, samples=dict.fromkeys(RING.peers, 3))
    run = p2pfl.simulate(p2pfl.FedAvg(), own, RING, rounds=1, baselines=False)
    for model in run.models.values():
        torch.testing.assert_close(model["row"], start, rtol=4 * torch.finfo(dtype).eps, atol=0)


@pytest.mark.slow
@KINDS
async def test_a_loop_of_another_framework_learns_in_live_peers_as_in_a_simulation(kind):
    run = p2pfl.simulate(p2pfl.FedAvg(), made(kind, gathered()), RING, rounds=3, seed=7, baselines=False)
    parts = {"rounds": 3, "seed": 7}

    def own(name):
        return made(kind, gathered(**{name: DATA[name]}))

    ended = await swarm(p2pfl.FedAvg(), RING, own, transport=MemoryTransport(), parts=parts)
    for name, state in ended.items():
        row = torch.cat([tensor.flatten() for tensor in run.models[name].values()])
        torch.testing.assert_close(state.rows[0], row, rtol=0, atol=1e-5)


CLINIC = """
import numpy as np
import torch
from safetensors.torch import load_file, save_file

import p2pfl

def data(*, peer, peers, seed):
    random = np.random.default_rng(peers.index(peer))
    y = np.arange(30) % 2
    return (random.normal(size=(30, 3)) + 3 * y[:, None]).astype("float32"), y

def trainer(federation, rate):
    from sklearn.linear_model import SGDClassifier

    def loaded(row):
        model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=rate, random_state=0)
        model.partial_fit(np.zeros((1, 3)), [0], classes=[0, 1])
        model.coef_, model.intercept_ = row[:3].numpy()[None].astype(float), row[3:].numpy().astype(float)
        return model

    def part(peer, which):
        where = which[peer]
        return federation.dataset.features[where].double().numpy(), federation.dataset.targets[where].numpy()

    def train(row, *, peer, round):
        model = loaded(row)
        model.partial_fit(*part(peer, federation.train))
        return torch.from_numpy(np.append(model.coef_, model.intercept_)).float()

    def score(row, peer):
        return {"accuracy": loaded(row).score(*part(peer, federation.test))}

    sizes = {peer: len(federation.train[peer]) for peer in federation.peers}
    return p2pfl.ExternalLearner(train, start=torch.zeros(4), samples=sizes, evaluate=score)
"""
LESSON = """
name = "clinic"
rounds = 3
topology = { kind = "ring", peers = 3 }
data = { name = "clinic_loop:data", options = { classes = 2 } }
learning = { learner = "clinic_loop:trainer", rate = 0.1 }
"""


@pytest.mark.slow
def test_a_learner_of_ones_own_runs_from_the_file_alone(tmp_path, monkeypatch, capsys):
    pytest.importorskip("sklearn")
    (tmp_path / "clinic_loop.py").write_text(CLINIC)
    (tmp_path / "lesson.toml").write_text(LESSON)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{':'.join(sys.path)}")
    for command in ("simulate", "run"):
        assert main([command, "lesson.toml", "--trust-code", "--runs", command]) == 0, capsys.readouterr().err
    for name in p2pfl.topology.ring(3).peers:
        [one], [other] = (
            list(Path(tmp_path / each).glob(f"*/peers/{name}.safetensors")) for each in ("run", "simulate")
        )
        torch.testing.assert_close(load_file(one)["row"], load_file(other)["row"], rtol=0, atol=1e-5)


def test_learners_say_by_protocols_what_they_can_do():
    ours, own = learner(), made("trainer", gathered())
    for protocol in (Adjustable, Pools, Federated):
        assert isinstance(ours, protocol)
        assert not isinstance(own, protocol)
    assert {Learner}  # what both are, to a type checker


def test_options_of_a_learner_of_ones_own_are_checked():
    table = own_table("trainer")
    changed = table | {
        "learning": table["learning"] | {"learner": {"name": table["learning"]["learner"], "options": {"wait": 3}}}
    }
    with pytest.raises(InputError, match="has no parameter wait; it has federation, model, rate, epochs, weight"):
        plan(read(changed))


@pytest.mark.parametrize(
    ("key", "value", "parameter"),
    [("max_norm", 1.0, "max_norm"), ("schedule", {"by": "step", "name": "cosine"}, "schedule_by")],
)
def test_a_key_that_a_learner_of_ones_own_does_not_take_is_refused(key, value, parameter):
    table = own_table("trainer")
    with pytest.raises(InputError, match=f"has no effect, because .* has no parameter {parameter}"):
        plan(read(table | {"learning": table["learning"] | {key: value}}))
