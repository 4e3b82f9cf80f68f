"""A sweep runs each content once, whatever happens to it, and reports what failed."""

import json
import os
import shlex
import socket
from pathlib import Path

import pytest

from json_schema import faults
from p2pfl.core.errors import InputError, RunError
from p2pfl.core.process import FreeMemory, cores
from p2pfl.experiment import check, plan, read
from p2pfl.plugins.study import sweep as sweep_module
from p2pfl.plugins.study import sweep_job
from p2pfl.plugins.study.study import CostBudget, Study, parse_combination
from p2pfl.plugins.study.sweep import PARTIAL_SUFFIX, attempt, in_processes, sweep
from p2pfl.plugins.study.sweep_job import Job, affordable, check_job, run_job
from p2pfl.results.comparisons.outcomes import load_sweep
from p2pfl.results.json_schema import json_schema
from p2pfl.results.run import Run
from p2pfl.simulation import memory_estimate, simulate
from waiting import DEADLINE
from wine_files import wine_file

SMALL = wine_file("small")

STOPS = """
import os
import torch
def loss(outputs, targets):
    return {what}
"""


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return str(path)


@pytest.fixture
def made(monkeypatch):
    """Make runs in this process; return the digests of those that were made."""
    found = []

    def here(jobs, function, *, processes):
        assert processes == 2
        for job in jobs:
            found.extend([job.digest] if function is run_job else [])
            yield job, attempt(job, function)

    monkeypatch.setattr(sweep_module, "in_processes", here)
    return found


def study(small, **more):
    return Study(experiment=small, over={"learning.rate": (0.1, 0.5)}, seeds=2, **more)


@pytest.mark.slow
def test_a_run_of_a_sweep_is_that_of_simulate(small, tmp_path, made):
    result = sweep(study(small), tmp_path / "out", processes=2)
    assert len(made) == len(set(made)) == 4
    alone = simulate(read(small, changes=["learning.rate=0.5", "seed=1"]), baselines=False).summary
    last = result.outcomes[-1]
    assert (last.score, last.bytes_sent) == (alone["together"], alone["bytes_sent"])
    assert last.gradients == alone["gradients"] > 0
    assert Run.load(tmp_path / "out" / last.folder).summary["together"] == last.score


@pytest.mark.slow
@pytest.mark.usefixtures("made")
def test_what_a_sweep_writes_conforms_to_the_schema(small, tmp_path):
    sweep(study(small, against={"learning.rate": 0.5}, budget="gradients=100"), tmp_path / "out", processes=2)
    definitions = json_schema()["$defs"]
    found = json.loads((tmp_path / "out" / "sweep.json").read_text())
    assert faults(found, definitions["sweep.json"], definitions) == []
    assert found["against"] == {"learning.rate": "0.5"}


@pytest.mark.slow
def test_what_is_there_is_not_run_again_and_what_is_new_is(small, tmp_path, made):
    folder = tmp_path / "out"
    first = sweep(study(small), folder, processes=2)
    seen = []
    assert sweep(study(small), folder, processes=2, observe=lambda *told: seen.append(told[1:])) == first
    assert len(made) == 4
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    sweep(Study(experiment=small, over={"learning.rate": (0.1, 0.5, 0.9)}, seeds=2), folder, processes=2)
    assert len(made) == 6
    Path(small).write_text(SMALL.replace("rounds = 2", "rounds = 3"))
    sweep(study(small), folder, processes=2)
    assert len(made) == 10
    assert not (folder / PARTIAL_SUFFIX).exists()


@pytest.mark.slow
def test_an_unfinished_run_is_made_again_and_the_rest_of_a_killed_sweep_removed(small, tmp_path, made):
    folder = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        sweep(study(small), folder, processes=2, observe=interrupt_after(2))
    assert len([*(folder / "cells").iterdir()]) == 2
    (folder / PARTIAL_SUFFIX / "killed" / "abc").mkdir(parents=True)
    sweep(study(small), folder, processes=2)
    assert len(made) == 4
    assert not (folder / PARTIAL_SUFFIX).exists()


def interrupt_after(count):
    def observe(_, done, __):
        if done == count:
            raise KeyboardInterrupt

    return observe


@pytest.mark.slow
@pytest.mark.usefixtures("made")
def test_a_second_sweep_in_a_directory_is_refused_while_the_first_works(small, tmp_path):
    folder = tmp_path / "out"

    def observe(_, done, __):
        if done == 1:
            with pytest.raises(InputError, match="another sweep works in"):
                sweep(study(small), folder, processes=2)

    assert len(sweep(study(small), folder, processes=2, observe=observe).outcomes) == 4


def test_a_run_that_fails_is_a_line_and_not_the_end(small, tmp_path, made):
    study = Study(experiment=small, over={"learning.rate": (0.1, 1e38)}, seeds=1)
    result = sweep(study, tmp_path / "out", processes=2)
    good, bad = result.outcomes
    assert good.score is not None
    assert bad.score is None
    assert "diverged" in bad.failure
    assert load_sweep(tmp_path / "out") == result
    sweep(study, tmp_path / "out", processes=2)
    assert len(made) == 3  # it may work today


def test_a_sweep_of_failures_fails(small, tmp_path, made):
    with pytest.raises(RunError, match="all 2 runs failed, the first because"):
        sweep(Study(experiment=small, set={"learning.rate": 1e38}, seeds=2), tmp_path / "out", processes=2)
    assert len(made) == 2


GRID = {
    "learning.algorithm": ("fedavg", "exact_diffusion", "relay_sgd"),
    "topology.kind": ("ring", "star", "exponential"),
}


@pytest.mark.slow
def test_what_planning_refuses_ends_the_sweep_before_its_first_run(small, tmp_path, made):
    Path(small).write_text(SMALL + "\n[gossip]\nsteps = 1\n")
    with pytest.raises(InputError) as refused:
        sweep(Study(experiment=small, set={"topology.peers": 5}, over=GRID, seeds=3), tmp_path / "out", processes=2)
    message = str(refused.value)
    assert message.startswith("3 of 9 settings cannot run, so nothing was started: ")
    assert "learning.algorithm=exact_diffusion topology.kind=exponential: gossip.weights: an asymmetric" in message
    assert not made
    assert not (tmp_path / "out").exists()
    options = shlex.split(message.partition("leave them out with ")[2])
    without = tuple(parse_combination(each) for each in options if each != "--without")
    rest = Study(experiment=small, set={"topology.peers": 5}, over=GRID, seeds=1, without=without)
    result = sweep(rest, tmp_path / "out", processes=2)
    assert len(made) == len(result.outcomes) == 6
    assert not any(each.failure for each in result.outcomes)


def test_settings_that_need_too_much_memory_end_the_sweep_before_its_first_run(small, tmp_path, made, monkeypatch):
    monkeypatch.setattr(
        memory_estimate,
        "free_memory",
        lambda: FreeMemory(memory_estimate.FIXED + memory_estimate.BLOCK * cores() + 10**6, "machine"),
    )
    wide = Study(experiment=small, set={"model.name": "mlp"}, over={"model.hidden": ((4,), (4000,))}, seeds=2)
    with pytest.raises(
        InputError, match=r"1 of 2 settings .* so nothing .*hidden=\[4000\]: the simulation needs about"
    ):
        sweep(wide, tmp_path / "out", processes=2)
    assert not made


@pytest.mark.slow
@pytest.mark.usefixtures("made")
def test_a_thousand_runs_are_checked_by_their_settings(small, tmp_path, monkeypatch):
    planned = []

    def interrupted(jobs, function, **_):
        if function is run_job:
            raise KeyboardInterrupt
        return [(job, attempt(job, function)) for job in jobs]

    monkeypatch.setattr(sweep_job, "plan", lambda experiment: planned.append(experiment) or plan(experiment))
    monkeypatch.setattr(sweep_module, "in_processes", interrupted)
    over = {"learning.rate": (0.1, 0.2, 0.3, 0.4), "learning.batch": (8, 16)}
    with pytest.raises(KeyboardInterrupt):
        sweep(Study(experiment=small, over=over, seeds=125), tmp_path / "out", processes=2)
    assert len(planned) == 8


@pytest.mark.slow
def test_processes_check_settings_and_one_that_dies_is_a_reason(small, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    made = jobs(small, tmp_path, "torch.nn.functional.cross_entropy(outputs, targets, reduction='none')", "os._exit(9)")
    found = {job.digest: reason for job, reason in in_processes(made, check_job, processes=2)}
    assert found["0"] is None
    assert "ended with status 9" in found["1"]


@pytest.mark.usefixtures("made")
def test_a_place_that_cannot_be_written_is_refused(small, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="choose another directory with --out"):
        sweep(study(small), tmp_path / "file" / "out", processes=2)


@pytest.mark.slow
@pytest.mark.usefixtures("made")
def test_another_score_is_read_from_the_records(small, tmp_path):
    result = sweep(study(small, metric="loss"), tmp_path / "out", processes=2)
    run = Run.load(tmp_path / "out" / result.outcomes[0].folder)
    last = [record.scores["loss"] for record in run.metrics if record.round == 1]
    assert result.outcomes[0].score == pytest.approx(sum(last) / 3)
    assert result.comparison.lower


@pytest.mark.slow
@pytest.mark.usefixtures("made")
def test_a_score_that_no_run_has_fails(small, tmp_path):
    with pytest.raises(RunError, match="no score sharpness"):
        sweep(study(small, metric="sharpness"), tmp_path / "out", processes=2)


@pytest.mark.slow
@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("what", ["bytes", "gradients"])
def test_a_budget_buys_as_many_rounds_as_fit(what, small):
    experiment = read(small)
    key = "bytes_sent" if what == "bytes" else "gradients"
    costs = [cost(experiment, rounds)[key] for rounds in (3, 4)]
    assert affordable(experiment, CostBudget(what, costs[1])) == 4
    assert affordable(experiment, CostBudget(what, costs[1] - 1)) == 3
    assert affordable(experiment, CostBudget(what, costs[0])) == 3


def cost(experiment, rounds):
    return simulate(check({**read_table(experiment), "rounds": rounds}), baselines=False).summary


def read_table(experiment):
    from p2pfl.experiment import plain  # noqa: PLC0415

    return plain(experiment)


def test_a_budget_that_pays_for_no_round_says_what_a_round_takes(small):
    with pytest.raises(InputError, match="does not pay for one round, which takes"):
        affordable(read(small), CostBudget("bytes", 10))


@pytest.mark.slow
@pytest.mark.usefixtures("made")
def test_equal_budgets_end_at_equal_cost(small, tmp_path):
    over = {"learning.algorithm": ("fedavg", "scaffold")}
    result = sweep(Study(experiment=small, over=over, seeds=2, budget="bytes=50kB"), tmp_path / "out", processes=2)
    sent = [each.bytes_sent for each in result.outcomes]
    assert max(sent) <= 50_000
    assert min(sent) > 0.8 * 50_000
    assert {each.rounds for each in result.outcomes[:2]} != {each.rounds for each in result.outcomes[2:]}
    assert not any(each.costs.get("bytes_sent") for each in result.comparison.differences)


def jobs(small, tmp_path, *losses):
    from p2pfl.experiment import write  # noqa: PLC0415

    for number, what in enumerate(losses):
        (tmp_path / f"own_loss_{number}.py").write_text(STOPS.format(what=what))
    return [
        Job(
            str(number),
            write(read(small, changes=[f"learning.loss=own_loss_{number}:loss"], trust_code=True)),
            tmp_path / str(number),
            baselines=False,
            budget=None,
        )
        for number in range(len(losses))
    ]


@pytest.mark.slow
def test_a_process_that_dies_costs_one_run(small, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    fine = "torch.nn.functional.cross_entropy(outputs, targets, reduction='none')"
    made = jobs(small, tmp_path, fine, "os._exit(9)", "1 / 0", fine)
    found = {job.digest: failure for job, failure in in_processes(made, run_job, processes=2)}
    assert found.keys() == {"0", "1", "2", "3"}
    assert found["0"] is found["3"] is None
    assert "ended with status 9" in found["1"]
    assert "ZeroDivisionError" in found["2"]
    assert json.loads((tmp_path / "3" / "summary.json").read_text())["rounds"] == 2


@pytest.mark.slow
def test_processes_end_with_whoever_waits_for_them(small, tmp_path, monkeypatch):
    """A generator that is closed early leaves no process behind."""
    monkeypatch.syspath_prepend(tmp_path)
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(DEADLINE)
    connected = f"__import__('socket').create_connection({listener.getsockname()})"
    waits = f"{connected}.send(str(os.getpid()).encode()) and __import__('signal').pause()"
    fine = "torch.nn.functional.cross_entropy(outputs, targets, reduction='none')"
    running = in_processes(jobs(small, tmp_path, fine, waits), run_job, processes=2)
    assert next(running)[1] is None
    with listener, listener.accept()[0] as waiting:
        waiting.settimeout(DEADLINE)
        number = int(waiting.recv(32))
    running.close()
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)
