"""The commands of the tutorial for three parties run one after the other, and do what the page says."""

import csv
import json
import re
import runpy
import shlex
import shutil
from pathlib import Path

import pytest

from p2pfl.network.transport.broker import embedded, mosquitto

pytestmark = pytest.mark.slow

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
PAGE = (TUTORIALS / "three-parties.md").read_text("utf-8")


TOGETHER, _, APART = PAGE.partition("\n## 6. ")
PEERS = ("hospital", "laboratory", "insurer", "registry")


@pytest.fixture
def tables(place):
    """The files of sections 1 to 3."""
    for named, block in re.findall(r"^```\w+\n# (\S+\.(?:py|toml))\n(.*?)^```$", TOGETHER, re.MULTILINE | re.DOTALL):
        (place / named).write_text(block, "utf-8")
    (place / "new").mkdir()
    runpy.run_path(str(TUTORIALS / "make" / "three_parties.py"))
    return place


def commands(text):
    """Return the commands of p2pfl, as words."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [shlex.split(line)[1:] for block in blocks for line in block.splitlines() if line.startswith("p2pfl ")]


def test_the_commands_of_the_tutorial_run_and_learn_more_than_the_hospital_alone(p2pfl, tables):
    place, outputs = tables, {}
    for words in commands(TOGETHER):
        run = sorted(map(str, place.glob("runs/*")))[-1:]  # what RUN is
        done = p2pfl(*[word.replace("$RUN", *run) if run else word for word in words])
        assert done.status == 0, (words, done.err)
        outputs[words[0]] = done.out
    assert "rows in common" in outputs["align"]
    assert "times under noise that shrinks" in re.sub(r"\s+", " ", outputs["privacy"])
    live, simulated = (json.loads((run / "summary.json").read_text()) for run in sorted(place.glob("runs/*")))
    assert live["together"] > live["alone"] + 0.05
    assert simulated["together"] > simulated["alone"] + 0.05
    assert simulated["difference"] < 1e-5
    assert "haemoglobin" in outputs["coefficients"]
    assert "claims" not in outputs["coefficients"]
    rows = [*csv.DictReader((place / "predictions.csv").read_text("utf-8").splitlines())]
    assert {row["parties"] for row in rows} == {"alone", "hospital insurer laboratory"}
    assert all(0 <= float(row["probability of yes"]) <= 1 for row in rows)


@pytest.mark.skipif(mosquitto() is None, reason="mosquitto is not installed")
def test_each_party_runs_the_commands_of_the_last_section_in_a_folder_of_its_own(fork, p2pfl, tables, monkeypatch):
    more = re.search(r"^```toml\n(.*?)^```$", APART, re.MULTILINE | re.DOTALL)[1]
    identity, align, learn, predict = commands(APART)
    with embedded(kind="mosquitto") as broker:
        text = (tables / "readmission.toml").read_text() + more.replace("mqtt://192.0.2.7:1883", broker.url)
        for peer in PEERS:
            folder = tables / peer
            (folder / "new").mkdir(parents=True)
            (folder / "readmission.toml").write_text(text.replace('"roster.toml"', '"../roster.toml"'))
            for path in (*tables.glob(f"{peer}.*"), *tables.glob(f"new/{peer}.*")):
                shutil.copy(path, folder / path.relative_to(tables))
            monkeypatch.chdir(folder)
            assert p2pfl(*own(identity[:-1], peer), "../roster.toml").status == 0

        def everywhere(words):
            """Start a command at all peers, and return that of the hospital and those of the others."""
            started = {}
            for peer in PEERS:
                monkeypatch.chdir(tables / peer)
                started[peer] = fork(*own(words, peer))
            return started

        for words in (align, learn):
            for peer, command in everywhere(words).items():
                assert command.end().status == 0, (words, peer)
        answering = everywhere(predict)
        asked = answering.pop("hospital").end()
        for peer, command in answering.items():
            command.until(f"{peer} has answered a request for 60 rows")
            command.process.terminate()
    rows = [*csv.DictReader(asked.out.splitlines())]
    assert len(rows) == 60
    assert {row["parties"] for row in rows} == {"alone", "hospital insurer laboratory"}


def own(words, peer):
    """Return the words with the name and the files of a peer, which are there."""
    words = [word.replace("laboratory", peer) for word in words]
    if peer == "registry":
        words = ["-" if word.startswith("new/") else word for word in words]
    return [str(path) for word in words for path in (sorted(Path().glob(word)) if "*" in word else [word])]
