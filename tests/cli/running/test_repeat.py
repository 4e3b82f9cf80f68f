"""``p2pfl repeat``: a run directory repeats elsewhere, and its code runs only with consent."""

import json
import shutil
import sys
from unittest import mock

import pytest

from p2pfl.core.errors import InputError
from p2pfl.results.lock import PEER_LOCK, RUN_LOCK

OWN = """
name = "own"
rounds = 2
[topology]
peers = 3
[data]
name = "own_part:rows"
test = 0.5
options = {{ classes = 2 }}
[model]
name = "linear"
[privacy]
mode = "none"
"""

PART = """
import torch
from own_helpers.draws import drawn
def rows(*, peer, peers, seed):
    x = drawn(seed + peers.index(peer))
    return x, (x.sum(1) > 0).long()
"""

DRAWS = """
import torch
from pathlib import Path
Path({marker!r}).touch()
def drawn(seed):
    return torch.randn(40, 5, generator=torch.Generator().manual_seed(seed))
"""


def simulated(p2pfl, place, *arguments):
    before = {*(place / "runs").glob("*")}
    said = p2pfl("simulate", *arguments)
    assert said.status == 0, said.err
    [run] = {*(place / "runs").glob("*")} - before
    return run


def test_a_run_is_repeated_to_the_bit_and_a_change_is_noticed(p2pfl, place):
    run = simulated(p2pfl, place, "small.toml", "--no-baselines")
    said = p2pfl("repeat", run, "--check")
    assert said.status == 0
    assert said.err.splitlines()[-1] == "the run repeats to the bit"
    assert "models: all 3 are equal" in said.err
    assert "data: equal" in said.err
    text = (run / "metrics.jsonl").read_text()
    first = json.loads(text.splitlines()[0])
    first["training_loss"] += 0.5
    (run / "metrics.jsonl").write_text("\n".join([json.dumps(first), *text.splitlines()[1:]]) + "\n")
    said = p2pfl("repeat", run, "--check")
    assert said.status == 1
    assert "records: DIFFER: training_loss by up to 0.5 (1 value)" in said.err
    found = p2pfl("repeat", run, "--json")
    assert found.status == 0
    assert json.loads(found.out)["same"] is False


@pytest.mark.slow
def test_a_repetition_of_a_run_with_baselines_and_workers_has_them_too(p2pfl, place):
    run = simulated(p2pfl, place, "small.toml", "--workers", "2")
    said = p2pfl("repeat", run, "--check")
    assert said.status == 0, said.err
    newest = max((place / "runs").iterdir(), key=lambda each: each.stat().st_mtime_ns)
    summary = json.loads((newest / "summary.json").read_text())
    assert summary["alone"] is not None
    assert len(summary["workers"]) == 2


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(["privacy.mode=independent", "privacy.noise=1.0", "privacy.clip=1.0"], marks=pytest.mark.slow),
        ["learning.example_noise=1.0", "learning.max_norm=1.0"],
    ],
    ids=["of peers", "of samples"],
)
def test_a_run_with_a_guarantee_is_refused_with_the_reason(changes, p2pfl, place):
    options = [part for change in changes for part in ("--set", change)]
    run = simulated(p2pfl, place, "small.toml", "--no-baselines", *options)
    said = p2pfl("repeat", run, "--check")
    assert said.status == 2
    assert "rests on random numbers of the operating system" in said.err
    assert [*(place / "runs").iterdir()] == [run]


def test_what_does_not_follow_from_its_directory_is_refused(p2pfl, place):
    run = simulated(p2pfl, place, "small.toml", "--no-baselines")
    assert "is no run directory" in p2pfl("repeat", place / "nowhere").err
    for lock in (RUN_LOCK, PEER_LOCK):
        (run / lock).touch()
        said = p2pfl("repeat", run)
        assert said.status == 2
        assert "holds live peers, whose masks and messages no second run repeats" in said.err
        (run / lock).unlink()
    said = p2pfl("repeat", run, "--set", "rounds=9")
    assert said.status == 2
    assert "--set rounds would make another run" in said.err
    (run / "summary.json").unlink()
    assert "has not ended; go on with p2pfl simulate --resume" in p2pfl("repeat", run).err


def test_a_run_from_parts_in_python_is_refused(p2pfl, place):
    run = simulated(p2pfl, place, "small.toml", "--no-baselines")
    text = (run / "experiment.toml").read_text().replace('kind = "complete"', 'kind = "own"')
    (run / "experiment.toml").write_text(text)
    said = p2pfl("repeat", run)
    assert said.status == 2
    assert "was put together in Python" in said.err


@pytest.fixture
def own(p2pfl, place):
    """Return the directory of a run with own modules, and a file that importing them creates."""
    marker = place / "imported"
    (place / "own_helpers").mkdir()
    (place / "own_helpers" / "draws.py").write_text(DRAWS.format(marker=str(marker)))
    (place / "own_helpers" / "patients.csv").write_text("secret")
    (place / "own_part.py").write_text(PART)
    (place / "own.toml").write_text(OWN.format())
    run = simulated(p2pfl, place, "own.toml", "--trust-code", "--no-baselines")
    yield run, marker
    forget()


def forget():
    for name in [name for name in sys.modules if name.partition(".")[0] in {"own_part", "own_helpers"}]:
        del sys.modules[name]


def test_a_received_directory_runs_its_code_only_with_consent(own, p2pfl, place, monkeypatch, tmp_path_factory):
    run, marker = own
    kept = sorted(path.relative_to(run / "modules").as_posix() for path in (run / "modules").rglob("*"))
    assert kept == ["own_helpers", "own_helpers/draws.py", "own_part.py"]
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    received = shutil.copytree(run, elsewhere / "received")
    monkeypatch.chdir(elsewhere)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each != str(place)])
    forget()
    marker.unlink()
    said = p2pfl("repeat", received, "--check")
    assert said.status == 2
    assert "own_helpers/draws.py, own_part.py of" in said.err
    assert "read it, and agree with --trust-code" in said.err
    assert not marker.exists()
    assert not (elsewhere / "runs").exists()
    monkeypatch.setattr(sys, "dont_write_bytecode", sys.dont_write_bytecode)
    said = p2pfl("repeat", received, "--check", "--trust-code")
    assert said.status == 0, said.err
    assert marker.exists()
    assert "as --trust-code agrees" in said.err
    assert "own modules: equal" in said.err
    assert sorted(path.name for path in (received / "modules").rglob("*.pyc")) == []


def test_code_beside_a_received_directory_needs_consent_as_well(own, p2pfl):
    run, marker = own
    forget()
    marker.unlink()
    assert "agree with --trust-code" in p2pfl("repeat", run, "--check").err
    assert not marker.exists()


def test_a_link_among_the_modules_of_a_run_is_refused(own, p2pfl, place):
    run, _ = own
    (run / "modules" / "more").symlink_to(place)
    said = p2pfl("repeat", run, "--check", "--trust-code")
    assert said.status == 2
    assert "more is a link, which no run directory has; remove it" in said.err


def test_the_summary_of_a_run_does_not_decide_what_stays_outside_of_an_account(p2pfl, place):
    run = simulated(p2pfl, place, "small.toml", "--no-baselines")
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps(summary | {"accounted": False}))
    with mock.patch("p2pfl.simulation.simulate", side_effect=InputError("stop here")) as asked:
        assert p2pfl("repeat", run).status == 2
        assert p2pfl("repeat", run, "--unaccounted").status == 2
    assert [each.kwargs["unaccounted"] for each in asked.call_args_list] == [False, True]


@pytest.mark.parametrize("reference", ["os:system", "subprocess:Popen", "torch.hub:load"])
def test_a_directory_that_names_installed_code_needs_consent_as_well(reference, p2pfl, place):
    run = simulated(p2pfl, place, "small.toml", "--no-baselines")
    text = (run / "experiment.toml").read_text().replace("[learning]\n", f'[learning]\nloss = "{reference}"\n')
    (run / "experiment.toml").write_text(text)
    said = p2pfl("repeat", run, "--check")
    assert said.status == 2
    assert f"repeat would run it with your rights: {reference.partition(':')[0]}" in said.err


TABLE = """
name = "table"
rounds = 1
[topology]
peers = 3
[data]
name = "csv"
options = { path = "own.csv", target = "y" }
[privacy]
mode = "none"
"""


@pytest.mark.slow
def test_a_path_may_be_another_on_this_machine_and_other_data_are_noticed(p2pfl, place):
    rows = [f"{number % 7}.5,{number % 5},{number % 2}" for number in range(60)]
    (place / "own.csv").write_text("\n".join(["a,b,y", *rows]) + "\n")
    (place / "table.toml").write_text(TABLE)
    run = simulated(p2pfl, place, "table.toml", "--no-baselines")
    (place / "moved").mkdir()
    (place / "own.csv").rename(place / "moved" / "here.csv")
    assert p2pfl("repeat", run, "--check").status == 2
    where = ("--set", "data.options.path=moved/here.csv")
    said = p2pfl("repeat", run, "--check", *where)
    assert said.status == 0, said.err
    assert "data: equal" in said.err
    (place / "moved" / "here.csv").write_text("\n".join(["a,b,y", "6.5,4,0", *rows[1:]]) + "\n")
    said = p2pfl("repeat", run, "--check", *where)
    assert said.status == 1
    assert "data: DIFFER" in said.err
