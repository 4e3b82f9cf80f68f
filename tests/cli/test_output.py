import io
import json
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version

import msgspec
import pytest
from rich.console import Console

from p2pfl.cli import tables
from p2pfl.results.notices.kinds import LossRose
from waiting import DEADLINE


def test_the_version_is_told_without_torch(p2pfl):
    said = p2pfl("--version")
    assert (said.status, said.out, said.err) == (0, f"p2pfl {version('p2pfl-mqtt')}\n", "")


@pytest.fixture
def summaries(p2pfl):
    """Results of ``run`` and ``simulate`` of one experiment, printed as JSON."""
    return {command: json.loads(p2pfl(command, "small.toml", "--json").out) for command in ("run", "simulate")}


@pytest.mark.slow
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
    assert run["bytes_written"] > 0
    assert (simulated["peer_memory"], simulated["bytes_written"]) == (None, None)
    for key in ("alone", "pooled", "peers", "rounds", "steps", "metric", "seed", "algorithm", "split", "versions"):
        assert run[key] == simulated[key]
    assert run["together"] == pytest.approx(simulated["together"])
    assert datetime.fromisoformat(run["began"]) <= datetime.fromisoformat(simulated["began"]) <= datetime.now(UTC)
    assert run["training_s"] > 0
    assert run["bytes_sent"] > simulated["bytes_sent"] > 0


def test_alarms_that_repeat_each_other_are_one_line(tmp_path):
    alarms = [LossRose(peer="peer0", round=round, now={"loss": 9.0}) for round in range(11, 15)]
    console = Console(record=True, file=io.StringIO(), width=200, force_terminal=True)
    result = {"peer": "peer0", "scores": {"loss": 1.0}, "alarms": [msgspec.to_builtins(each) for each in alarms]}
    tables.summary(result, tmp_path, console=console)
    said = " ".join(console.export_text(styles=True).split())
    assert said.count("the loss rose steeply") == 1
    assert "\x1b[1;31mpeer0: ALARM: the loss rose steeply in round 15" in said
    assert "; and 3 more like it, rounds 12 to 15" in said


def test_the_last_line_names_the_file_that_says_what_a_model_takes(p2pfl):
    said = p2pfl("simulate", "small.toml", "--no-baselines").err.splitlines()
    assert said[-2].startswith("run directory: runs/small-")
    assert said[-1] == "model.json there says how raw values become inputs of the models in peers/"


def test_json_is_alone_on_standard_output_and_nothing_is_on_the_other(p2pfl):
    for command in (("simulate", "small.toml", "--json"), ("topology", "ring", "--json")):
        said = p2pfl(*command)
        assert isinstance(json.loads(said.out), dict)
        assert said.err == ""


@pytest.mark.parametrize("command", ["simulate", pytest.param("run", marks=pytest.mark.nightly)])
def test_without_baselines_the_summary_has_the_same_keys(p2pfl, command):
    with_them = json.loads(p2pfl(command, "small.toml", "--json").out)
    without = json.loads(p2pfl(command, "small.toml", "--json", "--no-baselines").out)
    assert [*with_them] == [*without]
    assert without["alone"] is without["pooled"] is without["per_peer"]["peer0"]["alone"] is None
    assert without["together"] == with_them["together"]
    assert p2pfl("report", without["folder"]).status == 0


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_reader_who_has_had_enough_is_no_error(place):
    command = f"{sys.executable} -m p2pfl topology ring | true"
    said = subprocess.run(
        ["sh", "-c", command], check=True, capture_output=True, text=True, timeout=DEADLINE, cwd=place
    )
    assert said.stderr == ""


SPENT = [
    f"--set={each}"
    for each in ("rounds=9", "topology.peers=4", "privacy.mode=pairwise", "privacy.clip=1", "privacy.epsilon=8")
]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "simulate"])
def test_a_run_that_its_budget_ends_says_so_in_its_table_and_in_the_report(p2pfl, place, command):
    said = p2pfl(command, "small.toml", *SPENT, "--set=privacy.noise=0.8", "--set=privacy.mask=20")
    assert said.status == 0
    (folder,) = (place / "runs").iterdir()
    summary = json.loads((folder / "summary.json").read_text())
    assert 0 < summary["rounds"] < 9
    assert (summary["stopped"]["done"], summary["stopped"]["rounds"]) == (summary["rounds"], 9)
    for printed in (said.err, p2pfl("report", folder).out):
        stop = f"{summary['rounds']} of 9 rounds: another one would exceed privacy.epsilon = 8"
        assert f"stopped after {stop}" in " ".join(printed.split())


@pytest.mark.parametrize(
    ("alone", "sentence"),
    [
        ({"loss": 0.4, "accuracy": 0.75}, "Alone it reaches accuracy 0.750, so learning together gained 0.125."),
        ({"loss": 0.4, "accuracy": 0.9}, "Alone it reaches accuracy 0.900, so learning together lost 0.025."),
        ({"loss": 0.4, "accuracy": 0.875}, "Alone it reaches accuracy 0.875, so learning together changed nothing."),
        ({"loss": 0.75}, "Alone it reaches loss 0.750, so learning together gained 0.250."),
        (None, ""),
    ],
)
def test_the_summary_of_one_peer_says_what_learning_together_gained(place, capsys, alone, sentence):
    found = {"peer": "ada", "scores": {"loss": 0.5, "accuracy": 0.875}, "alone": alone}
    tables.summary(found, place)
    said = capsys.readouterr().err
    assert sentence in said
    assert ("Alone" in said) == bool(sentence)


def test_the_summary_of_one_peer_says_that_its_budget_ended_it(place, capsys):
    found = {"peer": "ada", "scores": {"loss": 0.5}, "stopped": {"done": 2, "rounds": 9, "epsilon": 8.0}}
    tables.summary(found, place)
    assert "stopped after 2 of 9 rounds" in capsys.readouterr().err
