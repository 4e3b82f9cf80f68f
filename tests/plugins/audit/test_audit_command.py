import json
from functools import partial

import pytest

from p2pfl.plugins.audit import audit_command
from p2pfl.plugins.audit.audit import Effort
from p2pfl.privacy import PrivateNeighbourhood

PRIVATE = [f"--set=privacy.{pair}" for pair in ('mode="pairwise"', "clip=1.0", "noise=1.0", "mask=4.0")] + [
    "--set=topology.peers=4"
]


@pytest.fixture(autouse=True)
def _little(monkeypatch):
    """Less effort than a user is given: the attacks have tests of their own."""
    little = partial(Effort, canaries=100, rounds=1, shadows=2, samples=1, keys=1000, live=3)
    monkeypatch.setattr(audit_command, "Effort", little)


@pytest.mark.slow
def test_an_audit_attacks_a_live_swarm_and_writes_a_page_and_its_numbers_and_says_them(p2pfl, place):
    said = p2pfl("audit", "small.toml", *PRIVATE, "--trials", 2000, "--out", "found")
    assert said.status == 0
    assert said.out == ""
    assert "No attack saw more than the accountant allows." in said.err
    assert "claims of the release: all hold (masks cancel" in said.err
    assert "claims of live peers: all hold" in said.err
    numbers = json.loads((place / "found" / "audit.json").read_text())
    assert numbers["promised"]
    assert numbers["broken"] == []
    parts = {claim["part"] for claim in numbers["claims"]}
    assert parts == {"the release", "stacked peers", "live peers", "the accounting"}
    assert {game["observer"] for game in numbers["games"]} >= {"broker", "broker and everyone else"}
    assert "Audit of small" in (place / "found" / "audit.html").read_text()


@pytest.mark.slow
def test_an_audit_of_what_claims_nothing_says_so_and_is_no_failure(p2pfl):
    said = p2pfl("audit", "small.toml", "--trials", 1000)
    assert said.status == 0
    assert "Nothing is claimed, so nothing can be broken" in said.err
    assert "runs/small-" in said.err


@pytest.mark.slow
def test_a_broken_claim_is_exit_status_1(p2pfl, monkeypatch):
    monkeypatch.setattr(PrivateNeighbourhood, "_noise_keys", lambda *_: [])
    said = p2pfl("audit", "small.toml", *PRIVATE, "--trials", 2000, "--json")
    assert said.status == 1
    assert said.err == ""
    assert any("sees more" in sentence for sentence in json.loads(said.out)["broken"])


@pytest.mark.parametrize("trials", ["0", "10", "many"])
def test_too_few_trials_are_refused_in_one_sentence(p2pfl, trials):
    said = p2pfl("audit", "small.toml", "--trials", trials)
    assert said.status == 2
    assert said.err.startswith("p2pfl: argument --trials: ")
    assert said.err.count("\n") == 1


def test_a_place_that_cannot_be_written_is_one_sentence(p2pfl, place):
    (place / "taken").write_text("")
    said = p2pfl("audit", "small.toml", "--trials", 1000, "--out", "taken")
    assert said.status == 1
    assert said.err.startswith("p2pfl: taken")


def test_the_command_explains_itself(p2pfl):
    assert "p2pfl audit" in p2pfl("audit", "--help").out


@pytest.mark.slow
def test_of_a_large_swarm_a_smaller_one_is_attacked_and_both_are_named(p2pfl, place, monkeypatch):
    monkeypatch.setattr(audit_command, "MAX_PEERS", 4)
    said = p2pfl("audit", "small.toml", "--trials", 1000, "--out", "found", "--set", "topology.peers=6")
    assert said.status == 0
    sentence = 'attacked is a swarm like "small" of 4 peers instead of 6; --peers 6 attacks it whole'
    assert sentence in said.err
    assert sentence.replace('"', "&#34;") in (place / "found" / "audit.html").read_text()
    whole = p2pfl("audit", "small.toml", "--trials", 1000, "--out", "whole", "--peers", 6)
    assert "attacked is" not in whole.err
    assert json.loads((place / "whole" / "audit.json").read_text())["promises"][-1]["colluders"] == [
        f"peer{number}" for number in range(1, 6)
    ]
