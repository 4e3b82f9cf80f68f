"""An observer watches a deployed fleet with the commands of the tutorial."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from certificates import reachable
from p2pfl.cli import main
from p2pfl.network.transport.broker import Program, mosquitto, run_program
from wine_files import wine_file

PAGE = (Path(__file__).parents[3] / "docs" / "deploy.md").read_text("utf-8")
SECTION = PAGE.partition("## Watch the fleet")[2].partition("\n## ")[0]
PLANT = wine_file("plant", rounds=2000, peers=2, more="[transport]\ngather = 60\ncheckpoint = 100\n")
PEERS = ("peer0", "peer1")
P2PFL = [sys.executable, "-m", "p2pfl"]


def of_section(word, **changes):
    """Return the one command of the section that contains a word, as arguments."""
    [line] = {line for line in SECTION.splitlines() if line.startswith("p2pfl ") and word in line}
    for old, new in changes.items():
        line = line.replace(old, new)
    return line.split()[1:]


def called(*arguments, folder):
    done = subprocess.run([*P2PFL, *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.nightly
@pytest.mark.parametrize("prefix", ["", "plant7/"])
def test_an_observer_watches_two_devices_over_tls(tmp_path, monkeypatch, prefix):
    program = mosquitto() or pytest.skip("mosquitto is not installed")
    monkeypatch.chdir(tmp_path)
    [shared] = re.findall(r"^```toml\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)
    Path("plant.toml").write_text(f'{PLANT}prefix = "{prefix}"\n{shared}')
    Path("p2pfl_mqtt-0.3.0-py3-none-any.whl").write_bytes(b"a wheel")

    def configured(_host, port):
        changes = {"hub.example:8883": f"127.0.0.1:{port}", "dist/": ""}
        assert main(of_section("--observer ops", **changes)) == 0
        topics = re.findall(r"^(?:topic|pattern) \w+ (.*)$", Path("fleet/broker/acl").read_text(), re.MULTILINE)
        assert topics
        assert all(each.startswith(f"{prefix}p2pfl/v1/plant/") for each in topics)
        reachable(tmp_path / "fleet" / "broker")
        return "user root\n" + Path("fleet/broker/mosquitto.conf").read_text()

    with run_program(Program(program.kind, program.command, configured), host="127.0.0.1", port=0):
        folders = {peer: tmp_path / "fleet" / peer for peer in PEERS} | {"ops": tmp_path / "fleet/observers/ops"}
        for name, folder in folders.items():  # each makes its keys on its own machine
            shutil.copytree(folder, tmp_path / name)
            request = [name if each == "ops" else each for each in of_section("p2pfl identity")]
            called(*request, folder=tmp_path / name)
        requests = [str(tmp_path / name / "request.toml") for name in folders]
        assert main(["deploy", "plant.toml", "--out", "fleet", "--yes", "--collect", *requests]) == 0
        for name, folder in folders.items():
            for file in ("roster.toml", "certificate.pem", "observers.toml"):
                if (folder / file).exists():
                    shutil.copy(folder / file, tmp_path / name)
        command = [*P2PFL, "peer", "plant.toml", "--json", "--name"]
        peers = [
            subprocess.Popen(
                [*command, peer], cwd=tmp_path / peer, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            for peer in PEERS
        ]
        try:
            seen = {}
            for _ in range(10):  # peers start meanwhile
                shown = called(*of_section("p2pfl watch"), "--once", "--json", folder=tmp_path / "ops")
                seen = {name: each["rounds"] for name, each in json.loads(shown)["peers"].items()}
                if set(seen) == {*PEERS} and min(each or 0 for each in seen.values()) > 0:
                    break
            assert min(each or 0 for each in seen.values()) > 0, seen
        finally:
            for each in peers:
                each.kill()
                each.wait()
