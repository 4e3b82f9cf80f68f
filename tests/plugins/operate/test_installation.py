"""Installation of a bundle: the unit, and a swarm of three devices over TLS."""

import functools
import hashlib
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from certificates import reachable
from fleets import NOW, PEERS, PLANT, asked, bundles
from p2pfl.cli import main
from p2pfl.network.transport.broker import Program, mosquitto, run_program
from p2pfl.plugins.operate.bundles.fleet import Fleet
from p2pfl.plugins.operate.bundles.packages import MACHINES, locked_pythons
from p2pfl.privacy.keys import Roster

ROOT = Path(__file__).parents[3]


@pytest.fixture
def prefix(tmp_path):
    """Return a folder that looks like an environment with p2pfl in it."""
    command = tmp_path / "prefix" / "bin" / "p2pfl"
    command.parent.mkdir(parents=True)
    command.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -P -m p2pfl "$@"\n')
    python = command.with_name("python")
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" "$@"\n')
    for each in (command, python):
        each.chmod(0o755)
    return tmp_path / "prefix"


def unit(place, prefix):
    """The unit as install.sh writes it."""
    state = place / "state"
    state.mkdir(exist_ok=True)
    text = (bundles(place).out / "peer0" / "p2pfl-peer.service").read_text()
    path = place / "p2pfl-plant-peer0.service"
    marks = {"@PREFIX@": str(prefix), "@STATE@": str(state), "@USER@": "p2pfl"}
    path.write_text(functools.reduce(lambda done, mark: done.replace(*mark), marks.items(), text))
    return path


def analysed(*arguments, **environment):
    found = shutil.which("systemd-analyze") or pytest.skip("systemd-analyze is not installed")
    given = {**os.environ, **environment}
    return subprocess.run([found, *map(str, arguments)], capture_output=True, text=True, check=False, env=given)


@pytest.mark.slow
def test_the_unit_is_valid_and_hardened(place, prefix):
    path = unit(place, prefix)
    verified = analysed("verify", "--man=no", path)
    complaints = [line for line in verified.stderr.splitlines() if path.name in line]
    assert (complaints, verified.returncode) == ([], 0), verified.stderr
    judged = analysed("security", "--offline=true", "--threshold=25", path)
    assert judged.returncode == 0, judged.stdout


PAGE = (ROOT / "docs" / "deploy.md").read_text("utf-8")


def of_page(word, *, broker="hub.example:8883", wheel="dist/"):
    """Return the one command of the tutorial that contains a word, as arguments, with another broker and folder."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    [line] = {line for block in blocks for line in block.splitlines() if word in line}
    return line.replace("hub.example:8883", broker).replace("dist/", wheel).split()[1:]


def sh(script, **environment):
    """Run an installation."""
    given = {"PATH": os.environ["PATH"], "HOME": str(Path(script).parent), **environment}
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
        assert main(of_page(".whl --machine aarch64", broker=f"127.0.0.1:{port}", wheel="")) == 0
        reachable(place / "fleet" / "broker")
        return "user root\n" + (place / "fleet" / "broker" / "mosquitto.conf").read_text()

    def installed(peer):
        state = {"STATE": str(place / f"state-{peer}"), "UNITS": str(place / "units"), "PREFIX": str(prefix)}
        done = sh(place / "devices" / peer / "install.sh", ENVIRONMENT="yes", PATH=path, **state)
        assert done.returncode == 0, done.stderr
        return done.stdout

    (place / "units").mkdir()
    path = shims(place, {"id": SOMEBODY})
    with run_program(Program(program.kind, program.command, configuration), host="127.0.0.1", port=0):
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
            assert "Start:  loginctl enable-linger && systemctl --user" in installed(peer)
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
    "stat": 'echo "${OWNER:-p2pfl}"',
}

SOMEBODY = 'case "$*" in -u) echo 1000 ;; -un) echo ada ;; *) exit 1 ;; esac'
"""Script that answers as ``id`` does for a user who is not root."""


def shims(place, commands):
    """Write commands that come before those of the system; return the search path."""
    folder = place / "shims"
    folder.mkdir()
    for name, text in commands.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def sign(place, folder):
    """Write the roster and the certificate of a bundle, and return the folder with the keys for which they are."""
    requests = [asked(place, peer) for peer in PEERS]
    Fleet.open(str(place / "plant.toml"), out=folder.parent).signer(now=NOW).collect(requests)
    return requests[0].parent


@pytest.fixture
def root(place, prefix):
    """Call install.sh as a root whose commands are recorded, below a folder in place of /var/lib/p2pfl."""
    folder, home, log = bundles(place).out / "peer0", place / "home", place / "log"
    script = folder / "install.sh"
    script.write_text(script.read_text().replace("/var/lib/p2pfl", str(home)))
    sums = [line for line in (folder / "SHA256SUMS").read_text().splitlines() if not line.endswith("install.sh")]
    (folder / "SHA256SUMS").write_text("\n".join(sums) + "\n")
    (prefix / "bin" / "p2pfl").write_text(
        '#!/bin/sh\necho "p2pfl as ${BECAME:-root} $*" >>"$LOG"; cat "$REQUEST" >"${6:-/dev/null}"\n'
    )
    given = {"PATH": shims(place, SHIMS), "LOG": str(log), "PREFIX": str(prefix), "UNITS": str(place / "units")}
    given["REQUEST"] = str(asked(place, "peer0"))

    def call(*, status=0, **environment):
        log.write_text("")
        done = sh(script, ENVIRONMENT="yes", **given, **environment)
        assert done.returncode == status, done.stderr
        return done.stderr if status else done.stdout, log.read_text()

    return folder, home / "plant-peer0", call


def test_a_root_installation_leaves_a_folder_that_its_user_can_enter(root, place):
    folder, state, call = root
    _, log = call()
    made = [line for line in log.splitlines() if line.startswith("install ")]
    assert made == [f"install -d -m 755 {state.parent}", f"install -d -o p2pfl -g p2pfl -m 700 {state}"]
    assert (folder / "request.toml").read_bytes() == (place / "device-peer0" / "request.toml").read_bytes()


def test_root_makes_the_user_that_the_unit_and_the_check_name_whichever_folder_it_chooses(root, place):
    folder, _, call = root
    sign(place, folder)
    (place / "units").mkdir()
    state = place / "elsewhere"
    out, log = call(STATE=str(state))
    assert re.search(r"^useradd .* p2pfl$", log, re.MULTILINE)
    assert f"install -d -o p2pfl -g p2pfl -m 700 {state}\n" in log
    assert "p2pfl as root" not in log
    [check] = [shlex.split(line.removeprefix("Check:")) for line in out.splitlines() if line.startswith("Check:")]
    assert check[:4] == ["sudo", "-u", "p2pfl", "sh"]  # nobody else enters the folder
    log = subprocess.run(
        check[3:],
        env={"LOG": "/dev/stdout", "REQUEST": "/dev/null", "BECAME": "p2pfl"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert log.stdout == "p2pfl as p2pfl doctor plant.toml --as peer0\n"
    [made] = (place / "units").iterdir()
    assert {"User=p2pfl", f"WorkingDirectory={state}"} <= {*made.read_text().splitlines()}


def test_root_does_not_give_away_a_folder_that_others_use(root, place):
    _, _, call = root
    (place / "elsewhere").mkdir()
    (place / "elsewhere" / "thesis.tex").touch()
    said, log = call(status=1, STATE=str(place / "elsewhere"), OWNER="bob")
    assert "elsewhere has files and belongs to bob; choose another STATE" in said
    assert "install " not in log


@pytest.mark.slow
def test_without_root_all_goes_below_the_home_of_the_user_with_a_unit_of_their_own(place, prefix):
    folder = bundles(place).out / "peer0"
    home = place / "home"
    shutil.copytree(sign(place, folder), home / ".local" / "state" / "p2pfl" / "plant-peer0" / "keys")
    (home / ".local" / "share").mkdir(parents=True)
    prefix.rename(home / ".local" / "share" / "p2pfl")
    done = sh(folder / "install.sh", ENVIRONMENT="yes", HOME=str(home), PATH=shims(place, {"id": SOMEBODY}))
    assert done.returncode == 0, done.stderr
    [made] = (home / ".config" / "systemd" / "user").iterdir()
    lines = made.read_text().splitlines()
    assert f"WorkingDirectory={home}/.local/state/p2pfl/plant-peer0" in lines
    assert "WantedBy=default.target" in lines
    needs_root = re.compile(r"User=|(Protect|Private|Capability|Device|ReadWrite)\w*=|.*network-online|.*@[A-Z]+@")
    assert [line for line in lines if needs_root.match(line)] == []
    assert f"Check:  cd {home}/.local/state/p2pfl/plant-peer0 && {home}/.local/share/p2pfl/bin/p2pfl " in done.stdout
    assert "Start:  loginctl enable-linger && systemctl --user daemon-reload" in done.stdout
    verified = analysed("--user", "verify", "--man=no", made, XDG_RUNTIME_DIR=str(place))
    complaints = [line for line in verified.stderr.splitlines() if made.name in line]
    assert (complaints, verified.returncode) == ([], 0), verified.stderr


@pytest.mark.slow
def test_root_writes_nothing_in_the_folder_of_another_user(root, place):
    folder, state, call = root
    call()
    sign(place, folder)
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
    assert re.search(r"^roster\.toml  (.*)$", out, re.MULTILINE)[1] == Roster.read(folder / "roster.toml").fingerprint


# ---------------------------------------------------------------------- packages


def python(place, *, version=None, log=None):
    """Return a Python: that of the tests, which takes itself for another version, and records what it calls pip with.

    What pip and venv would do needs a network; here they make the folder that install.sh goes on with.
    """
    lying = "" if version is None else f"import sys; sys.version_info = {version}; sys.argv.pop(0); exec(sys.argv[0])"
    path = place / "python"
    path.write_text(
        "#!/bin/sh\n"
        f'if [ "$1 $2" = "-m venv" ]; then mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; exit; fi\n'
        f'if [ "$1 $2" = "-m pip" ]; then shift 2; echo "$*" >>"{log}"; exit; fi\n'
        f'if [ "$1" = "-c" ] && [ -n "{lying}" ]; then shift; exec "{sys.executable}" -c "{lying}" "$@"; fi\n'
        '[ "$1" != -P ] || exec cat >/dev/null\n'  # the wheels fit
        f'if [ "$1" = --version ]; then echo "Python {".".join(map(str, version or ()))}"; exit; fi\n'
        f'exec "{sys.executable}" "$@"\n'
    )
    path.chmod(0o755)
    return path


@pytest.fixture
def device(place):
    """Call install.sh of a bundle for this machine as somebody who is not root."""
    machine = os.uname().machine
    if machine not in MACHINES:
        pytest.skip(f"there are no locks for {machine}")
    folder = bundles(place, machine=machine).out / "peer0"
    given = {"PREFIX": str(place / "new"), "STATE": str(place / "state"), "PATH": shims(place, {"id": SOMEBODY})}
    return folder, lambda **more: sh(folder / "install.sh", **given | more)


@pytest.mark.parametrize("version", [(3, 9, 2), (3, 99, 0)])
def test_an_installation_with_another_python_stops_before_pip(device, place, version):
    _, call = device
    log = place / "pip"
    done = call(PYTHON=str(python(place, version=version, log=log)))
    assert done.returncode == 1
    oldest, *_, newest = locked_pythons(os.uname().machine) * 2
    assert f"this bundle is for Python {oldest if oldest == newest else f'{oldest} to {newest}'} and" in done.stderr
    assert f"is Python {'.'.join(map(str, version))}; set PYTHON" in done.stderr
    assert not log.exists()
    assert not (place / "new").exists()


@pytest.mark.slow
def test_an_installation_takes_torch_by_itself_where_it_is_needed_and_compiles_nothing(device, place):
    folder, call = device
    log = place / "pip"
    done = call(PYTHON=str(python(place, version=(3, 11, 2), log=log)))
    assert "there is no p2pfl in" in done.stderr  # pip has installed nothing here
    how = "install --quiet --no-compile --no-deps --require-hashes --requirement"
    assert log.read_text().splitlines() == [f"{how} requirements.txt"]
    log.unlink()
    (place / "plant.toml").write_text(PLANT.replace("[transport]", 'optimizer = "adam"\n[transport]'))
    bundles(place, machine=os.uname().machine)
    call(PYTHON=str(place / "python"))
    assert log.read_text().splitlines() == [f"{how} torch.txt", f"{how} requirements.txt"]
    assert "index" not in (folder / "requirements.txt").read_text()
    log.unlink()
    call(PYTHON=str(place / "python"), WHEELS="/media/wheels")
    how = "install --quiet --no-compile --no-deps --require-hashes --no-index --find-links /media/wheels --requirement"
    assert log.read_text().splitlines() == [f"{how} torch.txt", f"{how} requirements.txt"]


def test_a_python_that_the_user_of_the_peer_cannot_run_stops_the_installation_before_pip(device, place):
    _, call = device
    log, folder = place / "pip", place / "shims"
    for name, text in (SHIMS | {"runuser": 'echo "runuser $*" >>"$LOG"; exit 126'}).items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    done = call(PYTHON=str(python(place, version=(3, 11, 2), log=log)), LOG=str(place / "log"))
    real = os.path.realpath(sys.executable)
    assert f"the user p2pfl cannot run {real}; install Python where all users can reach it" in done.stderr
    assert real in (place / "log").read_text()
    assert not log.exists()


def wheel(folder, name, **files):
    """Write a small wheel and return its requirement with its hash."""
    info = f"{name}-1.dist-info"
    files |= {f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n"}
    files |= {f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    files |= {f"{info}/RECORD": "".join(f"{file},,\n" for file in files)}
    path = folder / f"{name}-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            entry = zipfile.ZipInfo(file)
            entry.external_attr = 0o100755 << 16
            archive.writestr(entry, text)
    return f"{name}==1 --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


@pytest.mark.slow
def test_a_device_without_internet_installs_from_a_folder_of_wheels(device, place):
    """With the real pip, which may ask no index although a file names one, and refuses another package of that name."""
    folder, call = device
    wheels = place / "wheels"
    wheels.mkdir()
    command = {"p2pfl-1.data/scripts/p2pfl": '#!/bin/sh\necho "p2pfl $*"; echo request >"$6"\n'}
    (folder / "torch.txt").write_text(f"--index-url https://index.invalid/\n{wheel(wheels, 'tiny')}")
    (folder / "requirements.txt").write_text(wheel(wheels, "p2pfl", **command))
    sums = [line for line in (folder / "SHA256SUMS").read_text().splitlines() if "requirements" not in line]
    (folder / "SHA256SUMS").write_text("".join(f"{line}\n" for line in sums if "torch" not in line))
    done = call(PYTHON=sys.executable, WHEELS=str(wheels))
    if sys.version_info[:2] > tuple(map(int, locked_pythons(os.uname().machine)[-1].split("."))):
        pytest.skip("the locks have no packages for this Python")
    assert done.returncode == 0, done.stderr
    assert "Send " in done.stdout
    assert not [*(place / "new").rglob("tiny*/**/*.pyc")]
    wheel(wheels, "tiny", **{"tiny.py": "print('another')"})
    shutil.rmtree(place / "new")
    done = call(PYTHON=sys.executable, WHEELS=str(wheels))
    assert done.returncode == 1
    assert "the packages of torch.txt cannot be installed" in done.stderr


@pytest.mark.slow
def test_an_installation_stops_with_one_sentence(place, prefix):
    folder = bundles(place).out / "peer0"
    state = {"STATE": str(place / "state"), "PREFIX": str(prefix)}
    other = {"aarch64": "x86_64"}.get(os.uname().machine, "aarch64")
    bundles(place, machine=other)
    wrong = sh(folder / "install.sh", **state)
    assert (wrong.returncode, f"this bundle is for {other}" in wrong.stderr) == (1, True)
    for key in state:
        for odd in ("relative", "/a b", "/a&b", "/a|b", "/100%"):
            refused = sh(folder / "install.sh", ENVIRONMENT="yes", **(state | {key: odd}))
            assert (refused.returncode, f"unlike '{odd}'; choose another" in refused.stderr) == (1, True)
    nothing = sh(folder / "install.sh", ENVIRONMENT="yes", **(state | {"PREFIX": str(place / "none")}))
    assert "there is no p2pfl in" in nothing.stderr
    (folder / "plant.toml").write_text(PLANT + "# changed\n")
    changed = sh(folder / "install.sh", ENVIRONMENT="yes", **state)
    assert "a file of the bundle has changed" in changed.stderr
    assert not (place / "state").exists()


@pytest.mark.slow
def test_a_bundle_where_the_request_cannot_be_written_is_named(place, prefix):
    """A container may lack the right to write into the folder that it mounts."""
    folder = bundles(place).out / "peer0"
    (folder / "request.toml").mkdir()
    given = {"PREFIX": str(prefix), "STATE": str(place / "state"), "PATH": shims(place, {"id": SOMEBODY})}
    done = sh(folder / "install.sh", ENVIRONMENT="yes", **given)
    assert done.returncode == 1
    assert done.stderr.endswith(
        f"install.sh: {folder}/request.toml cannot be written; copy the bundle to where user 1000 may write\n"
    )
