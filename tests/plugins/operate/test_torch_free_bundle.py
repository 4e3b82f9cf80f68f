"""A bundle without torch: installed without internet, and the peer that it starts."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from certificates import reachable
from fleets import NOW
from p2pfl.network.transport.broker import Program, mosquitto, run_program
from p2pfl.plugins.operate.bundles import packages
from p2pfl.plugins.operate.bundles.fleet import Fleet
from torchless import machine, pack_locks
from wine_files import wine_file

ROOT = Path(__file__).parents[3]
PLANT = wine_file("plant", rounds=3, peers=2, more="[transport]\ngather = 240\npatience = 240\n")
HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"


def call(*command, **options):
    done = subprocess.run([*map(str, command)], check=False, capture_output=True, text=True, timeout=600, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.nightly
def test_a_device_installs_a_bundle_without_torch_offline_and_learns_beside_one_with_torch(place, monkeypatch):
    """All packages are those of the tests, packed as wheels; pip reads no index."""
    program = mosquitto() or pytest.skip("mosquitto is not installed")
    if machine() not in packages.MACHINES or HERE not in packages.PYTHONS:
        pytest.skip(f"there are no bundles for Python {HERE} on {machine()}")
    (place / "plant.toml").write_text(PLANT)
    for folder in ("locks", "index", "dist"):
        (place / folder).mkdir()
    pack_locks(place / "locks", place / "index")
    call(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", place / "dist", cwd=ROOT)
    [wheel] = (place / "dist").glob("*.whl")
    monkeypatch.setattr(packages, "LOCKS", place / "locks")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(place / "index"))
    made = Fleet.open(str(place / "plant.toml"), out=place / "fleet", trust_code=True)

    def configured(_host, port):
        machines = [f"{machine()}:{HERE}"]
        made.write(brokers=[f"mqtts://127.0.0.1:{port}"], machines=machines, wheel=wheel, now=NOW, wheels=True)
        reachable(place / "fleet" / "broker")
        return "user root\n" + (place / "fleet" / "broker" / "mosquitto.conf").read_text()

    script(place / "shims" / "id", 'case "$*" in -u) echo 1000 ;; *) echo ada ;; esac')
    for name, words in (("p2pfl", '-P -m p2pfl "$@"'), ("python", '"$@"')):
        script(place / "known" / "bin" / name, f'PYTHONPATH="{ROOT}" exec "{sys.executable}" {words}')
    given = {"PATH": f"{place / 'shims'}:{os.environ['PATH']}", "HOME": str(place), "UNITS": str(place / "none")}
    own = {
        "peer0": {"PREFIX": str(place / "new"), "PYTHON": sys.executable, "PIP_NO_INDEX": "1"},
        "peer1": {"PREFIX": str(place / "known"), "ENVIRONMENT": "yes"},
    }
    with run_program(Program(program.kind, program.command, configured), host="127.0.0.1", port=0):
        shutil.rmtree(place / "index")
        wheels = [path.name for path in (place / "fleet" / "peer0" / "wheels").iterdir()]
        assert {"numpy", "scipy", "cryptography"} <= {name.partition("-")[0] for name in wheels}
        assert not [name for name in wheels if name.startswith(("torch", "sympy", "fsspec", "setuptools"))]
        for again in (False, True):
            for peer, more in own.items():
                said = call(
                    "sh", place / "fleet" / peer / "install.sh", env=given | more | {"STATE": str(place / peer)}
                )
                assert ("Start:" if again else "read them the fingerprint") in said
            if not again:
                requests = [place / "fleet" / peer / "request.toml" for peer in own]
                made.signer(now=NOW).collect(requests)
        missing = [place / "new" / "bin" / "python", "-c", "import importlib.util as i; print(i.find_spec('torch'))"]
        assert call(*missing, cwd=place) == "None\n"
        command = place / "new" / "bin" / "p2pfl"
        checks = json.loads(call(command, "doctor", "plant.toml", "--as", "peer0", "--json", cwd=place / "peer0"))
        assert "no torch" in next(each["message"] for each in checks["checks"] if each["check"] == "torch")
        started = [
            subprocess.Popen(
                [Path(more["PREFIX"]) / "bin" / "p2pfl", "peer", "plant.toml", "--name", peer, "--json"],
                cwd=place / peer,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for peer, more in own.items()
        ]
        try:
            said = [process.communicate(timeout=300) for process in started]
        finally:
            for process in started:
                process.kill()
    assert [process.returncode for process in started] == [0, 0], said
    scores = [json.loads(out)["scores"]["accuracy"] for out, _ in said]
    assert min(scores) > 0.5
