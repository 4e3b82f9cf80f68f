"""The commands of the tutorial for three parties run one after the other, and do what the page says."""

import csv
import glob
import json
import re
import runpy
import shlex
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[2] / "docs" / "tutorials" / "three-parties.md").read_text("utf-8")


def test_the_commands_of_the_tutorial_run_and_learn_more_than_the_hospital_alone(p2pfl, place):
    outputs = {}
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        if named := re.match(r"# (\S+\.(?:py|toml))\n", block):
            (place / named[1]).write_text(block, "utf-8")
        for command in block.splitlines() if language == "sh" else ():
            if command == "mkdir new":
                (place / "new").mkdir()
            elif command == "python make.py":
                runpy.run_path("make.py")
            else:
                words = [path for word in shlex.split(command)[1:] for path in _named(word)]
                outputs[command] = p2pfl(*words)
                assert outputs[command].status == 0, (command, outputs[command].err)
    assert "rows in common" in outputs["p2pfl align readmission.toml"].out
    assert "times under noise that shrinks" in re.sub(r"\s+", " ", outputs["p2pfl privacy readmission.toml"].out)
    live, simulated = (json.loads((run / "summary.json").read_text()) for run in sorted(place.glob("runs/*")))
    assert live["together"] > live["alone"] + 0.05
    assert simulated["together"] > simulated["alone"] + 0.05
    assert simulated["difference"] < 1e-5
    [coefficients] = [output.out for command, output in outputs.items() if "coefficients" in command]
    assert "haemoglobin" in coefficients
    assert "claims" not in coefficients
    rows = [*csv.DictReader((place / "predictions.csv").read_text("utf-8").splitlines())]
    assert {row["parties"] for row in rows} == {"alone", "hospital insurer laboratory"}
    assert all(0 <= float(row["probability of yes"]) <= 1 for row in rows)


def _named(word):
    """Return the last of the files that a pattern names, or the word itself."""
    return sorted(glob.glob(word))[-1:] or [word]  # noqa: PTH207
