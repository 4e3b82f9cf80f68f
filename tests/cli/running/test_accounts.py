"""The account beside a data file: what spends of it says so, and what has no price is refused or says so."""

import json

import pytest
from sklearn.datasets import load_wine

from p2pfl.network.transport.broker import embedded

pytestmark = pytest.mark.slow

EXPERIMENT = """
name = "cells"
rounds = 2
[topology]
kind = "complete"
peers = 4
[data]
name = "csv"
[data.options]
path = "cells.csv"
target = "y"
[model]
name = "linear"
[learning]
device = "cpu"
batch = 8
"""
PRICED = ["--set", "privacy.mode=independent", "--set", "privacy.noise=4", "--set", "privacy.clip=1"]
SAMPLES = ["--set", "learning.example_noise=1"]
MASKS = ["--set", "privacy.mode=pairwise"]


@pytest.fixture
def cells(place):
    """A data file with an experiment on it; where its account is kept."""
    features, targets = load_wine(return_X_y=True)
    lines = [
        "a,b,c,y",
        *(f"{row[0]},{row[1]},{row[2]},k{target}" for row, target in zip(features, targets, strict=True)),
    ]
    (place / "cells.csv").write_text("\n".join(lines))
    (place / "cells.toml").write_text(EXPERIMENT)
    return place / "cells.csv.budget.jsonl"


def kept(path):
    """The entries of an account."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def simulated(p2pfl, *changes):
    return p2pfl("simulate", "cells.toml", "--json", "--no-baselines", *changes)


@pytest.mark.parametrize("changes", [[], MASKS, SAMPLES], ids=["none", "masks alone", "example noise"])
def test_a_run_without_a_price_on_data_with_an_account_is_refused_unless_it_is_unaccounted(cells, p2pfl, changes):
    assert simulated(p2pfl, *PRICED).status == 0
    before = cells.read_text()
    for command in (["simulate"], ["simulate", "--network", "wan"], ["run"]):
        refused = p2pfl(*command, "cells.toml", *changes)
        assert refused.status == 2
        assert (
            f"{cells} counts the cost of runs on this data for each peer, and this run has no such cost" in refused.err
        )
        assert "--unaccounted" in refused.err
    broker = ["--broker", "mqtt://127.0.0.1:1"]
    refused = p2pfl("peer", "cells.toml", "--name", "peer0", *broker, *changes)
    assert (refused.status, "--unaccounted" in refused.err) == (2, True)
    assert cells.read_text() == before
    outside = simulated(p2pfl, "--unaccounted", *changes)
    assert outside.status == 0
    assert f"UNACCOUNTED: {cells} does not count this run" in outside.err
    assert [entry for entry in kept(cells) if "mu" in entry] == [json.loads(line) for line in before.splitlines()]


@pytest.mark.usefixtures("cells")
def test_the_summary_says_whether_an_account_lacks_the_run(p2pfl):
    assert json.loads(simulated(p2pfl).out)["accounted"] is True  # there is no account yet
    assert json.loads(simulated(p2pfl, *PRICED).out)["accounted"] is True
    for command in (["simulate", "--no-baselines"], ["simulate", "--no-baselines", "--network", "wan"], ["run"]):
        ended = p2pfl(*command, "cells.toml", "--json", "--unaccounted")
        assert (command, json.loads(ended.out)["accounted"]) == (command, False)
    assert "ran with --unaccounted" in p2pfl("simulate", "cells.toml", "--no-baselines", "--unaccounted").err
    assert json.loads(simulated(p2pfl, "--unaccounted", *PRICED).out)["accounted"] is True


@pytest.mark.usefixtures("cells")
def test_the_summary_of_a_peer_says_whether_an_account_lacks_the_run(p2pfl):
    assert simulated(p2pfl, *PRICED).status == 0
    with embedded() as broker:
        where = ["--broker", broker.url, "--set", "topology.peers=1"]
        ended = p2pfl("peer", "cells.toml", "--name", "peer0", "--json", "--unaccounted", *where)
    assert json.loads(ended.out)["accounted"] is False


def test_a_run_that_promises_something_to_samples_is_in_the_account(cells, p2pfl):
    first = json.loads(simulated(p2pfl, *SAMPLES).out)["privacy"]["examples"]
    assert {(entry["peer"], entry["round"]) for entry in kept(cells)} == {
        (f"peer{peer}", round) for peer in range(4) for round in range(2)
    }
    second = json.loads(simulated(p2pfl, *SAMPLES).out)["privacy"]["examples"]
    assert second["steps"] == 2 * first["steps"]
    assert second["epsilon"] > first["epsilon"]


def test_a_run_that_has_no_price_for_samples_is_refused_where_the_account_counts_them(cells, p2pfl):
    assert simulated(p2pfl, *SAMPLES).status == 0
    refused = simulated(p2pfl)
    assert refused.status == 2
    assert f"{cells} counts the cost of runs on this data for each sample" in refused.err


def test_a_run_that_has_both_prices_is_counted_by_both_accounts(cells, p2pfl):
    assert simulated(p2pfl, *SAMPLES, *PRICED).status == 0
    assert {"mu" in entry for entry in kept(cells)} == {True, False}
    assert simulated(p2pfl, *SAMPLES, *PRICED).status == 0


def test_data_without_an_account_need_no_price(cells, p2pfl):
    assert simulated(p2pfl).status == 0
    assert not cells.exists()


def test_the_privacy_command_only_reads_the_account(cells, p2pfl):
    assert simulated(p2pfl, *PRICED).status == 0
    before = cells.read_text()
    assert p2pfl("privacy", "cells.toml", "--json", "--no-baselines").status == 0
    assert cells.read_text() == before
