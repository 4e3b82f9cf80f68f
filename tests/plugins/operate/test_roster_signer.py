"""Tests of the operator's commands for a fleet: fingerprints before signing, revocation, and observers."""

import datetime as dt
import io
import json
import re
import shutil
import ssl
import sys
import tomllib
from pathlib import Path

import pytest
from cryptography import x509

from certificates import reachable
from p2pfl.cli import main
from p2pfl.core.errors import InputError
from p2pfl.experiment import read
from p2pfl.network.transport.broker import Program, mosquitto, run_program
from p2pfl.network.transport.hardened import configuration
from p2pfl.plugins.operate.bundles.fleet import Fleet
from p2pfl.privacy.keys import Identity, Roster, SecretSource
from p2pfl.privacy.keys.key_requests import DeviceRequest, request

PLANT = """
name = "plant"
[topology]
kind = "complete"
peers = 2
[data]
name = "models.own:data"
[model]
name = "linear"
[telemetry]
share = "health"
"""
PEERS = ("peer0", "peer1")
NOW = dt.datetime.now(dt.UTC)
COLLECT = ["deploy", "plant.toml", "--out", "fleet", "--trust-code", "--collect"]


@pytest.fixture
def fleet(tmp_path, monkeypatch):
    """The bundles of two devices and one observer."""
    (tmp_path / "plant.toml").write_text(PLANT)
    (tmp_path / "p2pfl_mqtt-0.3.0-py3-none-any.whl").write_bytes(b"a wheel")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "own.py").write_text("data = None\n")
    monkeypatch.chdir(tmp_path)
    return written(Fleet.open("plant.toml", out=Path("fleet"), trust_code=True), observers=["ops"])


def written(fleet, **how):
    wheel = Path("p2pfl_mqtt-0.3.0-py3-none-any.whl")
    fleet.write(brokers=["mqtts://127.0.0.1:8883"], machines=[], wheel=wheel, now=NOW, **how)
    return fleet


def asked(name, *, device=""):
    """The request of a device or an observer, whose keys are in a folder of its own."""
    keys = Path(f"device-{name}{device}")
    if not keys.exists():
        keys.mkdir()
        Identity.generate(SecretSource(), peer=name).save(keys / f"{name}.pem")
    request(name, keys=keys, to=keys / "request.toml")
    return keys / "request.toml"


def collected(fleet):
    return fleet.signer(now=NOW).collect([asked(name) for name in (*PEERS, "ops")])


def revoked(fleet):
    """Serial numbers that the broker refuses."""
    return {each.serial_number for each in x509.load_pem_x509_crl((fleet.out / "broker" / "revoked.pem").read_bytes())}


class Terminal(io.StringIO):
    """Standard input of an operator who answers."""

    def isatty(self):
        return True


# ---------------------------------------------------------------------- before they sign


@pytest.mark.parametrize("answer", ["no\n", "", "yes\n"])
def test_fingerprints_are_shown_before_anything_is_signed_and_nothing_is_without_a_yes(
    fleet, monkeypatch, capsys, answer
):
    file = asked("peer0")
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    status = main([*COLLECT, str(file)])
    said = capsys.readouterr()
    made = DeviceRequest.load(file)
    assert f"peer0  {made.fingerprint}  certificate request {made.certificate_fingerprint}" in said.err
    signed = (fleet.out / "peer0" / "certificate.pem").exists() or (fleet.out / "roster.toml").exists()
    assert (status, signed) == ((0, True) if answer == "yes\n" else (2, False))


def test_a_program_confirms_with_a_flag_and_signs_nothing_without_it(fleet, monkeypatch, capsys):
    file = str(asked("peer0"))
    monkeypatch.setattr(sys, "stdin", io.StringIO("yes\n"))
    assert main([*COLLECT, file, "--json"]) == 2
    assert "compare them, and add --yes" in capsys.readouterr().err
    assert not (fleet.out / "peer0" / "certificate.pem").exists()
    assert main([*COLLECT, file, "--json", "--yes"]) == 0
    assert json.loads(capsys.readouterr().out)["missing"] == ["peer1"]


# ---------------------------------------------------------------------- revocation


def test_a_revoked_device_is_in_the_list_of_the_broker_and_in_the_roster_of_all(fleet, capsys):
    collected(fleet)
    number = x509.load_pem_x509_certificate((fleet.out / "peer1" / "certificate.pem").read_bytes()).serial_number
    key = Roster.read(fleet.out / "roster.toml").peers["peer1"]
    assert revoked(fleet) == set()
    command = [
        "deploy",
        "plant.toml",
        "--out",
        "fleet",
        "--trust-code",
        "--revoke",
        "peer1",
        "--reason",
        "stolen",
        "--json",
    ]
    assert main(command) == 0
    assert set(json.loads(capsys.readouterr().out)["fingerprints"]) == {"peer0", "ops"}
    assert revoked(fleet) == {number}
    assert not (fleet.out / "peer1" / "certificate.pem").exists()
    assert Roster.read(fleet.out / "peer0" / "roster.toml").revoked == {key: "stolen"}
    written(fleet)
    assert revoked(fleet) == {number}  # it stays when the bundles are written again


def test_a_device_in_place_of_a_revoked_one_gets_a_certificate_and_the_old_keys_do_not(fleet):
    collected(fleet)
    with pytest.raises(InputError, match="call deploy with --revoke peer1 if the device was replaced"):
        fleet.signer(now=NOW).collect([asked("peer1", device="-new")])
    fleet.signer(now=NOW).revoke(["peer1"], reason="broken")
    with pytest.raises(InputError, match="which is revoked; make new keys"):
        fleet.signer(now=NOW).collect([asked("peer1")])
    found = fleet.signer(now=NOW).collect([asked("peer1", device="-new")])
    assert found.fingerprints["peer1"] == DeviceRequest.load(asked("peer1", device="-new")).fingerprint
    with pytest.raises(InputError, match='"nobody" has no certificate'):
        fleet.signer(now=NOW).revoke(["nobody"], reason="gone")


def test_a_new_certificate_of_one_key_revokes_the_one_before(fleet):
    collected(fleet)
    before = x509.load_pem_x509_certificate((fleet.out / "peer0" / "certificate.pem").read_bytes())
    (Path("device-peer0") / "peer0.key").unlink()
    collected(fleet)
    assert revoked(fleet) == {before.serial_number}


def test_a_list_of_revoked_certificates_that_another_authority_made_is_refused(fleet):
    path = fleet.out / "authority" / "revoked.pem"
    other = Fleet.open("plant.toml", out=Path("other"), trust_code=True)
    written(other)
    for data in ((other.out / "authority" / "revoked.pem").read_bytes(), b"nothing"):
        path.write_bytes(data)
        with pytest.raises(InputError, match="was not made by its authority"):
            fleet.signer(now=NOW).update_brokers()


@pytest.mark.slow
def test_mosquitto_refuses_a_revoked_certificate_and_no_other(fleet):
    program = mosquitto() or pytest.skip("mosquitto is not installed")
    collected(fleet)
    shown = (fleet.out / "peer1" / "certificate.pem").read_bytes()
    fleet.signer(now=NOW).revoke(["peer1"], reason="stolen")
    (fleet.out / "peer1" / "certificate.pem").write_bytes(shown)
    folder = (fleet.out / "broker").resolve()
    reachable(folder)

    def configured(host, port):
        text = configuration(folder, host=host, port=port, passwords=False)
        return "user root\n" + (text if listed else re.sub("crlfile.*\n", "", text))

    def admitted(peer, port):
        context = ssl.create_default_context(cafile=folder / "ca.pem")
        context.load_cert_chain(fleet.out / peer / "certificate.pem", Path(f"device-{peer}") / f"{peer}.key")
        with (
            ssl.create_connection(("127.0.0.1", port)) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
        ):
            secure.sendall(b"\x10\x0e\x00\x04MQTT\x04\x02\x00\x3c\x00\x02p" + b"x")
            return secure.recv(4) == b"\x20\x02\x00\x00"

    for listed in (False, True):
        with run_program(Program(program.kind, program.command, configured), host="127.0.0.1", port=0) as broker:
            port = int(broker.url.rpartition(":")[2])
            assert admitted("peer0", port)
            if not listed:
                assert admitted("peer1", port)
                continue
            with pytest.raises(ssl.SSLError, match=r"EOF|revoked"):
                admitted("peer1", port)


# ---------------------------------------------------------------------- a certificate that was moved, not copied


def test_a_device_is_revoked_although_its_certificate_was_moved_out_of_the_folder(fleet):
    collected(fleet)
    path = fleet.out / "peer1" / "certificate.pem"
    number = x509.load_pem_x509_certificate(path.read_bytes()).serial_number
    path.unlink()
    fleet.signer(now=NOW).revoke(["peer1"], reason="stolen")
    assert revoked(fleet) == {number}
    assert "peer1" not in fleet.signer(now=NOW).devices
    with pytest.raises(InputError, match='"peer1" has no certificate'):
        fleet.signer(now=NOW).revoke(["peer1"], reason="stolen")


def test_a_moved_certificate_is_renewed_and_collected_like_one_in_its_place(fleet):
    collected(fleet)
    path = fleet.out / "peer1" / "certificate.pem"
    before = path.read_bytes()
    path.unlink()
    collected(fleet)
    assert path.read_bytes() == before  # and no second one for the same key
    path.unlink()
    assert path in fleet.signer(now=NOW).renew(["authority"])
    renewed = x509.load_pem_x509_certificate(path.read_bytes())
    assert fleet.signer(now=NOW).authority.issued(renewed)
    path.unlink()
    fleet.signer(now=NOW).revoke(["peer1"], reason="stolen")
    assert revoked(fleet) == {renewed.serial_number, x509.load_pem_x509_certificate(before).serial_number}


def test_a_fleet_of_an_earlier_release_keeps_copies_from_its_next_call_on(fleet):
    collected(fleet)
    shutil.rmtree(fleet.out / "authority" / "certificates")
    path = fleet.out / "peer1" / "certificate.pem"
    assert not fleet.signer(now=NOW).expiring()  # each call asks this
    number = x509.load_pem_x509_certificate(path.read_bytes()).serial_number
    path.unlink()
    fleet.signer(now=NOW).revoke(["peer1"], reason="stolen")
    assert revoked(fleet) == {number}


def test_a_certificate_of_which_there_is_no_copy_is_asked_for_and_nothing_changes(fleet):
    collected(fleet)
    shutil.rmtree(fleet.out / "authority" / "certificates")
    path = fleet.out / "peer1" / "certificate.pem"
    shown = path.read_bytes()
    path.unlink()
    before = (fleet.out / "roster.toml").read_bytes()
    with pytest.raises(InputError, match=r"peer1/certificate.pem is missing, .* number; copy it back from .* --renew"):
        fleet.signer(now=NOW).revoke(["peer0", "peer1"], reason="stolen")
    assert (fleet.out / "roster.toml").read_bytes() == before
    assert revoked(fleet) == set()
    path.write_bytes(shown)
    fleet.signer(now=NOW).revoke(["peer0", "peer1"], reason="stolen")
    assert len(revoked(fleet)) == 2


def test_a_crash_while_a_device_is_revoked_leaves_a_call_that_goes_on(fleet, monkeypatch):
    collected(fleet)

    unlink = Path.unlink

    def crash(path, **how):
        if path.suffix == ".crt":
            raise KeyboardInterrupt
        unlink(path, **how)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", crash)
        with pytest.raises(KeyboardInterrupt):
            fleet.signer(now=NOW).revoke(["peer1"], reason="stolen")
    numbers = revoked(fleet)
    assert len(numbers) == 1
    fleet.signer(now=NOW).revoke(["peer1"], reason="stolen")
    assert revoked(fleet) == numbers
    assert not [*fleet.out.rglob("peer1*/certificate.pem"), *fleet.out.rglob("peer1.crt")]
    fleet.signer(now=NOW).collect([asked("peer1", device="-new")])
    assert (fleet.out / "peer1" / "certificate.pem").exists()


# ---------------------------------------------------------------------- observers


def test_an_observer_gets_a_folder_and_devices_get_the_list_of_observers(fleet):
    folder = fleet.out / "observers" / "ops"
    assert {path.name for path in folder.iterdir()} == {"plant.toml", "broker.pem", "README.txt"}
    assert read(fleet.out / "peer0" / "plant.toml", trust_code=True).telemetry.observers is not None
    assert Roster.read(fleet.out / "peer0" / "observers.toml").peers == {}
    found = collected(fleet)
    key = DeviceRequest.load(asked("ops")).public
    for peer in PEERS:
        assert Roster.read(fleet.out / peer / "observers.toml").peers == {"ops": key}
        assert "ops" not in Roster.read(fleet.out / peer / "roster.toml").peers
    assert found.observers is not None
    assert (
        x509.load_pem_x509_certificate((folder / "certificate.pem").read_bytes()).subject.rfc4514_string() == "CN=ops"
    )
    assert (folder / "roster.toml").read_bytes() == (fleet.out / "roster.toml").read_bytes()
    table = tomllib.loads((folder / "plant.toml").read_text())
    assert table["transport"]["key"] == "keys/ops.key"
    assert "telemetry" not in table
    fleet.signer(now=NOW).revoke(["ops"], reason="left")
    assert Roster.read(fleet.out / "peer0" / "observers.toml").revoked == {key: "left"}


@pytest.mark.parametrize("name", ["peer0", "-x", "a b", "x" * 23])
def test_a_name_that_cannot_be_that_of_an_observer_is_refused(fleet, name):
    with pytest.raises(InputError, match=r"cannot be (an observer|part of a script)"):
        written(fleet, observers=[name])


@pytest.mark.usefixtures("fleet")
def test_an_observer_of_peers_that_share_nothing_is_refused():
    Path("plant.toml").write_text(PLANT.replace('"health"', '"none"'))
    with pytest.raises(InputError, match=r"set telemetry\.share"):
        written(Fleet.open("plant.toml", out=Path("other"), trust_code=True), observers=["ops"])
