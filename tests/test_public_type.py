"""What is public is a type, and few places make one."""

import ast
from pathlib import Path

import pytest
import torch

import p2pfl
from p2pfl.algorithms import State
from p2pfl.core.errors import PrivacyError
from p2pfl.core.neighbourhood import Public, Released, derived, run_without_loop
from p2pfl.simulation import StackedNeighbourhood
from p2pfl.topology import metropolis, ring

ROWS = torch.ones(3, 2)
PACKAGE = Path(p2pfl.__file__).parent

MAKERS = {
    "algorithms/algorithm.py",  # the agreed start, and a state that is read from disk
    "plugins/evidence/gossip_recomputation.py",  # rows that peers released, out of the directory of their run
    "plugins/audit/accounting_claims.py",  # what the audit releases is made up
    "plugins/audit/release_claims.py",
    "plugins/audit/attacks/inversion.py",
    "plugins/audit/attacks/membership_inference.py",
    "plugins/audit/attacks/text_canaries.py",
    "plugins/audit/noise_claims.py",
    "plugins/audit/pipeline.py",
    "experiment/neighbourhood_sums.py",  # factors in place of parameters
    "core/neighbourhood.py",
}
"""Files that may call ``Public(...)``."""


def calls(path, name):
    source = path.read_text()
    if f"{name}(" not in source:
        return False
    tree = ast.parse(source)
    return any(isinstance(node, ast.Call) and getattr(node.func, "id", "") == name for node in ast.walk(tree))


@pytest.mark.plugin("audit", "evidence")
def test_only_these_files_make_something_public():
    found = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if calls(path, "Public")}
    assert found == MAKERS


@pytest.mark.parametrize("rows", [ROWS, Released(ROWS), None])
def test_a_release_starts_from_public_parameters_alone(rows):
    net = StackedNeighbourhood([metropolis(ring(3))], round=0, seed=0)
    with pytest.raises(PrivacyError, match="since must be public parameters"):
        run_without_loop(net.release(ROWS, since=rows))


def test_what_nobody_released_is_no_part_of_what_is_public():
    with pytest.raises(
        PrivacyError, match="the public part of a state must be public parameters, but it is of type Tensor"
    ):
        State(ROWS, ROWS)
    with pytest.raises(PrivacyError, match="own must be public"):
        Released(ROWS, torch.zeros(3, 1)).average(own=ROWS)
    with pytest.raises(PrivacyError, match="an argument of derived"):
        derived(torch.lerp, Public(ROWS), ROWS, 0.5)
    with pytest.raises(PrivacyError, match='"models", which a state names as known to all'):
        State(ROWS, Public(ROWS), known={"models": ROWS})


def test_a_state_is_saved_and_restored_with_what_is_known_to_all():
    state = State(ROWS, Public(2 * ROWS), extra={"own": 3 * ROWS}, known={"models": Public(4 * ROWS)})
    again = State.restore(ROWS, state.tensors())
    assert isinstance(again.public, Public)
    assert torch.equal(again.public.rows, 2 * ROWS)
    assert torch.equal(again.known["models"].rows, 4 * ROWS)
    assert torch.equal(again.extra["own"], 3 * ROWS)


def test_absent_peers_keep_what_was_public_of_them():
    before = State(ROWS, Public(ROWS), known={"models": Public(ROWS)})
    after = State(2 * ROWS, Public(2 * ROWS), known={"models": Public(2 * ROWS)})
    mixed = after.where(torch.tensor([True, False, True]), before)
    assert mixed.public.rows[:, 0].tolist() == mixed.known["models"].rows[:, 0].tolist() == [2.0, 1.0, 2.0]
