"""A user's own data, model, loss and metric, from a module in the directory where the command runs."""

import json

import pytest

MINE = '''
import numpy as np
import torch


def data(*, peer, peers, seed, noise):
    """Points around a line of the peer's own offset."""
    random = np.random.default_rng([seed, peers.index(peer)])
    points = random.normal(size=(50, 3)).astype("float32")
    targets = points.sum(1) + noise * random.normal(size=50).astype("float32")
    return points, targets.astype("float32")


class Net(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(3, width), torch.nn.Tanh(), torch.nn.Linear(width, 1))

    def forward(self, points):
        return self.layers(points).squeeze(-1)


def loss(outputs, targets):
    return torch.nn.functional.huber_loss(outputs, targets, reduction="none")


def near(outputs, targets):
    return ((outputs - targets).abs() < 0.5).float()
'''

EXPERIMENT = """
name = "mine"
rounds = 8
[topology]
kind = "ring"
peers = 2
[data]
name = "my.code:data"
options = { noise = 0.1 }
[model]
name = "my.code:Net"
options = { width = 8 }
[learning]
device = "cpu"
batch = 10
epochs = 4
loss = "my.code:loss"
metrics = { near = "my.code:near" }
"""


@pytest.mark.parametrize("command", ["run", "simulate"])
def test_own_code_is_found_where_the_command_runs_by_spawned_peers_too(start, place, command):
    (place / "my").mkdir()
    (place / "my" / "code.py").write_text(MINE)
    (place / "mine.toml").write_text(EXPERIMENT)
    said = start(command, "mine.toml", "--json").end()
    assert said.status == 0, said.err
    summary = json.loads(said.out)
    assert summary["metric"] == "near"
    assert summary["together"] > 0.7
    assert (place / summary["folder"] / "peers" / "peer1.safetensors").is_file()
