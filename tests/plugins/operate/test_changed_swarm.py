"""A fleet that learns over mosquitto, changed by its operator while it runs."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file

from certificates import reachable
from fleets import bundles
from p2pfl.network.transport.broker import Program, mosquitto, run_program
from wine_files import wine_file

PEERS, NEXT = ("peer0", "peer1", "peer2"), ("peer0", "peer1", "peer3")
MORE = 'batch = "all"\nconsensus = true\n[transport]\ngather = 240\n'
PLANT = wine_file("plant", rounds=30, more=MORE)
OWN = wine_file("plant", rounds=30, more=f'learner = "press:made"\n{MORE}prefix = "plant7/"\n')
LOOP = """import torch
import p2pfl


def made(federation, model, rate, batch, device):
    weights, data = list(model.to(device).parameters()), federation.dataset

    def train(row, *, peer, round):
        torch.nn.utils.vector_to_parameters(row.clone(), weights)
        own = federation.train[peer]
        loss = torch.nn.functional.cross_entropy(model(data.features[own]), data.targets[own])
        return row - rate * torch.cat([each.flatten() for each in torch.autograd.grad(loss, weights)])

    layout = p2pfl.TorchLearner(model, federation, rate=rate).layout
    start = torch.nn.utils.parameters_to_vector(weights).detach()
    samples = {peer: len(federation.train[peer]) for peer in federation.peers}
    return p2pfl.ExternalLearner(train, start=start, samples=samples, layout=layout)
"""
"""A training loop of the user's own, which takes one step a round."""


def identified(p2pfl, name):
    shutil.copytree(Path("fleet") / name, name)
    assert p2pfl("identity", name, "--keys", f"{name}/keys", "--request", f"{name}/request.toml").status == 0
    return f"{name}/request.toml"


def deployed(p2pfl, *arguments):
    return p2pfl("deploy", "plant.toml", "--out", "fleet", "--trust-code", *arguments)


def equipped(names):
    for name in names:
        for file in ("roster.toml", "certificate.pem"):
            shutil.copy(Path("fleet") / name / file, name)


def runs(name):
    folders = [each for each in Path(name, "runs").glob("plant-*") if (each / "experiment.toml").is_file()]
    return sorted(folders, key=lambda each: (each / "experiment.toml").stat().st_mtime_ns)


@pytest.mark.nightly
@pytest.mark.parametrize("plant", [PLANT, OWN], ids=["of p2pfl", "of a user's own, below a prefix"])
def test_a_running_fleet_replaces_a_device_and_goes_on_with_another_rate(p2pfl, fork, place, plant):
    program = mosquitto() or pytest.skip("mosquitto is not installed")
    Path("p2pfl_mqtt-0.3.0-py3-none-any.whl").write_bytes(b"a wheel")
    Path("press.py").write_text(LOOP)
    ports = []

    def configured(_host, port):
        ports.append(port)
        for text in (changed(plant), plant):  # the access list has the device that comes later
            Path("plant.toml").write_text(text)
            bundles(place, port=port)
        reachable(place / "fleet" / "broker")
        return "user root\n" + Path("fleet/broker/mosquitto.conf").read_text()

    with run_program(Program(program.kind, program.command, configured), host="127.0.0.1", port=0):
        said = deployed(p2pfl, "--yes", "--collect", *(identified(p2pfl, name) for name in PEERS))
        assert said.status == 0, said.err
        equipped(PEERS)

        def begin(name, *more):
            return fork(
                "peer",
                f"{name}/plant.toml",
                "--name",
                name,
                "--runs",
                f"{name}/runs",
                "--json",
                "--no-baselines",
                "--trust-code",
                *more,
            )

        peers = {name: begin(name) for name in PEERS[:2]}  # they wait for the third one, so that no order is late
        Path("plant.toml").write_text(changed(plant))
        said = deployed(p2pfl, "--yes", "--collect", identified(p2pfl, "peer3"))
        assert said.status == 0, said.err
        apply = ("--apply", "--broker", f"mqtts://127.0.0.1:{ports[0]}", "--json")
        said = deployed(p2pfl, *apply, "--dry-run")
        while "is not there" in said.err or "no peer of this swarm" in said.err:  # until their gathering ends
            assert all(each.process.is_running() for each in peers.values())
            said = deployed(p2pfl, *apply, "--dry-run")
        assert said.status == 0, said.err
        assert "added: peer3\nremoved: peer2\n" in said.err
        assert "learning.rate: 0.1 -> 0.01" in said.err
        assert "rounds: 30 -> 4" in said.err
        said = deployed(p2pfl, *apply, "--after", "3")
        assert said.status == 0, said.err
        assert json.loads(said.out)["after"] == 3
        peers["peer2"] = begin("peer2")
        peers["peer0"].until("the next run begins")
        equipped(["peer3"])
        peers["peer3"] = begin("peer3")  # it takes the model of the others
        ended = {name: each.end() for name, each in reversed(peers.items())}
    assert {name: each.status for name, each in ended.items()} == dict.fromkeys(peers, 0), ended["peer0"].err
    assert 'takes peer2 out of "plant"' in ended["peer2"].err
    assert {name: len(runs(name)) for name in PEERS} == {"peer0": 2, "peer1": 2, "peer2": 1}
    by_hand = followed_by_hand(p2pfl, plant)
    for name in NEXT:
        assert apart(runs(name)[-1] / "peers" / f"{name}.safetensors", by_hand / "peers" / f"{name}.safetensors") < 1e-6


def changed(text):
    """The experiment as the operator changes it."""
    return (
        text.replace("rounds = 30", "rounds = 4")
        .replace("peers = 3", f"peers = {list(NEXT)}")
        .replace("batch =", "rate = 0.01\nbatch =")
    )


def followed_by_hand(p2pfl, plant):
    """Simulate the run and the next one, whose first round the new device does not play; return the last directory."""
    Path("plant.toml").write_text(plant.replace("rounds = 30", "rounds = 3"))
    folders = []
    alone, together = next_of('learning.without=["peer3"]', rounds=1), next_of("learning.without=[]", rounds=3)
    for words in (("simulate", "plant.toml"), ("next", "", *alone), ("next", "", *together)):
        said = p2pfl(
            *[folders[-1] if word == "" else word for word in words], "--no-baselines", "--trust-code", "--json"
        )
        assert said.status == 0, said.err
        folders.append(json.loads(said.out)["folder"])
    return Path(folders[-1])


def next_of(without, *, rounds):
    changes = (f"rounds={rounds}", f"topology.peers={json.dumps(NEXT)}", "learning.rate=0.01", without)
    return [word for change in changes for word in ("--set", change)]


def apart(one, other):
    """Return the largest difference between two saved models."""
    tensors = load_file(other)
    return max(float((tensor - tensors[name]).abs().max()) for name, tensor in load_file(one).items())
