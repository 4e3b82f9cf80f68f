"""Requests to leave a run: the peer that withdraws signs them, and those who remain check them before they replay."""

import json
import re
import shutil

import msgspec
import numpy as np
import pytest
import tomli_w

from p2pfl.cli import main
from p2pfl.core.errors import InputError
from p2pfl.network.transport.broker import embedded
from p2pfl.plugins.evidence.certificate import (
    LARGEST_FILE,
    certificate_text,
    read_certificate,
    sign_certificate,
    write_certificate,
)
from p2pfl.plugins.evidence.withdrawal_request import DOMAIN, RunIdentity, SignedRequest, ask_to_leave, request_faults
from p2pfl.privacy.keys import Identity, Roster, key_text, rotation, sign_text, signed_fields
from p2pfl.results.lock import PEER_LOCK

PEERS = ("peer0", "peer1", "peer2", "peer3")
SMALL = {
    "name": "small",
    "rounds": 2,
    "topology": {"kind": "complete", "peers": 4},
    "data": {"name": "wine"},
    "model": {"name": "linear"},
    "learning": {"device": "cpu"},
}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Folder with the keys of four peers and of a fifth, and the roster of the four, in which commands run."""
    monkeypatch.chdir(tmp_path)
    identities = {peer: Identity(bytes([number] * 32)) for number, peer in enumerate((*PEERS, "eve"), start=1)}
    for peer, identity in identities.items():
        identity.save(tmp_path / f"{peer}.pem")
    Roster({peer: identities[peer].public for peer in PEERS}).write(tmp_path / "roster.toml")
    return tmp_path


def simulated(home, experiment=SMALL):
    (home / "small.toml").write_bytes(tomli_w.dumps(experiment).encode())
    assert main(["simulate", "small.toml", "--no-baselines"]) == 0
    return max((home / "runs").glob("small-*"), key=lambda path: path.stat().st_mtime_ns)


def asked(old, peer="peer2", *, leaving=(), file="request.json"):
    """Let a peer sign its request to leave a run, or to leave people out."""
    signing = ["--key", f"{peer}.pem", "--roster", "roster.toml", "--request", "we close in May"]
    assert main(["forget", str(old), "--ask", file, *(leaving or ["--peer", peer]), *signing]) == 0
    return json.loads((old.parent.parent / file).read_text())


def replay_of(home):
    (folder,) = (home / "runs").glob("*-without")
    return folder


def forgotten(old, *arguments, peer="peer2"):
    return main(["forget", str(old), "--peer", peer, "--key", "peer0.pem", "--roster", "roster.toml", *arguments])


def test_a_peer_leaves_by_a_request_that_it_has_signed_and_the_certificate_proves_it(home, capsys):
    old = simulated(home)
    table = asked(old)
    assert (table["peer"], table["run"], table["reason"]) == ("peer2", old.name, "we close in May")
    assert main(["forget", "--check", str(old), "--request", "request.json", "--roster", "roster.toml"]) == 0
    assert "peer2, who signed the request on" in capsys.readouterr().err
    assert forgotten(old, "--request", "request.json", "--html", "page.html") == 0
    error = capsys.readouterr().err
    assert re.search(r"asked by: peer2, who signed the request on .* UTC: we close in May", error)
    assert "we close in May" in (home / "page.html").read_text()
    folder = replay_of(home)
    assert json.loads((folder / "forgotten.json").read_text())["requests"] == [table]
    assert main(["forget", "--check", str(folder)]) == 0
    key = Identity.load(home / "peer2.pem").fingerprint
    assert f"that peer2 has signed the request with the key {key}" in capsys.readouterr().err


def test_a_request_of_the_operator_is_no_signature_of_the_peer(home, capsys):
    old = simulated(home)
    assert forgotten(old, "--request", "Dr North, 2 March 2030", "--html", "page.html") == 0
    assert "asked by: Dr North, 2 March 2030 (not signed by the peer)" in capsys.readouterr().err
    assert "not signed by the peer" in (home / "page.html").read_text()
    assert main(["forget", "--check", str(replay_of(home))]) == 0
    assert "not checked: whether peer2 asked for this: no request is signed by the peer" in capsys.readouterr().err


def forged(table, **fields):
    """Return a request that the key of another peer has signed, or its own over other fields."""
    signer = Identity.load(f"{fields.pop('by', 'peer2')}.pem")
    table = table | fields | {"signer": key_text(signer.public)}
    return table | {"signature": sign_text(signer, signed_fields(table), domain=DOMAIN)}


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize(
    ("lie", "sentence"),
    [
        (lambda table: table | {"reason": "other"}, "was changed after it was signed"),
        (lambda table: table | {"later": 1}, "was changed after it was signed"),
        (lambda table: table | {"signature": ""}, "was changed after it was signed, or nobody has signed it"),
        (lambda table: forged(table, by="peer1"), "is not signed by its key in the roster"),
        (lambda table: forged(table, by="eve"), "is not signed by its key in the roster"),
        (lambda table: forged(table, peer="eve", by="eve"), "the roster does not contain"),
        (lambda table: forged(table, run="small-20300101"), "asks to leave small-20300101, not this run"),
        (lambda table: forged(table, experiment="0" * 64), "asks to leave another experiment of that name"),
        (lambda table: forged(table, roster="0" * 64), "has signed its request for another roster"),
        (lambda table: forged(table, peer="peer1", by="peer1"), "peer1 asks to leave, and the replay leaves out peer2"),
        (lambda table: forged(table, people=5, digest="0" * 64), "and the replay leaves out none"),
        (lambda _: {"peer": "peer2"}, "is no request"),
        (lambda table: forged(table, later=float("nan")), "is no request, because it has numbers that JSON has not"),
        (lambda table: forged(table, later=[float("inf")]), "is no request, because it has numbers that JSON has not"),
        (lambda table: forged(table, later="\ud800"), "is no request ('utf-8' codec can't encode character"),
    ],
)
def test_a_request_that_is_not_one_of_the_peer_for_this_run_is_refused_before_a_replay(home, capsys, lie, sentence):
    old = simulated(home)
    table = asked(old)
    (home / "request.json").write_text(json.dumps(lie(table)).replace("Infinity", "1e999"))
    assert forgotten(old, "--request", "request.json") == 2
    assert sentence in capsys.readouterr().err
    assert not [*(home / "runs").glob("*-without")]
    assert len([*(old / "peers").glob("*.safetensors")]) == 4


@pytest.mark.slow
def test_a_certificate_that_nobody_could_check_is_refused_while_the_old_models_are_there(home, capsys):
    old = simulated(home)
    assert forgotten(old, "--request", "Dr N\udcf6rd") == 2  # as a terminal in Latin-1 gives a name
    assert "the certificate cannot be written as JSON" in capsys.readouterr().err
    assert len([*(old / "peers").glob("*.safetensors")]) == 4
    assert not (replay_of(home) / "forgotten.json").exists()
    assert main(["forget", str(old), "--replayed", str(replay_of(home)), "--key", "peer0.pem"]) == 0
    _, certificate = read_certificate(replay_of(home) / "forgotten.json")
    changed = msgspec.structs.replace(certificate, requests=({"later": float("nan")},), signature="")
    with pytest.raises(InputError, match="its signature does not hold in a file"):
        certificate_text(sign_certificate(changed, Identity.load("peer0.pem")))
    large = msgspec.structs.replace(certificate, requests=({"later": "x" * LARGEST_FILE},))
    with pytest.raises(InputError, match="because it has 16,7"):
        certificate_text(sign_certificate(large, Identity.load("peer0.pem")))


def test_a_peer_has_one_request_in_a_replay(home, capsys):
    old = simulated(home)
    asked(old)
    asked(old, file="again.json")
    both = ["--request", "request.json", "--request", "again.json"]
    assert forgotten(old, *both) == 2
    assert "peer2 has signed 2 of these requests; give the one that is to be done" in capsys.readouterr().err
    assert main(["forget", "--check", str(old), *both, *ROSTER]) == 2
    assert not [*(home / "runs").glob("*-without")]


def test_a_request_and_its_key_overwrite_no_file(home, capsys):
    old = simulated(home, tables(home))
    (home / "gone-peer1.txt").write_text("1-0\n1-1")
    people = ["--rows", "gone-{peer}.txt"]

    def refused(file):
        asking = ["forget", str(old), "--ask", file, *people, "--key", "peer1.pem", *ROSTER]
        assert main(asking) == 2
        return capsys.readouterr().err

    (home / "web.key").write_text("of a web server")
    assert "web.key exists already; choose another name" in refused("web.json")
    assert (home / "web.key").read_text() == "of a web server"
    assert not (home / "web.json").exists()
    for name in ("mine.key", "mine.KEY", "."):
        assert f"{name} is no name for a request, beside which its key lies" in refused(name)
    assert not [*home.glob("mine.*")]
    asked(old, "peer1", leaving=people)
    assert (home / "request.key").stat().st_mode & 0o777 == 0o600
    text, key = (home / "request.json").read_text(), (home / "request.key").read_text()
    assert "exists already; choose another name" in refused("request.json")
    assert ((home / "request.json").read_text(), (home / "request.key").read_text()) == (text, key)
    (home / "request.key").rename(home / "away.key")
    assert "request.json exists already; choose another name" in refused("request.json")
    assert not (home / "request.key").exists()  # the key of a request that was not written
    leaving = ["forget", str(old), "--peer", "peer1", "--key", "peer1.pem", *ROSTER]
    assert main([*leaving, "--ask", "nowhere/request.json"]) == 1
    assert "cannot be written (No such file or directory); choose another folder" in capsys.readouterr().err
    assert main([*leaving, "--ask", "text.json", "--request", "N\udcf6rd"]) == 2
    assert "the reason has bytes that are no text" in capsys.readouterr().err
    assert main([*leaving, "--ask", "web.json"]) == 0  # that key is not its own
    assert main(["forget", "--check", str(old), "--request", "web.json", *ROSTER]) == 0


def test_a_text_too_long_for_a_path_says_who_asked(home, capsys):
    old = simulated(home)
    text = "Dr North asked for this. " * 20
    assert forgotten(old, "--request", text) == 0
    assert "asked by: Dr North asked for this. " in capsys.readouterr().err


def test_a_check_says_where_a_live_run_has_no_evidence_of_the_peer(home, capsys):
    old = simulated(home)
    (home / "request.json").write_text(json.dumps(forged(asked(old), run="small", incarnations=[4])))
    (old / PEER_LOCK).touch()
    checking = ["forget", "--check", str(old), "--request", "request.json", *ROSTER]
    assert main(checking) == 0
    said = "whether peer2 asks to leave this run or another of its name, which small had no evidence to tell"
    assert f"not checked: {said}" in capsys.readouterr().err
    assert main([*checking, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["findings"] == [f"not checked: {said}"]


def test_who_left_before_and_whose_key_is_revoked_are_not_missing(home, capsys):
    assert forgotten(simulated(home), peer="peer3") == 0
    first = replay_of(home)
    assert forgotten(first) == 0
    (second,) = {*(home / "runs").glob("*-without*")} - {first}
    _, certificate = read_certificate(second / "forgotten.json")
    assert (certificate.peers, certificate.absent) == (("peer2",), ("peer3",))
    for peer, other in (("peer0", "peer1"), ("peer1", "peer0")):
        (home / peer).mkdir()
        own = msgspec.structs.replace(certificate, holders=(peer,), others=(other,))
        write_certificate(sign_certificate(own, Identity.load(f"{peer}.pem")), home / peer)
    capsys.readouterr()
    checking = ["forget", "--runs", "nowhere", *ROSTER, "--check"]
    assert main([*checking, "peer0", "peer1"]) == 0
    error = capsys.readouterr().err
    assert "checked: that all who remain have certified: peer0, peer1" in error
    assert f"not checked: the copies of peer3, which {first.name} already lacked" in error
    assert main([*checking, "peer0"]) == 0
    assert "not checked: the copies of peer1, who remain and whose" in capsys.readouterr().err
    roster = Roster.read("roster.toml")
    roster.revoke(roster.peers["peer1"], reason="the laptop was stolen").write("roster.toml")
    assert main([*checking, "peer0"]) == 0
    error = capsys.readouterr().err
    assert "not checked: the copies of peer1, whose keys in the roster are revoked and certify nothing" in error
    assert "that all who remain and whose keys are valid have certified: peer0" in error


def test_models_and_certificates_from_a_backup_are_recognised_where_more_was_deleted_since(home, capsys):
    old = simulated(home)
    assert forgotten(old) == 0
    folder = replay_of(home)
    shutil.copy(folder / "peers" / "peer0.safetensors", home / "backup")
    (old / "model.onnx").write_bytes(b"a copy")
    shutil.copy(folder / "forgotten.json", home / "forgotten.json")
    assert main(["forget", str(old), "--replayed", str(folder), "--key", "peer0.pem"]) == 0
    capsys.readouterr()
    assert main(["forget", "--check", str(folder)]) == 0
    assert "latest certificate" not in capsys.readouterr().err
    shutil.copy(home / "forgotten.json", folder / "forgotten.json")
    assert main(["forget", "--check", str(folder)]) == 0
    said = f"not checked: whether this is the latest certificate: 1 file of {old.name} were deleted"
    assert said in capsys.readouterr().err
    assert forgotten(folder, peer="peer1") == 0
    shutil.copy(home / "backup", folder / "peers" / "peer0.safetensors")
    assert main(["forget", "--check", str(folder)]) == 1
    assert "the model peer0.safetensors of the replay is here, which a later withdrawal has" in capsys.readouterr().err


def test_a_request_keeps_its_signature_with_fields_of_later_versions(home):
    old = simulated(home)
    (home / "request.json").write_text(json.dumps(forged(asked(old), later={"field": 0.1})))
    assert forgotten(old, "--request", "request.json") == 0
    assert main(["forget", "--check", str(replay_of(home)), "--roster", "roster.toml"]) == 1  # not all have signed
    assert main(["forget", "--check", str(replay_of(home))]) == 0


def test_a_request_for_another_run_of_the_same_experiment_is_refused(home, capsys):
    first = simulated(home)
    second = first.rename(first.with_name("small-earlier"))
    asked(second)
    assert forgotten(simulated(home), "--request", "request.json") == 2
    assert "peer2 asks to leave small-earlier, not this run" in capsys.readouterr().err


def test_a_live_run_is_told_from_another_of_its_name_by_the_starts_of_the_peer(home):
    old = simulated(home)
    table, roster = asked(old), Roster.read(home / "roster.toml")
    identity = RunIdentity("small", table["experiment"], live=True, starts={"peer2": frozenset({3, 5})})

    def faults(incarnations):
        signed = SignedRequest.of(forged(table, run="small", incarnations=incarnations), origin="it")
        return request_faults(signed, identity, roster)

    assert faults([1, 5]) == []
    assert faults([4]) == ["peer2 asks to leave another run of this name: it was started at other times there"]
    assert faults([]) == faults([4])
    with pytest.raises(InputError, match="has no evidence of peer1"):
        ask_to_leave(identity, Identity.load("peer1.pem"), roster, date="2030-01-02", reason="")


def test_a_revoked_or_former_key_asks_for_nothing(home, capsys):
    old = simulated(home)
    asked(old)
    roster, peer2, new = Roster.read("roster.toml"), Identity.load("peer2.pem"), Identity(bytes([9] * 32))
    roster.revoke(peer2.public, reason="the laptop was stolen").write("roster.toml")
    assert forgotten(old, "--request", "request.json") == 2
    assert 'revoked for "the laptop was stolen"' in capsys.readouterr().err
    assert main(["forget", str(old), "--ask", "new.json", "--peer", "peer2", "--key", "peer2.pem", *ROSTER]) == 2
    assert "is that of no peer in the roster" in capsys.readouterr().err
    rotated = roster.rotated("peer2", new.public, rotation(peer2, new.public, peer="peer2"))
    rotated.write("roster.toml")
    assert forgotten(old, "--request", "request.json") == 2
    assert "from which it has rotated" in capsys.readouterr().err
    (home / "peer2.pem").unlink()
    new.save(home / "peer2.pem")
    asked(old, file="new.json")
    assert forgotten(old, "--request", "new.json") == 0


ROSTER = ("--roster", "roster.toml")


@pytest.mark.sampled(fast=2)
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--peer", "peer1", "--key", "peer2.pem", *ROSTER], "peer2, whose key this is, asks for itself alone"),
        (["--key", "peer2.pem", *ROSTER], "peer2, whose key this is, asks for itself alone"),
        (["--peer", "peer2", *ROSTER], "the peer that withdraws signs its request; name its private key"),
        (["--peer", "peer2", "--key", "peer2.pem"], "name them with --roster"),
        (["--peer", "eve", "--key", "eve.pem", *ROSTER], "is that of no peer in the roster"),
        (["--rows", "gone-{peer}.txt", "--key", "peer2.pem", *ROSTER], "these data have none"),
    ],
)
def test_a_peer_asks_for_itself_alone(home, capsys, arguments, sentence):
    old = simulated(home)
    assert main(["forget", str(old), "--ask", "request.json", *arguments]) == 2
    assert sentence in capsys.readouterr().err
    assert not (home / "request.json").exists()


def test_a_request_that_is_not_there_is_no_text_of_the_operator(home, capsys):
    old = simulated(home)
    assert forgotten(old, "--request", "lost.json") == 2
    assert "there is no request lost.json; check the path" in capsys.readouterr().err


def test_a_request_in_a_certificate_is_checked_like_its_file(home, capsys):
    old = simulated(home)
    asked(old)
    assert forgotten(old, "--request", "request.json") == 0
    folder = replay_of(home)
    _, certificate = read_certificate(folder / "forgotten.json")
    (table,) = certificate.requests
    shutil.copytree(folder, home / "kept")
    lies = {
        "was changed after it was signed": table | {"reason": "other"},
        "is not signed by its key in the roster": forged(table, by="peer1"),
        "peer2 asks to leave another run": forged(table, run="small-20300101"),
        "peer1 asks to leave, and the certificate is not about it": forged(table, peer="peer1", by="peer1"),
        "a request in it is no request": {"peer": "peer2"},
    }
    for sentence, lie in lies.items():
        lying = msgspec.structs.replace(certificate, requests=(lie,), signature="")
        write_certificate(sign_certificate(lying, Identity.load("peer0.pem")), folder)
        assert main(["forget", "--check", str(folder), *ROSTER]) == 1
        assert sentence in capsys.readouterr().err
    unseen = msgspec.structs.replace(certificate, requests=(forged(table, incarnations=[4]),))
    write_certificate(sign_certificate(unseen, Identity.load("peer0.pem")), folder)
    assert main(["forget", "--check", str(folder)]) == 0
    assert "not checked: whether peer2 asks to leave this run or another of its name" in capsys.readouterr().err
    other = msgspec.structs.replace(unseen, starts={"peer2": (3,)})
    write_certificate(sign_certificate(other, Identity.load("peer0.pem")), folder)
    assert main(["forget", "--check", str(folder)]) == 1
    assert "peer2 asks to leave another run of this name" in capsys.readouterr().err


def tables(home, peers=4):
    """Write tables of peers with keys, and return the experiment of a logistic regression on them."""
    for number in range(peers):
        rng = np.random.default_rng(number)
        ages, ill = rng.integers(20, 80, 60), rng.random(60) < 0.4
        lines = [f"{number}-{row},{ages[row]},{'yes' if ill[row] else 'no'}" for row in range(60)]
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


@pytest.mark.slow
def test_an_owner_asks_for_people_whose_hash_opens_with_its_key_alone(home, capsys):
    old = simulated(home, tables(home))
    (home / "gone-peer1.txt").write_text("\n".join(f"1-{row}" for row in range(6)))
    people = ["--rows", "gone-{peer}.txt"]
    table = asked(old, "peer1", leaving=people)
    assert (table["people"], "1-3" in json.dumps(table)) == (6, False)
    replaying = ["forget", str(old), *people, "--key", "peer0.pem", *ROSTER, "--request", "request.json"]
    (home / "gone-peer1.txt").write_text("\n".join(f"1-{row}" for row in range(7)))
    assert main(replaying) == 2
    assert "the people whom peer1 leaves out are not those of its request" in capsys.readouterr().err
    (home / "gone-peer1.txt").write_text("\n".join(f"1-{row}" for row in range(6)))
    (home / "request.key").rename(home / "away.key")
    assert main(replaying) == 2
    assert "the key of the hash of people is not beside the request of peer1" in capsys.readouterr().err
    (home / "away.key").rename(home / "request.key")
    assert main(replaying) == 0
    assert "the data of peer1 were not compared with those of the old run, which had people" in capsys.readouterr().err
    folder = replay_of(home)
    certificate = json.loads((folder / "forgotten.json").read_text())
    assert [each["digest"] for each in certificate["withdrawals"]] == [table["digest"]]
    assert (folder / "withdrawn.key").read_text() == (home / "request.key").read_text()
    assert main(["forget", "--check", str(folder), "--opening", "request.key", *people]) == 0
    assert "peer1, who signed the request for 6 people of peer1 on" in capsys.readouterr().err


@pytest.mark.slow
def test_live_peers_replay_without_one_that_asked_and_not_for_a_request_of_another_run(home, fork, capsys):
    (home / "keys").mkdir()
    for peer in PEERS:
        shutil.copy(f"{peer}.pem", home / "keys")
    names = PEERS[:3]
    Roster({peer: Identity.load(f"{peer}.pem").public for peer in names}).write("roster.toml")
    experiment = SMALL | {"topology": {"kind": "complete", "peers": 3}}
    experiment |= {"trust": {"roster": "roster.toml", "keys": "keys"}}
    (home / "small.toml").write_bytes(tomli_w.dumps(experiment).encode())

    def played(broker, names, *extra):
        """Play the experiment by a process for each peer; return their run directories by name."""
        command = ["peer", "small.toml", "--broker", broker.url, "--no-baselines", *extra]
        running = [fork(*command, "--name", name, "--runs", name) for name in names]
        ended = [each.end() for each in running]
        assert {each.status for each in ended} == {0}, ended
        return {name: max((home / name).iterdir(), key=lambda path: path.stat().st_mtime_ns) for name in names}

    with embedded() as broker:
        other = played(broker, names)
        old = played(broker, names)
        asking = ["forget", "--peer", "peer2", "--key", "peer2.pem"]
        assert main([*asking, str(other["peer2"]), "--ask", "other.json"]) == 0
        assert main([*asking, str(old["peer2"]), "--ask", "request.json"]) == 0
        remaining = names[:2]
        for peer in remaining:
            assert main(["forget", "--check", str(old[peer]), "--request", "request.json"]) == 0
            assert main(["forget", "--check", str(old[peer]), "--request", "other.json"]) == 2
            assert "peer2 asks to leave another run of this name" in capsys.readouterr().err
        new = played(broker, remaining, "--set", 'learning.without=["peer2"]')
    for peer in remaining:
        certifying = ["forget", str(old[peer]), "--replayed", str(new[peer]), "--key", f"{peer}.pem"]
        assert main([*certifying, "--request", "other.json"]) == 2
        assert main([*certifying, "--request", "request.json"]) == 0
    capsys.readouterr()
    assert main(["forget", "--check", *map(str, new.values()), *ROSTER, "--runs", "nowhere"]) == 0
    error = capsys.readouterr().err
    assert error.count("that peer2 has signed the request with its key in the roster") == 2
    assert "that all who remain have certified: peer0, peer1" in error
