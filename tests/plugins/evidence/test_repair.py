"""``p2pfl repair``: updates of the old lengths in new directions, beside what a replay makes."""

import json

import msgspec
import numpy as np
import pytest
import tomli_w
import torch
from safetensors.torch import load_file

import p2pfl
from p2pfl.cli import main
from p2pfl.core.errors import InputError
from p2pfl.experiment import plan, read
from p2pfl.plugins.evidence import repair
from p2pfl.plugins.evidence.repair import calibrated, mean_model, membership, repair_cost, update_lengths

SMALL = {
    "name": "small",
    "rounds": 3,
    "topology": {"kind": "complete", "peers": 4},
    "data": {"name": "wine"},
    "model": {"name": "linear"},
    "learning": {"device": "cpu", "dtype": "float64", "epochs": 3, "batch": 8},
}
WITHOUT = ['learning.without=["peer2"]']


def never():
    return plan(read(SMALL, changes=WITHOUT))


def test_whole_training_that_has_its_own_lengths_is_the_replay(monkeypatch):
    monkeypatch.setattr(repair, "LOCAL_PART", 1)
    replay = p2pfl.simulate(never(), baselines=False)
    again = p2pfl.simulate(calibrated(never(), update_lengths(replay.metrics)), baselines=False)
    assert torch.allclose(mean_model(again, never()), mean_model(replay, never()), atol=1e-12)


def test_a_repair_is_an_epoch_of_each_peer_stretched_to_the_old_length_and_averaged():
    old = p2pfl.simulate(SMALL, baselines=False)
    lengths, made = update_lengths(old.metrics), never()
    repaired = p2pfl.simulate(calibrated(made, lengths), baselines=False)
    peers, learner = made.topology.peers, made.learner.bare.adjusted(seed=0, epochs=1)
    weights = learner.samples(peers).double() / learner.samples(peers).sum()
    rows = learner.start(peers)
    for round in range(3):
        moved = learner.fit(rows, peers=peers, round=round).rows - rows
        wanted = torch.tensor([[lengths[peer][round]] for peer in peers], dtype=torch.float64)
        stretched = rows + moved / moved.norm(dim=1, keepdim=True) * wanted
        rows = (weights.unsqueeze(1) * stretched).sum(0).repeat(len(peers), 1)
    assert torch.allclose(mean_model(repaired, made), rows[0], atol=1e-12)
    assert 3 * repaired.summary["gradients"] == p2pfl.simulate(made, baselines=False).summary["gradients"]


def test_lengths_are_those_of_the_records_and_what_was_not_kept_is_refused():
    old = p2pfl.simulate(SMALL, baselines=False)
    lengths = update_lengths(old.metrics)
    assert all(lengths[each.peer][each.round] == each.update for each in old.metrics)
    assert repair_cost(never()) == pytest.approx(1 / 3)
    with pytest.raises(InputError, match="has updates of 2 rounds, not of 3; set rounds=2"):
        calibrated(never(), {peer: each[:2] for peer, each in lengths.items()})
    with pytest.raises(InputError, match="no length of the update of peer0 in round 0"):
        update_lengths([msgspec.structs.replace(old.metrics[0], update=None)])


def test_membership_is_the_share_of_pairs_that_the_loss_puts_in_order():
    whole = plan(read(SMALL))
    row = mean_model(p2pfl.simulate(SMALL, baselines=False), whole)
    learner, data = whole.learner.bare, whole.federation
    weight, bias = (learner.state_dict(row)[name] for name in ("1.weight", "1.bias"))

    def losses(positions):
        outputs = data.dataset.features[positions].double() @ weight.T + bias
        return -outputs.log_softmax(1)[np.arange(len(positions)), data.dataset.targets[positions]]

    members, others = losses(data.train["peer2"]), losses(data.test["peer2"])
    pairs = (members[:, None] < others[None]).double() + 0.5 * (members[:, None] == others[None])
    assert membership(whole, row, peer="peer2", others="test") == pytest.approx(float(pairs.mean()), abs=1e-9)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def simulated(home, experiment):
    (home / "small.toml").write_bytes(tomli_w.dumps(experiment).encode())
    assert main(["simulate", "small.toml", "--no-baselines"]) == 0
    (folder,) = (home / "runs").glob(f"{experiment['name']}-*")
    return str(folder)


@pytest.mark.slow
def test_the_command_compares_the_repaired_model_with_a_replay_and_writes_it(home, capsys):
    folder = simulated(home, SMALL)
    assert main(["repair", folder, "--peer", "peer2", "--replay", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    old, repaired, replay = table["models"]
    assert [each["model"] for each in table["models"]] == ["with", "repaired", "replay"]
    assert (old["cost"], repaired["cost"], replay["cost"]) == (None, pytest.approx(1 / 3), 1.0)
    assert replay["distance"] == 0 < repaired["distance"]
    assert all(0 < each["membership"]["peer2"] < 1 for each in table["models"])
    (written,) = (home / "runs").glob("*-repaired")
    lengths = update_lengths(p2pfl.results.Run.load(folder).metrics)
    expected = p2pfl.simulate(calibrated(never(), lengths), baselines=False).models
    for peer, model in expected.items():
        file = load_file(written / "peers" / f"{peer}.safetensors")
        assert all(torch.equal(file[name], values) for name, values in model.items())
    assert not (written / "peers" / "peer2.safetensors").exists()
    assert main(["repair", folder, "--peer", "peer2"]) == 0
    assert "is approximate and erases nothing" in (said := capsys.readouterr().err)
    assert "add --replay" in said


@pytest.mark.slow
def test_a_live_run_is_repaired_as_its_simulation_is(home, capsys):
    repaired = [simulated(home, SMALL | {"name": "simulated"})]
    (home / "live.toml").write_bytes(tomli_w.dumps(SMALL | {"name": "live"}).encode())
    assert main(["run", "live.toml", "--no-baselines"]) == 0
    repaired += [str(folder) for folder in (home / "runs").glob("live-*")]
    capsys.readouterr()
    tables = []
    for folder in repaired:
        assert main(["repair", folder, "--peer", "peer2", "--replay", "--json"]) == 0
        tables.append(json.loads(capsys.readouterr().out)["models"])
    for one, other in zip(*tables, strict=True):
        assert one["distance"] == pytest.approx(other["distance"], abs=1e-6)
        assert one["membership"] == pytest.approx(other["membership"])


def test_a_run_without_the_models_of_all_peers_is_not_repaired(home, capsys):
    folder = simulated(home, SMALL)
    (home / folder / "peers" / "peer1.safetensors").unlink()
    assert main(["repair", folder, "--peer", "peer2"]) == 2
    assert "has no model of peer1, and a repair needs" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("command", ["forget", "repair"])
def test_a_run_with_code_of_its_own_is_played_again_with_consent_alone(home, capsys, command):
    (home / "ward.py").write_text("import torch\n\nclass Net(torch.nn.Linear):\n    pass\n")
    options = {"in_features": 13, "out_features": 3}
    table = SMALL | {"model": {"name": "ward:Net", "options": options}}
    (home / "small.toml").write_bytes(tomli_w.dumps(table).encode())
    assert main(["simulate", "small.toml", "--no-baselines", "--trust-code"]) == 0
    (folder,) = (home / "runs").glob("small-*")
    assert main([command, str(folder), "--peer", "peer2"]) == 2
    assert "agree with --trust-code" in capsys.readouterr().err
    assert main([command, str(folder), "--peer", "peer2", "--trust-code"]) == 0


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize(
    ("changes", "arguments", "sentence"),
    [
        ({}, [], "nobody leaves; name a --peer"),
        ({}, ["--peer", "nobody"], 'learning.without names "nobody", which is no peer'),
        ({"data": {"name": "wine", "scale": True}}, ["--peer", "peer1"], "does not work with data.scale"),
        (
            {"privacy": {"mode": "independent", "epsilon": 50.0}},
            ["--peer", "peer1"],
            "does not work with private noise",
        ),
        (
            {"model": {"name": "boosting"}, "learning": {"algorithm": "exact"}, "privacy": {"mode": "pairwise"}},
            ["--peer", "peer1"],
            "which fedavg and dpsgd of torch models have",
        ),
        ({"learning": SMALL["learning"] | {"algorithm": "scaffold"}}, ["--peer", "peer1"], "which fedavg and dpsgd"),
        ({"learning": {"batch": "all", "epochs": 2}}, ["--peer", "peer1"], "a round has 2 local steps, so no third"),
    ],
)
def test_what_cannot_be_repaired_is_refused_and_nothing_is_written(home, capsys, changes, arguments, sentence):
    folder = simulated(home, SMALL | {"rounds": 1} | changes)
    assert main(["repair", folder, *arguments]) == 2
    assert sentence in capsys.readouterr().err
    assert len([*(home / "runs").iterdir()]) == 1
