"""A 64-bit ARM device under emulation: its bundle installs without an index, and it learns beside peers on x86-64.

qemu-user-static runs the programs of a small Debian that debootstrap unpacks: about ten minutes in all, so each night.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from safetensors.torch import load_file

from certificates import reachable
from fleets import NOW, PEERS
from p2pfl.network.transport.broker import Program, mosquitto, run_program
from p2pfl.plugins.operate.bundles.fleet import Fleet
from p2pfl.plugins.operate.bundles.packages import (
    DeviceKind,
    locked_requirements,
    torch_requirement,
)
from p2pfl.plugins.operate.bundles.wheels import copy_wheels, download_wheels
from wine_files import wine_file

ROOT = Path(__file__).parents[3]

DEBIAN = "bookworm"

BOARD = DeviceKind("aarch64", "3.11")
"""Architecture of the emulated device, and the Python of that Debian."""

PLANT = wine_file("plant", rounds=4, more='[privacy]\nmode = "pairwise"\n[transport]\ngather = 900\npatience = 300\n')

MASKS = """
import hashlib, platform
from p2pfl.privacy.normal_stream import Sampler, to_grid
drawn = Sampler().window([bytes([each]) * 32 for each in range(4)], slice(0, 16_000))
grid = to_grid(drawn, scale=100.0 * 2.0**20)
print(platform.machine(), hashlib.sha256(drawn.tobytes()).hexdigest(), hashlib.sha256(grid.tobytes()).hexdigest())
"""


def call(*command, **options):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, timeout=1200, **options)
    assert done.returncode == 0, f"{command}: {done.stderr[-2000:]}"
    return done.stdout


def on_board(root, script, *arguments):
    """Return the command that a shell of the board runs as a user without a name."""
    shell = [
        "chroot",
        "--userspec=1000:1000",
        str(root),
        "/usr/bin/env",
        "-i",
        "PATH=/usr/bin:/bin",
        "HOME=/home/board",
    ]
    return [*shell, "OMP_NUM_THREADS=1", "/bin/sh", "-c", script, "sh", *arguments]


@pytest.fixture
def board(tmp_path):
    """The root of a Debian for ARM whose programs run here: its packages are unpacked, and not set up."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("debootstrap", "dpkg-deb", "qemu-aarch64-static"))):
        pytest.skip("needs root, debootstrap and qemu-user-static")
    root = tmp_path / "board"
    tools = "--include=python3,python3-venv,ca-certificates"
    call("debootstrap", "--arch=arm64", "--foreign", "--variant=minbase", tools, DEBIAN, root)
    for package in sorted((root / "var" / "cache" / "apt" / "archives").glob("*.deb")):
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE) as unpacked:
            call("tar", "-x", "--keep-directory-symlink", "-C", root, stdin=unpacked.stdout)
    for folder in ("bundle", "home/board"):
        (root / folder).mkdir(parents=True)
    if subprocess.run(["chroot", str(root), "/bin/true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine runs no programs for ARM: binfmt_misc has no entry for qemu-aarch64")
    return root


@dataclass(frozen=True)
class Plant:
    """Three devices: one emulated, and two here."""

    place: Path
    board: Path
    fleet: Fleet

    @property
    def command(self):
        """The p2pfl of the devices here."""
        return self.place / "prefix" / "bin" / "p2pfl"

    def state(self, peer):
        emulated = self.board / "home" / "board" / ".local" / "state" / "p2pfl" / "plant-peer0"
        return emulated if peer == "peer0" else self.place / "states" / peer

    def write(self, port):
        """Write the bundles, and return the configuration of their broker."""
        machines = ["x86_64", f"peer0={BOARD}"]
        [wheel] = (self.place / "dist").glob("*.whl")
        self.fleet.write(brokers=[f"mqtts://127.0.0.1:{port}"], machines=machines, wheel=wheel, now=NOW)
        reachable(self.fleet.out / "broker")
        return "user root\n" + (self.fleet.out / "broker" / "mosquitto.conf").read_text()

    def carry(self):
        """Copy the bundle of the emulated device to it, with its wheels."""
        requirements, torch = (
            locked_requirements(self.fleet.experiment, machine="aarch64"),
            torch_requirement(self.fleet.experiment, machine="aarch64"),
        )
        made = download_wheels(BOARD, torch=torch, requirements=requirements, folder=self.place / "downloads")
        shutil.copytree(self.fleet.out / "peer0", self.board / "bundle", dirs_exist_ok=True)
        copy_wheels(made, self.board / "bundle" / "wheels")
        call("chown", "-R", "1000:1000", self.board / "bundle", self.board / "home" / "board")

    def install(self, peer):
        if peer == "peer0":
            return call(*on_board(self.board, "exec sh /bundle/install.sh"))
        given = {**os.environ, "ENVIRONMENT": "yes", "PREFIX": str(self.place / "prefix"), "UNITS": str(self.place)}
        given |= {"PATH": f"{self.place / 'shims'}:{os.environ['PATH']}", "STATE": str(self.state(peer))}
        return call("sh", self.fleet.out / peer / "install.sh", env=given)

    def play(self):
        """Run all peers to their end."""
        words = ["--json", "--no-baselines"]
        script = 'cd "$HOME/.local/state/p2pfl/plant-peer0" && exec "$HOME/.local/share/p2pfl/bin/p2pfl" "$@"'
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        peer0 = on_board(self.board, script, "peer", "plant.toml", "--name", "peer0", *words)
        started = [subprocess.Popen(peer0, **pipes)]
        for peer in PEERS[1:]:
            command = [str(self.command), "peer", "plant.toml", "--name", peer, *words]
            started.append(subprocess.Popen(command, cwd=self.state(peer), **pipes))
        try:
            said = [process.communicate(timeout=900) for process in started]
        finally:
            for process in started:
                process.kill()
        assert [process.returncode for process in started] == [0, 0, 0], said


@pytest.fixture
def plant(place, board):
    (place / "plant.toml").write_text(PLANT)
    call(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", place / "dist", cwd=ROOT)
    for path, text in {
        "prefix/bin/p2pfl": f'PYTHONPATH="{ROOT}" exec "{sys.executable}" -P -m p2pfl "$@"',
        "prefix/bin/python": f'PYTHONPATH="{ROOT}" exec "{sys.executable}" "$@"',
        "shims/id": 'case "$*" in -u) echo 1000 ;; *) echo ada ;; esac',
    }.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(f"#!/bin/sh\n{text}\n")
        (place / path).chmod(0o755)
    return Plant(place, board, Fleet.open(str(place / "plant.toml"), out=place / "fleet", trust_code=True))


@pytest.mark.nightly
def test_an_emulated_arm_device_learns_under_masks_beside_peers_on_x86_64(plant):
    program = mosquitto() or pytest.skip("mosquitto is not installed")
    bundle = plant.board / "bundle"
    broker = Program(program.kind, program.command, lambda _host, port: plant.write(port))
    with run_program(broker, host="127.0.0.1", port=0):
        plant.carry()
        for peer in PEERS:
            assert "read them the fingerprint" in plant.install(peer)
        requests = [bundle / "request.toml", *(plant.fleet.out / peer / "request.toml" for peer in PEERS[1:])]
        plant.fleet.signer(now=NOW).collect(requests)
        for name in ("roster.toml", "certificate.pem"):
            shutil.copy(plant.fleet.out / "peer0" / name, bundle)
            (bundle / name).chmod(0o644)
        for peer in PEERS:
            assert "Start:" in plant.install(peer)
        python = "/home/board/.local/share/p2pfl/bin/python"
        arm = call(*on_board(plant.board, f'exec {python} -c "$1"', MASKS)).split()
        assert (arm[0], arm[1:]) == ("aarch64", call(sys.executable, "-c", MASKS).split()[1:])
        plant.play()
    simulated = plant.place / "simulated"
    call(plant.command, "simulate", "plant.toml", "--no-baselines", "--runs", simulated, cwd=plant.place)
    for peer in PEERS:
        [path] = plant.state(peer).glob(f"runs/*/peers/{peer}.safetensors")
        [expected] = simulated.glob(f"*/peers/{peer}.safetensors")
        ours, theirs = load_file(path), load_file(expected)
        assert ours.keys() == theirs.keys()
        assert max(float((ours[name] - theirs[name]).abs().max()) for name in theirs) < 1e-5
