import json
import math

import pytest

from p2pfl.cli.planning import privacy
from p2pfl.experiment import plan, read
from p2pfl.privacy.accounting import divergence
from p2pfl.privacy.accounting.spending import Cost
from p2pfl.results.spending.budget import Budget
from p2pfl.results.spending.observers import listening

CLAIM = ("--set", "privacy.mode=pairwise", "--set", "privacy.epsilon=8", "--set", "topology.peers=4")
QUICK = (*CLAIM, "--no-baselines")
TABLE = {
    "rounds": 6,
    "topology": {"kind": "random_regular", "peers": 10, "degree": 4},
    "data": {"name": "wine"},
    "model": {"name": "linear"},
    "privacy": {"mode": "pairwise", "epsilon": 8.0, "colluders": 2},
}


def facts(*changes):
    return privacy.facts(privacy.resolve(read(TABLE, changes=changes)))


def test_the_command_explains_itself(p2pfl):
    said = p2pfl("privacy", "--help")
    assert said.status == 0
    assert "--no-baselines" in said.out


def test_every_observer_has_a_line_and_the_budget_is_met(p2pfl):
    said = p2pfl("privacy", "small.toml", *QUICK)
    assert said.status == 0
    for words in (
        "broker that only listens",
        "1 neighbour, broker listens",
        "broker that lies",
        "1 neighbour, broker lies",
        "everyone else",
        "local floor",
        "gossip steps a round",
        "zero-out",
        "budget",
    ):
        assert words in said.out
    assert "(8, 1e-05)-differential privacy" in said.out
    assert all(len(line) <= 80 for line in said.out.splitlines() if "differential" not in line)


@pytest.mark.slow
def test_guarantees_are_those_of_the_plan_over_all_rounds():
    protection = plan(read(TABLE)).protection
    expected = protection.observers()
    found = listening(facts()["observers"])
    assert [each["observer"] for each in found] == [
        "broker that only listens",
        "1 neighbour, broker listens",
        "2 colluders, broker listens",
        "everyone else",
    ]
    for each, given in zip(found, expected, strict=True):
        assert each["mu"] == pytest.approx(given.mu * math.sqrt(6), rel=1e-12)
        assert each["epsilon"] == pytest.approx(divergence.epsilon(each["mu"], delta=1e-5))
        assert each["local_epsilon"] == pytest.approx(protection.total({protection.local: 6}))
        assert each["attack"]["auc"] == divergence.ceilings(each["mu"]).auc
        assert (each["peer"], each["search"], each["adjacency"]) == (given.peer, given.search, given.adjacency)
    assert found[2]["promised"]
    assert found[2]["epsilon"] == pytest.approx(8.0)


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("colluders", [0, 1, 9])
def test_nobody_and_everybody_colluding_are_lines_too(colluders):
    found = facts(f"privacy.colluders={colluders}", "privacy.mode=independent")
    assert [each["promised"] for each in found["observers"]].count(True) == 1
    assert len(listening(found["observers"])) == 3
    lied_to = [each for each in found["observers"] if each["broker"] == "lies"]
    assert len(lied_to) == 2
    for each in lied_to:  # private noise alone needs nobody
        assert each["epsilon"] == pytest.approx(each["local_epsilon"])


@pytest.mark.sampled(fast=0, all=1)
@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_epsilon_over_rounds_rises_to_that_of_the_table(participation):
    found = facts(f"privacy.participation={participation}", "rounds=40")
    assert found["curve"]["rounds"][0] == 1
    assert found["curve"]["rounds"][-1] == 40
    for each, curve in zip(listening(found["observers"]), found["curve"]["epsilon"], strict=True):
        assert curve == sorted(curve)
        assert curve[-1] == each["epsilon"]


def budget(path, experiment):
    return Budget(path, experiment.privacy, plan(experiment).topology.peers)


@pytest.mark.slow
def test_what_was_spent_before_leaves_fewer_rounds_and_counts_against_the_budget(tmp_path):
    path = tmp_path / "spent.jsonl"
    experiment = read(
        TABLE, changes=[f"privacy.budget={path}", "privacy.noise=1", "privacy.mask=20", "privacy.clip=1", "rounds=60"]
    )
    whole = privacy.facts(privacy.resolve(experiment))
    cost = plan(experiment).protection.cost
    for round in range(whole["affordable"] // 3):
        budget(path, experiment).spend(["peer3"], run="earlier", round=round, cost=Cost(cost.mu * 1.2))
    found = privacy.facts(privacy.resolve(experiment))
    assert 0 < found["affordable"] < whole["affordable"]
    assert 0 < found["spent_before"] < found["spent_after"] <= 8
    other = privacy.facts(privacy.resolve(experiment, only="peer4"))
    assert other["spent_before"] == 0


@pytest.mark.slow
def test_the_rows_are_of_this_run_alone_and_the_curve_of_the_budget_ends_where_it_does(tmp_path, capsys):
    path = tmp_path / "spent.jsonl"
    experiment = read(
        TABLE, changes=[f"privacy.budget={path}", "privacy.noise=1", "privacy.mask=20", "privacy.clip=1", "rounds=60"]
    )
    cost = plan(experiment).protection.cost
    budget(path, experiment).spend(["peer3"], run="earlier", round=0, cost=Cost(cost.mu * 2.5))
    found = privacy.facts(privacy.resolve(experiment))
    rows = [each["epsilon"] for each in listening(found["observers"])]
    assert rows == sorted(rows)
    rounds, resolved = found["affordable"], plan(experiment).protection
    assert rows[2] == pytest.approx(resolved.total({resolved.cost: rounds}))
    together = resolved.total({resolved.cost: rounds, Cost(cost.mu * 2.5): 1})
    assert rows[2] < together == pytest.approx(found["spent_after"])
    assert found["curve"]["in_all"][-1] == pytest.approx(together)
    privacy.show(found)
    said = " ".join(capsys.readouterr().out.split())
    assert f"epsilon {together:.3g} for the bold row" in said


@pytest.mark.slow
def test_a_budget_of_which_nothing_is_left_is_said_beside_what_the_rounds_would_cost(tmp_path, capsys):
    path = tmp_path / "spent.jsonl"
    experiment = read(TABLE, changes=[f"privacy.budget={path}"])
    budget(path, experiment).spend(["peer3"], run="earlier", round=0, cost=Cost(5.0))
    found = privacy.facts(privacy.resolve(experiment))
    assert found["affordable"] == 0
    privacy.show(found)
    said = " ".join(capsys.readouterr().out.split())
    assert "6, of which epsilon 8 allows 0" in said
    assert f"{found['spent_before']:.3g}" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["privacy.delta=0.9"], "privacy.delta = 0.9 lets all updates of a peer be shown"),
        (["privacy.epsilon=90"], "protects next to nothing"),
        (["privacy.noise=0.2", "privacy.clip=1", "privacy.epsilon=60"], "protects next to nothing"),
    ],
)
def test_a_promise_that_is_worth_nothing_is_called_that(changes, said, capsys):
    found = facts(*changes)
    privacy.show(found)
    assert said in " ".join(capsys.readouterr().out.split())
    assert facts()["warnings"] == []


@pytest.mark.slow
def test_a_clip_that_nobody_gave_is_said_to_be_one():
    assert "clip 1 as none is given" in privacy.describe(facts())["noise"]
    assert privacy.describe(facts("privacy.clip=2"))["noise"].endswith("clip 2")


def test_noise_next_to_none_is_refused_without_a_warning(p2pfl):
    sets = [f"--set=privacy.{each}" for each in ("mode=independent", "epsilon=8", "clip=1", "noise=1e-9")]
    said = p2pfl("privacy", "small.toml", *sets)
    assert said.status == 2
    assert said.err.count("\n") == 1
    assert "does not suffice for one round" in said.err


@pytest.mark.slow
@pytest.mark.parametrize("noise", [1e3, 1e6])
def test_noise_that_costs_next_to_nothing_is_drawn_all_the_same(p2pfl, place, noise):
    sets = [f"--set=privacy.{each}" for each in ("mode=pairwise", "clip=1", f"noise={noise}", "bits=10")]
    said = p2pfl("privacy", "small.toml", *sets, "--peers", 4, "--no-baselines", "--plot", "epsilon.svg")
    assert said.status == 0
    assert (place / "epsilon.svg").read_text().count("<svg") == 1


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        (["privacy.mode=none"], "nothing is hidden"),
        ([], "lacks privacy.clip and privacy.noise"),
        (["privacy.clip=1"], "lacks privacy.noise: set privacy.epsilon"),
        (["privacy.noise=1"], "lacks privacy.clip: set it"),
    ],
)
def test_what_a_claim_lacks_is_said_and_the_table_is_printed_all_the_same(p2pfl, changes, missing):
    sets = [part for change in ["privacy.mode=pairwise", *changes] for part in ("--set", change)]
    said = p2pfl("privacy", "small.toml", *sets)
    assert said.status == 0
    assert missing in " ".join(said.out.split())
    assert "everyone else" in said.out
    result = json.loads(p2pfl("privacy", "small.toml", *sets, "--json").out)
    assert result["observers"][0]["mu"] is None
    assert result["comparison"] is None


def test_a_mode_of_ones_own_is_not_taken_for_none(p2pfl, tmp_path, monkeypatch):
    (tmp_path / "own_mode.py").write_text(
        "import p2pfl\n\nclass Own(p2pfl.NoPrivacy):\n    name = 'own'\n    unused = {}\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(tmp_path)
    said = p2pfl("privacy", "small.toml", "--set", "privacy.mode=own_mode:Own", "--trust-code")
    assert said.status == 0, said.err
    assert 'what privacy.mode = "own" hides is not computed' in " ".join(said.out.split())


def test_whether_learning_together_pays_is_said_in_one_sentence_after_the_table(p2pfl):
    said = p2pfl("privacy", "small.toml", *CLAIM)
    assert said.status == 0
    last = said.out.splitlines()[-1]
    assert last.startswith("learning together ")
    assert "trusted curator" in last


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["privacy.epsilon=1", "rounds=10"], "it would begin to pay with about"),
        (["privacy.clip=1e-6"], "without any noise it reaches"),
        (["privacy.clip=20", "rounds=10"], "long, and the noise hides up to the clip 20: lower privacy.clip"),
        (["privacy.epsilon=60", "privacy.clip=1"], "learning together can pay"),
    ],
)
def test_the_verdict_names_what_is_in_the_way(changes, words):
    found = privacy.compare_with_curator(privacy.resolve(read(TABLE, changes=["privacy.colluders=1", *changes])))
    assert words in found["sentence"]
    assert found["pays"] == words.endswith("can pay")
    if "peers of" in found["sentence"]:
        assert f"about {found['peers_needed']} peers" in found["sentence"]


@pytest.mark.slow
def test_all_of_it_comes_as_json(p2pfl):
    said = p2pfl("privacy", "small.toml", *CLAIM, "--json", "--peers", "5")
    found = json.loads(said.out)
    assert found["peers"] == 5
    assert found["observers"][1]["colluders"]
    assert found["observers"][-1]["colluders"] == "everyone else"
    assert {"alone", "curator", "pays", "sentence"} <= set(found["comparison"])


def test_with_one_peers_data_nothing_is_compared(p2pfl):
    said = p2pfl("privacy", "small.toml", *CLAIM, "--name", "peer1")
    assert said.status == 0
    assert "only the data of peer1 are here" in said.out
    assert p2pfl("privacy", "small.toml", *CLAIM, "--name", "eve").status == 2


@pytest.mark.slow
def test_a_picture_is_drawn_of_what_is_claimed(p2pfl, place):
    assert p2pfl("privacy", "small.toml", *QUICK, "--plot", "epsilon.svg").status == 0
    picture = (place / "epsilon.svg").read_text("utf-8")
    assert picture.startswith("<?xml")
    said = p2pfl("privacy", "small.toml", "--plot", "none.svg")
    assert (said.status, said.out) == (2, "")
    assert "claims no epsilon" in said.err
    said = p2pfl("privacy", "small.toml", *QUICK, "--plot", "epsilon.odd")
    assert (said.status, said.out) == (2, "")


def test_wrong_input_is_refused_in_one_sentence(p2pfl):
    assert p2pfl("privacy", "nowhere.toml").status == 2
    said = p2pfl("privacy", "small.toml", *CLAIM, "--set", "privacy.colluders=2")
    assert said.status == 2
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["topology.kind=star"], "one colluding peer could remove all masks from a model"),
        (["topology.kind=ring", "privacy.colluders=2"], "2 colluding peers could remove all masks from a model"),
        (["topology.kind=path", "topology.peers=3"], "one colluding peer could remove all masks from a model"),
        (["topology.kind=complete", "topology.peers=3"], "one colluding peer could leave only two peers to hide each"),
        (["topology.kind=path", "topology.peers=2", "privacy.colluders=0"], "two peers can remove all masks from each"),
        (["topology.kind=ring", "privacy.colluders=1"], None),
        (["topology.kind=star", "privacy.mask_graph=complete"], None),
    ],
)
def test_masks_that_colluders_could_take_off_a_row_are_said_to_be(changes, said):
    masks = {"topology": {"peers": 6}, "data": {"name": "wine"}, "privacy": {"mode": "pairwise", "partners": 1}}
    statement = privacy.facts(privacy.resolve(read(masks, changes=changes)))["statement"]
    assert ("use more peers" in statement) == (said is not None)
    assert said is None or said in statement


@pytest.mark.parametrize(
    ("departures", "noise", "said"),
    [
        ("go_on", 0.0, "exact update of that round is visible to whoever holds its model"),
        ("go_on", 0.5, "private noise alone hides its update of that round from whoever holds its model"),
        ("wait", 0.0, "the others wait for it and play the round again"),
    ],
)
def test_the_statement_says_what_a_dropped_model_shows(departures, noise, said):
    wanted = {"mode": "pairwise", "noise": noise, "clip": 1.0, "departures": departures}
    changed = {"topology": {"kind": "complete", "peers": 4}, "gossip": {"steps": 1}, "privacy": wanted}
    assert said in privacy.facts(privacy.resolve(read(TABLE | changed)))["statement"]
