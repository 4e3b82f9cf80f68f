"""Forgetting by replay: the new run never had who left, and a certificate says what was done."""

import json
import re
import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest
import tomli_w
import torch
from safetensors.torch import load_file

import p2pfl
from p2pfl.cli import main
from p2pfl.experiment import read
from p2pfl.network.transport.broker import embedded
from p2pfl.plugins.evidence.certificate import (
    DOMAIN,
    DeletedFile,
    read_certificate,
    sign_certificate,
    write_certificate,
)
from p2pfl.privacy.keys import Identity, Roster, canonical, sign_text
from p2pfl.results.evidence import Chain, Witness

SMALL = {
    "name": "small",
    "rounds": 2,
    "topology": {"kind": "complete", "peers": 4},
    "data": {"name": "wine"},
    "model": {"name": "linear"},
    "learning": {"device": "cpu"},
}
BOOSTING = SMALL | {
    "model": {"name": "boosting", "options": {"max_depth": 2}},
    "learning": {"algorithm": "exact"},
    "privacy": {"mode": "pairwise"},
}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Folder with a key, in which commands run."""
    monkeypatch.chdir(tmp_path)
    Identity(bytes(range(32))).save(tmp_path / "officer.pem")
    return tmp_path


def simulated(home, experiment):
    """Simulate an experiment by the command, and return its run directory."""
    (home / "small.toml").write_bytes(tomli_w.dumps(experiment).encode())
    assert main(["simulate", "small.toml", "--no-baselines"]) == 0
    return max((home / "runs").glob("small-*"), key=lambda path: path.stat().st_mtime_ns)


def replay_of(home):
    (folder,) = (home / "runs").glob("*-without")
    return folder


def models(folder):
    return {path.stem: load_file(path) for path in sorted((folder / "peers").glob("*.safetensors"))}


@pytest.mark.parametrize("experiment", [SMALL, BOOSTING], ids=["fedavg", "boosting"])
def test_a_replay_is_the_run_that_never_had_a_peer(home, experiment):
    old = simulated(home, experiment)
    assert main(["forget", str(old), "--peer", "peer2", "--unaccounted", "--key", "officer.pem"]) == 0
    never = read(experiment, changes=['learning.without=["peer2"]'])
    expected = p2pfl.simulate(never, baselines=False, unaccounted=True).models
    replayed = models(replay_of(home))
    assert sorted(replayed) == ["peer0", "peer1", "peer3"]
    for peer, tensors in expected.items():
        assert all(np.array_equal(replayed[peer][name], values) for name, values in tensors.items())


def test_the_models_and_scores_of_the_old_run_are_gone_and_its_settings_stay(home):
    old = simulated(home, SMALL)
    (old / "model.onnx").write_bytes(b"exported")
    (old / "report.html").write_text("exported")
    assert main(["forget", str(old), "--peer", "peer2", "--key", "officer.pem", "--html", "page.html"]) == 0
    assert [*(old / "peers").iterdir()] == []
    assert {path.name for path in old.iterdir() if path.is_file()} == {
        "deleted.json",
        "experiment.toml",
        "provenance.json",
        "simulation.lock",
        "summary.json",
    }
    table = json.loads((replay_of(home) / "forgotten.json").read_text())
    deleted = {each["path"] for each in table["deleted"]}
    assert deleted >= {"model.onnx", "report.html", "peers/peer2.safetensors", "metrics.jsonl", "events.jsonl"}
    summary = json.loads((old / "summary.json").read_text())
    assert {key: summary[key] for key in ("together", "per_peer", "common")} == {
        "together": None,
        "per_peer": {},
        "common": None,
    }
    assert summary["bytes_sent"] > 0
    assert table["peers"] == ["peer2"]
    assert table["data"] == {"peer0": True, "peer1": True, "peer3": True}
    page = (home / "page.html").read_text()
    assert "Certificate of erasure: peer2" in page
    assert "<script" not in page


def test_a_certificate_that_was_changed_or_is_not_so_is_noticed(home, capsys):
    old = simulated(home, SMALL)
    assert main(["forget", str(old), "--peer", "peer2", "--key", "officer.pem"]) == 0
    folder = replay_of(home)
    assert main(["forget", "--check", str(folder)]) == 0
    (old / "peers" / "peer2.safetensors").write_bytes(b"a copy")
    assert main(["forget", "--check", str(folder)]) == 1
    assert "peers/peer2.safetensors of the old run is still there" in capsys.readouterr().err
    (old / "peers" / "peer2.safetensors").unlink()
    path = folder / "forgotten.json"
    path.write_text(path.read_text().replace('"peer2"', '"peer3"', 1))
    assert main(["forget", "--check", str(path)]) == 1
    assert "it was changed after it was signed" in capsys.readouterr().err
    (folder / "peers" / "peer0.safetensors").write_bytes(b"another model")
    assert main(["forget", "--check", str(path)]) == 1
    assert "the model peer0.safetensors of the replay is another one" in capsys.readouterr().err


def test_kept_models_and_a_missing_signature_are_said(home, capsys):
    old = simulated(home, SMALL)
    assert main(["forget", str(old), "--peer", "peer2", "--keep", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert table["deleted"] == []
    assert len(models(old)) == 4
    assert [each.split(";")[0] for each in table["undone"]] == [
        "the models of the old run were kept, as --keep asks",
        "nobody has signed this certificate",
    ]
    assert main(["forget", "--check", table["file"]]) == 1
    assert "nobody has signed it" in capsys.readouterr().err


def tables(home, *, peers=4):
    """Write tables of peers with keys, and return the experiment."""
    for number in range(peers):
        rng = np.random.default_rng(number)
        ages, ill = rng.integers(20, 80, 60), rng.random(60) < 0.4
        lines = [
            f"{number}-{row},{age},{'yes' if sick else 'no'}"
            for row, (age, sick) in enumerate(zip(ages, ill, strict=True))
        ]
        (home / f"peer{number}.csv").write_text("\n".join(["id,age,ill", *lines]))
        (home / f"gone-peer{number}.txt").write_text("")
    options = {"path": "{peer}.csv", "target": "ill", "key": "id", "columns": {"age": "number", "ill": ["no", "yes"]}}
    return SMALL | {
        "rounds": 20,
        "topology": {"kind": "complete", "peers": peers},
        "data": {"name": "table", "options": options},
        "model": {"name": "glm", "options": {"family": "binomial"}},
        "learning": {"algorithm": "exact"},
        "privacy": {"mode": "pairwise"},
    }


def test_people_leave_in_groups_and_the_hash_of_their_keys_opens(home, capsys):
    old = simulated(home, tables(home))
    withdrawing = ["forget", str(old), "--rows", "gone-{peer}.txt", "--key", "officer.pem"]
    (home / "gone-peer1.txt").write_text("1-7\n")
    assert main(withdrawing) == 2
    assert "differ in one person" in capsys.readouterr().err
    (home / "gone-peer1.txt").write_text("\n".join(f"1-{row}" for row in range(6)))
    assert main(withdrawing) == 0
    folder = replay_of(home)
    text = (folder / "forgotten.json").read_text()
    (withdrawal,) = json.loads(text)["withdrawals"]
    assert (withdrawal["peer"], withdrawal["people"]) == ("peer1", 6)
    assert not re.search(r"1-[0-5]\b", text)
    opening = ["--opening", str(folder / "withdrawn.key"), "--rows", "gone-{peer}.txt"]
    assert main(["forget", "--check", str(folder), *opening]) == 0
    (home / "gone-peer1.txt").write_text("\n".join(f"1-{row}" for row in range(1, 7)))
    assert main(["forget", "--check", str(folder), *opening]) == 1
    assert "the hash of the 6 people who left peer1 does not open" in capsys.readouterr().err


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("model", ["glm", "linear"])
def test_a_replay_without_people_is_the_run_of_tables_that_never_had_them(home, model):
    experiment = tables(home)
    if model == "linear":
        averaging = {"learning": SMALL["learning"], "model": SMALL["model"], "rounds": 3}
        experiment = {key: value for key, value in experiment.items() if key != "privacy"} | averaging
    old = simulated(home, experiment)
    (home / "gone-peer1.txt").write_text("\n".join(f"1-{row}" for row in range(6)))
    assert main(["forget", str(old), "--rows", "gone-{peer}.txt", "--key", "officer.pem"]) == 0
    replayed = models(replay_of(home))
    table = home / "peer1.csv"
    table.write_text("\n".join(line for line in table.read_text().splitlines() if not re.match(r"1-[0-5],", line)))
    never = p2pfl.simulate(read(experiment), baselines=False, unaccounted=True).models
    assert sorted(replayed) == sorted(never) == ["peer0", "peer1", "peer2", "peer3"]
    for peer, tensors in never.items():
        assert all(np.array_equal(replayed[peer][name], values) for name, values in tensors.items())


@pytest.mark.parametrize(
    ("experiment", "arguments", "sentence"),
    [
        (SMALL, [], "nobody leaves; name a --peer, or the --rows"),
        (SMALL, ["--peer", "nobody"], 'learning.without names "nobody", which is no peer'),
        (SMALL, ["--rows", "gone-{peer}.txt"], "people leave a run by their keys, and these data have none"),
        (BOOSTING, ["--peer", "peer1"], "let three peers leave at once, or agree with --unaccounted"),
    ],
)
def test_what_cannot_be_forgotten_is_refused_and_nothing_is_deleted(home, capsys, experiment, arguments, sentence):
    old = simulated(home, experiment)
    before = {path: path.read_bytes() for path in old.rglob("*") if path.is_file()}
    assert main(["forget", str(old), *arguments]) == 2
    assert sentence in capsys.readouterr().err
    assert before == {path: path.read_bytes() for path in old.rglob("*") if path.is_file()}
    assert not [*(home / "runs").glob("*-without")]


@pytest.mark.slow
def test_live_peers_certify_a_replay_that_they_have_played(home, capsys):
    (home / "small.toml").write_bytes(tomli_w.dumps(SMALL).encode())
    for extra in ([], ["--set", 'learning.without=["peer2"]']):
        assert main(["run", "small.toml", "--no-baselines", *extra]) == 0
    old, new = sorted((home / "runs").glob("small-*"), key=lambda path: path.stat().st_mtime_ns)
    assert main(["forget", str(old), "--replayed", str(new), "--key", "officer.pem"]) == 0
    table = json.loads((new / "forgotten.json").read_text())
    assert table["peers"] == ["peer2"]
    assert {name.split(".")[0] for name in table["models_after"]} == {"peer0", "peer1", "peer3"}
    assert "the data of peer0, peer1, peer3 were not compared" in capsys.readouterr().err
    assert sorted(path.name for path in (old / "peers").iterdir()) == [
        f"peer{number}.{ending}" for number in range(4) for ending in ("evidence.jsonl", "journal")
    ]


@pytest.mark.slow
def test_totals_and_coefficients_of_a_live_run_go_with_its_models(home):
    experiment = tables(home)
    (home / "small.toml").write_bytes(tomli_w.dumps(experiment).encode())
    (home / "gone-peer1.txt").write_text("\n".join(f"1-{row}" for row in range(6)))
    for extra in ([], ["--set", 'data.options.without="gone-{peer}.txt"']):
        assert main(["run", "small.toml", "--no-baselines", *extra]) == 0
    old, new = sorted((home / "runs").glob("small-*"), key=lambda path: path.stat().st_mtime_ns)
    assert main(["forget", str(old), "--replayed", str(new), "--key", "officer.pem"]) == 0
    assert sorted(path.name for path in (old / "peers").iterdir()) == [f"peer{number}.journal" for number in range(4)]
    summary = json.loads((old / "summary.json").read_text())
    assert (summary["explained"], summary["together"]) == (None, None)
    table = json.loads((new / "forgotten.json").read_text())
    assert {"peers/peer0.evidence.jsonl", "peers/peer0.evidence.key"} <= {each["path"] for each in table["deleted"]}
    (emptied,) = table["emptied"]
    assert emptied["path"] == "summary.json"
    assert {"explained", "per_peer"} <= {*emptied["keys"]}
    assert table["data"] == {"peer0": True, "peer1": None, "peer2": True, "peer3": True}


def peers_over(broker, fork, *extra, killed=False):
    """Play the experiment by a process for each peer; return their run directories by name."""
    names = [f"peer{number}" for number in range(3)]
    command = [
        ("peer", "small.toml", "--broker", broker.url, "--no-baselines", *extra, "--runs", name) for name in names
    ]
    playing = [fork(*each, "--name", name) for each, name in zip(command, names, strict=True)]
    if killed:
        playing[0].until("round 20/")
        for each in playing:
            each.kill()
        playing = [fork(*each, "--name", name, "--resume") for each, name in zip(command, names, strict=True)]
    ended = [each.end() for each in playing]
    assert [each.status for each in ended] == [0, 0, 0], ended
    return {name: max(Path(name).iterdir(), key=lambda path: path.stat().st_mtime_ns) for name in names}


@pytest.mark.sampled(fast=0, all=1)
@pytest.mark.parametrize("model", ["glm", "linear"])
def test_each_hospital_certifies_a_replay_over_a_real_broker_also_one_that_was_killed(home, fork, model):
    experiment = tables(home, peers=3)
    if model == "linear":
        averaging = {"learning": SMALL["learning"] | {"dtype": "float64"}, "model": SMALL["model"], "rounds": 100}
        experiment = {key: value for key, value in experiment.items() if key != "privacy"} | averaging
    (home / "small.toml").write_bytes(tomli_w.dumps(experiment).encode())
    (home / "gone-peer1.txt").write_text("\n".join(f"1-{row}" for row in range(6)))
    rounding = 0 if model == "glm" else 1e-8  # sums of a simulation have another order, and ages are large numbers
    without = ["--set", 'data.options.without="gone-{peer}.txt"']
    with embedded() as broker:
        old = peers_over(broker, fork)
        new = peers_over(broker, fork, *without, killed=model == "linear")
    never = p2pfl.simulate(read(experiment, changes=without[1:]), baselines=False, unaccounted=True).models
    for peer in old:
        assert main(["forget", str(old[peer]), "--replayed", str(new[peer]), "--key", "officer.pem"]) == 0
        assert main(["forget", "--check", str(new[peer]), "--runs", peer]) == 0
        table = json.loads((new[peer] / "forgotten.json").read_text())
        assert table["data"] == {peer: None if peer == "peer1" else True}
        assert [each["people"] for each in table["withdrawals"]] == ([6] if peer == "peer1" else [])
        left = {path.name for path in (old[peer] / "peers").iterdir()}
        assert left == {f"{peer}.journal", *([f"{peer}.evidence.jsonl"] if model == "linear" else [])}
        for name, values in models(new[peer])[peer].items():
            assert float((values - never[peer][name]).abs().max()) <= rounding


def test_a_chain_with_totals_and_an_exported_table_are_deleted_and_one_of_gossip_stays(home):
    old = simulated(home, SMALL)
    identity, sent = Identity(bytes(32)), {}
    for peer in ("peer0", "peer1", "peer2"):
        keep = sent.__setitem__ if peer == "peer2" else None
        chain = Chain(old / "peers" / f"{peer}.evidence.jsonl", identity, segment=1)  # a file for each entry
        witness = Witness(chain, keep=keep)
        if peer == "peer0":
            witness.take(np.arange(3), attempt=0, number=0, participants=["peer0", "peer1"])
        witness.play(torch.zeros(2), round=0, spent=None, incarnations={}, public=peer == "peer2")
        witness.end({}, rounds=1)  # whose digest of the model has no key
    (old / "peers" / "peer3.evidence.jsonl").write_text("damaged")
    (old / "peers" / "peer0.json").write_text("{}")  # trees for XGBoost
    (old / "peers" / "peer0.accuses-peer1.json").write_text("{}")
    assert main(["forget", str(old), "--peer", "peer3", "--key", "officer.pem"]) == 0
    assert sorted(path.name for path in (old / "peers").iterdir()) == [
        "peer0.accuses-peer1.json",
        "peer1.evidence.1.jsonl",
        "peer1.evidence.jsonl",
    ]


def test_coefficients_and_scores_leave_the_summary_and_its_costs_stay(home, capsys):
    old = simulated(home, tables(home) | {"data": {**tables(home)["data"], "test": 0.2}})
    (home / "gone-peer1.txt").write_text("\n".join(f"1-{row}" for row in range(6)))
    before = (old / "summary.json").read_text()
    assert main(["forget", str(old), "--rows", "gone-{peer}.txt", "--key", "officer.pem"]) == 0
    first, now = json.loads(before), json.loads((old / "summary.json").read_text())
    changed = {key for key in first if first[key] != now[key]}
    assert {"explained", "together", "per_peer"} <= changed
    assert not changed & {"bytes_sent", "privacy", "rounds", "seed", "versions"}
    assert main(["report", str(old)]) == 2
    assert "because p2pfl forget has deleted them; name its replay" in capsys.readouterr().err
    assert main(["forget", "--check", str(replay_of(home))]) == 0
    (old / "summary.json").write_text(before)
    assert main(["forget", "--check", str(replay_of(home))]) == 1
    assert "summary.json of the old run still has explained" in capsys.readouterr().err


def test_a_withdrawal_after_a_withdrawal_leaves_the_first_certificate_valid(home, capsys):
    old = simulated(home, SMALL)
    assert main(["forget", str(old), "--peer", "peer2", "--key", "officer.pem"]) == 0
    first = replay_of(home)
    assert main(["forget", str(first), "--peer", "peer1", "--key", "officer.pem"]) == 0
    capsys.readouterr()
    assert main(["forget", "--check", str(first)]) == 0
    error = capsys.readouterr().err
    assert "not checked: peer0.safetensors, peer1.safetensors, peer3.safetensors, which a later withdrawal has" in error
    (first / "deleted.json").unlink()
    assert main(["forget", "--check", str(first)]) == 1
    assert "the model peer0.safetensors of the replay is gone" in capsys.readouterr().err


def test_a_forget_that_was_killed_while_it_deleted_is_completed(home, monkeypatch):
    old = simulated(home, SMALL)
    files = {str(path.relative_to(old)) for path in (old / "peers").iterdir()}
    unlink, gone = Path.unlink, []

    def killed(path, *, missing_ok=False):
        if path.is_relative_to(old.relative_to(home)) or path.is_relative_to(old):
            if len(gone) == 3:
                raise KeyboardInterrupt
            gone.append(path)
        unlink(path, missing_ok=missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", killed)
        assert main(["forget", str(old), "--peer", "peer2", "--key", "officer.pem"]) == 130
    replay = replay_of(home)
    assert gone
    assert not (replay / "forgotten.json").exists()
    assert main(["forget", str(old), "--replayed", str(replay), "--key", "officer.pem"]) == 0
    table = json.loads((replay / "forgotten.json").read_text())
    assert {each["path"] for each in table["deleted"]} >= files
    assert sorted(table["models_before"]) == sorted(
        name.split("/")[1] for name in files if name.endswith(".safetensors")
    )
    assert main(["forget", "--check", str(replay)]) == 0


def test_a_list_of_deleted_files_of_somebody_else_deletes_nothing_but_models(home):
    old = simulated(home, SMALL)
    digest = {"sha256": "0" * 64}
    files = [{"path": name} | digest for name in ("experiment.toml", "peers/peer0.journal", "gone.html")]
    emptied = [
        {"path": "provenance.json", "keys": ["schema"]} | digest,
        {"path": "summary.json", "keys": ["x"]} | digest,
    ]
    (old / "deleted.json").write_text(json.dumps({"deleted": files, "emptied": emptied}))
    (old / "peers" / "peer0.journal").write_text("spent")
    settings, provenance = (old / "experiment.toml").read_bytes(), (old / "provenance.json").read_bytes()
    assert main(["forget", str(old), "--peer", "peer2", "--key", "officer.pem"]) == 0
    assert ((old / "experiment.toml").read_bytes(), (old / "provenance.json").read_bytes()) == (settings, provenance)
    assert [path.name for path in (old / "peers").iterdir()] == ["peer0.journal"]
    summary = json.loads((old / "summary.json").read_text())
    assert "x" not in summary
    assert summary["per_peer"] == {}
    table = json.loads((replay_of(home) / "forgotten.json").read_text())
    listed = {each["path"] for each in table["deleted"]}
    assert "gone.html" in listed
    assert not listed & {"experiment.toml", "peers/peer0.journal"}
    assert main(["forget", "--check", str(replay_of(home))]) == 0


def certificates_of_peers(home):
    """Let each of three peers certify a withdrawal with a copy of the runs of its own; return their directories."""
    old, new = (home / "runs" / name for name in ("old", "new"))
    simulated(home, BOOSTING).rename(old)
    (home / "small.toml").write_bytes(
        tomli_w.dumps(BOOSTING | {"learning": {"algorithm": "exact", "without": ["peer3"]}}).encode()
    )
    assert main(["simulate", "small.toml", "--no-baselines", "--unaccounted"]) == 0
    max((home / "runs").glob("small-*"), key=lambda path: path.stat().st_mtime_ns).rename(new)
    roster, folders = {}, []
    for number in range(3):
        peer, identity = f"peer{number}", Identity(bytes([number + 1] * 32))
        identity.save(home / f"{peer}.pem")
        roster[peer] = identity.public
        for folder in (old, new):
            copied = Path(shutil.copytree(folder, home / peer / folder.name))
            for path in copied.glob("peers/*.safetensors"):
                if not path.name.startswith(peer):
                    path.unlink()
        folders.append(home / peer / "new")
        signed = ["--key", f"{peer}.pem", "--html", str(home / peer / "page.html")]
        assert main(["forget", str(home / peer / "old"), "--replayed", str(folders[-1]), *signed]) == 0
    Roster(roster).write(home / "roster.toml")
    return folders


def test_an_outsider_checks_the_certificates_of_all_who_remain(home, capsys):
    folders = certificates_of_peers(home)
    capsys.readouterr()
    checking = ["forget", "--roster", "roster.toml", "--check"]
    assert main([*checking, *map(str, folders)]) == 0
    error = capsys.readouterr().err
    assert "checked: the signature of peer1, 1 model of the replay" in error
    assert "that all who remain have certified: peer0, peer1, peer2, and that all hold the same new model" in error
    assert main(["forget", "--check", *map(str, folders)]) == 0
    assert "that all certificates together name all who remain: peer0" in capsys.readouterr().err
    alone = [shutil.copy(folder / "forgotten.json", home / f"{number}.json") for number, folder in enumerate(folders)]
    assert main([*checking, *map(str, alone), "--runs", "elsewhere"]) == 0
    assert "and that all certify the same new model" in capsys.readouterr().err
    assert main([*checking, *map(str, folders[:2])]) == 0
    assert "not checked: the copies of peer2, who remain" in capsys.readouterr().err
    assert "peer1, peer2 had the old model, too" in (home / "peer0" / "page.html").read_text()


def test_a_revoked_key_certifies_nothing(home, capsys):
    folders = certificates_of_peers(home)
    roster = Roster.read("roster.toml")
    roster.revoke(roster.peers["peer1"], reason="the laptop was stolen").write("roster.toml")
    assert main(["forget", "--roster", "roster.toml", "--check", *map(str, folders)]) == 1
    assert "no key of peer1 in the roster has signed it" in capsys.readouterr().err


def test_with_a_roster_nobody_is_left_out_because_the_signers_do_not_name_them(home, capsys):
    folders = certificates_of_peers(home)
    for number, folder in enumerate(folders[:2]):
        _, certificate = read_certificate(folder / "forgotten.json")
        others = tuple(peer for peer in certificate.others if peer != "peer2")
        silent = msgspec.structs.replace(certificate, others=others, signature="")
        write_certificate(sign_certificate(silent, Identity.load(home / f"peer{number}.pem")), folder)
    capsys.readouterr()
    assert main(["forget", "--roster", "roster.toml", "--check", *map(str, folders[:2])]) == 0
    error = capsys.readouterr().err
    assert "not checked: the copies of peer2, who remain and whose certificates are missing" in error
    assert "all who remain have certified" not in error
    roster = Roster.read("roster.toml")
    Roster({**roster.peers, "peer3": Identity(bytes([9] * 32)).public}).write("roster.toml")  # who left
    assert main(["forget", "--roster", "roster.toml", "--check", *map(str, folders)]) == 0
    assert "that all who remain have certified: peer0, peer1, peer2" in capsys.readouterr().err


def test_a_certificate_of_another_signer_or_of_another_model_is_named(home, capsys):
    folders = certificates_of_peers(home)
    path = folders[1] / "forgotten.json"
    _, certificate = read_certificate(path)
    lies = {
        "no key of peer1 in the roster has signed it": (certificate, "peer0.pem"),
        "no key of nobody, peer2 in the roster has signed it": (
            msgspec.structs.replace(certificate, holders=("nobody", "peer1", "peer2")),
            "peer1.pem",
        ),
        "it names nobody whose copies": (msgspec.structs.replace(certificate, holders=()), "peer1.pem"),
        "has another new model than": (msgspec.structs.replace(certificate, parameters="0" * 64), "peer1.pem"),
        "is not the one that it says all peers hold": (
            msgspec.structs.replace(certificate, parameters="0" * 64),
            "peer1.pem",
        ),
        "they differ in rounds": (msgspec.structs.replace(certificate, rounds=9), "peer1.pem"),
    }
    for sentence, (lie, key) in lies.items():
        write_certificate(sign_certificate(lie, Identity.load(home / key)), folders[1])
        assert main(["forget", "--roster", "roster.toml", "--check", *map(str, folders)]) == 1
        assert sentence in capsys.readouterr().err


def test_a_certificate_keeps_its_signature_where_versions_have_other_fields(home, capsys):
    old, officer = simulated(home, SMALL), Identity(bytes(range(32)))
    assert main(["forget", str(old), "--peer", "peer2", "--key", "officer.pem"]) == 0
    path = replay_of(home) / "forgotten.json"
    written = json.loads(path.read_text())
    earlier = {key: value for key, value in written.items() if key not in {"accepted", "start"}}
    for table in (earlier, written | {"later": {"field": 1}}):
        message = canonical(table | {"signature": ""})
        path.write_text(json.dumps(table | {"signature": sign_text(officer, message, domain=DOMAIN)}))
        assert main(["forget", "--check", str(path)]) == 0
    path.write_text(json.dumps(written | {"later": "unsigned"}))
    assert main(["forget", "--check", str(path)]) == 1
    assert "it was changed after it was signed" in capsys.readouterr().err
    path.write_text(json.dumps(written)[:-1] + ', "later": ' + "[" * 100_000 + "]" * 100_000 + "}")
    assert main(["forget", "--check", str(path)]) == 2
    assert "is no certificate" in capsys.readouterr().err


@pytest.mark.slow
def test_a_peer_leaves_alone_if_the_certificate_records_it_and_three_leave_together(home, capsys):
    old = simulated(home, tables(home, peers=6))
    leaving = ["forget", str(old), "--keep", "--json"]
    assert main([*leaving, "--peer", "peer5"]) == 2
    assert "shows what it alone adds" in capsys.readouterr().err
    assert main([*leaving, "--peer", "peer5", "--peer", "peer4", "--peer", "peer3"]) == 0
    assert json.loads(capsys.readouterr().out)["accepted"] == []
    assert main([*leaving, "--peer", "peer5", "--unaccounted"]) == 0
    accepted = json.loads(capsys.readouterr().out)["accepted"]
    assert accepted[0] == (
        "the difference of the old and the new model shows the exact totals of peer5 to whoever has both"
    )
    assert any("peer5 takes part in only one of this run and run 1" in each for each in accepted[1:])


@pytest.mark.slow
def test_a_run_is_no_replay_of_itself_and_nobody_comes_back(home, capsys):
    old = simulated(home, tables(home))
    (home / "gone-peer1.txt").write_text("\n".join(f"1-{row}" for row in range(6)))
    assert main(["forget", str(old), "--rows", "gone-{peer}.txt", "--keep"]) == 0
    folder = replay_of(home)
    shutil.copytree(folder, home / "copy")
    (home / "other-peer1.txt").write_text("\n".join(f"1-{row}" for row in range(30, 40)))
    for number in (0, 2, 3):
        (home / f"other-peer{number}.txt").write_text("")
    for arguments, sentence in {
        ("--replayed", str(folder)): "is the run itself",
        ("--replayed", "copy"): "nobody who leaves was in the old run",
        ("--rows", "gone-{peer}.txt"): "nobody who leaves was in the old run",
        ("--rows", "other-{peer}.txt"): "people of peer1 had left the old run already, and would be back (6)",
    }.items():
        assert main(["forget", str(folder), *arguments]) == 2
        assert sentence in capsys.readouterr().err
    (home / "gone-peer1.txt").write_text("\n".join(f"1-{row}" for row in range(16)))
    assert main(["forget", str(folder), "--rows", "gone-{peer}.txt"]) == 0


def test_a_check_says_who_signed(home, capsys):
    old = simulated(home, SMALL)
    signed = ["--key", "officer.pem", "--request", "Dr North, 2 March 2030"]
    assert main(["forget", str(old), "--peer", "peer2", *signed]) == 0
    capsys.readouterr()
    assert main(["forget", "--check", str(replay_of(home))]) == 0
    error = capsys.readouterr().err
    assert f"signed by the key {Identity(bytes(range(32))).fingerprint}" in error
    assert "asked by: Dr North, 2 March 2030" in error


@pytest.mark.parametrize("path", ["..", "a/..", "/etc/passwd", "a\n/../../officer.pem", "\n/.."])
def test_a_path_that_leaves_the_run_is_none_of_a_deleted_file(path):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"path": path, "sha256": "0" * 64}, DeletedFile)


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("run", "../elsewhere"),
        ("replay", ".."),
        ("models_after", {"../../officer.pem": "0" * 64}),
        ("deleted", [{"path": "../../officer.pem", "sha256": "0" * 64}]),
        ("deleted", [{"path": "a\n/../../officer.pem", "sha256": "0" * 64}]),
        ("deleted", [{"path": "/etc/passwd", "sha256": "0" * 64}]),
        ("signature", "é"),
        ("signer", "é"),
    ],
)
def test_a_certificate_reaches_no_file_outside_of_its_runs_and_ends_in_a_sentence(home, capsys, field, value):
    old = simulated(home, SMALL)
    assert main(["forget", str(old), "--peer", "peer2", "--key", "officer.pem"]) == 0
    path = replay_of(home) / "forgotten.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    assert main(["forget", "--check", str(path)]) in (1, 2)
    error = capsys.readouterr().err
    assert "is no certificate" in error or "it was changed after it was signed" in error


def test_without_the_old_run_nobody_says_that_its_files_are_gone(home, capsys):
    old = simulated(home, SMALL)
    assert main(["forget", str(old), "--peer", "peer2", "--key", "officer.pem"]) == 0
    old.rename(home / "elsewhere")
    capsys.readouterr()
    assert main(["forget", "--check", str(replay_of(home))]) == 0
    assert "not checked: whether the files of" in capsys.readouterr().err
