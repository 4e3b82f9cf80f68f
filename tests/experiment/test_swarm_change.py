"""Settings that the operator of a swarm can change, and those that stay with the owners of devices."""

import pytest

from p2pfl.core.errors import DecodeError, InputError
from p2pfl.experiment import read
from p2pfl.experiment.changed_run import changed_experiment, refusal, settings_of
from p2pfl.experiment.file.reading import write
from p2pfl.experiment.swarm_change import SwarmChange
from p2pfl.privacy.keys import Identity, Roster

PLANT = {
    "name": "plant",
    "rounds": 3,
    "data": {"name": "wine"},
    "topology": {"kind": "complete", "peers": 3},
    "learning": {"rate": 0.1, "device": "cpu"},
    "privacy": {"mode": "pairwise"},
}
OPERATOR = Identity(bytes(range(32)))
KEYS = {f"peer{number}": Identity(bytes([number + 1] * 32)).public for number in range(4)}


def settings(**changes):
    return settings_of(read(PLANT, changes=[f"{key.replace('__', '.')}={value}" for key, value in changes.items()]))


def change(table, *, peers=3, operator=OPERATOR.public):
    roster = Roster(dict([*KEYS.items()][:peers]), operator=operator)
    return SwarmChange(swarm="plant", number=1, run="0" * 64, settings=table, roster=roster.text)


def test_rounds_learning_and_topology_change_and_nothing_else():
    before = read(PLANT)
    after = changed_experiment(before, settings(rounds=9, learning__rate=0.5, topology__peers=4))
    assert after == read(PLANT, changes=["rounds=9", "learning.rate=0.5", "topology.peers=4"])


@pytest.mark.parametrize("section", ["data", "privacy", "model", "trust", "telemetry", "transport", "name"])
def test_what_concerns_owners_is_refused(section):
    with pytest.raises(InputError, match="cannot change"):
        changed_experiment(read(PLANT), {section: {}})


@pytest.mark.parametrize(
    ("key", "value"),
    [("max_norm", 9.0), ("example_noise", 0.1), ("learner", "own:Learner"), ("loss", "own:loss"), ("device", "cuda")],
)
def test_clipping_noise_code_and_devices_stay_those_of_the_owners(key, value):
    before = read(PLANT | {"learning": {"rate": 0.1, "device": "cpu", "max_norm": 1.0, "example_noise": 1.0}})
    table = settings_of(before)
    table["learning"] = {**table["learning"], key: value}
    with pytest.raises(InputError, match="the operator cannot"):
        changed_experiment(before, table)


def test_a_graph_in_a_file_is_refused(tmp_path):
    (tmp_path / "graph.json").write_text('{"nodes": [{"id": "a"}, {"id": "b"}], "links": []}')
    table = settings() | {"topology": {"kind": str(tmp_path / "graph.json")}}
    with pytest.raises(InputError, match="the operator cannot name the file"):
        changed_experiment(read(PLANT), table)


def test_the_graph_in_a_file_of_a_device_stays_while_all_else_changes(tmp_path):
    (tmp_path / "ring.edges").write_text("peer0 peer1\npeer1 peer2\npeer2 peer0\n")
    before = read(PLANT | {"topology": {"kind": str(tmp_path / "ring.edges")}})
    (tmp_path / "theirs.edges").write_text("peer0 peer1\n")
    theirs = PLANT | {"rounds": 9, "topology": {"kind": str(tmp_path / "theirs.edges")}}
    table = settings_of(read(theirs))
    assert changed_experiment(before, table) == read(before, changes=["rounds=9"])
    assert refusal(change(table), before, peer="peer0", folder=tmp_path) is None
    assert (
        changed_experiment(before, settings(topology__peers=4)).topology
        == read(PLANT, changes=["topology.peers=4"]).topology
    )


def test_a_peer_follows_what_it_can_begin(tmp_path):
    before = read(PLANT)
    made = change(settings(rounds=9))
    assert refusal(made, before, peer="peer0", folder=tmp_path) is None
    more = settings(topology__peers=4)
    assert refusal(change(more), before, peer="peer0", folder=tmp_path) == "its roster lacks peer3"
    assert refusal(change(more, peers=4), before, peer="peer0", folder=tmp_path) is None
    assert "names no operator" in refusal(change(settings(), operator=b""), before, peer="peer0", folder=tmp_path)
    assert "keeps no files" in refusal(made, before, peer="peer0", folder=None)
    assert "rounds" in refusal(change(settings() | {"rounds": "many"}), before, peer="peer0", folder=tmp_path)


def test_a_peer_that_leaves_needs_no_model_to_begin_with():
    assert refusal(change(settings(topology__peers=2), peers=2), read(PLANT), peer="peer2", folder=None) is None


def test_a_guarantee_needs_one_start_and_an_account(tmp_path):
    noisy = PLANT | {"privacy": {"mode": "pairwise", "noise": 8.0, "clip": 1.0}}
    assert "need one start that all know" in refusal(change(settings()), read(noisy), peer="peer0", folder=tmp_path)


def test_a_learner_of_ones_own_follows_a_change_unless_it_begins_with_a_model_of_its_own(tmp_path):
    own = PLANT | {"learning": PLANT["learning"] | {"learner": "own_loops:sklearn_learner"}}
    before = read(own)
    more = change(settings_of(before) | {"rounds": 9})
    assert refusal(more, before, peer="peer0", folder=tmp_path) is None
    assert "begins with a model of its own" in refusal(more, before, peer="peer0", folder=tmp_path, continues=False)
    assert "cannot change learning.learner" in refusal(more, read(PLANT), peer="peer0", folder=tmp_path)


def test_no_reason_names_a_folder_of_the_device(tmp_path):
    noisy = PLANT | {"privacy": {"mode": "pairwise", "noise": 8.0, "clip": 1.0}}
    common = noisy | {"learning": PLANT["learning"] | {"consensus": True}}
    (tmp_path / "peers").mkdir()
    (tmp_path / "experiment.toml").write_text(write(read(common)))
    for experiment in (noisy, common):
        before = read(experiment)
        reason = refusal(change(settings_of(before)), before, peer="peer0", folder=tmp_path)
        assert reason
        assert str(tmp_path) not in reason
    assert "no account there adds up the epsilon" in reason


def test_no_run_follows_a_site_whose_officer_approves_each_experiment(tmp_path, monkeypatch):
    policy = tmp_path / "policy.toml"
    policy.write_text('officer = "ed25519:AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="\nmodels = ["mlp"]\n')
    monkeypatch.setenv("P2PFL_POLICY", str(policy))
    assert "approves each experiment" in refusal(change(settings()), read(PLANT), peer="peer0", folder=tmp_path)


@pytest.mark.parametrize(
    ("section", "key", "value", "reason"),
    [
        ("learning", "optimizer", "adamm", "adamm"),
        ("learning", "algorithm_options", {"mu": 1.0}, "mu"),
        ("learning", "loss", "x", "learning.loss"),
        ("topology", "kind", "rng", "rng"),
        ("topology", "kind", "random_regular", "topology.degree"),
    ],
)
def test_a_peer_does_not_follow_into_a_run_that_nobody_could_begin(tmp_path, section, key, value, reason):
    table = settings()
    table[section] = table[section] | {key: value}
    assert reason in (refusal(change(table), read(PLANT), peer="peer0", folder=tmp_path) or "")


def test_a_number_of_peers_that_no_memory_holds_is_refused_at_once(tmp_path):
    table = settings()
    table["topology"] = table["topology"] | {"peers": 10**15}
    assert "lacks most" in refusal(change(table), read(PLANT), peer="peer0", folder=tmp_path)


def test_the_reason_of_a_damaged_policy_names_no_folder_of_the_site(tmp_path, monkeypatch):
    policy = tmp_path / "site" / "policy.toml"
    policy.parent.mkdir()
    policy.write_text("officer = 3\n")
    monkeypatch.setenv("P2PFL_POLICY", str(policy))
    reason = refusal(change(settings()), read(PLANT), peer="peer0", folder=tmp_path / "runs" / "plant")
    assert "policy.toml" in reason
    assert "site" not in reason


def test_bytes_that_are_no_change_are_refused_in_a_sentence_without_words_of_their_sender():
    said = set()
    for data in (b'{"made-up": 1}', b'{"other": 1}', b"[", b"x" * 70_000, b"x" * 80_000):
        with pytest.raises(DecodeError) as raised:
            SwarmChange.decode(data)
        said.add(str(raised.value))
    assert len(said) == 2
