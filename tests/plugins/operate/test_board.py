"""``p2pfl peer`` in an environment without torch, beside a peer with torch."""

import json
import subprocess

import pytest
from safetensors.numpy import load_file

from p2pfl.network.transport.broker import embedded
from torchless import make_environment
from wine_files import wine_file

DEADLINE = 300.0
TABLES = """
name = "columns"
rounds = 1
topology = { kind = "complete", peers = ["ada", "bob", "cleo", "eve"] }
data = { name = "diabetes", split = "columns", split_options = { label = "bob", helper = "cleo" }, test = 0.3 }
model = { name = "glm", options = { family = "gaussian" } }
privacy = { mode = "pairwise" }
"""


@pytest.mark.slow
def test_the_command_learns_where_torch_cannot_be_imported_beside_a_peer_with_torch(p2pfl, fork, place):
    python = make_environment(place / "board")
    (place / "small.toml").write_text(wine_file("small", peers=2, more="[transport]\ngather = 240\npatience = 240\n"))
    missing = subprocess.run([python, "-c", "import torch"], check=False, capture_output=True, text=True)
    assert "ModuleNotFoundError: No module named 'torch'" in missing.stderr
    with embedded(kind="mosquitto") as broker:
        words = ["peer", "small.toml", "--no-baselines", "--set", f"transport.broker={broker.url}"]
        other = fork(*words, "--name", "peer1", "--runs", "other")
        done = subprocess.run(
            [python, "-P", "-m", "p2pfl", *words, "--name", "peer0", "--runs", "here"],
            check=False,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
        )
        assert (done.returncode, other.end().status) == (0, 0), done.stderr
    assert p2pfl("simulate", "small.toml", "--no-baselines", "--runs", "simulated").status == 0
    for folder, peer in (("here", "peer0"), ("other", "peer1")):
        [path] = (place / folder).glob(f"*/peers/{peer}.safetensors")
        [expected] = (place / "simulated").glob(f"*/peers/{peer}.safetensors")
        ours, theirs = load_file(path), load_file(expected)
        assert ours.keys() == theirs.keys()
        assert max(float(abs(ours[name] - theirs[name]).max()) for name in theirs) < 1e-6


@pytest.mark.slow
def test_commands_explain_and_run_columns_without_torch_and_refuse_in_one_sentence_what_needs_it(place):
    python = make_environment(place / "board")

    def call(*words):
        line = [python, "-P", "-m", "p2pfl", *words]
        done = subprocess.run(line, check=False, capture_output=True, text=True, timeout=DEADLINE)
        return done.returncode, done.stdout, done.stderr

    (place / "columns.toml").write_text(TABLES)
    network = ["--set", "model.name=split_network", "--set", 'model.options={labels="shown"}']
    status, printed, said = call("explain", "columns.toml", "--json")
    assert (status, json.loads(printed)["memory"]) == (0, None), said
    status, _, said = call("run", "columns.toml", "--runs", "runs")
    assert status == 0, said
    assert len([*place.glob("runs/*/peers/*.safetensors")]) == 4
    remedy = "needs torch, which is not installed here; run pip install torch, or"
    key = f'p2pfl: model.name = "split_network" {remedy} leave it out\n'
    broker = ["--broker", "mqtt://127.0.0.1:9"]  # nobody listens there, and nobody calls
    for command in (["explain"], ["run"], ["peer", "--name", "ada", *broker]):
        assert call(command[0], "columns.toml", *network, *command[1:]) == (2, "", key)
    [model] = place.glob("runs/*/peers/ada.safetensors")
    for command in (["simulate", "columns.toml"], ["export", str(model), "--to", "torch"]):
        other = f"p2pfl: p2pfl {command[0]} {remedy} call the command on a computer that has it\n"
        assert call(*command) == (2, "", other)
