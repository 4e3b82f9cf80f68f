import json
import subprocess
import sys

import pytest


def test_help_does_not_wait_for_torch():
    code = "import sys; from p2pfl.cli import main\ntry: main(['--help'])\nfinally: assert 'torch' not in sys.modules"
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert "simulate" in said.stdout


@pytest.mark.parametrize(
    "command", ["run", "simulate", "peer", "broker", "topology", "explain", "privacy", "audit", "identity", "report"]
)
def test_every_command_explains_itself(p2pfl, command):
    said = p2pfl(command, "--help")
    assert said.status == 0
    assert f"p2pfl {command}" in said.out


@pytest.fixture
def summaries(p2pfl):
    """What ``run`` and ``simulate`` of one experiment print as JSON."""
    return {command: json.loads(p2pfl(command, "small.toml", "--json").out) for command in ("run", "simulate")}


def test_the_summaries_of_run_and_simulate_have_the_same_keys(summaries, place):
    files = {
        command: json.loads((place / summary["folder"] / "summary.json").read_text())
        for command, summary in summaries.items()
    }
    for command, summary in summaries.items():
        folder = summary.pop("folder")
        assert folder.startswith("runs/small-")
        assert files[command] == summary
    run, simulated = summaries["run"], summaries["simulate"]
    assert [*run] == [*simulated]
    assert run["peer_memory"] > 0
    assert simulated["peer_memory"] is None
    for key in ("alone", "pooled", "peers", "rounds", "steps", "metric"):
        assert run[key] == simulated[key]
    assert run["together"] == pytest.approx(simulated["together"])
    assert run["training_s"] > 0
    assert run["bytes_sent"] > simulated["bytes_sent"] > 0


def test_json_is_alone_on_standard_output_and_nothing_is_on_the_other(p2pfl):
    for command in (("simulate", "small.toml", "--json"), ("topology", "ring", "--json")):
        said = p2pfl(*command)
        assert isinstance(json.loads(said.out), dict)
        assert said.err == ""


def test_without_baselines_the_summary_has_the_same_keys(p2pfl):
    with_them = json.loads(p2pfl("simulate", "small.toml", "--json").out)
    without = json.loads(p2pfl("simulate", "small.toml", "--json", "--no-baselines").out)
    assert [*with_them] == [*without]
    assert without["alone"] is without["pooled"] is without["per_peer"]["peer0"]["alone"] is None
    assert without["together"] == with_them["together"]
    assert p2pfl("report", without["folder"]).status == 0


def test_a_report_shows_rounds_and_what_learning_together_gave(p2pfl, place):
    folder = json.loads(p2pfl("simulate", "small.toml", "--json").out)["folder"]
    said = p2pfl("report", folder, "--plot", "curves.png")
    assert said.status == 0
    assert "accuracy" in said.out
    assert "What learning together gave (accuracy)" in said.out
    assert (place / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads(p2pfl("report", folder, "--json").out)["peers"] == 3


def test_a_topology_is_described_and_drawn(p2pfl, place):
    said = p2pfl("topology", "hypercube", "--peers", 8, "--plot", "cube.svg", "--json")
    facts = json.loads(said.out)
    assert (facts["peers"], facts["degree"], facts["diameter"]) == (8, [3, 3], 3)
    assert (place / "cube.svg").read_text().lstrip().startswith("<?xml")


def test_a_reader_who_has_had_enough_is_no_error(place):
    command = f"{sys.executable} -m p2pfl topology ring | true"
    said = subprocess.run(["sh", "-c", command], check=True, capture_output=True, text=True, timeout=60, cwd=place)
    assert said.stderr == ""
