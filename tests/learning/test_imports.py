"""What training on a device does not import."""

import subprocess
import sys

import pytest

TRAINED = """
import sys
import torch
assert "sympy" not in sys.modules, "torch itself imports it"
from p2pfl.data import federate
from p2pfl.learning import TorchLearner, build

federation = federate("wine", peers=("ada", "bob"), split="iid", seed=0, options={})
model = build("mlp", shape=federation.dataset.shape, classes=3, seed=0, options={"hidden": (8,)})
learner = TorchLearner(model, federation, seed=0, device="cpu")
for count in (1, 2):  # one row, and a stack
    peers = federation.peers[:count]
    fitted = learner.fit(learner.start(peers), peers=peers, round=0)
    assert fitted.report.steps.min() > 0
    print("sympy" in sys.modules)
"""


@pytest.mark.slow
def test_training_does_not_import_sympy():
    done = subprocess.run([sys.executable, "-c", TRAINED], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
