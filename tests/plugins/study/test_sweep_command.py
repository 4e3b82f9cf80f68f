"""``p2pfl sweep`` and ``p2pfl report`` of several runs."""

import csv
import json
import shlex
import shutil

import pytest

from p2pfl.plugins.study import sweep as sweep_module
from p2pfl.plugins.study.sweep import attempt
from p2pfl.plugins.study.sweep_job import run_job


def here(jobs, function, **_):
    """Call a function for each job in this process."""
    return ((job, attempt(job, function)) for job in jobs)


@pytest.fixture
def inside(monkeypatch):
    """Check and make runs in this process."""
    monkeypatch.setattr(sweep_module, "in_processes", here)


SWEEP = ("sweep", "small.toml", "--over", "learning.rate=0.001,0.5", "--seeds", "3,5", "--jobs", "2")


@pytest.mark.slow
def test_a_sweep_runs_in_processes_prints_a_table_and_goes_on_where_it_was(p2pfl, place):
    said = p2pfl(*SWEEP)
    assert said.status == 0, said.err
    assert "4/4 " in said.err
    assert "learning.rate=0.5 seed 5:" in said.err
    assert "better" in said.err or "not significant" in said.err
    assert "sweep directory: runs/small-sweep" in said.err
    [*made] = (place / "runs" / "small-sweep" / "cells").iterdir()
    assert len(made) == 4
    again = p2pfl(*SWEEP, "--json")
    found = json.loads(again.out)
    assert [each["values"] for each in found["settings"]] == [{"learning.rate": "0.001"}, {"learning.rate": "0.5"}]
    assert again.err == ""


@pytest.mark.slow
@pytest.mark.usefixtures("inside")
def test_a_study_file_and_the_same_arguments_have_the_same_cells(p2pfl, place):
    assert p2pfl(*SWEEP).status == 0
    (place / "study.toml").write_text(
        'experiment = "small.toml"\nseeds = [3, 5]\n[over]\n"learning.rate" = [0.001, 0.5]\n'
    )
    assert p2pfl("sweep", "study.toml").status == 0
    assert len([*(place / "runs" / "small-sweep" / "cells").iterdir()]) == 4
    assert p2pfl("sweep", "study.toml", "--over", "learning.epochs=1,2").status == 0
    assert len([*(place / "runs" / "small-sweep" / "cells").iterdir()]) == 8


@pytest.mark.usefixtures("inside")
def test_a_sweep_with_failures_names_the_first_and_has_status_1(p2pfl, place):
    said = p2pfl("sweep", "small.toml", "--over", "learning.rate=0.1,1e38", "--seeds", "1")
    assert said.status == 1
    assert "1 of 2 runs failed, the first is learning.rate=1e+38 seed 0" in said.err
    assert "Traceback" not in said.err
    assert (place / "runs" / "small-sweep" / "comparison.csv").is_file()


@pytest.mark.usefixtures("inside")
def test_a_refused_setting_is_left_out_as_the_refusal_says(p2pfl, place):
    grid = ("sweep", "small.toml", "--over", "learning.algorithm=fedavg,relay_sgd", "--seeds", "1")
    said = p2pfl(*grid)
    assert said.status == 2
    assert not (place / "runs").exists()
    assert "1 of 2 settings cannot run, so nothing was started: learning.algorithm=relay_sgd: " in said.err
    assert said.err.rstrip().endswith("or leave them out with --without learning.algorithm=relay_sgd")
    assert p2pfl(*grid, "--without", "learning.algorithm=relay_sgd").status == 0


@pytest.mark.slow
@pytest.mark.usefixtures("inside")
def test_an_interrupted_sweep_says_how_far_it_is_and_the_command_that_goes_on(p2pfl, place, monkeypatch):
    def interrupted(jobs, function, **_):
        for number, job in enumerate(jobs):
            if number == 3 and function is run_job:
                raise KeyboardInterrupt
            yield job, attempt(job, function)

    own = (*SWEEP[:3], "learning.rate=[0.001, 0.5]", *SWEEP[4:])
    with monkeypatch.context() as patch:
        patch.setattr(sweep_module, "in_processes", interrupted)
        said = p2pfl(*own)
    assert said.status == 130
    command = f"p2pfl sweep small.toml --over 'learning.rate=[0.001, 0.5]' {' '.join(SWEEP[4:])}"
    assert said.err.splitlines()[-1] == f"p2pfl: interrupted; 3 of 4 runs are done; go on with {command}"
    again = p2pfl(*shlex.split(command)[1:])
    assert again.status == 0
    assert len([*(place / "runs" / "small-sweep" / "cells").iterdir()]) == 4


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--over", "learning.rate"], "no key or no value"),
        (["--over", "learning.rate=1", "--over", "learning.rate=2"], "names a key twice"),
        (["--seeds", "0"], "neither a number of seeds nor a list"),
        (["--seeds", "3,3"], "neither a number of seeds nor a list"),
        (["--seeds", "many"], "neither a number of seeds nor a list"),
        (["--draws", "3"], "no key to draw"),
        (["--without", "learning.rate=1"], "which the study does not vary"),
        (["--budget", "5 minutes"], "not a budget"),
        (["--over", "data.split=iid,shard"], "shard"),
    ],
)
def test_wrong_input_ends_before_anything_runs(arguments, reason, p2pfl, place):
    said = p2pfl("sweep", "small.toml", *arguments)
    assert said.status == 2
    assert reason in said.err
    assert not (place / "runs").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("inside")
def test_a_report_of_a_sweep_has_the_numbers_of_the_sweep(p2pfl, place):
    made = json.loads(p2pfl(*SWEEP, "--json").out)
    folder = place / "runs" / "small-sweep"
    found = json.loads(p2pfl("report", folder, "--csv", "table.csv", "--json").out)
    assert found["settings"] == made["settings"]
    assert found["differences"] == made["differences"]
    assert p2pfl("report", folder, "--html", "sweep.html").status == 0
    assert p2pfl("report", folder, "--tex", "sweep.tex", "--docx", "sweep.docx").status == 0
    assert r"\toprule" in (place / "sweep.tex").read_text()
    page = (place / "sweep.html").read_text()
    assert "<title>Sweep of small</title>" in page
    assert f"{made['differences'][0]['difference']['mean']:+.3f}" in page
    assert p2pfl("report", folder, "--metric", "loss").status == 2
    assert p2pfl("report", folder, folder).status == 2
    assert (place / "table.csv").read_text() == (folder / "comparison.csv").read_text()
    assert "0.001" in p2pfl("report", folder).out


@pytest.mark.slow
def test_a_report_of_several_runs_compares_what_differs(p2pfl, place):
    for rate in ("0.001", "0.5"):
        for seed in (1, 2):
            p2pfl("simulate", "small.toml", "--no-baselines", "--set", f"learning.rate={rate}", "--set", f"seed={seed}")
    runs = sorted((place / "runs").iterdir())
    assert len(runs) == 4
    found = json.loads(p2pfl("report", *runs, "--html", "runs.html", "--json").out)
    assert "<title>4 runs of small</title>" in (place / "runs.html").read_text()
    assert {each["values"]["learning.rate"] for each in found["settings"]} == {"0.001", "0.5"}
    assert found["keys"] == ["learning.rate"]
    assert [each["difference"]["count"] for each in found["differences"]] == [2]
    drawn = p2pfl("report", *runs, "--plot", "curves.pdf", "--by", "bytes")
    assert drawn.status == 0
    assert "drew curves.pdf. Lines are means over the peers and 2 seeds. Bands are 95 % intervals" in drawn.err
    assert (place / "curves.pdf").read_bytes().startswith(b"%PDF")
    assert p2pfl("report", *runs, "--metric", "loss", "--json").status == 0
    copy = shutil.copytree(runs[0], place / "copy")
    said = p2pfl("report", *runs, copy)
    assert (said.status, said.out) == (2, "")
    assert f"{runs[0]} and {copy} have the same settings and the seed 1, so they are one run twice" in said.err
    assert p2pfl("report", runs[0], runs[0]).status == 2


@pytest.mark.slow
def test_event_files_of_a_run_and_of_several(p2pfl, place):
    pytest.importorskip("tensorboardX")
    for rate in ("0.001", "0.5"):
        p2pfl("simulate", "small.toml", "--no-baselines", "--set", f"learning.rate={rate}")
    runs = sorted((place / "runs").iterdir())
    assert p2pfl("report", runs[0], "--tensorboard", "one").status == 0
    assert len([*(place / "one" / runs[0].name).glob("events.out.tfevents.*")]) == 1
    assert p2pfl("report", *runs, "--tensorboard", "both").status == 0
    assert sorted(each.name for each in (place / "both").iterdir()) == ["rate 0.001, seed 0", "rate 0.5, seed 0"]


@pytest.mark.slow
def test_the_rounds_of_a_run_as_csv(p2pfl, place):
    p2pfl("simulate", "small.toml", "--no-baselines")
    [run] = (place / "runs").iterdir()
    assert p2pfl("report", run, "--csv", "rounds.csv", "--html", "run.html").status == 0
    assert "<title>small</title>" in (place / "run.html").read_text()
    with (place / "rounds.csv").open() as file:
        lines = [*csv.DictReader(file)]
    assert [(line["peer"], line["round"]) for line in lines][:3] == [("peer0", "0"), ("peer1", "0"), ("peer2", "0")]
    assert len(lines) == 6
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [float(line["accuracy"]) for line in lines] == [record["scores"]["accuracy"] for record in records]
    assert p2pfl("report", run, "--tex", "run.tex").status == 0
    assert "mean &" in (place / "run.tex").read_text()
    assert p2pfl("report", run, "--csv", "no/such/place.csv").status == 2


@pytest.mark.sampled(fast=0, all=1)
@pytest.mark.parametrize("how", ["kill", "interrupt"])
def test_a_sweep_that_is_ended_half_way_leaves_no_process_and_repeats_no_run(how, start, gone, place):
    arguments = (*SWEEP[:3], "learning.rate=0.001,0.5", "--seeds", "6", "--jobs", "2", "--set", "rounds=40")
    command = start(*arguments)
    command.until("2/12 ")
    family = command.family()
    if how == "kill":
        command.process.kill()
    else:
        command.ctrl_c()
    said = command.end()
    assert said.status == (-9 if how == "kill" else 130)
    assert how == "kill" or "of 12 runs are done; go on with p2pfl sweep small.toml" in said.err
    assert gone(family)
    cells = place / "runs" / "small-sweep" / "cells"
    made = {cell.name: (cell / "summary.json").stat().st_mtime_ns for cell in cells.iterdir()}
    assert 2 <= len(made) < 12
    again = start(*arguments).end()
    assert again.status == 0, again.err
    assert "12/12 " in again.err
    after = {cell.name: (cell / "summary.json").stat().st_mtime_ns for cell in cells.iterdir()}
    assert len(after) == 12
    assert {name: after[name] for name in made} == made
    assert not (cells.parent / ".partial").exists()
