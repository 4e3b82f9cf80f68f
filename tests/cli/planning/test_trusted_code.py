"""Commands that review an experiment show the code that it names, and run it only with consent."""

import hashlib
import sys

import pytest

EVIL = """from pathlib import Path

from torch import nn

Path({marker!r}).touch()


class M(nn.Linear):
    def __init__(self):
        super().__init__(13, 3)
"""
NAMES = (
    "model.name=evil:M",
    "learning.loss=evil:M",
    "learning.algorithm=evil:M",
    "learning.metrics.own=evil:M",
    "learning.augment=evil:M",
    "learning.schedule=evil:M",
    "learning.learner=evil:M",
    "data.name=evil:M",
    "data.split=evil:M",
    "privacy.mode=evil:M",
    "compression.name=evil:M",
    "robustness.rule=evil:M",
    "topology.kind=evil:M",
    "gossip.weights=evil:M",
    "model.options.loss=evil:M",
)


@pytest.fixture
def evil(place):
    """A module, and the file that importing it makes."""
    marker = place / "imported"
    (place / "evil.py").write_text(EVIL.format(marker=str(marker)))
    yield marker
    sys.modules.pop("evil", None)


@pytest.mark.parametrize("change", NAMES)
@pytest.mark.parametrize("command", ["explain", "privacy", "describe"])
def test_a_command_of_review_runs_no_code_whatever_key_names_it(p2pfl, place, evil, command, change):
    said = p2pfl(command, "small.toml", "--set", change)
    assert said.status == 2
    content = (place / "evil.py").read_bytes()
    digest = hashlib.sha256(f"evil.py\0{len(content)}\0".encode() + content).hexdigest()
    assert f"evil:M (SHA-256 {digest}); read it, and agree with --trust-code" in said.err
    assert not evil.exists()
    assert "evil" not in sys.modules


def test_installed_code_is_not_run_either(p2pfl):
    said = p2pfl("explain", "small.toml", "--set", "data.name=subprocess:run")
    assert said.status == 2
    assert "subprocess:run (installed); read it, and agree with --trust-code" in said.err


def test_code_runs_with_consent_and_is_named(p2pfl, evil):
    said = p2pfl("explain", "small.toml", "--set", "model.name=evil:M", "--trust-code")
    assert said.status == 0, said.err
    assert "runs evil:M (SHA-256 " in said.err
    assert "as --trust-code agrees" in said.err
    assert evil.exists()


def test_an_experiment_without_code_needs_no_consent(p2pfl):
    said = p2pfl("explain", "small.toml")
    assert said.status == 0, said.err
    assert "trust-code" not in said.err


@pytest.mark.parametrize(("digest", "runs"), [("listed", True), ("another", False)])
def test_code_that_the_policy_of_the_site_lists_by_its_digest_runs(p2pfl, place, evil, digest, runs):
    content = (place / "evil.py").read_bytes()
    listed = hashlib.sha256(f"evil.py\0{len(content)}\0".encode() + content).hexdigest()
    (place / "policy.toml").write_text(f'[code]\n"evil:M" = "{listed if digest == "listed" else "0" * 64}"\n')
    (place / "peer0.csv").write_text("age,low\n31,0\n32,1\n")
    columns = 'data.options.columns={age = "number", low = [0, 1]}'
    changes = ("data.name=table", f"data.options.path={place}/{{peer}}.csv", "data.options.target=low", columns)
    options = [part for change in (*changes, "model.name=evil:M") for part in ("--set", change)]
    said = p2pfl("privacy", "small.toml", "--name", "peer0", "--no-baselines", *options)
    assert evil.exists() is runs
    assert ("agree with --trust-code" in said.err) is not runs
