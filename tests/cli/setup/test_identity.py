import base64
import json
import stat
import tomllib

import pytest

from p2pfl.experiment import schema
from p2pfl.network.peer.storage.credentials import credentials
from p2pfl.privacy.keys import FirstUse, Identity, Roster

KEYS = ("--keys", "keys")
ROSTER = ("--roster", "roster.toml")


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_missing_key_is_made_and_its_line_is_printed(p2pfl, place):
    said = p2pfl("identity", "ada", *KEYS)
    made = Identity.load(place / "keys" / "ada.pem")
    assert said.status == 0
    assert tomllib.loads(said.out) == {"ada": f"ed25519:{base64.b64encode(made.public).decode()}"}
    assert made.fingerprint in said.err
    assert mode(place / "keys" / "ada.pem") == 0o600


def test_a_key_that_is_there_is_shown_and_stays(p2pfl):
    assert p2pfl("identity", "ada", *KEYS).out == p2pfl("identity", "ada", *KEYS).out


def test_a_roster_of_all_peers_is_what_peers_read(p2pfl, place):
    for name in ("ada", "bob"):
        assert p2pfl("identity", name, *KEYS, *ROSTER).status == 0
        assert p2pfl("identity", name, *KEYS, *ROSTER).status == 0  # again changes nothing
    roster = Roster.read(place / "roster.toml")
    assert set(roster.peers) == {"ada", "bob"}
    owned = credentials(schema.TrustSettings(roster="roster.toml", keys="keys"), peer="bob")
    assert owned.trust == roster
    assert owned.identity.public == roster.peers["bob"]


def test_another_key_for_a_listed_name_is_refused_with_what_to_do(p2pfl, place):
    p2pfl("identity", "ada", *KEYS, *ROSTER)
    before = (place / "roster.toml").read_bytes()
    said = p2pfl("identity", "ada", "--keys", "elsewhere", *ROSTER)
    assert said.status == 2
    assert "--rotate" in said.err
    assert "--revoke" in said.err
    assert (place / "roster.toml").read_bytes() == before


def test_a_rotation_keeps_the_old_key_and_moves_the_roster(p2pfl, place):
    p2pfl("identity", "ada", *KEYS, *ROSTER)
    old = Identity.load(place / "keys" / "ada.pem")
    said = p2pfl("identity", "ada", *KEYS, *ROSTER, "--rotate")
    new = Identity.load(place / "keys" / "ada.pem")
    kept = place / "keys" / f"ada.pem.{old.fingerprint.replace(' ', '')}"
    roster = Roster.read(place / "roster.toml")
    assert said.status == 0
    assert roster.peers == {"ada": new.public}
    assert roster.former == {"ada": (old.public,)}
    assert Identity.load(kept).public == old.public
    assert mode(kept) == 0o600
    assert {path.name for path in (place / "keys").iterdir()} == {"ada.pem", kept.name}


def test_a_rotation_without_a_roster_prints_what_any_roster_accepts(p2pfl, place):
    p2pfl("identity", "ada", *KEYS)
    old = Identity.load(place / "keys" / "ada.pem")
    told = tomllib.loads(p2pfl("identity", "ada", *KEYS, "--rotate").out)
    new = Identity.load(place / "keys" / "ada.pem").public
    assert Roster({"ada": old.public}).rotated("ada", new, base64.b64decode(told["rotation"])).peers == {"ada": new}


def test_what_a_rotation_prints_is_accepted_into_the_rosters_of_others(p2pfl, place):
    p2pfl("identity", "ada", *KEYS, *ROSTER)
    (place / "others.toml").write_text((place / "roster.toml").read_text())
    (place / "said.toml").write_text(p2pfl("identity", "ada", *KEYS, *ROSTER, "--rotate").out)
    said = p2pfl("identity", "ada", "--roster", "others.toml", "--accept", "said.toml")
    assert said.status == 0
    assert Roster.read(place / "others.toml") == Roster.read(place / "roster.toml")
    again = p2pfl("identity", "ada", "--roster", "others.toml", "--accept", "said.toml")
    assert again.status == 2
    assert "signed by its present key" in again.err


@pytest.mark.parametrize(
    "lines", ["", 'ada = "ed25519:AAAA"', 'ada = 3\nrotation = "AAAA"', 'ada = "x"\nrotation = "!"']
)
def test_a_rotation_that_says_nothing_is_refused_and_the_roster_stays(p2pfl, place, lines):
    p2pfl("identity", "ada", *KEYS, *ROSTER)
    before = (place / "roster.toml").read_bytes()
    (place / "said.toml").write_text(lines)
    said = p2pfl("identity", "ada", *ROSTER, "--accept", "said.toml")
    assert said.status == 2
    assert "that --rotate printed" in said.err
    assert (place / "roster.toml").read_bytes() == before


def test_a_rotation_that_the_roster_refuses_changes_nothing(p2pfl, place):
    p2pfl("identity", "ada", *KEYS)
    p2pfl("identity", "ada", "--keys", "elsewhere", *ROSTER)
    before = p2pfl("identity", "ada", *KEYS).out
    said = p2pfl("identity", "ada", *KEYS, *ROSTER, "--rotate")
    assert said.status == 1
    assert "signed by its present key" in said.err
    assert p2pfl("identity", "ada", *KEYS).out == before
    assert [path.name for path in (place / "keys").iterdir()] == ["ada.pem"]


def test_a_roster_that_cannot_be_written_leaves_the_key_as_it_was(p2pfl, place, monkeypatch):
    from p2pfl.core.errors import StorageError  # noqa: PLC0415

    p2pfl("identity", "ada", *KEYS, *ROSTER)
    before = p2pfl("identity", "ada", *KEYS).out

    def full(*_):
        raise StorageError("roster.toml cannot be written (no space left)")

    monkeypatch.setattr(Roster, "write", full)
    assert p2pfl("identity", "ada", *KEYS, *ROSTER, "--rotate").status == 1
    assert p2pfl("identity", "ada", *KEYS).out == before
    assert not (place / "keys" / ".ada.pem.part").exists()


def test_a_revoked_key_is_refused_until_the_peer_has_another(p2pfl, place):
    p2pfl("identity", "ada", *KEYS, *ROSTER)
    assert p2pfl("identity", "ada", *ROSTER, "--revoke", "lost laptop").status == 0
    again = p2pfl("identity", "ada", *KEYS, *ROSTER)
    assert again.status == 1
    assert "lost laptop" in again.err
    assert p2pfl("identity", "ada", *KEYS, *ROSTER, "--rotate").status == 0
    roster = Roster.read(place / "roster.toml")
    roster.check("ada", Identity.load(place / "keys" / "ada.pem").public)
    assert list(roster.revoked.values()) == ["lost laptop"]


def test_json_says_all_of_it(p2pfl):
    told = json.loads(p2pfl("identity", "ada", *KEYS, "--json").out)
    assert set(told) == {"peer", "key", "fingerprint", "file", "statement"}
    assert told["peer"] == "ada"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["ada"], "--keys"),
        (["ada", "--revoke", "lost"], "--roster"),
        (["../ada", *KEYS], "letters"),
        (["ada", *KEYS, "--rotate"], "make one without --rotate"),
        (["ada", *ROSTER, "--revoke", "lost"], "the roster cannot be read"),
        (["ada", "--accept", "said.toml"], "--roster"),
        (["ada", *KEYS, "--rotate", "--revoke", "lost"], "not allowed with"),
    ],
)
def test_wrong_use_is_one_sentence_and_writes_nothing(p2pfl, place, arguments, sentence):
    before = sorted(place.rglob("*"))
    said = p2pfl("identity", *arguments)
    assert said.status == 2
    assert sentence in said.err
    assert said.err.count("\n") == 1
    assert sorted(place.rglob("*")) == before


def test_without_a_roster_what_was_seen_once_is_kept_for_the_next_run(p2pfl, place):
    p2pfl("identity", "ada", *KEYS)
    owned = credentials(schema.TrustSettings(keys="keys"), peer="ada")
    assert isinstance(owned.trust, FirstUse)
    owned.trust.remember("bob", Identity(bytes(range(32))).public)
    owned.keep()
    assert credentials(schema.TrustSettings(keys="keys"), peer="ada").trust.seen == owned.trust.seen
    assert (place / "keys" / "known.toml").exists()
