"""Folders of brokers: certificates of the fleet's authority, several brokers, and the script that installs one."""

import contextlib
import datetime as dt
import os
import shutil
import ssl
import stat
import subprocess
import sys
import tomllib

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from certificates import reachable
from fleets import NOW, PEERS, asked, bundles, contents
from p2pfl.core.errors import InputError
from p2pfl.network.transport.address import Address
from p2pfl.network.transport.broker import Program, mosquitto, run_program
from p2pfl.network.transport.hardened import configure
from p2pfl.plugins.operate.bundles.authority import Authority
from p2pfl.plugins.operate.bundles.fleet import Fleet

PORT = 8883


def certificate(path):
    return x509.load_pem_x509_certificate(path.read_bytes())


def accepted(folder, trusted, *, name="127.0.0.1"):
    """Return whether a client that trusts the certificates of a file accepts a broker, over TLS in memory."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "broker.pem", folder / "broker.key")
    client = Address.parse(f"mqtts://{name}:8883").tls(trusted, None, None)
    client.verify_flags |= ssl.VERIFY_X509_STRICT  # as Python does from 3.13 on
    ways = [ssl.MemoryBIO() for _ in range(2)]
    ends = [
        client.wrap_bio(ways[0], ways[1], server_hostname=name),
        server.wrap_bio(ways[1], ways[0], server_side=True),
    ]
    try:
        for _ in range(4):
            for end in ends:
                with contextlib.suppress(ssl.SSLWantReadError):
                    end.do_handshake()
    except ssl.SSLCertVerificationError:
        return False
    return ends[0].version() is not None


def write(place, *urls):
    fleet = Fleet.open(str(place / "plant.toml"), out=place / "fleet", trust_code=True)
    wheel = place / "p2pfl_mqtt-0.3.0-py3-none-any.whl"
    return fleet, fleet.write(brokers=urls, wheel=wheel, now=NOW)


def test_devices_trust_the_authority_and_so_each_new_certificate_of_their_broker(place):
    out = bundles(place).out
    trusted = out / "peer0" / "broker.pem"
    assert trusted.read_bytes() == (out / "broker" / "ca.pem").read_bytes()
    first = certificate(out / "broker" / "broker.pem")
    assert accepted(out / "broker", trusted)
    for name in ("broker.pem", "broker.key"):
        (out / "broker" / name).unlink()
    bundles(place)
    second = certificate(out / "broker" / "broker.pem")
    assert accepted(out / "broker", trusted)  # a bundle of before
    assert second.subject != first.subject
    keys = [each.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value for each in (first, second)]
    assert keys[0] != keys[1]


def test_a_device_cannot_use_its_certificate_as_a_broker(place):
    fleet = bundles(place)
    request = asked(place, "peer0")
    fleet.signer(now=NOW).collect([request])
    folder = place / "evil"
    folder.mkdir()
    shutil.copy(fleet.out / "peer0" / "certificate.pem", folder / "broker.pem")
    shutil.copy(request.parent / "peer0.key", folder / "broker.key")
    assert not accepted(folder, fleet.out / "peer1" / "broker.pem")
    assert not accepted(folder, fleet.out / "peer1" / "broker.pem", name="peer0")


def test_devices_still_trust_a_broker_that_signed_its_own_certificate_before_there_was_an_authority(place):
    (place / "fleet" / "broker").mkdir(parents=True)
    (place / "fleet" / "broker" / "ca.pem").write_text("")
    configure(place / "fleet" / "broker", rights={}, peers=(), host="127.0.0.1", port=8883)
    before = (place / "fleet" / "broker" / "broker.pem").read_bytes()
    out = bundles(place).out
    assert (out / "broker" / "broker.pem").read_bytes() == before
    trusted = out / "peer0" / "broker.pem"
    assert accepted(out / "broker", trusted)
    for name in ("broker.pem", "broker.key"):
        (out / "broker" / name).unlink()
    bundles(place)
    assert accepted(out / "broker", trusted)  # without a change on any device


def test_two_certificates_that_brokers_have_signed_themselves_are_trusted_beside_each_other(tmp_path):
    for name in ("old", "new"):
        configure(tmp_path / name, rights={}, peers=["ada"], host="127.0.0.1", port=8883)
    both = tmp_path / "both.pem"
    both.write_bytes(b"".join((tmp_path / name / "broker.pem").read_bytes() for name in ("old", "new")))
    assert accepted(tmp_path / "old", both)
    assert accepted(tmp_path / "new", both)
    assert not accepted(tmp_path / "new", tmp_path / "old" / "broker.pem")


def test_an_authority_of_an_earlier_release_is_signed_again_with_its_key(tmp_path):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "p2pfl fleet plant")])
    old = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW - dt.timedelta(days=1))
        .not_valid_after(NOW + dt.timedelta(days=365))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    (tmp_path / "ca.key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    (tmp_path / "ca.pem").write_bytes(old.public_bytes(Encoding.PEM))
    made = Authority.open(tmp_path, name="another", now=NOW)
    assert made.certificate.subject == old.subject
    assert made.certificate.public_key() == old.public_key()
    assert made.certificate.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    assert Authority.open(tmp_path, name="another", now=NOW).certificate == made.certificate


def test_several_brokers_have_certificates_of_their_own_and_devices_know_all(place):
    fleet, written = write(place, "mqtts://127.0.0.1:8883", "mqtts://hub2.example:8884")
    table = tomllib.loads((fleet.out / "peer1" / "plant.toml").read_text())
    assert table["transport"]["broker"] == ["mqtts://127.0.0.1:8883", "mqtts://hub2.example:8884"]
    folders = [fleet.out / "broker", fleet.out / "broker2"]
    assert "hub2.example" in written.hosts
    assert len({certificate(folder / "broker.pem").subject for folder in folders}) == 2
    trusted = fleet.out / "peer1" / "broker.pem"
    assert accepted(folders[0], trusted)
    assert accepted(folders[1], trusted, name="hub2.example")
    assert not accepted(folders[0], trusted, name="hub2.example")
    for peer in PEERS:
        fleet.signer(now=NOW).collect([asked(place, peer)])
    fleet.signer(now=NOW).revoke(["peer1"], reason="stolen")
    lists = [(folder / "revoked.pem").read_bytes() for folder in folders]
    assert lists[0] == lists[1]
    assert len([*x509.load_pem_x509_crl(lists[0])]) == 1


# ---------------------------------------------------------------------- a second experiment


def second(place):
    text = (place / "plant.toml").read_text().replace('"plant"', '"stream"').replace("rounds = 3", "rounds = 4")
    (place / "stream.toml").write_text(text)
    fleet = Fleet.open(str(place / "stream.toml"), out=place / "fleet", trust_code=True)
    wheel = place / "p2pfl_mqtt-0.3.0-py3-none-any.whl"
    fleet.write(brokers=["mqtts://127.0.0.1:8883"], wheel=wheel, now=NOW)
    return fleet


@pytest.mark.slow
def test_a_second_experiment_changes_nothing_of_the_first_and_devices_keep_their_identity(place):
    first = bundles(place)
    first.signer(now=NOW).collect([asked(place, peer) for peer in PEERS])
    before = {peer: contents(first.out / peer) for peer in PEERS}
    lines = (first.out / "broker" / "acl").read_text().splitlines()
    fleet = second(place)
    assert fleet.home == first.out / "stream"
    assert {peer: contents(first.out / peer) for peer in PEERS} == before
    for peer in PEERS:
        for name in ("roster.toml", "certificate.pem"):
            assert (fleet.home / peer / name).read_bytes() == (first.out / peer / name).read_bytes()
    merged = (first.out / "broker" / "acl").read_text().splitlines()
    assert {*lines} < {*merged}
    assert {*merged} - {*lines} == {line.replace("plant", "stream") for line in lines if not line.startswith("user ")}
    bundles(place)  # and the other way round
    assert (first.out / "broker" / "acl").read_text().splitlines() == merged
    assert {peer: contents(first.out / peer) for peer in PEERS} == before
    fleet.signer(now=NOW).revoke(["peer1"], reason="stolen")
    assert len([*x509.load_pem_x509_crl((first.out / "broker" / "revoked.pem").read_bytes())]) == 1


def test_access_lists_and_experiments_of_bundles_have_the_prefix_of_all_topics(place):
    text = (place / "plant.toml").read_text()
    (place / "plant.toml").write_text(text.replace("[transport]", '[transport]\nprefix = "plant7/"'))
    fleet = bundles(place)
    topics = [line.split()[-1] for line in (fleet.out / "broker" / "acl").read_text().splitlines() if "topic" in line]
    assert len(topics) > len(PEERS)
    assert all(topic.startswith("plant7/p2pfl/v1/plant/") for topic in topics)
    for peer in PEERS:
        [file] = (fleet.out / peer).glob("*.toml")
        assert tomllib.loads(file.read_text())["transport"]["prefix"] == "plant7/"


def test_nobody_is_a_peer_of_one_experiment_and_an_observer_of_another(place):
    """A certificate for a name gives its rights in all swarms of the broker."""
    text = (place / "plant.toml").read_text() + '\n[telemetry]\nshare = "health"\n'
    (place / "plant.toml").write_text(text)
    bundles(place)
    (place / "pair.edgelist").write_text("x ops\n")
    text = text.replace('"plant"', '"stream"').replace('"complete"\npeers = 3', '"pair.edgelist"')
    (place / "stream.toml").write_text(text)
    for name, observer, refused in (("stream", "peer0", "peer0"), ("plant", "ops", None), ("stream", "eve", "ops")):
        fleet = Fleet.open(str(place / f"{name}.toml"), out=place / "fleet", trust_code=True)
        wheel = place / "p2pfl_mqtt-0.3.0-py3-none-any.whl"
        expected = contextlib.nullcontext()
        if refused:
            expected = pytest.raises(InputError, match=f'"{refused}" cannot be an observer; .* no name of a peer')
        with expected:
            fleet.write(brokers=["mqtts://127.0.0.1:8883"], wheel=wheel, now=NOW, observers=[observer])


def test_an_experiment_with_the_name_of_a_folder_of_the_fleet_is_refused(place):
    bundles(place)
    for name in ("peer0", "broker", "wheels"):
        (place / "other.toml").write_text((place / "plant.toml").read_text().replace('"plant"', f'"{name}"'))
        fleet = Fleet.open(str(place / "other.toml"), out=place / "fleet", trust_code=True)
        wheel = place / "p2pfl_mqtt-0.3.0-py3-none-any.whl"
        with pytest.raises(InputError, match="rename"):
            fleet.write(brokers=["mqtts://127.0.0.1:8883"], wheel=wheel, now=NOW)


@pytest.mark.slow
def test_a_device_installs_a_second_experiment_with_the_keys_that_it_has(place):
    """One call is enough, because the operator has signed these keys for the first experiment."""
    prefix = place / "home" / ".local" / "share" / "p2pfl" / "bin"
    prefix.mkdir(parents=True)
    for name, module in (("p2pfl", "-P -m p2pfl"), ("python", "")):
        (prefix / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
        (prefix / name).chmod(0o755)
    (place / "shims").mkdir()
    (place / "shims" / "id").write_text('#!/bin/sh\ncase "$*" in -u) echo 1000 ;; -un) echo ada ;; *) exit 1 ;; esac\n')
    (place / "shims" / "id").chmod(0o755)

    def install(folder, **more):
        given = {"PATH": f"{place / 'shims'}:{os.environ['PATH']}", "HOME": str(place / "home"), "ENVIRONMENT": "yes"}
        return subprocess.run(
            ["sh", str(folder / "install.sh")],
            capture_output=True,
            text=True,
            check=False,
            env=given | more,
            timeout=600,
        )

    first = bundles(place)
    done = install(first.out / "peer0")
    assert done.returncode == 0, done.stderr
    others = [asked(place, peer) for peer in PEERS[1:]]
    first.signer(now=NOW).collect([first.out / "peer0" / "request.toml", *others])
    assert "Start:" in install(first.out / "peer0").stdout
    states = place / "home" / ".local" / "state" / "p2pfl"
    fleet = second(place)
    done = install(fleet.home / "peer0")
    assert "Start:" in done.stdout, done.stderr
    assert {path.name for path in states.iterdir()} == {"plant-peer0", "stream-peer0"}
    for name in ("peer0.pem", "peer0.key"):
        key = states / "stream-peer0" / "keys" / name
        assert key.read_bytes() == (states / "plant-peer0" / "keys" / name).read_bytes()
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    for each in ("plant", "stream"):  # they are lost: it makes new ones, which the operator has not signed
        shutil.rmtree(states / f"{each}-peer0" / "keys")
    refused = install(fleet.home / "peer0")
    assert (refused.returncode, "has the key" in refused.stdout + refused.stderr) == (1, True)
    assert "are for another key than this device has; send the operator" in refused.stderr.splitlines()[-1]
    assert "Traceback" not in refused.stderr
    refused = install(fleet.home / "peer0", STATE=str(states / "plant-peer0"))
    assert refused.returncode == 1
    assert "plant-peer0 has another experiment; choose another STATE" in refused.stderr


# ---------------------------------------------------------------------- install.sh of a broker


@pytest.fixture
def host(place):
    """Call install.sh of a broker whose folder was copied to this host, with environment variables."""
    if os.geteuid() != 0:
        pytest.skip("the script is for root")
    mosquitto() or pytest.skip("mosquitto is not installed")
    write(place, f"mqtts://127.0.0.1:{PORT}")
    copied = shutil.copytree(place / "fleet" / "broker", place / "copied")
    for path in copied.rglob("*"):
        os.chown(path, 0, 0)  # as scp leaves them
    (place / "shims").mkdir()
    (place / "shims" / "systemctl").write_text(f'#!/bin/sh\necho "$*" >>"{place / "log"}"\n')
    (place / "shims" / "systemctl").chmod(0o755)
    (place / "units").mkdir()
    given = {"PATH": f"{place / 'shims'}:{os.environ['PATH']}", "UNITS": str(place / "units")}
    given["FOLDER"] = str(place / "installed")

    def call(**more):
        return subprocess.run(
            ["sh", str(copied / "install.sh")],
            capture_output=True,
            text=True,
            check=False,
            env=given | more,
            timeout=600,
        )

    return call


@pytest.mark.slow
def test_a_broker_is_installed_with_owners_and_a_unit_and_runs_as_mosquitto(place, host):
    program, folder = mosquitto(), place / "installed"
    done = host()
    assert done.returncode == 0, done.stderr
    assert "systemctl enable --now p2pfl-broker" in done.stdout
    assert (place / "log").read_text() == "try-restart p2pfl-broker\n"
    assert (folder.owner(), folder.group(), stat.S_IMODE(folder.stat().st_mode)) == ("root", "mosquitto", 0o750)
    assert {path.owner() for path in folder.iterdir()} == {"mosquitto"}
    assert str(place / "fleet") not in (folder / "mosquitto.conf").read_text()
    unit = (place / "units" / "p2pfl-broker.service").read_text()
    assert f"ExecStart={shutil.which('mosquitto')} -c {folder}/mosquitto.conf\n" in unit
    assert not [line for line in unit.splitlines() if "@" in line and "@system-service" not in line]
    reachable(folder)
    installed = (folder / "mosquitto.conf").read_text()

    def configuration(_host, free):
        return installed.replace(f"listener {PORT}", f"listener {free}")

    # It drops the rights of root, then reads its files.
    with run_program(Program(program.kind, program.command, configuration), host="127.0.0.1", port=0) as broker:
        assert broker.url.startswith("mqtt")


@pytest.mark.slow
def test_root_follows_no_link_that_mosquitto_left_in_its_folder(place, host):
    folder, victim = place / "installed", place / "victim"
    victim.mkdir(mode=0o755)
    (victim / "precious").write_text("of root")
    folder.mkdir()
    links = {"acl.part": victim / "precious", "broker.key": victim, "data": victim}
    for name, target in links.items():
        (folder / name).symlink_to(target)
    shutil.chown(folder, "mosquitto", "mosquitto")  # as an earlier release left it
    done = host()
    assert done.returncode == 1
    assert "installed/data is a link; remove it" in done.stderr
    (folder / "data").unlink()
    done = host()
    assert done.returncode == 0, done.stderr
    assert [*victim.iterdir()] == [victim / "precious"]
    assert (victim / "precious").read_text() == "of root"
    assert (victim.owner(), stat.S_IMODE(victim.stat().st_mode)) == ("root", 0o755)
    assert not [path for path in folder.iterdir() if path.is_symlink()]
    reachable(folder)
    for call in ("ln -s /etc/passwd acl.part", "rmdir data", "mv acl was"):
        tried = subprocess.run(["runuser", "-u", "mosquitto", "--", *call.split()], cwd=folder, check=False)
        assert tried.returncode != 0


def test_a_broker_is_installed_only_where_its_unit_can_name_it_and_mosquitto_cannot_replace_it(place, host):
    for odd in ("installed", f"{place}/a b", f"{place}/a&b", f"{place}/a|b", f"{place}/100%", f"{place}/a\nb"):
        done = host(FOLDER=odd)
        assert done.returncode == 1
        assert "FOLDER and UNITS are absolute paths of" in done.stderr
        assert f"unlike '{odd}'; choose another" in done.stderr
    reachable(place)
    (place / "theirs").mkdir()
    shutil.chown(place / "theirs", "mosquitto")
    done = host(FOLDER=str(place / "theirs" / "installed"))
    assert (done.returncode, "the user mosquitto may write in the folder above" in done.stderr) == (1, True)
