"""``p2pfl deploy``: bundles without secrets, keys made on devices, and a swarm of three of them over TLS."""

import contextlib
import datetime as dt
import errno
import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from certificates import reachable
from p2pfl.cli import main
from p2pfl.deploy.bundles.authority import Authority, requested
from p2pfl.deploy.bundles.fleet import Fleet
from p2pfl.deploy.bundles.names import plain
from p2pfl.deploy.bundles.requests import Request, request
from p2pfl.deploy.bundles.requirements import LOCKS, MACHINES, extras, requirements
from p2pfl.errors import InputError, StorageError
from p2pfl.experiment import read
from p2pfl.identity import Identity, Roster, SecretSource
from p2pfl.transport.broker import Program, mosquitto, running

ROOT = Path(__file__).parents[2]

PLANT = """
name = "plant"
rounds = 3
[topology]
kind = "complete"
peers = 3
[data]
name = "wine"
[model]
name = "linear"
[learning]
device = "cpu"
[transport]
gather = 120
"""

PEERS = ("peer0", "peer1", "peer2")

NOW = dt.datetime(2026, 11, 23, tzinfo=dt.UTC)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with an experiment and something in place of a wheel."""
    (tmp_path / "plant.toml").write_text(PLANT)
    (tmp_path / "p2pfl_mqtt-0.1.0-py3-none-any.whl").write_bytes(b"a wheel")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def bundles(place, *, port=8883, machine="aarch64"):
    fleet = Fleet.open(str(place / "plant.toml"), out=place / "fleet")
    wheel = place / "p2pfl_mqtt-0.1.0-py3-none-any.whl"
    fleet.write(broker=f"mqtts://127.0.0.1:{port}", machine=machine, wheel=wheel, now=NOW)
    return fleet


def asked(place, peer, *, folder=None):
    """The request of a device, which has its keys in a folder of its own."""
    keys = place / (folder or f"device-{peer}")
    keys.mkdir(exist_ok=True)
    with contextlib.suppress(InputError):
        Identity.generate(SecretSource(), peer=peer).save(keys / f"{peer}.pem")
    request(peer, keys=keys, to=keys / "request.toml")
    return keys / "request.toml"


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# ---------------------------------------------------------------------- what is in a bundle


@pytest.mark.slow
def test_bundles_hold_no_secret_and_the_same_input_gives_the_same_bytes(place):
    fleet = bundles(place)
    first = {peer: contents(fleet.out / peer) for peer in PEERS}
    assert {str(path) for path in first["peer0"]} == {
        "plant.toml",
        "broker.pem",
        "requirements.txt",
        "p2pfl_mqtt-0.1.0-py3-none-any.whl",
        "install.sh",
        "p2pfl-peer.service",
        "Containerfile",
        "README.txt",
        "SHA256SUMS",
    }
    for files in first.values():
        assert not [path for path, data in files.items() if b"PRIVATE KEY" in data or b"password" in data]
        assert not [path for path, data in files.items() if re.search(rb"@(?!PREFIX@|STATE@)[A-Z]+@", data)]
    assert stat.S_IMODE((fleet.out / "authority" / "ca.key").stat().st_mode) == 0o600
    assert not (fleet.out / "broker" / "ca.key").exists()
    bundles(place)
    assert {peer: contents(fleet.out / peer) for peer in PEERS} == first


def test_the_experiment_of_a_bundle_names_the_broker_and_the_files_of_the_device(place):
    fleet = bundles(place)
    table = tomllib.loads((fleet.out / "peer1" / "plant.toml").read_text())
    assert table["transport"] == {
        "gather": 120,
        "broker": "mqtts://127.0.0.1:8883",
        "ca": "broker.pem",
        "certificate": "certificate.pem",
        "key": "keys/peer1.key",
    }
    assert table["trust"] == {"keys": "keys", "roster": "roster.toml"}
    assert read(fleet.out / "peer1" / "plant.toml").rounds == 3


def test_a_bundle_has_the_users_own_modules_and_graphs_and_no_data(place):
    (place / "own.py").write_text("def load(peer):\n    raise NotImplementedError\n")
    (place / "own.csv").write_text("secret\n1\n")
    (place / "graph.edges").write_text("ada bob")
    (place / "plant.toml").write_text(
        'name = "plant"\n[topology]\nfile = "graph.edges"\n[data]\nname = "own:load"\n'
        'options = { path = "own.csv" }\n[model]\nname = "linear"\n'
    )
    fleet = bundles(place)
    there = {path.name for path in (fleet.out / "ada").iterdir()}
    assert {"own.py", "graph.edges"} <= there
    assert "own.csv" not in there
    script = (fleet.out / "ada" / "install.sh").read_text()
    assert "for file in plant.toml broker.pem graph.edges own.py; do" in script


GRAPH = 'name = "plant"\n[topology]\nfile = "{}"\n[data]\nname = "wine"\n[model]\nname = "linear"\n'


def graph(place, name):
    """An experiment whose graph has a name."""
    (place / name).parent.mkdir(exist_ok=True)
    (place / name).write_text("ada bob")
    (place / "plant.toml").write_text(GRAPH.format(name))


@pytest.mark.parametrize(
    "name", ["$(touch PWNED).edges", "a b.edges", "-rf.edges", "sub/-n.edges", "ö.edges", "a;b.edges"]
)
def test_a_file_whose_name_a_shell_could_misread_is_refused(place, name):
    graph(place, name)
    with pytest.raises(InputError, match="rename it with"):
        bundles(place)
    assert not (place / "fleet").exists()


@pytest.mark.parametrize(
    "name",
    [
        "broker.pem",
        "requirements.txt",
        "install.sh",
        "SHA256SUMS",
        "roster.toml",
        "certificate.pem",
        "request.toml",
        "p2pfl_mqtt-0.1.0-py3-none-any.whl",
        "keys/peer0.pem",
        "broker.pem/file",
    ],
)
def test_a_file_that_would_replace_one_of_the_bundle_is_refused(place, name):
    wheel = place / "wheels" / "p2pfl_mqtt-0.1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    (place / wheel.name).rename(wheel)
    (place / name).parent.mkdir(exist_ok=True)
    (place / name).write_text("theirs")
    (place / "own.py").write_text("def load(peer):\n    raise NotImplementedError\n")
    ours = f'name = "own:load"\noptions = {{ file = "{name}" }}'
    (place / "plant.toml").write_text(PLANT.replace('name = "wine"', ours))
    fleet = Fleet.open(str(place / "plant.toml"), out=place / "fleet")
    with pytest.raises(InputError, match="has the name of another file of a bundle; rename it"):
        fleet.write(broker="mqtts://127.0.0.1:8883", machine="aarch64", wheel=wheel, now=NOW)
    assert not fleet.out.exists()


def test_a_link_beside_the_experiment_is_not_followed(place):
    (place / "elsewhere").mkdir()
    (place / "elsewhere" / "graph.edges").write_text("ada bob")
    (place / "graph.edges").symlink_to("elsewhere/graph.edges")
    (place / "folder").symlink_to("elsewhere")
    for name in ("graph.edges", "folder/graph.edges"):
        (place / "plant.toml").write_text(GRAPH.format(name))
        with pytest.raises(InputError, match="is a symbolic link; put the file itself"):
            bundles(place)


@pytest.mark.parametrize("edge", ["-ada bob", "ada broker", "ada authority"])
def test_a_peer_whose_name_means_something_else_is_refused(place, edge):
    (place / "graph.edges").write_text(edge)
    (place / "plant.toml").write_text(GRAPH.format("graph.edges"))
    with pytest.raises(InputError, match="rename it"):
        bundles(place)


@pytest.mark.parametrize("name", ["-plant", "roster", "request"])
def test_an_experiment_whose_name_means_something_else_is_refused(place, name):
    (place / "plant.toml").write_text(PLANT.replace('"plant"', f'"{name}"'))
    with pytest.raises(InputError, match="rename it"):
        bundles(place)


@pytest.mark.parametrize("name", ["", ".", "..", "a/../b", "/etc/passwd", "a//b", "a\nb", "a\n"])
def test_names_that_leave_the_folder_are_refused(name):
    with pytest.raises(InputError, match="rename it with"):
        plain(name, what="the file")


def test_the_hashes_of_a_bundle_are_right(place):
    folder = bundles(place).out / "peer0"
    lines = dict(reversed(line.split("  ")) for line in (folder / "SHA256SUMS").read_text().splitlines())
    assert lines.keys() == {path.name for path in folder.iterdir()} - {"SHA256SUMS"}
    assert all(hashlib.sha256((folder / name).read_bytes()).hexdigest() == found for name, found in lines.items())


@pytest.mark.usefixtures("place")
def test_what_cannot_be_deployed_is_refused(p2pfl_fails):
    wheel = "p2pfl_mqtt-0.1.0-py3-none-any.whl"
    plain = ("deploy", "plant.toml", "--out", "fleet")
    assert "--broker and --wheel are missing" in p2pfl_fails(*plain)
    assert "is not an address for mosquitto with TLS" in p2pfl_fails(*plain, "--broker", "mqtt://hub", "--wheel", wheel)
    assert "is not a wheel of p2pfl" in p2pfl_fails(*plain, "--broker", "mqtts://hub", "--wheel", "plant.toml")
    missing = "p2pfl_mqtt-9-py3-none-any.whl"
    assert "cannot be read" in p2pfl_fails(*plain, "--broker", "mqtts://hub", "--wheel", missing)


@pytest.fixture
def p2pfl_fails(capsys):
    """The sentence with which a command ends with status 2."""

    def call(*arguments):
        assert main([str(argument) for argument in arguments]) == 2
        return capsys.readouterr().err

    return call


# ---------------------------------------------------------------------- requirements


def test_no_lock_of_small_boards_brings_cuda_and_all_that_p2pfl_needs_is_in_it():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {re.match(r"[A-Za-z0-9_-]+", each)[0] for each in project["dependencies"]}
    for machine in MACHINES:
        text = (LOCKS / f"{machine}.txt").read_text()
        pins = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))
        assert named <= pins.keys()
        assert not [name for name in pins if name.startswith(("nvidia", "cuda", "triton"))]
        for entry in re.split(r"\n(?=[a-z])", text.partition("cpu\n")[2] or text):
            assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry
    assert re.search(r"^torch==2\.(6|7|8|9|10)\.", (LOCKS / "aarch64.txt").read_text(), re.MULTILINE)
    assert re.search(r"^torch==\S+\+cpu", (LOCKS / "x86_64.txt").read_text(), re.MULTILINE)


def test_a_bundle_requires_the_extras_of_its_experiment_and_the_wheel(place):
    wheel = place / "p2pfl_mqtt-0.1.0-py3-none-any.whl"
    wine = read(place / "plant.toml")
    assert extras(wine) == ["local"]
    text = requirements(wine, machine="aarch64", wheel=wheel)
    assert re.search(r"^scikit-learn==", text, re.MULTILINE)
    assert text.endswith(f"./{wheel.name} --hash=sha256:{hashlib.sha256(b'a wheel').hexdigest()}\n")
    own = read({"data": {"name": "own:load"}, "privacy": {"mode": "independent", "epsilon": 2.0}})
    assert extras(own) == ["privacy"]


# ---------------------------------------------------------------------- requests


def test_keys_of_a_device_stay_there_and_a_request_is_the_same_key_each_time(place, capsys):
    command = ["identity", "peer0", "--keys", "keys", "--request", "request.toml"]
    assert main(command) == 0
    first = Request.load(Path("request.toml"))
    assert f"fingerprint {first.fingerprint}" not in capsys.readouterr().out
    assert main(command) == 0
    second = Request.load(Path("request.toml"))
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
    before = (fleet.out / "peer0" / "certificate.pem").read_bytes()
    assert main([*command, *map(str, requests.values())]) == 0
    said = capsys.readouterr()
    assert f"peer0  {Request.load(requests['peer0']).fingerprint}" in said.out
    assert "compare each fingerprint" in said.err
    digest = hashlib.sha256((fleet.out / "peer0" / "roster.toml").read_bytes()).hexdigest()
    shown = re.search(r"^roster\.toml  (.*)$", said.out, re.MULTILINE)[1]
    assert (len(shown.split()), shown.replace(" ", "")) == (8, digest[:32])
    assert (fleet.out / "peer0" / "certificate.pem").read_bytes() == before
    rosters = {(fleet.out / peer / "roster.toml").read_bytes() for peer in PEERS}
    assert len(rosters) == 1
    authority = x509.load_pem_x509_certificate((fleet.out / "broker" / "ca.pem").read_bytes())
    for peer, file in requests.items():
        made = x509.load_pem_x509_certificate((fleet.out / peer / "certificate.pem").read_bytes())
        made.verify_directly_issued_by(authority)
        assert made.public_key() == Request.load(file).read.public_key()
        assert Roster.read(fleet.out / peer / "roster.toml").peers[peer] == Request.load(file).public


def test_a_request_that_was_changed_on_the_way_is_refused(place):
    fleet = bundles(place)
    path = asked(place, "peer0")
    text = path.read_text()
    path.write_text(text.replace('peer = "peer0"', 'peer = "peer1"'))
    with pytest.raises(InputError, match="is not a request that p2pfl identity --request wrote"):
        fleet.collect([path], now=NOW)
    theirs = requested(ec.generate_private_key(ec.SECP256R1()), peer="peer0").decode()
    ours = tomllib.loads(text)["certificate_request"]
    path.write_text(text.replace(ours, theirs))
    with pytest.raises(InputError, match="is not a request"):
        fleet.collect([path], now=NOW)
    for damaged in ("", "no toml", 'peer = "peer0"\nkey = 3\n', text[:200]):
        path.write_text(damaged)
        with pytest.raises(InputError, match="is not a request"):
            fleet.collect([path], now=NOW)
    with pytest.raises(InputError, match="cannot be read"):
        fleet.collect([place / "missing.toml"], now=NOW)


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
    fleet.collect([asked(place, "peer0")], now=NOW)
    before = contents(fleet.out)
    with pytest.raises(InputError, match='no peer of "plant"'):
        fleet.collect([asked(place, "eve")], now=NOW)
    with pytest.raises(InputError, match="and the roster lists"):
        fleet.collect([asked(place, "peer0", folder="another")], now=NOW)
    assert contents(fleet.out) == before


def test_an_authority_goes_on_after_a_crash_between_its_key_and_its_certificate(place):
    fleet = bundles(place)
    fleet.collect([asked(place, "peer0")], now=NOW)
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


# ---------------------------------------------------------------------- units and containers


@pytest.fixture
def prefix(tmp_path):
    """What looks like an environment with p2pfl in it."""
    command = tmp_path / "prefix" / "bin" / "p2pfl"
    command.parent.mkdir(parents=True)
    command.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -P -m p2pfl "$@"\n')
    command.chmod(0o755)
    return tmp_path / "prefix"


def unit(place, prefix):
    """The unit as install.sh writes it."""
    state = place / "state"
    state.mkdir(exist_ok=True)
    text = (bundles(place).out / "peer0" / "p2pfl-peer.service").read_text()
    path = place / "p2pfl-plant-peer0.service"
    path.write_text(text.replace("@PREFIX@", str(prefix)).replace("@STATE@", str(state)))
    return path


def analysed(*arguments):
    found = shutil.which("systemd-analyze") or pytest.skip("systemd-analyze is not installed")
    return subprocess.run([found, *map(str, arguments)], capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_unit_is_valid_and_hardened(place, prefix):
    path = unit(place, prefix)
    verified = analysed("verify", "--man=no", path)
    complaints = [line for line in verified.stderr.splitlines() if path.name in line]
    assert (complaints, verified.returncode) == ([], 0), verified.stderr
    judged = analysed("security", "--offline=true", "--threshold=25", path)
    assert judged.returncode == 0, judged.stdout


def test_the_container_file_runs_as_nobody_and_installs_what_is_hashed(place):
    text = (bundles(place).out / "peer0" / "Containerfile").read_text()
    joined = text.replace("\\\n", " ")
    steps = [line.split(None, 1) for line in joined.splitlines() if line and not line.startswith("#")]
    known = {"FROM", "WORKDIR", "COPY", "RUN", "USER", "VOLUME", "ENV", "STOPSIGNAL", "ENTRYPOINT", "CMD"}
    assert {step for step, _ in steps} <= known
    names = [step for step, _ in steps]
    assert names[0] == "FROM"
    assert dict(steps)["USER"] == "p2pfl"
    assert names.index("USER") > max(place for place, name in enumerate(names) if name == "RUN")
    assert "--require-hashes" in dict(steps)["RUN"]
    for step in ("ENTRYPOINT", "CMD"):
        assert isinstance(json.loads(dict(steps)[step]), list)
    for step, rest in steps:
        if step == "COPY":
            for name in rest.split()[:-1]:
                assert [*(place / "fleet" / "peer0").glob(name)], name


# ---------------------------------------------------------------------- all of it


PAGE = (ROOT / "docs" / "deploy.md").read_text("utf-8")


def of_page(word, *, broker="hub.example:8883", wheel="dist/"):
    """Return the one command of the tutorial that contains a word, as arguments, with another broker and folder."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    [line] = {line for block in blocks for line in block.splitlines() if word in line}
    return line.replace("hub.example:8883", broker).replace("dist/", wheel).split()[1:]


def sh(script, **environment):
    """Run an installation."""
    given = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **environment}
    return subprocess.run(["sh", str(script)], capture_output=True, text=True, check=False, env=given, timeout=120)


def learned(units, place):
    """Start what each unit starts; return what it prints."""
    started = []
    for each, peer in zip(units, PEERS, strict=True):
        line = re.search(r"^ExecStart=(.*)$", each.read_text(), re.MULTILINE)[1].split()
        how = {"cwd": place / f"state-{peer}", "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen([*line, "--json"], **how))
    try:
        said = [process.communicate(timeout=240) for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0, 0, 0], said
    return [json.loads(out) for out, _ in said]


@pytest.mark.nightly
def test_three_devices_learn_with_what_their_bundles_install(place, prefix):
    program = mosquitto() or pytest.skip("mosquitto is not installed")
    [(name, experiment)] = re.findall(r"^```toml\n# (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (place / name).write_text(experiment.replace("rounds = 300", "rounds = 3"))

    def configuration(_host, port):
        assert main(of_page("--out fleet --broker", broker=f"127.0.0.1:{port}", wheel="")) == 0
        reachable(place / "fleet" / "broker")
        return "user root\n" + (place / "fleet" / "broker" / "mosquitto.conf").read_text()

    def installed(peer):
        state = {"STATE": str(place / f"state-{peer}"), "UNITS": str(place / "units"), "PREFIX": str(prefix)}
        done = sh(place / "devices" / peer / "install.sh", ENVIRONMENT="yes", **state)
        assert done.returncode == 0, done.stderr
        return done.stdout

    (place / "units").mkdir()
    with running(Program(program.kind, program.command, configuration), host="127.0.0.1", port=0):
        for peer in PEERS:  # the bundle is copied to the device
            shutil.copytree(place / "fleet" / peer, place / "devices" / peer)
            assert "read them the fingerprint above" in installed(peer)
        (place / "requests").mkdir()
        for peer in PEERS:
            shutil.copy(place / "devices" / peer / "request.toml", place / "requests" / f"{peer}.toml")
        assert main([*of_page("--collect"), "--yes"]) == 0
        for peer in PEERS:
            for name in ("roster.toml", "certificate.pem"):
                shutil.copy(place / "fleet" / peer / name, place / "devices" / peer)
            assert "Start:  systemctl" in installed(peer)
        units = sorted((place / "units").iterdir())
        assert [each.name for each in units] == [f"p2pfl-plant-{peer}.service" for peer in PEERS]
        command = f"{prefix}/bin/p2pfl"
        doctor = subprocess.run(
            [command, *of_page("doctor"), "--json"],
            cwd=place / "state-peer0",
            capture_output=True,
            text=True,
            check=False,
        )
        assert json.loads(doctor.stdout)["problems"] == 0, doctor.stdout
        for found in learned(units, place):
            assert 0 <= found["scores"]["accuracy"] <= 1
    for peer in PEERS:
        state = place / f"state-{peer}"
        assert stat.S_IMODE((state / "keys" / f"{peer}.key").stat().st_mode) == 0o600
        assert not [*(place / "fleet").rglob(f"{peer}.key")]


SHIMS = {
    "id": 'case "$*" in -u) echo 0 ;; *) exit 1 ;; esac',
    "useradd": 'echo "useradd $*" >>"$LOG"',
    "chown": 'echo "chown $*" >>"$LOG"',
    "runuser": 'echo "runuser $*" >>"$LOG"; shift 3; BECAME=p2pfl exec "$@"',
    "install": 'echo "install $*" >>"$LOG"; while [ $# -gt 1 ]; do shift; done; mkdir -p "$1"',
}


@pytest.fixture
def root(place, prefix):
    """Call install.sh as a root whose commands are recorded, below a folder in place of /var/lib/p2pfl."""
    folder, home, log = bundles(place).out / "peer0", place / "home", place / "log"
    script = folder / "install.sh"
    script.write_text(script.read_text().replace("/var/lib/p2pfl", str(home)))
    sums = [line for line in (folder / "SHA256SUMS").read_text().splitlines() if not line.endswith("install.sh")]
    (folder / "SHA256SUMS").write_text("\n".join(sums) + "\n")
    (prefix / "bin" / "p2pfl").write_text(
        '#!/bin/sh\necho "p2pfl as ${BECAME:-root} $*" >>"$LOG"; echo request >"${6:-/dev/null}"\n'
    )
    (place / "shims").mkdir()
    for name, text in SHIMS.items():
        (place / "shims" / name).write_text(f"#!/bin/sh\n{text}\n")
        (place / "shims" / name).chmod(0o755)
    given = {"PATH": f"{place / 'shims'}:{os.environ['PATH']}", "LOG": str(log), "PREFIX": str(prefix)}

    def call():
        log.write_text("")
        done = sh(script, ENVIRONMENT="yes", UNITS=str(place / "units"), **given)
        assert done.returncode == 0, done.stderr
        return done.stdout, log.read_text()

    return folder, home / "plant-peer0", call


def test_a_root_installation_leaves_a_folder_that_its_user_can_enter(root):
    folder, state, call = root
    _, log = call()
    made = [line for line in log.splitlines() if line.startswith("install ")]
    assert made == [f"install -d -m 755 {state.parent}", f"install -d -o p2pfl -g p2pfl -m 700 {state}"]
    assert (folder / "request.toml").read_text() == "request\n"


@pytest.mark.slow
def test_root_writes_nothing_in_the_folder_of_another_user(root, place):
    folder, state, call = root
    call()
    for name in ("roster.toml", "certificate.pem"):
        (folder / name).write_text(name)
    outside = place / "outside"
    outside.write_text("as before")
    for name in ("broker.pem", "roster.toml"):
        (state / name).unlink(missing_ok=True)
        (state / name).symlink_to(outside)
    out, log = call()
    assert outside.read_text() == "as before"
    for name in ("plant.toml", "broker.pem", "roster.toml", "certificate.pem"):
        assert not (state / name).is_symlink()
        assert (state / name).read_bytes() == (folder / name).read_bytes()
        assert re.search(rf"^runuser .*{state}/{name}$", log, re.MULTILINE), name
    assert re.search(r"^p2pfl as p2pfl identity peer0 ", log, re.MULTILINE)
    assert "p2pfl as root" not in log
    digest = hashlib.sha256(b"roster.toml").hexdigest()[:32]
    assert re.search(r"^roster\.toml  (.*)$", out, re.MULTILINE)[1].replace(" ", "") == digest


@pytest.mark.slow
def test_an_installation_stops_with_one_sentence(place, prefix):
    folder = bundles(place).out / "peer0"
    state = {"STATE": str(place / "state"), "PREFIX": str(prefix)}
    other = {"aarch64": "x86_64"}.get(os.uname().machine, "aarch64")
    bundles(place, machine=other)
    wrong = sh(folder / "install.sh", **state)
    assert (wrong.returncode, f"this bundle is for {other}" in wrong.stderr) == (1, True)
    nothing = sh(folder / "install.sh", ENVIRONMENT="yes", **(state | {"PREFIX": str(place / "none")}))
    assert "there is no p2pfl in" in nothing.stderr
    (folder / "plant.toml").write_text(PLANT + "# changed\n")
    changed = sh(folder / "install.sh", ENVIRONMENT="yes", **state)
    assert "a file of the bundle has changed" in changed.stderr
    assert not (place / "state").exists()
