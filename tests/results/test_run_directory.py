import json
import math
import os

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from p2pfl.core.errors import InputError, LearningError, StorageError
from p2pfl.core.files import OWNER_ONLY, replace
from p2pfl.experiment import read
from p2pfl.results import Record, Run
from p2pfl.results.exact_statistics import EXACT_STATISTICS
from p2pfl.simulation import simulate

EXPERIMENT = read({"name": "test"})


def record(peer="ada", round=0, **changes):
    facts = {
        "scores": {"loss": 0.5, "accuracy": 0.75},
        "training_loss": 0.25,
        "distance": 0.125,
        "bytes_out": 100,
        "bytes_in": 200,
        "seconds_training": 1.0,
        "seconds_waiting": 2.0,
        "received": 3,
    }
    return Record(peer=peer, round=round, **(facts | changes))


@pytest.fixture
def run(tmp_path):
    return Run(EXPERIMENT, folder=tmp_path / "runs" / "test")


def test_what_is_kept_reads_back_as_the_same(run):
    records = [record(peer, round, missed=["cy"]) for round in range(3) for peer in ("ada", "bob")]
    for start in range(0, 6, 2):
        run.record(records[start : start + 2])
    run.finish({"together": 0.75})
    again = Run.load(run.folder)
    assert again.metrics == run.metrics == records
    assert again.summary == {"together": 0.75}
    assert again.experiment == EXPERIMENT


def test_only_their_owner_reads_the_files_that_hold_exact_statistics(tmp_path):
    table = {"name": "test", "rounds": 1, "topology": {"kind": "complete", "peers": 2}, "data": {"name": "wine"}}
    umask = os.umask(0)
    try:
        simulate(read(table), folder=tmp_path / "run", baselines=False)
        Run.resume(tmp_path / "run", first={"peer0": 1, "peer1": 1})
    finally:
        os.umask(umask)
    names = {name for statistic in EXACT_STATISTICS for name in statistic.files}
    files = {path for name in names for path in (tmp_path / "run").glob(name.partition(" (")[0])}
    assert {path.name for path in files} == {
        *("model.json", "peer0.safetensors", "peer1.safetensors", "metrics.jsonl", "events.jsonl", "summary.json")
    }
    assert {path.stat().st_mode & 0o777 for path in files} == {OWNER_ONLY}
    with safe_open(tmp_path / "run" / "peers" / "peer0.safetensors", "pt") as file:
        assert "mean" in file.metadata()["p2pfl"]


def test_a_run_says_what_it_is_in_one_line(run):
    run.record([record("ada", 0), record("bob", 0)])
    assert repr(run) == f"<Run 'test': 1 of {EXPERIMENT.rounds} rounds>"
    run.finish({"together": 0.75, "metric": "accuracy"})
    assert repr(run) == f"<Run 'test': 1 of {EXPERIMENT.rounds} rounds, accuracy 0.750>"


def test_saved_models_have_their_own_names_and_those_with_own_effects_are_for_their_owner_alone(run):
    model = {"layer.weight": torch.ones(2, 3), "layer.bias": torch.zeros(2)}
    run.save({"ada": model, "bob": model}, round=4, own={"bob": {"layer.weight": torch.zeros(1)}})
    names = [path.name for path in sorted((run.folder / "peers").iterdir())]
    assert names == ["ada.safetensors", "bob.own.safetensors", "bob.safetensors"]
    loaded = load_file(run.folder / "peers" / "ada.safetensors")
    assert all(torch.equal(loaded[name], tensor) for name, tensor in model.items())
    assert (run.folder / "peers" / "bob.own.safetensors").stat().st_mode & 0o777 == 0o600


def test_what_a_model_takes_as_input_is_kept_once_for_its_owner_and_with_each_model(run):
    about = {"version": 1, "inputs": {"mean": [0.1]}}
    run.describe(about)
    path = run.folder / "model.json"
    before = path.stat()
    run.describe(dict(about))
    assert path.stat().st_ino == before.st_ino  # not written again
    assert before.st_mode & 0o777 == 0o600
    run.save({"ada": {"weight": torch.ones(2)}}, round=4)
    with safe_open(run.folder / "peers" / "ada.safetensors", "pt") as file:
        assert file.metadata() == {"peer": "ada", "round": "4", "p2pfl": json.dumps(about)}
    assert json.loads(path.read_text()) == Run.load(run.folder).description == about


def test_where_nobody_knows_what_a_model_takes_nothing_is_written(run):
    run.describe({})
    assert not (run.folder / "model.json").exists()
    assert Run.load(run.folder).description == {}


def test_numbers_that_json_does_not_know_come_back_as_not_a_number(run):
    run.record([record(scores={"loss": math.inf, "accuracy": math.nan}, training_loss=None)])
    run.finish({"together": math.nan, "per_peer": {"ada": {"alone": -math.inf}}, "rounds": 1})
    again = Run.load(run.folder)
    assert all(math.isnan(score) for score in again.metrics[0].scores.values())
    assert again.summary == {"together": None, "per_peer": {"ada": {"alone": None}}, "rounds": 1}


def test_a_last_line_that_was_cut_short_is_left_out(run):
    run.record([record(), record("bob")])
    path = run.folder / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    assert Run.load(run.folder).metrics == [record()]


BROKEN = {
    "a line that is no record": ("metrics.jsonl", b'{"peer": 3}\n', "metrics.jsonl, line 1: the line is not a record"),
    "a line that is no JSON": ("metrics.jsonl", b"what\n", "metrics.jsonl, line 1: the line is not a record"),
    "no records": ("metrics.jsonl", None, "metrics.jsonl: the file cannot be read"),
    "a summary that is no JSON": ("summary.json", b"{", "summary.json: the file is not a summary"),
    "a description that is no JSON": ("model.json", b"{", "model.json: the file is not a description of the model"),
    "a summary that is a list": ("summary.json", b"[]", "summary.json: the file is not a summary"),
    "an experiment that is no TOML": ("experiment.toml", b"=", "experiment.toml is not valid TOML"),
    "an empty experiment": ("experiment.toml", b"", "was cut off"),
    "no experiment": ("experiment.toml", None, "is not a run directory with experiment.toml"),
}


@pytest.mark.parametrize(("name", "content", "said"), BROKEN.values(), ids=BROKEN)
def test_a_directory_that_cannot_be_read_is_refused_with_the_file(run, name, content, said):
    path = run.folder / name
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        Run.load(run.folder)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_directory_that_exists_is_not_touched(run):
    run.record([record()])
    with pytest.raises(InputError, match="choose another with --runs"):
        Run(EXPERIMENT, folder=run.folder)
    assert Run.load(run.folder).metrics == [record()]


def test_an_empty_directory_is_used_and_one_with_other_files_is_not_touched(tmp_path):
    (tmp_path / "reserved").mkdir()
    Run(EXPERIMENT, folder=tmp_path / "reserved").record([record()])
    assert Run.load(tmp_path / "reserved").metrics == [record()]
    other = tmp_path / "other"
    other.mkdir()
    (other / "letter.txt").write_text("dear")
    with pytest.raises(
        InputError, match=r"the run directory .* cannot be written \(Directory not empty\); choose another with --runs"
    ):
        Run(EXPERIMENT, folder=other)
    assert [path.name for path in other.iterdir()] == ["letter.txt"]


def test_wrong_input_leaves_no_directory_but_a_failure_does(tmp_path):
    def meet(error, *, name, records=()):
        run = Run(EXPERIMENT, folder=tmp_path / name)
        run.record(records)
        with pytest.raises(type(error)), run:
            raise error
        return run.folder.exists()

    assert not meet(InputError("no"), name="input")
    assert meet(InputError("no"), name="late", records=[record()])
    assert meet(LearningError("no"), name="learning")
    assert meet(KeyboardInterrupt(), name="interrupt")


def test_a_file_that_cannot_be_replaced_stays_as_it_was(tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    path = tmp_path / "summary.json"
    replace(path, b"old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        StorageError,
        match=r" cannot be written \(No space left on device\), and its old contents are unchanged; free some space",
    ):
        replace(path, b"new")
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["summary.json"]


def test_an_experiment_is_on_the_disk_before_anything_else_is_done_with_the_run(tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        InputError,
        match=r"the run directory .* cannot be written \(No space left on device\); choose another with --runs",
    ):
        Run(EXPERIMENT, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_picture_shows_the_range_of_the_peers_and_what_there_is_to_compare_with(tmp_path):
    records = [
        record(peer, round, scores={"loss": 1.0, "accuracy": accuracy + round / 10})
        for round in range(3)
        for peer, accuracy in (("ada", 0.25), ("bob", 0.75))
    ]
    summary = {"name": "test", "peers": 2, "metric": "accuracy", "alone": 0.5, "pooled": None, "per_peer": {}}
    run = Run(EXPERIMENT)
    run.metrics, run.summary = records, summary
    upper, _ = run.plot(tmp_path / "curves.svg").axes
    assert upper.lines[0].get_ydata() == pytest.approx([0.5, 0.6, 0.7])
    assert [text.get_text() for text in upper.get_legend().get_texts()] == [
        "together: mean and range of the peers",
        "alone, mean: 0.500",
    ]
    assert (tmp_path / "curves.svg").exists()


def test_a_run_without_rounds_has_no_picture():
    with pytest.raises(InputError, match="the run has no scores to plot; let it run longer"):
        Run(EXPERIMENT).plot()


def test_a_run_without_a_directory_keeps_everything_in_memory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = Run(EXPERIMENT)
    run.record([record()])
    run.save({"ada": {"weight": torch.ones(1)}}, round=0)
    run.finish({"together": 1.0})
    assert json.dumps(run.summary) == '{"together": 1.0}'
    assert [*tmp_path.iterdir()] == []


def test_a_run_directory_gives_back_the_models(tmp_path):
    run = simulate(read({"rounds": 1, "topology": {"peers": 3}, "data": {"name": "wine"}}), folder=tmp_path / "run")
    (tmp_path / "run" / "peers" / "peer1.best.safetensors").write_bytes(b"")  # as a live peer keeps one
    loaded = Run.load(tmp_path / "run").models
    assert [*loaded] == ["peer0", "peer1", "peer2"]
    for peer, model in run.models.items():
        assert {*loaded[peer]} == {*model}
        assert all(torch.equal(loaded[peer][name], value) for name, value in model.items())
    assert "peer3" not in loaded
    loaded["peer3"] = loaded["peer1"]
    del loaded["peer1"]
    assert [*loaded] == ["peer0", "peer2", "peer3"]
    assert {*loaded["peer3"]} == {*run.models["peer1"]}
    (tmp_path / "run" / "peers" / "peer0.safetensors").write_bytes(b"")
    with pytest.raises(InputError, match=r"peer0\.safetensors is not a model \(.*\); restore it from a copy"):
        loaded["peer0"]
