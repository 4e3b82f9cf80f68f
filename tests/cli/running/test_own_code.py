"""A user's own data, model, loss and metric, from a module in the directory where the command runs."""

import importlib
import json
import sys

import pytest

pytestmark = pytest.mark.slow

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


@pytest.mark.sampled(fast=0, all=1)
@pytest.mark.parametrize("command", ["run", "simulate"])
def test_own_code_is_found_where_the_command_runs_by_spawned_peers_too(start, place, command):
    (place / "my").mkdir()
    (place / "my" / "code.py").write_text(MINE)
    (place / "mine.toml").write_text(EXPERIMENT)
    said = start(command, "mine.toml", "--trust-code", "--json").end()
    assert said.status == 0, said.err
    summary = json.loads(said.out)
    assert summary["metric"] == "near"
    assert summary["together"] > 0.7
    assert (place / summary["folder"] / "peers" / "peer1.safetensors").is_file()


CLINIC = """
import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self, width=4, times=3):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 2))

    def forward(self, x):
        return self.layers(x)


def patients(*, peer, peers, seed):
    own = torch.Generator().manual_seed(seed + peers.index(peer))
    x = torch.randn(30, 4, generator=own)
    return x, (x.sum(1) > 0).long()


def focal(outputs, targets):
    loss = F.cross_entropy(outputs, targets, reduction="none")
    return (1 - (-loss).exp()) ** 2 * loss


def right(outputs, targets):
    return outputs.argmax(-1) == targets


calls = []


def later(outputs):
    calls.append(len(outputs))
    if len(calls) > 12:
        raise KeyError("the ward\\nis closed")
    return outputs
"""

CLINICAL = """
name = "clinic"
rounds = 20
topology = { kind = "ring", peers = 3 }
data = { name = "clinic:patients" }
model = { name = "clinic:Net" }
learning = { loss = "clinic:focal", metrics = { right = "clinic:right" }, device = "cpu" }
"""


@pytest.fixture
def clinic(place, monkeypatch):
    """Write the user's module, with one of its functions written anew."""
    monkeypatch.delitem(sys.modules, "clinic", raising=False)
    (place / "clinic.toml").write_text(CLINICAL)

    def write(function):
        (place / "clinic.py").write_text(f"{CLINIC}\n\n{function}\n")
        importlib.invalidate_caches()

    return write


FOCAL, RIGHT = "def focal(outputs, targets):", "def right(outputs, targets):"
PATIENTS = "def patients(*, peer, peers, seed):"
NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
       """
ONE = "one number per sample"
DATA = "return (features, targets) as arrays of numbers"

WRONG = {
    "a loss that raises": (f"{FOCAL} return 1 / 0", ["clinic:focal", "division by zero (in focal, line"]),
    "a loss of one number": (f"{FOCAL} return F.cross_entropy(outputs, targets)", ["clinic:focal", ONE, "shape ()"]),
    "a loss of two numbers a sample": (f"{FOCAL} return outputs ** 2", ["clinic:focal", ONE, "(3, 2)"]),
    "a loss of a list": (f"{FOCAL} return [0.0] * len(outputs)", ["clinic:focal", ONE, "list"]),
    "a loss of an array": (f"{FOCAL} return outputs.detach().numpy()", ["clinic:focal", ONE, "ndarray"]),
    "a loss of whole numbers": (f"{FOCAL} return (outputs.argmax(-1) != targets).long()", ["clinic:focal", "int64"]),
    "a loss of doubles": (f"{FOCAL} return outputs.double().sum(-1)", ["clinic:focal", "returns float64"]),
    "a loss without a gradient": (f"{FOCAL} return outputs.detach().sum(-1)", ["clinic:focal", "without a gradient"]),
    "a loss that has forgotten the outputs": (
        f"{FOCAL} return torch.ones(len(targets), requires_grad=True)", ["clinic:focal", "without a gradient"]
    ),
    "a loss that is not a number": (f"{FOCAL} return outputs.sum(-1) * float('nan')", ["clinic:focal", "finite"]),
    "a loss of complex numbers": (f"{FOCAL} return outputs.sum(-1) * 1j", ["clinic:focal", "complex"]),
    "a loss of another signature": ("def focal(outputs): return outputs", ["clinic:focal", "TypeError"]),
    "a loss that squeezes": (f"{FOCAL} return outputs[:, 0].squeeze()", ["clinic:focal", "returns shape (), not"]),
    "a loss that is a class": ("focal = nn.Bilinear", ["clinic:focal", "fails for", "(TypeError"]),
    "a metric that raises": (f"{RIGHT} raise NotImplementedError", ["clinic:right", "(NotImplementedError"]),
    "a metric of one number": (f"{RIGHT} return (outputs.argmax(-1) == targets).float().mean()", ["clinic:right", ONE]),
    "a metric of a number": (f"{RIGHT} return 0.5", ["clinic:right", ONE, "float"]),
    "a module that has a mistake": ("undefined", ["clinic:Net", "NameError", "line"]),
    "a module that is no Python": ("def :", ["clinic:Net", "SyntaxError"]),
    "a model that raises when it is made": (
        "from torch import nn\n\nclass Net(nn.Module):\n    def __init__(self): {}['width']",
        ["clinic:Net", "KeyError: 'width'", "in Net.__init__, line"],
    ),
    "a model that is none": ("def Net(): return 3", ["clinic:Net", "a function, not a subclass of torch.nn.Module"]),
    "a forward that raises": (f"{NET} return self.lair(x)", ["AttributeError", "'lair'", "in Net.forward, line"]),
    "a forward that gives no tensor": (f"{NET} return [self.layer(x)]", ["one tensor", "list"]),
    "a forward that averages": (f"{NET} return self.layer(x).mean(0)", ["(2,) for 3 samples"]),
    "a forward that squeezes": (f"{NET} return self.layer(x).squeeze(0)", ["(2,) for 1 sample"]),
    "a forward that forgets gradients": (f"{NET} return self.layer(x).detach()", ["have no gradient"]),
    "a forward that raises in training": (
        f"{NET} assert not self.training, 'lost'\n        return self.layer(x)", ["AssertionError: lost", "Net.forward"]
    ),
    "data that raise": (f"{PATIENTS} open('none.csv')", ["clinic:patients", "peer0", "FileNotFoundError"]),
    "no data": (f"{PATIENTS} pass", [DATA, "NoneType"]),
    "features alone": (f"{PATIENTS} return torch.ones(30, 4)", [DATA, "Tensor"]),
    "three things": (f"{PATIENTS} return [1], [2], [3]", [DATA, "tuple of 3"]),
    "data of text": (f"{PATIENTS} return [['a']] * 4, [0] * 4", [DATA, "list"]),
    "ragged data": (f"{PATIENTS} return [[1, 2], [3]], [0, 1]", [DATA, "list"]),
    "complex data": (f"{PATIENTS} return torch.ones(30, 4) * 1j, torch.zeros(30)", [DATA, "complex64"]),
    "no samples": (f"{PATIENTS} return torch.ones(0, 4), torch.zeros(0).long()", ["clinic:patients", "0 samples"]),
    "one sample": (f"{PATIENTS} return torch.ones(1, 4), torch.zeros(1).long()", ["clinic:patients", "1 samples"]),
    "a number for features": (f"{PATIENTS} return 1.0, [0, 1]", ["clinic:patients", "peer0", "a single number"]),
    "more targets than samples": (
        f"{PATIENTS} return torch.ones(30, 4), torch.zeros(31).long()", ["clinic:patients", "peer0", "(31,)"]
    ),
    "targets one-hot": (
        f"{PATIENTS} return torch.ones(30, 4), torch.zeros(30, 2).long()", ["clinic:focal", "targets (3, 2)"]
    ),
    "features that are no numbers": (
        f"{PATIENTS} return torch.full((30, 4), torch.nan), torch.zeros(30).long()", ["clinic:patients", "peer0", "NaN"]
    ),
    "targets that are no numbers": (
        f"{PATIENTS} return torch.ones(30, 4), torch.full((30,), torch.nan)", ["clinic:patients", "peer0", "NaN"]
    ),
    "classes below zero": (
        f"{PATIENTS} return torch.ones(30, 4), torch.full((30,), -1)", ["clinic:patients", "peer0", "from -1 to -1"]
    ),
    "features of another width": (
        f"{PATIENTS} return torch.ones(30, 5), torch.arange(30) % 2", ["shape (5,)", "match its first layer"]
    ),
    "more classes than outputs": (
        f"{PATIENTS} return torch.ones(30, 4), torch.arange(30) % 3", ["clinic:focal", "IndexError"]
    ),
}  # fmt: skip


@pytest.mark.parametrize(("function", "said"), WRONG.values(), ids=WRONG)
def test_own_code_that_is_wrong_is_one_sentence_before_anything_starts(p2pfl, place, clinic, function, said):
    clinic(function)
    result = p2pfl("simulate", "clinic.toml", "--trust-code")
    assert result.status == 2, result.err
    agreed, sentence = result.err.splitlines()
    assert agreed.endswith("as --trust-code agrees")
    assert sentence.startswith("p2pfl: ")
    for words in said:
        assert words in sentence
    assert [*place.glob("runs/*")] == []


LATE = {
    "a loss": (f"{FOCAL} return F.cross_entropy(later(outputs), targets, reduction='none')", "clinic:focal"),
    "a metric": (f"{RIGHT} return later(outputs).argmax(-1) == targets", "clinic:right"),
    "a forward": (f"{NET} return self.layer(later(x))", "the model"),
}


@pytest.mark.sampled(fast=0, all=1)
@pytest.mark.parametrize("command", ["simulate", "run"])
@pytest.mark.parametrize(("function", "name"), LATE.values(), ids=LATE)
def test_own_code_that_goes_wrong_later_ends_the_run_in_one_sentence(p2pfl, clinic, command, function, name):
    clinic(function)
    said = p2pfl(command, "clinic.toml", "--trust-code", "--set", "data.options.classes=2")
    assert said.status == 1
    assert "Traceback" not in said.err
    last = said.err.splitlines()[-1]
    assert last.startswith("p2pfl: ")
    assert name in last
    assert "KeyError: 'the ward" in last
    assert "line" in last


def test_a_loss_and_metric_that_are_right_are_used(p2pfl, clinic):
    clinic("")
    said = p2pfl("simulate", "clinic.toml", "--trust-code", "--json")
    assert said.status == 0, said.err
    assert json.loads(said.out)["metric"] == "right"
