"""A peer in a container: read-only but for its own folder, without a home, and an image without keys."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fleets import bundles
from p2pfl.plugins.operate.bundles import packages
from wine_files import wine_file

ROOT = Path(__file__).parents[3]


def read_only(state):
    """Return the command that runs another with all of the machine read-only but one folder, and no environment."""
    script = (
        'mount --make-rprivate / && mount --bind "$1" "$1" && mount -o remount,bind,ro / && mount --bind /proc /proc'
    )
    script += " && for each in /tmp /run /dev/shm; do mount -o remount,bind,ro $each 2>/dev/null || true; done"
    script += ' && cd "$1" && shift && exec env -i PATH=/usr/bin:/bin OMP_NUM_THREADS=1 "$@"'
    return ["unshare", "--mount", "sh", "-c", script, "sh", str(state)]


@pytest.fixture
def sealed(tmp_path):
    """A folder that stays writable when all else is read-only."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("only root can make the machine read-only for a process")
    state = tmp_path / "state"
    state.mkdir()
    outside = tmp_path / "outside"
    tried = subprocess.run(
        [*read_only(state), "sh", "-c", f"touch here && ! touch {outside} 2>/dev/null"],
        check=False,
        capture_output=True,
    )
    if tried.returncode:
        pytest.skip("this machine has no namespaces of mounts")
    assert (state / "here").exists()
    assert not outside.exists()
    return state


@pytest.mark.nightly
def test_a_peer_learns_with_a_read_only_root_and_no_home(sealed):
    (sealed / "small.toml").write_text(wine_file("small", peers=2, rounds=2, more="[transport]\ngather = 120\n"))
    (sealed / "box").mkdir()
    command = [*read_only(sealed), sys.executable, "-B", "-P", "-m", "p2pfl", "peer", "small.toml", "--json"]
    started = [
        subprocess.Popen(
            [*command, "--name", name, "--broker", f"file://{sealed}/box", "--set", "trust.keys=keys"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for name in ("peer0", "peer1")
    ]
    try:
        said = [process.communicate(timeout=300) for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0, 0], said
    for out, _ in said:
        assert 0 <= json.loads(out)["scores"]["accuracy"] <= 1
    assert {path.name for path in sealed.iterdir()} == {"here", "small.toml", "box", "keys", "runs"}


@pytest.mark.slow
def test_an_image_has_packages_and_no_key(place):
    """The command of the Containerfile, with a Python that records what it calls pip with."""
    machine = os.uname().machine
    if machine not in packages.MACHINES:
        pytest.skip(f"there are no locks for {machine}")
    folder = bundles(place, machine=machine).out / "peer0"
    text = (folder / "Containerfile").read_text()
    assert "ARG BASE=python:3." in text
    assert not re.search(r"@[A-Z]+@", text)
    [command] = re.findall(r"^RUN --mount=type=bind,target=/bundle (.*) && mkdir -m 777 /state$", text, re.MULTILINE)
    assert command == "ONLY=packages PREFIX=/opt/p2pfl sh /bundle/install.sh"
    python = place / "python"
    python.write_text(
        "#!/bin/sh\n"
        f'if [ "$1 $2" = "-m venv" ]; then mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; exit; fi\n'
        f'if [ "$1 $2" = "-m pip" ]; then echo "$*" >>"{place / "pip"}"; exit; fi\n'
        f'[ "$1" != -c ] || case "$2" in *version_info*) exit 0 ;; esac\n'
        f'exec "{sys.executable}" "$@"\n'
    )
    python.chmod(0o755)
    given = {"PATH": os.environ["PATH"], "PYTHON": str(python), "ONLY": "packages", "PREFIX": str(place / "opt")}
    given |= {"STATE": str(place / "state")}
    done = subprocess.run(
        ["sh", str(folder / "install.sh")], capture_output=True, text=True, check=False, env=given, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert len((place / "pip").read_text().splitlines()) == 1  # the experiment needs no torch
    assert not (place / "state").exists()
    assert not (folder / "request.toml").exists()
