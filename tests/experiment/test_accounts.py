"""The account of data: one file for each data file, however it is spelled, and one door through which data are used."""

import json
import re
import sys

import pytest
import tomli_w

import hospitals
import p2pfl
from p2pfl.cli.planning.disclosures import facts
from p2pfl.cli.planning.privacy import compare_with_curator, resolve
from p2pfl.core.errors import InputError
from p2pfl.experiment import plan, read
from p2pfl.experiment.accounts import PrivacyAccount, accounts, beside
from p2pfl.experiment.schema import PrivacySettings
from p2pfl.privacy.accounting.examples import SampledSteps, compose_epsilon
from p2pfl.privacy.accounting.spending import Cost, spent
from p2pfl.results.card import card
from p2pfl.results.spending.budget import Budget, PeerAccounts
from p2pfl.results.spending.meter import Meter
from p2pfl.results.summary import describe
from p2pfl.simulation import simulate
from p2pfl.simulation.curator import curator

FOUR = ("peer0", "peer1", "peer2", "peer3")
TRAINED = {"model": {"name": "linear"}, "learning": {"device": "cpu", "batch": 4}}
BOUNDS = {"a": [0, 100], "b": [0, 100]}
DESCRIPTION = {"name": "private_description", "options": {"bounds": BOUNDS, "bins": 4}}
DESCRIBED = {"model": {"name": "description"}, "privacy": {"mode": "pairwise"}}


@pytest.fixture
def cells(tmp_path):
    """A small table of each of four peers, and what an experiment on them begins with."""
    for place, peer in enumerate(FOUR):
        rows = (f"{(number + place) % 97},{number * 7 % 89},{'yes' if number % 3 else 'no'}" for number in range(20))
        (tmp_path / f"{peer}.csv").write_text("\n".join(["a,b,y", *rows]))
    columns = {"a": "number", "b": "number", "y": ["no", "yes"]}
    return {
        "rounds": 1,
        "topology": {"kind": "complete", "peers": 4},
        "data": {
            "name": "table",
            "options": {"path": str(tmp_path / "{peer}.csv"), "target": "y", "columns": columns},
        },
    }


def spend(path, *peers, mu=0.5, names=hospitals.PEERS, **conditions):
    """Record a release of some peers in a file."""
    Budget(path, PrivacySettings(**conditions), names).spend(peers, run="x", round=0, cost=Cost(mu))


def own(folder, path, **changes):
    """The experiment of the three hospitals on files of this path."""
    table = hospitals.experiment(folder, **changes)
    table["data"]["options"]["path"] = str(folder / path)
    return read(table)


def costs(path):
    """The lines of an account that are costs."""
    return [entry for entry in map(json.loads, path.read_text().splitlines()) if "round" in entry]


def before(experiment, peer):
    """What was spent of the data of a peer."""
    found = accounts(experiment, [peer])
    return PeerAccounts(found, experiment.privacy, hospitals.PEERS).before([peer])


@pytest.fixture
def folders(tmp_path):
    """A table for each peer in a folder of its own, and a link to one of them."""
    hospitals.write(tmp_path)
    for peer in hospitals.PEERS:
        (tmp_path / "own" / peer).mkdir(parents=True)
        (tmp_path / f"{peer}.csv").rename(tmp_path / "own" / peer / "table.csv")
    (tmp_path / "link.csv").symlink_to("own/peer1/table.csv")
    (tmp_path / "peers").symlink_to("own")
    return tmp_path


SPELLINGS = [
    "own/{peer}/table.csv",
    "own/peer1/table.csv",
    "own/../own/peer1/table.csv",
    "link.csv",
    "peers/{peer}/table.csv",
]


@pytest.mark.parametrize("path", SPELLINGS)
def test_a_data_file_has_one_account_however_its_path_is_spelled(folders, path):
    found = accounts(own(folders, path), ["peer1"])["peer1"]
    assert found.path == folders / "own" / "peer1" / "table.csv.budget.jsonl"
    spend(found.path, "peer1")
    assert before(own(folders, path), "peer1") == {Cost(0.5): 1}


@pytest.mark.slow
def test_a_worker_that_holds_other_peers_looks_at_all_accounts(folders):
    spend(folders / "own" / "peer2" / "table.csv.budget.jsonl", "peer2")
    with pytest.raises(InputError, match=r"peer2/table\.csv\.budget\.jsonl counts the cost"):
        simulate(own(folders, "own/{peer}/table.csv"), workers=2, baselines=False)


@pytest.mark.slow
def test_a_refusal_names_no_option_that_a_sweep_lacks_without_saying_so(cells, tmp_path):
    study, sweep = (pytest.importorskip(f"p2pfl.plugins.study.{name}") for name in ("study", "sweep"))
    spend(tmp_path / "peer0.csv.budget.jsonl", "peer0")
    (tmp_path / "cells.toml").write_text(tomli_w.dumps(cells | TRAINED))
    with pytest.raises(InputError, match=r"add --unaccounted \(which a sweep does not take\)"):
        sweep.sweep(study.Study(experiment=str(tmp_path / "cells.toml")), tmp_path / "sweep", processes=1)


@pytest.mark.parametrize(
    ("former", "path"),
    [("own/peers-table.csv", "own/{peer}/table.csv"), ("link.csv", "link.csv")],
)
def test_an_account_under_a_name_of_an_earlier_release_is_refused_with_the_new_one(folders, former, path):
    spend(folders / f"{former}.budget.jsonl", "peer1")
    with pytest.raises(InputError, match=r"counts what release 0\.1 spent .* move the lines"):
        before(own(folders, path), "peer1")


def test_a_peer_of_another_name_does_not_begin_at_zero_on_the_same_file(folders):
    spend(folders / "own" / "peer1" / "table.csv.budget.jsonl", "peer1")
    assert before(own(folders, "own/peer1/table.csv"), "peer2") == {Cost(0.5): 1}


def test_the_account_of_another_file_does_not_count(folders):
    spend(folders / "own" / "peer0" / "table.csv.budget.jsonl", "peer0")
    assert before(own(folders, "own/peer1/table.csv"), "peer1") == {}


def test_a_table_that_peers_share_has_one_account_for_all_also_in_the_data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("P2PFL_DATA", str(tmp_path))
    monkeypatch.chdir("/")
    (tmp_path / "cells.csv").write_text("a,y\n1,no\n2,yes\n")
    path = tmp_path / "cells.csv.budget.jsonl"
    experiment = read({"data": {"name": "csv", "options": {"path": "cells.csv", "target": "y"}}})
    assert accounts(experiment, FOUR) == dict.fromkeys(FOUR, PrivacyAccount(path))
    assert beside(experiment) == path


@pytest.mark.slow
def test_peers_with_files_of_their_own_each_have_an_account_in_a_simulation(folders):
    privacy = {"mode": "independent", "noise": 4.0, "clip": 1.0, "epsilon": 20.0}
    data = hospitals.experiment(folders)["data"] | {"scale": False}
    experiment = own(folders, "own/{peer}/table.csv", privacy=privacy, data=data, rounds=2)
    run = simulate(experiment, baselines=False)
    for peer in hospitals.PEERS:
        lines = (folders / "own" / peer / "table.csv.budget.jsonl").read_text().splitlines()
        assert [(json.loads(line)["peer"], json.loads(line)["round"]) for line in lines] == [(peer, 0), (peer, 1)]
    again = simulate(experiment, baselines=False)
    assert again.summary["privacy"]["epsilon"] > run.summary["privacy"]["epsilon"]
    assert again.summary["privacy"]["account"] == "table.csv.budget.jsonl"


def test_a_live_peer_spends_from_the_account_of_its_own_file(folders):
    privacy = {"mode": "independent", "noise": 4.0, "clip": 1.0, "epsilon": 20.0}
    data = hospitals.experiment(folders)["data"] | {"scale": False}
    alone = plan(own(folders, "own/{peer}/table.csv", privacy=privacy, data=data), only=["peer1"])
    Meter(alone, ["peer1"], run="x").charge(0, whole=True)
    assert [*(folders / "own").rglob("*.budget.jsonl")] == [folders / "own" / "peer1" / "table.csv.budget.jsonl"]
    assert Meter(alone, ["peer1"], run="y").spent == pytest.approx(alone.protection.spent({alone.protection.cost: 1}))


def test_one_spent_file_stops_all_peers_before_any_account_is_charged(folders):
    privacy = {"mode": "independent", "noise": 4.0, "clip": 1.0, "epsilon": 2.0}
    data = hospitals.experiment(folders)["data"] | {"scale": False}
    path = folders / "own" / "peer2" / "table.csv.budget.jsonl"
    spend(path, "peer2", mu=5.0)
    with pytest.raises(InputError, match=r"spent already by .*peer2/table\.csv\.budget\.jsonl"):
        simulate(own(folders, "own/{peer}/table.csv", privacy=privacy, data=data), baselines=False)
    assert [*(folders / "own").rglob("*.budget.jsonl")] == [path]


UNPRICED = [
    TRAINED,
    TRAINED | {"privacy": {"mode": "pairwise"}},
    pytest.param(DESCRIBED, marks=pytest.mark.plugin("exact")),
]


@pytest.mark.parametrize("changes", UNPRICED, ids=["plain", "masks", "description"])
def test_data_with_an_account_reach_no_plan_that_it_cannot_count(cells, tmp_path, changes):
    path = tmp_path / "peer1.csv.budget.jsonl"
    spend(path, "peer1")
    kept = path.read_text()
    for use in (plan, simulate):
        with pytest.raises(InputError, match=r"peer1\.csv\.budget\.jsonl counts the cost of runs on this data"):
            use(read(cells | changes))
    assert plan(read(cells | changes), unaccounted=True).accounted is False
    assert plan(read(cells | changes), only=["peer0"]).accounted  # whose data have no account
    assert path.read_text() == kept


@pytest.mark.parametrize(
    ("module", "use"),
    [
        ("p2pfl.plugins.study.valuation", "valuation"),
        ("p2pfl.plugins.audit.audit", "audit"),
        ("p2pfl.simulation.curator", "curator"),
        ("p2pfl.simulation.curator", "compare"),
    ],
)
def test_exact_results_have_no_price_whatever_protects_the_models(cells, tmp_path, module, use):
    used = getattr(pytest.importorskip(module), use)
    spend(tmp_path / "peer0.csv.budget.jsonl", "peer0", mu=0.1)
    resolved = plan(read(cells | TRAINED | {"privacy": {"mode": "independent", "epsilon": 8.0}}))
    assert resolved.accounted
    with pytest.raises(InputError, match=r"peer0\.csv\.budget\.jsonl counts .* exact results have no cost"):
        used(resolved)


def test_exact_results_may_stay_outside_of_the_account(cells, tmp_path):
    spend(tmp_path / "peer0.csv.budget.jsonl", "peer0", mu=0.1)
    resolved = plan(read(cells | TRAINED | {"privacy": {"mode": "independent", "epsilon": 8.0}}), unaccounted=True)
    assert len(curator(resolved)["accuracy"]) == 4
    valuation = pytest.importorskip("p2pfl.plugins.study.valuation").valuation
    assert len(valuation(resolved, unaccounted=True).values) == 4


def test_a_guarantee_is_not_compared_with_exact_scores_of_data_that_have_an_account(cells, tmp_path):
    claimed = cells | TRAINED | {"privacy": {"mode": "independent", "epsilon": 8.0}}
    spend(tmp_path / "peer0.csv.budget.jsonl", "peer0", mu=0.1)
    found = compare_with_curator(resolve(read(claimed)))
    assert found["pays"] is None
    assert "peer0.csv.budget.jsonl counts what is spent of these data" in found["sentence"]
    assert set(found) == {"pays", "sentence"}


def test_an_account_beside_the_data_is_not_left_by_naming_another(cells, tmp_path):
    privacy = {"mode": "independent", "epsilon": 8.0}
    spend(tmp_path / "peer0.csv.budget.jsonl", "peer0")
    with pytest.raises(InputError, match=r"counts the cost of runs on this data, and privacy\.budget names another"):
        plan(read(cells | TRAINED | {"privacy": privacy | {"budget": str(tmp_path / "fresh.jsonl")}}))
    linked = tmp_path / "linked.jsonl"
    linked.symlink_to("peer0.csv.budget.jsonl")
    assert plan(read(cells | TRAINED | {"privacy": privacy | {"budget": str(linked)}})).accounted


def described(cells, **privacy):
    """A description with noise, as a run."""
    wanted = {"mode": "pairwise", "mask_graph": "complete"} | privacy
    return simulate(read(cells | {"model": DESCRIPTION, "privacy": wanted}), baselines=False)


@pytest.mark.slow
@pytest.mark.plugin("exact")
def test_totals_with_noise_are_composed_over_runs_and_refused_when_nothing_is_left(cells, tmp_path):
    first = described(cells, noise=2.0, epsilon=6.0).summary["privacy"]
    second = described(cells, noise=2.0, epsilon=6.0).summary["privacy"]
    cost = plan(read(cells | {"model": DESCRIPTION, "privacy": {"mode": "pairwise", "noise": 2.0}})).protection.cost
    assert first["epsilon"] == pytest.approx(spent({cost: 1}, delta=1e-5))
    assert second["epsilon"] == pytest.approx(spent({cost: 2}, delta=1e-5))
    for peer in FOUR:
        assert [each["peer"] for each in costs(tmp_path / f"{peer}.csv.budget.jsonl")] == [peer, peer]
    with pytest.raises(InputError, match=r"epsilon = 1\.2 does not permit another round.*raise it, or stop here"):
        described(cells, noise=2.0, epsilon=1.2)
    with pytest.raises(InputError, match=r"does not permit another round.*raise it and set privacy\.noise, or stop"):
        described(cells, epsilon=1.0)
    assert len(costs(tmp_path / "peer0.csv.budget.jsonl")) == 2


@pytest.mark.plugin("exact")
def test_what_totals_have_spent_is_said_before_the_next(cells):
    described(cells, noise=2.0, epsilon=1.2)
    wanted = {"mode": "pairwise", "mask_graph": "complete", "noise": 2.0, "epsilon": 1.2}
    found = facts(resolve(read(cells | {"model": DESCRIPTION, "privacy": wanted})))
    (warning,) = found["warnings"]
    assert re.fullmatch(r"epsilon 1\.\d+ for a sample is spent already by .*peer}\.csv\.budget\.jsonl, and .*", warning)
    assert warning.endswith("and privacy.epsilon permits no further round")


@pytest.mark.plugin("exact")
def test_totals_with_noise_may_be_counted_in_a_file_that_the_experiment_names(cells, tmp_path):
    privacy = {"mode": "pairwise", "mask_graph": "complete", "noise": 2.0, "budget": str(tmp_path / "spent.jsonl")}
    run = simulate(read(cells | {"model": DESCRIPTION, "privacy": privacy}), baselines=False)
    assert run.summary["privacy"]["account"] == "spent.jsonl"
    assert len(costs(tmp_path / "spent.jsonl")) == 4


@pytest.mark.plugin("exact")
def test_costs_under_other_conditions_are_not_added_to_totals(cells):
    described(cells, noise=2.0)
    with pytest.raises(InputError, match=r'kept under privacy\.adjacency = "zero-out" .* has .* = "replace"'):
        described(cells, noise=2.0, adjacency="replace")


@pytest.mark.slow
@pytest.mark.plugin("exact")
def test_totals_and_training_on_secret_batches_add_up_for_each_sample(cells):
    described(cells, noise=2.0)
    cost = plan(read(cells | {"model": DESCRIPTION, "privacy": {"mode": "pairwise", "noise": 2.0}})).protection.cost
    learning = TRAINED["learning"] | {"example_noise": 1.5}
    trains = read(cells | TRAINED | {"learning": learning})
    resolved = plan(trains)
    found = simulate(trains, baselines=False).summary["privacy"]["examples"]["epsilon"]
    steps = {SampledSteps(1.5, *resolved.learner.bare.cost("peer0")): 1}
    total = {SampledSteps(1 / cost.mu, 1.0, 1): 1}
    assert found == pytest.approx(compose_epsilon(steps | total, delta=1e-5), rel=1e-3)
    assert found > max(compose_epsilon(steps, delta=1e-5), compose_epsilon(total, delta=1e-5))


@pytest.mark.plugin("exact")
def test_an_account_of_peers_does_not_count_totals_for_samples(cells, tmp_path):
    spend(tmp_path / "peer3.csv.budget.jsonl", "peer3")
    with pytest.raises(InputError, match="for each peer, and this run has no such cost"):
        described(cells, noise=2.0)


OWN = """
import numpy as np

def load(*, peer, peers, seed, file):
    rng = np.random.default_rng(peers.index(peer))
    return rng.normal(size=(20, 3)), rng.integers(2, size=20)
"""


@pytest.fixture
def loaded(tmp_path, monkeypatch):
    """An experiment whose data come from a function of the user's own, which has no account."""
    (tmp_path / "ownloader.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield {
        "rounds": 1,
        "topology": {"kind": "complete", "peers": 4},
        "data": {"name": "ownloader:load", "options": {"file": "cells.csv"}},
    } | TRAINED
    sys.modules.pop("ownloader", None)


PRICED = [
    {"privacy": {"mode": "independent", "epsilon": 8.0}},
    {"learning": {"device": "cpu", "batch": 4, "example_noise": 2.0}},
]


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("changes", PRICED, ids=["peers", "samples"])
def test_a_claim_that_no_account_counts_says_so_before_and_after_the_run(loaded, changes, tmp_path):
    experiment = read(loaded | changes)
    said = "not accounted: no file adds up what runs spend of these data"
    assert said in describe(plan(experiment), spent=None)["statement"]
    run = simulate(experiment, baselines=False, folder=tmp_path / "run")
    assert run.summary["privacy"]["account"] is None
    assert said in run.summary["privacy"]["statement"]
    assert said in card(run)


def test_what_has_an_account_or_claims_nothing_does_not_say_so(cells, loaded):
    for table in (loaded, cells | TRAINED | PRICED[0], cells | TRAINED | PRICED[1]):
        assert "not accounted" not in describe(plan(read(table)), spent=None)["statement"]


def test_a_run_that_is_put_together_in_python_passes_the_same_door(tmp_path):
    from p2pfl.algorithms import FedAvg  # noqa: PLC0415
    from p2pfl.experiment.modes import Pairwise  # noqa: PLC0415

    torch = pytest.importorskip("torch")
    graph = p2pfl.topology.complete(3)
    data = {peer: (torch.eye(4), torch.tensor([0, 1, 0, 1])) for peer in graph.peers}
    learner = p2pfl.TorchLearner(torch.nn.Linear(4, 2), data)
    path = tmp_path / "spent.jsonl"
    spend(path, "peer0")
    with pytest.raises(InputError, match=r"spent\.jsonl counts the cost of runs on this data"):
        p2pfl.compose(FedAvg(), learner, graph, rounds=1, privacy=Pairwise(budget=str(path)))
