"""Requests of devices, and what an authority makes of them."""

import errno
import json
import os
import re
import stat
import tomllib
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from fleets import NOW, PEERS, asked, bundles, contents
from p2pfl.cli import main
from p2pfl.core.errors import InputError, StorageError
from p2pfl.plugins.operate.bundles.authority import Authority
from p2pfl.privacy.keys import Identity, Roster, SecretSource
from p2pfl.privacy.keys.key_requests import DeviceRequest, request, requested


def test_keys_of_a_device_stay_there_and_a_request_is_the_same_key_each_time(place, capsys):
    command = ["identity", "peer0", "--keys", "keys", "--request", "request.toml"]
    assert main(command) == 0
    first = DeviceRequest.load(Path("request.toml"))
    assert f"fingerprint {first.fingerprint}" not in capsys.readouterr().out
    assert main(command) == 0
    second = DeviceRequest.load(Path("request.toml"))
    assert (second.public, second.read.public_key()) == (first.public, first.read.public_key())
    for name in ("peer0.pem", "peer0.key"):
        assert stat.S_IMODE((place / "keys" / name).stat().st_mode) == 0o600
    assert "PRIVATE" not in Path("request.toml").read_text()


def test_collected_requests_become_certificates_and_one_roster_for_all(place, capsys):
    fleet = bundles(place)
    requests = {peer: asked(place, peer) for peer in PEERS}
    command = ["deploy", "plant.toml", "--out", "fleet", "--yes", "--collect"]
    assert main([*command, str(requests["peer0"]), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (list(found["fingerprints"]), found["missing"]) == (["peer0"], ["peer1", "peer2"])
    assert not (fleet.out / "peer0" / "roster.toml").exists()
    assert not [*fleet.out.glob("*/request.toml")]  # a pattern for those of devices finds none of the operator
    before = (fleet.out / "peer0" / "certificate.pem").read_bytes()
    assert main([*command, *map(str, requests.values())]) == 0
    said = capsys.readouterr()
    assert f"peer0  {DeviceRequest.load(requests['peer0']).fingerprint}" in said.out
    assert "compare each fingerprint" in said.err
    shown = re.search(r"^roster\.toml  (.*)$", said.out, re.MULTILINE)[1]
    assert shown == Roster.read(fleet.out / "peer0" / "roster.toml").fingerprint
    assert (fleet.out / "peer0" / "certificate.pem").read_bytes() == before
    rosters = {(fleet.out / peer / "roster.toml").read_bytes() for peer in PEERS}
    assert len(rosters) == 1
    authority = x509.load_pem_x509_certificate((fleet.out / "broker" / "ca.pem").read_bytes())
    for peer, file in requests.items():
        made = x509.load_pem_x509_certificate((fleet.out / peer / "certificate.pem").read_bytes())
        made.verify_directly_issued_by(authority)
        assert made.public_key() == DeviceRequest.load(file).read.public_key()
        assert Roster.read(fleet.out / peer / "roster.toml").peers[peer] == DeviceRequest.load(file).public


def test_a_request_that_was_changed_on_the_way_is_refused(place):
    fleet = bundles(place)
    path = asked(place, "peer0")
    text = path.read_text()
    path.write_text(text.replace('peer = "peer0"', 'peer = "peer1"'))
    with pytest.raises(InputError, match="is not a request that p2pfl identity --request wrote"):
        fleet.signer(now=NOW).collect([path])
    theirs = requested(ec.generate_private_key(ec.SECP256R1()), peer="peer0").decode()
    ours = tomllib.loads(text)["certificate_request"]
    path.write_text(text.replace(ours, theirs))
    with pytest.raises(InputError, match="is not a request"):
        fleet.signer(now=NOW).collect([path])
    for damaged in ("", "no toml", 'peer = "peer0"\nkey = 3\n', text[:200]):
        path.write_text(damaged)
        with pytest.raises(InputError, match="is not a request"):
            fleet.signer(now=NOW).collect([path])
    with pytest.raises(InputError, match="cannot be read"):
        fleet.signer(now=NOW).collect([place / "missing.toml"])


def test_a_request_for_the_certificate_of_another_name_is_refused(place):
    fleet = bundles(place)
    keys = place / "device"
    keys.mkdir()
    identity = Identity.generate(SecretSource(), peer="peer0")
    identity.save(keys / "peer0.pem")
    made = request("peer0", keys=keys, to=keys / "request.toml")
    wrong = requested(ec.generate_private_key(ec.SECP256R1()), peer="peer1")
    assert made.read.is_signature_valid
    authority = Authority.open(fleet.out / "authority", name="plant", now=NOW)
    with pytest.raises(InputError, match='not one for "peer0"'):
        authority.sign(x509.load_pem_x509_csr(wrong), peer="peer0", now=NOW)


@pytest.mark.slow
def test_a_request_of_a_stranger_or_with_another_key_changes_nothing(place):
    fleet = bundles(place)
    fleet.signer(now=NOW).collect([asked(place, "peer0")])
    before = contents(fleet.out)
    with pytest.raises(InputError, match='no peer of "plant"'):
        fleet.signer(now=NOW).collect([asked(place, "eve")])
    with pytest.raises(InputError, match="and the roster lists"):
        fleet.signer(now=NOW).collect([asked(place, "peer0", folder="another")])
    assert contents(fleet.out) == before


def test_an_authority_goes_on_after_a_crash_between_its_key_and_its_certificate(place):
    fleet = bundles(place)
    fleet.signer(now=NOW).collect([asked(place, "peer0")])
    (fleet.out / "authority" / "ca.pem").unlink()
    found = Authority.open(fleet.out / "authority", name="plant", now=NOW)
    assert found.certificate.public_key() == found.key.public_key()
    made = x509.load_pem_x509_certificate((fleet.out / "peer0" / "certificate.pem").read_bytes())
    made.verify_directly_issued_by(found.certificate)
    assert Authority.open(fleet.out / "authority", name="plant", now=NOW).certificate == found.certificate


def test_a_crash_while_a_key_is_written_leaves_no_part_of_it(place, monkeypatch):
    def crash(_descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", crash)
        with pytest.raises(StorageError, match="cannot be written"):
            Authority.open(place / "authority", name="plant", now=NOW)
    assert not [*(place / "authority").iterdir()]
    Authority.open(place / "authority", name="plant", now=NOW)


def test_an_authority_without_its_key_is_not_replaced_in_silence(place):
    fleet = bundles(place)
    (fleet.out / "authority" / "ca.key").unlink()
    with pytest.raises(InputError, match="restore both from a backup"):
        bundles(place)
    blocked = place / "file"
    blocked.write_text("")
    with pytest.raises(StorageError, match="cannot be written"):
        Authority.open(blocked / "authority", name="plant", now=NOW)
