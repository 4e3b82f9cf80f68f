"""A device whose certificate the operator has revoked says so."""

import asyncio
import shutil

import pytest

from certificates import reachable
from fleets import NOW, PEERS, asked, bundles
from p2pfl.network.transport.broker import Program, mosquitto, run_program
from p2pfl.plugins.operate.checks import neighbours
from p2pfl.plugins.operate.doctor import examine
from p2pfl.privacy.keys import Identity, Roster, SecretSource

pytestmark = pytest.mark.slow

SENTENCE = "it refuses the certificate of this peer as revoked; ask the operator of the broker why"


@pytest.fixture
def device(place):
    """The folder of a device that has what was signed for it, beside a broker with the list that revokes it."""
    program = mosquitto() or pytest.skip("mosquitto is not installed")

    def configured(_host, port):
        fleet = bundles(place, port=port)
        signer = fleet.signer(now=NOW)
        signer.collect([asked(place, peer) for peer in PEERS])
        shutil.copytree(fleet.out / "peer1", place / "device")
        shutil.copytree(place / "device-peer1", place / "device" / "keys")
        signer.revoke(["peer1"], reason="stolen on Monday")
        reachable((fleet.out / "broker").resolve())
        return "user root\n" + (fleet.out / "broker" / "mosquitto.conf").read_text()

    with run_program(Program(program.kind, program.command, configured), host="127.0.0.1", port=0):
        yield place / "device"


def found(device):
    """Return the findings of the doctor by check."""
    how = {"peer": "peer1", "runs": device / "runs", "environment": {}}
    return {each.check: each for each in asyncio.run(examine(str(device / "plant.toml"), **how))}


def test_the_doctor_and_the_peer_of_a_revoked_device_say_that_the_broker_refuses_its_certificate(device, p2pfl):
    findings = found(device)
    assert findings["login"].status == "problem"
    assert SENTENCE in findings["login"].message
    assert findings["roster"].status == "ok"  # nobody has given it the roster that revokes it
    said = p2pfl("peer", str(device / "plant.toml"), "--name", "peer1", "--runs", str(device / "runs"))
    assert said.status == 2  # so systemd does not start it again
    assert SENTENCE in said.err


def test_the_doctor_names_a_key_that_the_roster_of_the_device_revokes_or_does_not_list(device, monkeypatch):
    monkeypatch.setattr(neighbours, "SILENCE_SECONDS", 0.5)
    shutil.copy(device.parent / "fleet" / "roster.toml", device / "roster.toml")
    assert 'revoked for "stolen on Monday"; give that peer a new identity' in found(device)["roster"].message
    (device / "keys" / "peer1.pem").unlink()
    Identity.generate(SecretSource(), peer="peer1").save(device / "keys" / "peer1.pem")
    assert "ask its owner out of band which of them is right" in found(device)["roster"].message
    listed = Roster.read(device / "roster.toml")
    Roster({name: key for name, key in listed.peers.items() if name != "peer1"}).write(device / "roster.toml")
    assert 'the roster does not contain "peer1"' in found(device)["roster"].message
