"""Certificates of a fleet are replaced while it is in use: of devices, brokers and the authority."""

import contextlib
import datetime as dt
import hashlib
import json
import shutil
import ssl
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509

from fleets import NOW, PEERS, asked, bundles
from p2pfl.cli import main
from p2pfl.core.errors import InputError
from p2pfl.network.transport.address import Address
from p2pfl.plugins.operate.bundles.authority import Authority
from p2pfl.plugins.operate.bundles.fleet import Fleet
from p2pfl.plugins.operate.bundles.roster_signer import RosterSigner
from p2pfl.privacy.keys import Roster

DEPLOY = ["deploy", "plant.toml", "--out", "fleet"]
REFUSED = "refused"


@pytest.fixture
def fleet(place):
    """A fleet whose devices have certificates."""
    made = bundles(place)
    made.signer(now=NOW).collect([asked(place, peer) for peer in PEERS])
    return made


def serial(path):
    return x509.load_pem_x509_certificate(path.read_bytes()).serial_number


def installed(folder, place):
    """Return a copy of the files of the broker or of a device, which later calls of the operator do not change."""
    copy = place / "hosts" / str(len([*place.glob("hosts/*")]))
    copy.mkdir(parents=True)
    for path in folder.iterdir():
        if path.is_file():
            (copy / path.name).write_bytes(path.read_bytes())
            (copy / path.name).chmod(0o600)
    return copy


def handshake(place, broker, device, peer):
    """Return how a TLS handshake in memory ends: with the client's name, or with the side that refuses the other."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.maximum_version = ssl.TLSVersion.TLSv1_2  # the client then hears of a refusal within the handshake
    server.load_cert_chain(broker / "broker.pem", broker / "broker.key")
    server.verify_mode = ssl.CERT_REQUIRED  # and as mosquitto does with require_certificate and crlfile
    server.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    for file in ("ca.pem", "revoked.pem"):
        server.load_verify_locations(broker / file)
    key = place / f"device-{peer}" / f"{peer}.key"
    client = Address.parse("mqtts://127.0.0.1:8883").tls(device / "broker.pem", device / "certificate.pem", key)
    client.verify_flags |= ssl.VERIFY_X509_STRICT  # as Python does from 3.13 on
    ways = [ssl.MemoryBIO() for _ in range(2)]
    ends = [
        client.wrap_bio(ways[0], ways[1], server_hostname="127.0.0.1"),
        server.wrap_bio(ways[1], ways[0], server_side=True),
    ]
    for _ in range(4):
        for end, who in zip(ends, ("the device refuses", "the broker refuses"), strict=True):
            try:
                with contextlib.suppress(ssl.SSLWantReadError):
                    end.do_handshake()
            except ssl.SSLCertVerificationError:
                return who
    return ends[1].getpeercert()["subject"][0][0][1]


@pytest.fixture
def install(place, fleet):
    """Return what is installed at the broker and at a device when it is called."""
    return lambda: (installed(fleet.out / "broker", place), installed(fleet.out / "peer0", place))


def test_brokers_and_devices_of_before_and_after_accept_each_other_until_the_former_authority_ends(
    place, fleet, install
):
    old_broker, old = install()
    fleet.signer(now=NOW).renew(["authority"])
    broker, new = install()
    assert serial(new / "certificate.pem") != serial(old / "certificate.pem")
    for files in (old, new):
        assert handshake(place, broker, files, "peer0") == "peer0"
    assert handshake(place, old_broker, old, "peer0") == "peer0"
    assert handshake(place, old_broker, new, "peer0") == "the broker refuses"  # so brokers are installed first
    bundles(place)  # written again, for example with a new wheel
    again, same = install()
    assert handshake(place, again, old, "peer0") == handshake(place, again, same, "peer0") == "peer0"
    fleet.signer(now=NOW).end_former()
    last_broker, last = install()
    assert handshake(place, last_broker, new, "peer0") == "peer0"  # who has not the last bundle
    assert handshake(place, last_broker, last, "peer0") == handshake(place, broker, last, "peer0") == "peer0"
    assert handshake(place, last_broker, old, "peer0") == "the device refuses"
    (old / "broker.pem").write_bytes((last / "broker.pem").read_bytes())
    assert handshake(place, last_broker, old, "peer0") == "the broker refuses"
    assert handshake(place, old_broker, last, "peer0") == "the device refuses"


def test_the_authority_is_replaced_again_only_after_the_former_one_has_ended(place, fleet, install):
    with pytest.raises(InputError, match="has one authority, without which no device could log in; call --renew"):
        fleet.signer(now=NOW).end_former()
    for _ in range(2):
        _, before = install()
        fleet.signer(now=NOW).renew(["authority"])
        with pytest.raises(InputError, match="this would cut off devices; call --revoke authority first"):
            fleet.signer(now=NOW).renew(["authority"])
        broker, _ = install()
        assert handshake(place, broker, before, "peer0") == "peer0"
        fleet.signer(now=NOW).end_former()
    assert not [*(fleet.out / "authority").rglob("former/*")]


def test_a_device_that_is_revoked_after_a_renewal_has_no_certificate_left(place, fleet, install):
    _, first = install()
    fleet.signer(now=NOW).renew(["peer0"])
    _, second = install()
    fleet.signer(now=NOW).renew(["authority"])
    broker, third = install()
    for files in (first, second, third):
        assert handshake(place, broker, files, "peer0") == "peer0"
    fleet.signer(now=NOW).revoke(["peer0"], reason="stolen")
    broker = installed(fleet.out / "broker", place)
    for files in (first, second, third):
        assert handshake(place, broker, files, "peer0") == "the broker refuses"
    assert handshake(place, broker, installed(fleet.out / "peer1", place), "peer1") == "peer1"


def test_a_broker_and_one_device_get_other_certificates_and_nothing_else_changes(place, fleet, install):
    broker, before = install()
    fleet.signer(now=NOW).renew(["broker"])
    other, same = install()
    assert serial(other / "broker.pem") != serial(broker / "broker.pem")
    assert (same / "broker.pem").read_bytes() == (before / "broker.pem").read_bytes()
    changed = fleet.signer(now=NOW).renew(["peer1"])
    assert changed == [fleet.out / "peer1" / "certificate.pem"]
    assert handshake(place, other, before, "peer0") == "peer0"
    with pytest.raises(
        InputError, match=r'"peer7" has no certificate in .*; name one of authority, broker, fleet-operator'
    ):
        fleet.signer(now=NOW).renew(["broker", "peer7"])


@pytest.fixture
def how(place):
    """Arguments with which bundles are written."""
    wheel = place / "p2pfl_mqtt-0.3.0-py3-none-any.whl"
    return {"brokers": ["mqtts://127.0.0.1:8883"], "wheel": wheel}


@pytest.fixture
def other(place, fleet, how):
    """Another experiment of the same fleet."""
    (place / "stream.toml").write_text((place / "plant.toml").read_text().replace('"plant"', '"stream"'))
    made = Fleet.open(str(place / "stream.toml"), out=fleet.out, trust_code=True)
    made.write(**how, now=NOW)
    return made


def test_a_device_that_one_experiment_revoked_comes_back_by_no_new_authority(place, fleet, other):
    path = other.home / "peer0" / "certificate.pem"
    before = path.read_bytes()
    fleet.signer(now=NOW).revoke(["peer0"], reason="stolen")
    with pytest.raises(InputError, match=r'"peer0" has no certificate in .*; name one of authority, broker, fleet-op'):
        fleet.signer(now=NOW).renew(["peer0"])
    fleet.signer(now=NOW).renew(["authority"])
    fleet.signer(now=NOW).end_former()
    assert path.read_bytes() == before
    broker = installed(fleet.out / "broker", place)
    assert handshake(place, broker, installed(path.parent, place), "peer0") == "the broker refuses"


def test_a_device_whose_bundle_was_deleted_gets_its_next_certificate_all_the_same(place, fleet):
    shutil.rmtree(fleet.out / "peer0")
    fleet.signer(now=NOW).renew(["authority"])
    fleet.signer(now=NOW).end_former()
    bundles(place)
    broker, device = installed(fleet.out / "broker", place), installed(fleet.out / "peer0", place)
    assert handshake(place, broker, device, "peer0") == "peer0"


@pytest.fixture
def without_peer2(place, fleet):
    """The fleet after its operator has taken a device out of the swarm."""
    (place / "plant.toml").write_text((place / "plant.toml").read_text().replace("peers = 3", "peers = 2"))
    made = Fleet.open(str(place / "plant.toml"), out=fleet.out, trust_code=True)
    roster = Roster.read(fleet.home / "roster.toml")
    made.signer(now=NOW).distribute(replace(roster, peers={peer: roster.peers[peer] for peer in made.peers}))
    return made


@pytest.mark.parametrize("deleted", [False, True])
def test_a_device_that_was_taken_out_gets_no_other_certificate(place, without_peer2, deleted):
    bundle = without_peer2.out / "peer2"
    before = installed(bundle, place)
    if deleted:
        shutil.rmtree(bundle)
    signer = without_peer2.signer(now=NOW)
    assert not [path for path in signer.renew(["authority"]) if path == bundle / "certificate.pem"]
    with pytest.raises(InputError, match='"peer2" has no certificate in '):
        signer.renew(["peer2"])
    assert "peer2" not in signer.devices
    signer.end_former()
    broker = installed(without_peer2.out / "broker", place)
    (before / "broker.pem").write_bytes((without_peer2.out / "peer0" / "broker.pem").read_bytes())
    assert handshake(place, broker, before, "peer2") == "the broker refuses"
    assert bundle.exists() is not deleted


def test_a_device_that_is_taken_in_again_gets_a_certificate_of_the_present_authority(place, fleet, without_peer2):
    signer = without_peer2.signer(now=NOW)
    signer.renew(["authority"])
    signer.end_former()
    fleet.signer(now=NOW).collect([asked(place, "peer2")])
    bundles(place)
    broker, device = installed(fleet.out / "broker", place), installed(fleet.out / "peer2", place)
    (device / "broker.pem").write_bytes((fleet.out / "peer0" / "broker.pem").read_bytes())
    assert handshake(place, broker, device, "peer2") == "peer2"


def test_a_device_has_one_certificate_in_all_experiments_after_a_call_that_was_interrupted(place, fleet, other):
    ours, theirs = (each.home / "peer0" / "certificate.pem" for each in (fleet, other))
    before = theirs.read_bytes()
    fleet.signer(now=NOW).renew(["authority"])
    theirs.write_bytes(before)  # the call ended here
    between = installed(fleet.home / "peer0", place)
    fleet.signer(now=NOW).renew(["authority"])  # goes on
    assert ours.read_bytes() == theirs.read_bytes() not in {before, (between / "certificate.pem").read_bytes()}
    device = installed(other.home / "peer0", place)
    fleet.signer(now=NOW).revoke(["peer0"], reason="stolen")
    broker = installed(fleet.out / "broker", place)
    for files in (between, device):
        assert handshake(place, broker, files, "peer0") == "the broker refuses"


def test_all_experiments_of_a_fleet_and_its_observers_get_the_same_files(place, fleet, other, how):
    fleet.signer(now=NOW).renew(["authority"])
    for name in ("broker.pem", "certificate.pem"):
        assert (other.home / "peer0" / name).read_bytes() == (fleet.home / "peer0" / name).read_bytes()
    for home in (fleet.home, other.home):
        folder = home / "peer0"
        sums = dict(line.split("  ")[::-1] for line in (folder / "SHA256SUMS").read_text().splitlines())
        assert sums["broker.pem"] == hashlib.sha256((folder / "broker.pem").read_bytes()).hexdigest()
        before = (folder / "SHA256SUMS").read_bytes()
        Fleet.open(str(place / f"{home.name.replace('fleet', 'plant')}.toml"), out=fleet.out, trust_code=True).write(
            **how, now=NOW
        )
        assert (folder / "SHA256SUMS").read_bytes() == before


@pytest.mark.parametrize("crash", [1, 2, 3, 4])
def test_a_crash_while_the_authority_is_replaced_loses_neither(place, fleet, install, monkeypatch, crash):
    broker, before = install()
    left = [crash]

    def save(path, data, **how):
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        real(path, data, **how)

    module = sys.modules[Authority.__module__]
    real = module.save
    monkeypatch.setattr(module, "save", save)
    with pytest.raises(KeyboardInterrupt):
        fleet.signer(now=NOW).renew(["authority"])
    monkeypatch.setattr(module, "save", real)
    bundles(place)
    again, _ = install()
    assert handshake(place, again, before, "peer0") == "peer0"
    fleet.signer(now=NOW).renew(["authority"])  # goes on
    fleet.signer(now=NOW).end_former()
    broker, after = install()
    assert handshake(place, broker, after, "peer0") == "peer0"
    assert handshake(place, broker, before, "peer0") == "the device refuses"


def test_a_crash_while_the_former_authority_ends_leaves_a_call_that_goes_on(place, fleet, install, monkeypatch):
    _, before = install()
    fleet.signer(now=NOW).renew(["authority"])

    def crash(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(sys.modules[RosterSigner.__module__], "save", crash)
        with pytest.raises(KeyboardInterrupt):
            fleet.signer(now=NOW).end_former()
    broker, after = install()
    assert handshake(place, broker, before, "peer0") == "peer0"  # nothing is written yet
    fleet.signer(now=NOW).end_former()
    broker, after = install()
    assert handshake(place, broker, after, "peer0") == "peer0"
    assert handshake(place, broker, before, "peer0") == "the device refuses"
    with pytest.raises(InputError, match="has one authority"):
        fleet.signer(now=NOW).end_former()


def test_the_former_authority_does_not_end_while_a_certificate_is_of_it(fleet):
    path = fleet.out / "peer2" / "certificate.pem"
    before = path.read_bytes()
    fleet.signer(now=NOW).renew(["authority"])
    path.write_bytes(before)  # from a backup
    with pytest.raises(
        InputError, match=r"peer2/certificate.pem is still of the former authority; call --renew authority again"
    ):
        fleet.signer(now=NOW).end_former()


def test_certificates_are_named_half_a_year_before_they_end(fleet):
    end = NOW + dt.timedelta(days=3650)
    assert fleet.signer(now=end - dt.timedelta(days=181)).expiring() == []
    soon = fleet.signer(now=end - dt.timedelta(days=100)).expiring()
    assert soon[0] == "the certificate of authority ends on 2036-11-20; call p2pfl deploy with --renew authority"
    assert len(soon) == 3 + len(PEERS)
    fleet.signer(now=end - dt.timedelta(days=100)).renew(["authority"])
    assert fleet.signer(now=end - dt.timedelta(days=100)).expiring() == []


@pytest.mark.usefixtures("fleet")
def test_the_operator_says_that_all_are_installed_before_the_former_authority_ends(capsys, monkeypatch):
    assert main([*DEPLOY, "--renew", "authority", "--json"]) == 0
    changed = json.loads(capsys.readouterr().out)["changed"]
    assert {"fleet/broker/broker.pem", "fleet/peer0/broker.pem", "fleet/peer0/certificate.pem"} <= {*changed}
    end = [*DEPLOY, "--revoke", "authority"]
    assert main(end) == 2
    assert "check each of them, and add --yes" in capsys.readouterr().err
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(sys.stdin, "readline", lambda: "no\n")
    assert main(end) == 2
    assert f"do {', '.join(sorted(PEERS))} have" in capsys.readouterr().out
    assert Path("fleet/authority/former/ca.pem").exists()
    monkeypatch.setattr(sys.stdin, "readline", lambda: "yes\n")
    assert main(end) == 0
    assert not Path("fleet/authority/former/ca.pem").exists()
    assert main([*DEPLOY, "--renew", "peer9"]) == 2
