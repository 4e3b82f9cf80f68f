"""The audit's attack on two runs: it succeeds exactly where the account admits a run without one person or peer."""

import pytest

from p2pfl.experiment import plan, read
from p2pfl.plugins.audit.attacks.run_differences import subtract_runs
from p2pfl.results.spending import ledger

PEERS = ("peer0", "peer1", "peer2")


@pytest.fixture
def described(tmp_path):
    """The plan of a description of three tables."""
    for place, peer in enumerate(PEERS):
        rows = (f"{(number + place) % 97},{'yes' if number % 3 else 'no'}" for number in range(20))
        (tmp_path / f"{peer}.csv").write_text("\n".join(["a,y", *rows]))
    options = {"path": str(tmp_path / "{peer}.csv"), "target": "y", "columns": {"a": "number", "y": ["no", "yes"]}}
    table = {
        "rounds": 1,
        "topology": {"kind": "complete", "peers": 3},
        "data": {"name": "table", "options": options},
        "model": {"name": "description"},
        "learning": {"algorithm": "exact"},
        "privacy": {"mode": "pairwise"},
    }
    return plan(read(table))


def test_the_account_of_the_users_own_tables_refuses_all_that_are_tried(described, tmp_path):
    people, peers = subtract_runs(described)
    assert (people.broken, people.measured) == (peers.broken, peers.measured) == (False, 0)
    assert "(48 people tried; those who are shown)" in people.sentence
    assert "(6 times tried; those that are shown)" in peers.sentence
    assert not [*tmp_path.glob("*.jsonl*")]  # the attack is on a copy


def test_the_attack_succeeds_where_an_account_does_not_look_for_it(described, monkeypatch):
    monkeypatch.setattr(ledger, "find_exposures", lambda *_, **__: iter(()))
    people, peers = subtract_runs(described)
    assert (people.measured, peers.measured) == (48, 6)
    assert people.broken
    assert peers.broken


def test_bundled_data_are_public_and_have_no_account_to_attack():
    table = {"topology": {"kind": "complete", "peers": 3}, "data": {"name": "wine"}, "model": {"name": "forest"}}
    assert subtract_runs(plan(read(table | {"privacy": {"mode": "pairwise"}}))) == []
