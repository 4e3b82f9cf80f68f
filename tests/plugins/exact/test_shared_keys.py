"""Persons whom several hospitals have, counted before a model from exact totals."""

import csv

import pytest
import tomli_w

from p2pfl.cli import main
from p2pfl.core.errors import ExperimentError, ModelError
from p2pfl.experiment import plan, read
from p2pfl.network.transport import MemoryTransport
from p2pfl.privacy.keys import SeededSource
from p2pfl.results.summary import describe
from swarms import live

SHARED = 7
"""Persons of peer1 who are at peer0, too."""


@pytest.fixture
def experiment(tmp_path):
    """Return an experiment of three hospitals, two of which have some persons in common."""
    for peer in range(3):
        with (tmp_path / f"peer{peer}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["patid", "age", "ill"])
            first = 1000 * peer if peer != 1 else 60 - SHARED
            writer.writerows([first + row, 20 + 7 * row % 61, row * row % 5 % 2] for row in range(60))
    options = {"path": str(tmp_path / "{peer}.csv"), "target": "ill", "key": "patid", "key_across": True}
    return {
        "name": "keys",
        "rounds": 3,
        "topology": {"kind": "complete", "peers": 3},
        "data": {"name": "table", "options": options | {"columns": {"age": "number", "ill": [0, 1]}}},
        "model": {"name": "glm"},
        "privacy": {"mode": "pairwise"},
    }


def test_describe_says_how_many_persons_several_sites_have(experiment, tmp_path, capsys):
    (tmp_path / "e.toml").write_text(tomli_w.dumps(experiment))
    assert main(["describe", str(tmp_path / "e.toml")]) == 0
    said = capsys.readouterr().err
    assert f"note: {SHARED} times a person of one site is at another one, too, by the key; agree on" in said


@pytest.mark.slow
async def test_live_peers_find_the_number_too(experiment):
    ended = await live(read(experiment), MemoryTransport(), source=SeededSource(3))
    assert {peer: end.peer.plan.learner.shared_keys for peer, end in ended.items()} == dict.fromkeys(ended, SHARED)


def test_the_statement_says_what_the_number_shows(experiment):
    statement = describe(plan(read(experiment)), spent=None)["statement"]
    assert "how many persons several peers have (a peer that enters a single key learns of that person)" in statement


def test_a_model_without_totals_or_with_noise_counts_no_persons(experiment):
    with pytest.raises(ExperimentError, match=r"data\.options: key_across = true does not work with fedavg"):
        plan(read(experiment | {"model": {"name": "linear"}, "privacy": {}}))
    noisy = {"name": "private_glm", "options": {"bounds": {"age": [0, 100]}}}
    with pytest.raises(ModelError, match=r"key_across counts persons without noise, but private_glm adds noise"):
        plan(read(experiment | {"model": noisy, "privacy": {"mode": "pairwise", "epsilon": 1.0, "delta": 1e-5}}))
