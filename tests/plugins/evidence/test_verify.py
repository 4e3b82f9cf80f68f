"""Verification of runs by their evidence: honest runs agree, and each planted manipulation is named."""

import base64
import json
import shutil
import tracemalloc
import zlib
from pathlib import Path

import msgspec
import numpy as np
import pytest
import tomli_w
from safetensors.torch import load_file, save_file

import p2pfl
from p2pfl.cli import main
from p2pfl.privacy.keys import Identity, Roster, SeededSource, key_text, sign_text
from p2pfl.results.evidence import DOMAIN, Chain, PeerBegan, PeerEnded, RoundPlayed, RowSent, read_chain, tensors_digest

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("verify")]  # one process plays the runs for all of them

PEERS = ("peer0", "peer1", "peer2")
LIAR = "peer1"
GOSSIP = {
    "name": "gossip",
    "rounds": 3,
    "topology": {"kind": "complete", "peers": 3},
    "data": {"name": "wine"},
    "model": {"name": "linear"},
    "learning": {"device": "cpu"},
    "privacy": {"mode": "independent", "clip": 1.0, "noise": 0.5},
    "trust": {"keys": "keys"},
}
AVERAGES = {key: value for key, value in GOSSIP.items() if key != "privacy"} | {"name": "averages"}
EXACT = {
    "name": "totals",
    "rounds": 20,
    "topology": {"kind": "complete", "peers": 3},
    "data": {
        "name": "table",
        "options": {
            "path": "{peer}.csv",
            "target": "ill",
            "columns": {"age": "number", "sex": ["f", "m"], "ill": ["no", "yes"]},
        },
    },
    "model": {"name": "glm", "options": {"family": "binomial", "formula": "ill ~ age + sex"}},
    "learning": {"algorithm": "exact"},
    "privacy": {"mode": "pairwise"},
    "trust": {"keys": "keys"},
}


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """Folder with the run directories of live peers, ``gossip``, ``averages`` and ``totals``, and their roster."""
    home = tmp_path_factory.mktemp("played")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        for number, peer in enumerate(PEERS):
            rng = np.random.default_rng(number)
            ages, answers = rng.integers(20, 80, 60), np.where(rng.random((60, 2)) < 0.5, ["f", "no"], ["m", "yes"])
            rows = [f"{age},{sex},{ill}" for age, (sex, ill) in zip(ages, answers, strict=True)]
            (home / f"{peer}.csv").write_text("\n".join(["age,sex,ill", *rows]))
        for experiment in (GOSSIP, AVERAGES, EXACT):
            name = experiment["name"]
            (home / f"{name}.toml").write_bytes(tomli_w.dumps(experiment).encode())
            assert main(["run", f"{name}.toml", "--no-baselines"]) == 0
            (made,) = (home / "runs").glob(f"{name}-*")
            made.rename(home / name)
    Roster({peer: Identity.load(home / "keys" / f"{peer}.pem").public for peer in PEERS}).write(home / "roster.toml")
    return home


@pytest.fixture
def attacker(played):
    """Identity of the peer that lies."""
    return Identity.load(played / "keys" / f"{LIAR}.pem")


@pytest.fixture
def bundle(played, tmp_path):
    """Return a function that copies a run, and the folder of all."""

    def copy(name):
        return Path(shutil.copytree(played / name, tmp_path / name))

    return copy


def verified(folder, capsys, *arguments):
    """Return the status of `p2pfl verify`, and its findings."""
    capsys.readouterr()
    status = main(["verify", str(folder), "--json", *map(str, arguments)])
    return status, json.loads(capsys.readouterr().out)["findings"]


@pytest.mark.parametrize(
    ("name", "computed"),
    [("gossip", "charges, computed again"), ("totals", "models, computed again from totals")],
)
def test_the_evidence_of_an_honest_run_agrees(played, capsys, name, computed):
    assert main(["verify", str(played / name), "--roster", str(played / "roster.toml"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["findings"] == []
    assert {"the privacy statement", computed} <= {*result["checked"]}


@pytest.mark.parametrize("name", ["averages", "totals"])
def test_the_evidence_of_a_live_run_agrees_with_its_simulation_alone(played, tmp_path, capsys, monkeypatch, name):
    monkeypatch.chdir(played)
    precision = "to the bit" if name == "totals" else "to "
    simulate = ["simulate", f"{name}.toml", "--no-baselines", "--unaccounted"]
    for folder, change in (("same", "seed=0"), ("other", "seed=3")):
        assert main([*simulate, "--runs", str(tmp_path / folder), "--set", change]) == 0
    (simulation,), (other,) = (tmp_path / "same").iterdir(), (tmp_path / "other").iterdir()
    capsys.readouterr()
    assert main(["verify", name, "--simulation", str(simulation)]) == 0
    assert f"the models of the simulation, {precision}" in capsys.readouterr().err
    status, findings = verified(name, capsys, "--simulation", other)
    assert status == 1
    assert {each["sentence"] for each in findings} == {"it began with another experiment than the simulation"}
    changed = simulation / "peers" / f"{LIAR}.safetensors"
    save_file({key: values + 0.5 for key, values in load_file(changed).items()}, changed)
    status, findings = verified(name, capsys, "--simulation", simulation)
    assert status == 1
    assert [each["peer"] for each in findings] == [LIAR]


def test_models_under_private_noise_are_not_those_of_a_simulation(played, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(played)
    assert main(["simulate", "gossip.toml", "--no-baselines", "--runs", str(tmp_path)]) == 0
    (simulation,) = tmp_path.iterdir()
    assert main(["verify", "gossip", "--simulation", str(simulation)]) == 0
    assert "private noise is drawn anew in a simulation" in capsys.readouterr().err


def test_evidence_has_no_sample_and_no_secret(played):
    for name in ("gossip", "totals"):
        for peer in PEERS:
            text = (played / name / "peers" / f"{peer}.evidence.jsonl").read_text()
            facts = [entry.fact for _, entry in read_chain(played / name / "peers" / f"{peer}.evidence.jsonl")]
            assert {type(fact) for fact in facts} <= {PeerBegan, RowSent, RoundPlayed, PeerEnded}
            secret = (played / name / "peers" / f"{peer}.evidence.key").read_bytes()
            assert secret.hex() not in text
            assert (played / name / "peers" / f"{peer}.evidence.jsonl").stat().st_mode & 0o077 == 0


def test_some_peers_are_enough_and_the_others_are_named_as_absent(bundle, capsys):
    folder = bundle("gossip")
    (folder / "peers" / "peer2.evidence.jsonl").unlink()
    capsys.readouterr()
    assert main(["verify", str(folder)]) == 0
    assert "the evidence of peer2 was not given" in capsys.readouterr().err


# ---------------------------------------------------------------------- manipulations of an insider, who signs anew


def rewritten(folder, change, *, key, peer=LIAR):
    """Let a peer with its own key write its chain anew with other facts."""
    path = folder / "peers" / f"{peer}.evidence.jsonl"
    facts = [entry.fact for _, entry in read_chain(path)]
    path.unlink()
    chain = Chain(path, key)
    for fact in change(facts):
        chain.append(fact)


def each(kind, **fields):
    """Return a change of fields of all facts of a kind, or of those of round 1."""

    def change(facts):
        for fact in facts:
            concerned = isinstance(fact, kind) and getattr(fact, "round", 1) == 1
            yield msgspec.structs.replace(fact, **fields) if concerned else fact

    return change


def without(kind, round):
    return lambda facts: [fact for fact in facts if not (isinstance(fact, kind) and fact.round == round)]


def total(**fields):
    """Return a change of the first total of round 1."""

    def change(facts):
        for fact in facts:
            concerned = isinstance(fact, RoundPlayed) and fact.round == 1
            first, *others = fact.totals if concerned else [None]
            changed = () if first is None else (msgspec.structs.replace(first, **fields), *others)
            yield msgspec.structs.replace(fact, totals=changed) if concerned else fact

    return change


def received(facts):
    for fact in facts:
        concerned = isinstance(fact, RoundPlayed) and fact.round == 1
        rows = fact.received | {"peer0": {"1.0": "0" * 64}} if concerned else {}
        yield msgspec.structs.replace(fact, received=rows) if concerned else fact


def restarted(**fields):
    """Return a change by which a peer begins again before its last entry."""
    return lambda facts: [*facts[:-1], msgspec.structs.replace(facts[0], **fields), facts[-1]]


MANIPULATIONS = {
    "a row that was not sent": ("gossip", each(RowSent, row="0" * 64), 1, "it says that it sent another row than"),
    "a row that was not received": ("gossip", received, 1, "it says that it sent another row than peer1"),
    "a dropped round": ("gossip", without(RoundPlayed, 1), 1, "it sent its row, and the round is not in its evidence"),
    "a round without a release": ("gossip", without(RowSent, 1), 1, "received its row, which is not in its evidence"),
    "an undercharged round": ("gossip", each(RoundPlayed, spent=0.001), 1, "what it has spent falls"),
    "a free run": ("gossip", each(PeerBegan, charge=None), -1, "it has another charge a round than the others"),
    "another experiment": (
        "gossip",
        each(PeerBegan, experiment="0" * 64),
        -1,
        "it has another experiment than the others",
    ),
    "another statement": ("gossip", each(PeerBegan, statement="0" * 64), -1, "it has another privacy statement"),
    "another roster": ("gossip", each(PeerBegan, roster="0" * 64), -1, "it has another roster than the others"),
    "another version": ("gossip", each(PeerBegan, versions={"p2pfl": "0.1.0"}), -1, "it has another version of p2pfl"),
    "another word on its data": (
        "gossip",
        each(PeerBegan, grows=True),
        -1,
        "it has another word on whether data are read",
    ),
    "other code": ("gossip", each(PeerBegan, code={"own:Model": "0" * 64}), -1, "it has other code than the others"),
    "another run": ("gossip", each(PeerBegan, swarm="other"), -1, "it has another run than the others"),
    "an undercharged round after a restart": (
        "gossip",
        lambda facts: [
            msgspec.structs.replace(fact, spent=0.001) if isinstance(fact, RoundPlayed) else fact
            for fact in [facts[0], *facts]
        ],
        0,
        "it has spent less than the others",
    ),
    "other data after a restart": ("gossip", restarted(data="0" * 64), 2, "the data are others after a restart"),
    "a shorter run": (
        "gossip",
        lambda facts: [*facts[:-3], facts[-1]],
        -1,
        "it ends after 3 rounds, and has played up to 1",
    ),
    "another total": ("totals", total(digest="0" * 64), 1, "total 0 is not what its digest says"),
    "other participants": ("totals", total(participants=("peer0", "peer1")), 1, "it has other participants of total 0"),
    "a total left out": (
        "totals",
        each(RoundPlayed, totals=()),
        1,
        "it took part in total 0, which is not in its evidence",
    ),
    "an end cut off before a total": (
        "totals",
        lambda facts: facts[:2],
        2,
        "it took part in total 0, which is not in its evidence",
    ),
    "a round that was played twice": (
        "gossip",
        lambda facts: [each for fact in facts for each in [fact] * (1 + (isinstance(fact, RoundPlayed)))],
        1,
        "it played the round after round 1, without a restart",
    ),
    "another model at the end": (
        "totals",
        lambda facts: [*facts[:-1], msgspec.structs.replace(facts[-1], model="0" * 64)],
        -1,
        "the model with which it ended is not that of its rounds",
    ),
    "another model of totals": (
        "totals",
        each(RoundPlayed, row="0" * 64),
        1,
        "the model does not follow from the totals",
    ),
}


@pytest.mark.parametrize("name", MANIPULATIONS)
def test_a_lie_of_a_peer_that_signs_it_is_named_with_peer_and_round(bundle, attacker, capsys, name):
    run, change, round, sentence = MANIPULATIONS[name]
    folder = bundle(run)
    rewritten(folder, change, key=attacker)
    status, findings = verified(folder, capsys)
    assert status == 1
    assert any(sentence in each["sentence"] and each["round"] == round for each in findings), findings
    assert {each["peer"] for each in findings} <= {LIAR, "peer0"}


BOMB = base64.b64encode(zlib.compress(bytes(64 * 2**20))).decode()
MALFORMED = {"no base64": "é", "no compression": "AAAA", "half an integer": "eJxjAAAAAQAB", "a bomb": BOMB}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_totals_are_named_and_take_no_memory(bundle, attacker, capsys, name):
    folder = bundle("totals")
    rewritten(folder, total(values=MALFORMED[name]), key=attacker)
    tracemalloc.start()
    status, findings = verified(folder, capsys)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert status == 1
    assert (LIAR, 1) in {(each["peer"], each["round"]) for each in findings}
    assert most < 40 * 2**20


@pytest.mark.parametrize(
    "change",
    [
        each(RoundPlayed, received={"peer0": {"x": "0" * 64}}),
        each(RoundPlayed, received={"peer0": {"0.0": "../../../secret"}}),
        each(RoundPlayed, row="0" * 300),
        each(RowSent, row="../../../secret"),
        each(RowSent, row="0" * 64 + "\n"),
    ],
)
def test_a_step_that_is_no_number_and_a_digest_that_is_none_are_refused(bundle, attacker, capsys, change):
    folder = bundle("gossip")
    rewritten(folder, change, key=attacker)
    assert main(["verify", str(folder)]) == 2
    assert "is no entry of a chain" in capsys.readouterr().err


# ---------------------------------------------------------------------- manipulations of somebody without the key


LIES_OF_ALL = {
    "half of the charge": (
        each(PeerBegan, charge="Cost(mu=0.25, probability=1.0)"),
        "its evidence states a cost of Cost(mu=0.25, probability=1.0) a round; the settings give Cost(mu=",
    ),
    "a charge of odd numbers": (
        each(PeerBegan, charge="Cost(mu=1.2.3, probability=1.0)"),
        "its evidence states a cost of",
    ),
    "a charge in other digits": (each(PeerBegan, charge="Cost(mu=²., probability=1)"), "its evidence states a cost of"),
    "half of what was spent": (
        lambda facts: [
            msgspec.structs.replace(fact, spent=fact.spent / 2) if isinstance(fact, RoundPlayed) else fact
            for fact in facts
        ],
        "and its 1 round cost",
    ),
    "another statement": (each(PeerBegan, statement="0" * 64), "its privacy statement is not that of the settings"),
}


@pytest.mark.parametrize("name", LIES_OF_ALL)
def test_a_lie_on_which_all_peers_agree_does_not_follow_from_the_settings(bundle, played, capsys, name):
    folder, (change, sentence) = bundle("gossip"), LIES_OF_ALL[name]
    for peer in PEERS:
        rewritten(folder, change, key=Identity.load(played / "keys" / f"{peer}.pem"), peer=peer)
    status, findings = verified(folder, capsys)
    assert status == 1
    assert {each["peer"] for each in findings if sentence in each["sentence"]} == {*PEERS}


def test_a_lost_row_an_unknown_start_and_another_library_are_named_as_open(bundle, attacker, capsys):
    folder = bundle("gossip")
    versions = {"p2pfl": p2pfl.__version__, "torch": "2.1.0", "numpy": np.__version__}

    def change(facts):
        facts = each(PeerBegan, versions=versions)(facts)
        return each(RoundPlayed, received={}, incarnations={"peer0": 7, "peer2": 8})(facts)

    rewritten(folder, change, key=attacker)
    assert main(["verify", str(folder)]) == 0
    error = capsys.readouterr().err
    assert "peer1 has no row of peer0 in round 1, which peer0 sent" in error
    assert "peer1 has seen a start of peer0 that the evidence of peer0 does not have" in error
    assert "other versions of torch" in error


def test_settings_that_were_changed_beside_some_peers_are_named(bundle, tmp_path, capsys):
    first, second = bundle("gossip"), tmp_path / "second"
    shutil.copytree(first, second)
    for folder, peers in ((first, ["peer1", "peer2"]), (second, ["peer0"])):
        for peer in peers:
            (folder / "peers" / f"{peer}.evidence.jsonl").unlink()
    settings = second / "experiment.toml"
    settings.write_text(settings.read_text().replace("rounds = 3", "rounds = 4"))
    assert main(["verify", str(first), str(second), "--json"]) == 1
    assert [each["peer"] for each in json.loads(capsys.readouterr().out)["findings"]] == ["peer1", "peer2"]


def edited(folder, change):
    path = folder / "peers" / f"{LIAR}.evidence.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in change(path.read_bytes().splitlines())))


EDITS = {
    "a changed entry": lambda lines: [lines[0], lines[1].replace(b'"round":0', b'"round":1'), *lines[2:]],
    "a removed entry": lambda lines: [*lines[:2], *lines[3:]],
    "two entries in another order": lambda lines: [lines[0], lines[2], lines[1], *lines[3:]],
    "a repeated entry": lambda lines: [*lines[:2], lines[1], *lines[2:]],
    "no beginning": lambda lines: lines[1:],
}


@pytest.mark.parametrize("name", EDITS)
def test_a_chain_that_somebody_else_has_changed_is_named(bundle, capsys, name):
    folder = bundle("gossip")
    edited(folder, EDITS[name])
    status, findings = verified(folder, capsys)
    assert status == 1
    assert any(each["peer"] == LIAR and "the chain breaks" in each["sentence"] for each in findings)


def test_a_changed_model_is_named(bundle, capsys):
    folder = bundle("gossip")
    path = folder / "peers" / f"{LIAR}.safetensors"
    tensors = load_file(path)
    first = next(iter(tensors))
    tensors[first] = tensors[first] + 1e-6
    save_file(tensors, path)
    status, findings = verified(folder, capsys)
    assert (status, [each["peer"] for each in findings]) == (1, [LIAR])
    assert "is not the model with which it ended" in findings[0]["sentence"]


def test_the_model_of_a_round_is_no_digest_that_confirms_a_guess(played):
    for name in ("gossip", "totals"):
        peers = played / name / "peers"
        facts = [entry.fact for _, entry in read_chain(peers / f"{LIAR}.evidence.jsonl")]
        secret, public = (peers / f"{LIAR}.evidence.key").read_bytes(), name == "totals"
        tensors = load_file(peers / f"{LIAR}.safetensors")
        assert facts[0].public == public
        assert (facts[-1].model == tensors_digest(tensors)) == public
        assert (facts[-1].model == tensors_digest(tensors, key=secret)) != public


def test_a_model_of_private_training_is_checked_by_its_owner_alone(bundle, capsys):
    folder = bundle("gossip")
    assert main(["verify", str(folder)]) == 0
    assert "model files" in capsys.readouterr().err
    for path in folder.glob("peers/*.evidence.key"):
        path.unlink()
    assert main(["verify", str(folder)]) == 0
    text = capsys.readouterr().err
    assert "model files" not in text
    assert "the models of peer0, peer1, peer2 need the keys of their owners, NAME.evidence.key" in " ".join(
        text.split()
    )


def test_evidence_without_an_end_is_called_unfinished(bundle, attacker, capsys):
    folder = bundle("gossip")
    rewritten(folder, lambda facts: facts[:-1], key=attacker)
    assert main(["verify", str(folder)]) == 0
    assert "the evidence of peer1 stops after 3 rounds, without an end" in " ".join(capsys.readouterr().err.split())


def test_an_impostor_with_a_key_of_their_own_is_named_by_the_roster(bundle, played, capsys):
    folder = bundle("gossip")
    impostor = Identity.generate(SeededSource(1), peer=LIAR)
    rewritten(folder, each(PeerBegan, key=key_text(impostor.public)), key=impostor)
    assert verified(folder, capsys)[0] == 0  # nobody knows whose key it is
    status, findings = verified(folder, capsys, "--roster", played / "roster.toml")
    assert (status, {each["sentence"] for each in findings}) == (1, {"the key is not that of the roster"})


def test_a_roster_names_who_has_no_evidence_and_whose_evidence_it_does_not_know(bundle, played, tmp_path, capsys):
    folder, keys = bundle("gossip"), Roster.read(played / "roster.toml").peers
    other = Identity.generate(SeededSource(1), peer="peer9").public
    Roster({**keys, "peer9": other}).write(tmp_path / "more.toml")
    assert main(["verify", str(folder), "--roster", str(tmp_path / "more.toml")]) == 0
    error = " ".join(capsys.readouterr().err.split())
    assert "not checked: whether peer9 of the roster took part" in error
    Roster({peer: key for peer, key in keys.items() if peer != LIAR}).write(tmp_path / "fewer.toml")
    status, findings = verified(folder, capsys, "--roster", tmp_path / "fewer.toml")
    assert status == 1
    assert [(each["peer"], each["sentence"]) for each in findings] == [(LIAR, "the roster has no key of it")]


def test_the_chain_of_another_run_is_named(bundle, capsys):
    folder, other = bundle("gossip"), bundle("totals")
    shutil.copyfile(other / "peers" / f"{LIAR}.evidence.jsonl", folder / "peers" / f"{LIAR}.evidence.jsonl")
    status, findings = verified(folder, capsys)
    assert status == 1
    assert any(each["peer"] == LIAR and "another run" in each["sentence"] for each in findings)


def test_two_histories_of_one_peer_are_refused(bundle, played, attacker, capsys):
    folder = bundle("gossip")
    rewritten(folder, each(RowSent, row="0" * 64), key=attacker)
    assert main(["verify", str(folder), str(played / "gossip")]) == 2
    assert "there are two different chains of peer1" in capsys.readouterr().err


def test_a_crate_describes_each_file_that_it_has(bundle, tmp_path, capsys):
    crate = tmp_path / "crate"
    assert verified(bundle("gossip"), capsys, "--crate", crate)[0] == 0
    table = json.loads((crate / "ro-crate-metadata.json").read_text())
    described = {entry["@id"] for entry in table["@graph"] if entry["@type"] == "File"}
    assert described == {path.name for path in crate.iterdir()} - {"ro-crate-metadata.json"}
    assert not [path for path in crate.iterdir() if path.suffix in (".safetensors", ".key", ".pem")]
    assert main(["verify", str(crate)]) == 2  # evidence lies in it as files
    assert main(["verify", *(str(crate / f"{peer}.evidence.jsonl") for peer in PEERS)]) == 0


def test_a_crate_has_the_chain_that_was_checked_and_follows_no_link(bundle, tmp_path, capsys):
    folder = bundle("gossip")
    checked = folder / "peers" / f"{LIAR}.evidence.jsonl"
    (tmp_path / "mail").mkdir()
    sent = shutil.copyfile(checked, tmp_path / "mail" / checked.name)
    checked.write_text("never checked")
    assert main(["verify", str(sent), "--crate", str(tmp_path / "crate")]) == 0
    assert (tmp_path / "crate" / checked.name).read_bytes() == sent.read_bytes()
    (tmp_path / "secret").write_text("a secret")
    other = bundle("totals")
    (other / "summary.json").unlink()
    (other / "summary.json").symlink_to(tmp_path / "secret")
    assert main(["verify", str(other), "--crate", str(tmp_path / "other")]) == 2
    assert "summary.json is a link" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("command", [["verify"], ["forget", "--peer", "peer1", "--replayed", "."]])
def test_the_code_that_a_run_directory_names_needs_consent(bundle, capsys, command):
    folder = bundle("gossip")
    path = folder / "experiment.toml"
    path.write_text(path.read_text().replace('name = "linear"', 'name = "evil:Model"'))
    (folder / "modules").mkdir()
    (folder / "modules" / "evil.py").write_text("raise RuntimeError('it ran')")
    assert main([command[0], str(folder), *command[1:]]) == 2
    assert "--trust-code" in capsys.readouterr().err


def test_a_chain_of_a_version_with_fewer_fields_keeps_its_signatures(tmp_path):
    identity, path = Identity(bytes(range(32))), tmp_path / "ada.evidence.jsonl"
    fact = {"type": "played", "round": 0, "received": {}, "totals": [], "row": "0" * 64, "spent": None}
    text = json.dumps({"number": 0, "before": "0" * 64, "fact": fact, "signature": ""}, separators=(",", ":"))
    signature = sign_text(identity, text.encode(), domain=DOMAIN)
    path.write_text(text.replace('"signature":""', f'"signature":"{signature}"') + "\n")
    ((line, entry),) = read_chain(path)
    assert entry.signed_by(key_text(identity.public), line=line)
    assert not entry.signed_by(key_text(identity.public), line=line.replace(b'"round":0', b'"round":1'))
    assert not entry.signed_by(key_text(identity.public), line=line.replace(b'"spent":null', b'"spent":null,"more":1'))
