"""What of personal models is shared can be hidden, or is refused in words."""

import pytest
import torch

from p2pfl.core.errors import ExperimentError
from p2pfl.experiment import plan, read
from p2pfl.simulation import simulate

SMALL = {
    "rounds": 3,
    "topology": {"kind": "complete", "peers": 4},
    "data": {"name": "wine", "split": "dirichlet", "split_options": {"alpha": 1.0}},
    "model": {"hidden": [8]},
    "learning": {"dtype": "float64", "device": "cpu"},
}
HIDDEN = ["fine_tuning", "ditto", "pfedme", "per_fedavg", "fedper", "fedrep"]


def run(name, mode):
    table = SMALL | {"privacy": {"mode": mode}}
    table["learning"] = SMALL["learning"] | {"algorithm": name}
    return simulate(table, baselines=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", HIDDEN)
def test_masks_cancel_and_leave_the_personal_models_as_they_are_without(name):
    plain, masked = (run(name, mode).models for mode in ("none", "pairwise"))
    for peer, model in plain.items():
        for key, value in model.items():
            # three rounds of steps of the grid, 1e-6, that training has carried on
            assert torch.allclose(masked[peer][key], value, rtol=0, atol=2e-4)


@pytest.mark.parametrize("name", ["multitask", "propagation", "ifca"])
def test_what_masks_would_spoil_is_refused_with_its_reason(name):
    table = SMALL | {"learning": {"algorithm": name}, "privacy": {"mode": "pairwise"}}
    with pytest.raises(ExperimentError, match=f"does not work with {name}, which .*; change the mode"):
        plan(read(table))
