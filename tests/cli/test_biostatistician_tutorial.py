"""The commands of the tutorial for biostatisticians run one after the other, and print what the page says."""

import glob
import json
import re
import runpy
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from certificates import reachable
from ports import reserved_port

pytestmark = pytest.mark.slow

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
PAGE = (TUTORIALS / "biostatistician.md").read_text("utf-8")
PORT = "8883"
"""Port of the page, in whose place a free one is taken."""


@pytest.fixture
def broker(place):
    """A function that starts mosquitto, which does not outlive the test, and its port."""
    started = []

    def serve(*command):
        reachable(place / "broker")
        started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    with reserved_port() as port:
        yield serve, str(port)
    for process in started:
        process.kill()
        process.wait()


def blocks(page):
    """Yield the language, the name and the text of each block of code."""
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        named = re.match(r"# (\S+\.(?:py|toml))\n", block)
        yield language, named and named[1], block


def masked(line):
    """Return a line without dates and keys, which differ in each run."""
    return re.sub(r"\d{4}-?\d\d-?\d\d[-T]?[\d:+]*|[0-9a-f]{64}|ed25519:\S{44}", "*", line.rstrip())


def words_of(command):
    """Return the words of a command after its name, with paths in place of patterns."""
    return [path for word in shlex.split(command)[1:] for path in sorted(glob.glob(word)) or [word]]  # noqa: PTH207


def test_the_commands_of_the_tutorial_run_and_print_what_it_says(p2pfl, place, fork, broker, monkeypatch):
    shutil.which("mosquitto") or pytest.skip("mosquitto is not installed")
    pytest.importorskip("matplotlib")
    pytest.importorskip("docx")
    monkeypatch.delenv("COLUMNS", raising=False)
    (serve, port), officer, said, peers = broker, "", None, {}
    for language, name, block in blocks(PAGE.replace(PORT, port)):
        if name:
            (place / name).parent.mkdir(exist_ok=True)
            (place / name).write_text(block.replace("ed25519:...", officer), "utf-8")
        if language == "text":
            lines = {masked(line) for line in (said.out + said.err).splitlines()}
            missing = [line for line in block.splitlines() if masked(line) not in lines]
            assert not missing, (missing, said.out + said.err)
        for command in block.splitlines() if language == "sh" else ():
            program = command.split()[0]
            if command == "python make.py":
                runpy.run_path(str(TUTORIALS / "make" / "biostatistician.py"))
            elif program == "mosquitto":
                serve(*shlex.split(command))
            elif program != "p2pfl":
                subprocess.run(shlex.split(command), check=True)
            elif command.startswith("p2pfl peer"):
                peers[command] = fork(*words_of(command))
            else:
                peers = {command: ended(each) for command, each in peers.items()}
                said = p2pfl(*words_of(command))
                refused = command.startswith("p2pfl columns") and not (place / "north" / "cohort.csv.toml").exists()
                assert said.status == (2 if refused else 0), (command, said.err)
                officer = "".join(re.findall(r'officer = "(ed25519:\S+)"', said.out)) or officer
    check_results(place, p2pfl)


def ended(peer):
    if not hasattr(peer, "end"):
        return peer
    said = peer.end()
    assert said.status == 0, said.err
    return said


def check_results(place, p2pfl):
    """Compare live peers with the simulation to the last bit, and look into the files."""
    simulated, *live = (
        json.loads(p2pfl("coefficients", *sorted(place.glob(f"runs/{run}/peers/{peer}.safetensors")), "--json").out)
        for run, peer in [
            ("cohort-*[0-9]", "north"),
            *((f"cohort-*-{peer}", peer) for peer in ("north", "south", "east")),
        ]
    )
    assert live == [simulated] * 3
    assert (place / "km.pdf").read_bytes().startswith(b"%PDF")
    assert all((place / f"{name}.docx").stat().st_size > 10_000 for name in ("table1", "regression", "cox"))
    assert "What stands against it" in (place / "cohort.html").read_text()
    [approval] = (place / "north" / "approvals").iterdir()
    assert "outcomes" in approval.read_text()
