"""Reports are pages that load nothing, run nothing, show what the run recorded and escape all of it."""

import html
import html.parser
import math
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace

import msgspec
import pytest

from markup import HOSTILE, checked
from p2pfl.core.errors import InputError
from p2pfl.experiment import check, read
from p2pfl.results.comparisons.comparison import RunOutcome, compare
from p2pfl.results.notices.kinds import KeyTrusted, LossRose, PeerFailed, StepsUnsettled
from p2pfl.results.pages.comparison_page import ComparedRun, comparison_page
from p2pfl.results.pages.gains import gains, verdict
from p2pfl.results.pages.run_charts import score_charts
from p2pfl.results.pages.run_page import run_page
from p2pfl.results.records import Record, columns_of
from p2pfl.results.run import Run
from p2pfl.simulation import simulate
from swarms import SMALL

CHROMIUM = shutil.which("chromium")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    changes = ["privacy.mode=pairwise", "data.validation=0.2"]
    return simulate(read(SMALL, changes=changes), folder=tmp_path_factory.mktemp("page") / "run")


def copied(run, **changed):
    """Return a copy of a run with other attributes."""
    other = Run(run.experiment)
    for name in ("folder", "metrics", "events", "summary", "provenance"):
        setattr(other, name, changed.get(name, getattr(run, name)))
    other.experiment = changed.get("experiment", run.experiment)
    return other


@pytest.mark.slow
def test_the_page_of_a_run_shows_what_it_recorded(run):
    text = run_page(run)
    page = checked(text)
    said = " ".join("".join(page.text).split())
    summary = run.summary
    assert f"Together {summary['together']:.3f}, alone {summary['alone']:.3f} (accuracy, mean of the peers)" in said
    assert summary["privacy"]["statement"] in said
    for name, score in summary["per_peer"].items():
        assert name in said
        assert f"{score['together'] - score['alone']:+.3f}" in said
    for word in (summary["versions"]["torch"], summary["versions"]["p2pfl"], "validation_accuracy", "signature"):
        assert word in said
    assert len([each for each in page.all("svg") if each.get("class") == "chart"]) >= 4
    assert re.search(r"[0-9a-f]{64}", said)


def test_the_headline_calls_means_of_the_peers_only_what_is_one(run):
    about = {"metric": "accuracy", "per_peer": {}, "together": 0.9, "alone": None, "pooled": None}
    all_data = "one model on all data 0.950 (all test samples alike)."
    for known, said in (
        ({"alone": 0.8, "pooled": 0.95}, f"Together 0.900, alone 0.800 (accuracy, mean of the peers); {all_data}"),
        ({"pooled": 0.95}, f"Together 0.900 (accuracy, mean of the peers); {all_data}"),
        ({}, "Together 0.900 (accuracy, mean of the peers)."),
    ):
        assert verdict(run.summary | about | known, run.metrics, rounds=2) == said


@pytest.mark.slow
def test_costs_list_the_peers_in_the_order_of_their_names_whoever_was_first(run):
    backwards = sorted(run.metrics, key=lambda each: (each.round, each.peer), reverse=True)
    costs = run_page(copied(run, metrics=backwards)).partition(">By peer<")[2].partition("</table>")[0]
    assert re.findall(r"peer\d+", costs) == sorted(run.summary["per_peer"])


@pytest.mark.slow
def test_a_finished_run_looks_the_same_when_it_is_read_again(run):
    assert run_page(Run.load(run.folder)) == run_page(run)


def hostile(value):
    if isinstance(value, str):
        return HOSTILE
    if isinstance(value, dict):
        return {HOSTILE if key in {"peer0", "accuracy"} else key: hostile(item) for key, item in value.items()}
    return [hostile(item) for item in value] if isinstance(value, list) else value


@pytest.mark.slow
def test_nothing_that_comes_from_a_file_becomes_markup(run):
    summary = hostile(run.summary) | {"metric": HOSTILE, "schema": 1, "advice": [HOSTILE], "alarms": []}
    summary["privacy"] = hostile(run.summary["privacy"])
    summary["unsettled"] = {HOSTILE: {"steps": {HOSTILE: 1}, "sums": {}}}
    scores = {HOSTILE: 0.5, "loss": 1.0}
    metrics = [msgspec.structs.replace(each, peer=HOSTILE, missed=[HOSTILE], scores=scores) for each in run.metrics]
    events = [
        PeerFailed(peer=HOSTILE, error="E", message=HOSTILE, status=1),
        KeyTrusted(peer=HOSTILE, neighbour=HOSTILE, key=HOSTILE),
    ]
    options = {"path": HOSTILE, HOSTILE: HOSTILE}
    experiment = check({"data": {"name": "own:data", "options": options}, "model": {"pretrained": HOSTILE}})
    other = copied(run, summary=summary, metrics=metrics, events=events, provenance=hostile(run.provenance))
    other.experiment = experiment
    text = run_page(other)
    checked(text)
    assert text.count("alert(1)") > 20
    assert "<script" not in text
    assert "<img" not in text


@pytest.mark.slow
def test_nothing_in_a_comparison_becomes_markup(run):
    outcomes = [
        RunOutcome(values={HOSTILE: value}, seed=seed, score=seed / 10, bytes_sent=100 * (1 + len(value)))
        for value in (HOSTILE, "plain")
        for seed in range(3)
    ]
    found = compare(outcomes, metric=HOSTILE, against={HOSTILE: "plain"})
    summary = run.summary | {"privacy": {"statement": HOSTILE}}
    metrics = [msgspec.structs.replace(each, scores={HOSTILE: 0.5}) for each in run.metrics]
    parts = [ComparedRun(copied(run, summary=summary, metrics=metrics), place) for place in (0, 1)]
    text = comparison_page(found, parts, name=HOSTILE)
    checked(text)
    assert text.count("alert(1)") > 10
    assert "<script" not in text


def test_scores_are_those_of_the_peers_that_do_not_attack(run):
    def shifted(record):
        scores = (
            {name: value - 5.0 for name, value in record.scores.items()} if record.peer == "peer1" else record.scores
        )
        return msgspec.structs.replace(record, scores=scores)

    metrics = [shifted(record) for record in run.metrics]
    per_peer = {peer: each | {"attacker": peer == "peer1"} for peer, each in run.summary["per_peer"].items()}
    summary = run.summary | {"per_peer": per_peer}
    without = [record for record in run.metrics if record.peer != "peer1"]
    attacked = copied(run, metrics=metrics, summary=summary)
    clean = copied(run, metrics=without, summary=summary)
    for name in ("accuracy", "loss"):
        drawn = [chart.curves[0] for chart in score_charts(attacked) if chart.title == f"{name} by round"]
        assert drawn == [chart.curves[0] for chart in score_charts(clean) if chart.title == f"{name} by round"]
        assert drawn[0].label == "together: mean and range of the honest peers"
    [bytes_] = [chart.curves[0] for chart in score_charts(attacked) if chart.title == "accuracy by bytes"]
    assert [bytes_.xs] == [chart.curves[0].xs for chart in score_charts(run) if chart.title == "accuracy by bytes"]
    assert gains(summary, attacked.honest) == gains(summary, without)
    unfinished = copied(
        run, metrics=metrics, summary={}, experiment=check({"attack": {"name": "scaled", "peers": ["peer1"]}})
    )
    assert unfinished.honest == without


@pytest.mark.slow
def test_a_page_has_no_folders_of_absolute_paths(run):
    home = "/home/olga/study"
    options = {"path": f"{home}/{{peer}}.csv", "target": "y", "columns": {"x": "number", "y": [0, 1]}}
    files = {
        "trust": {"keys": f"{home}/my keys", "roster": f"{home}/roster.toml"},
        "topology": {"kind": [f"{home}/a.json"]},
    }
    experiment = check({"data": {"name": "table", "options": options}, **files})
    stop = {"done": 1, "rounds": 2, "epsilon": 8.0, "account": f"{home}/budget.jsonl", "peers": 1, "among": 1}
    message = f"{home}/peers/peer1.state cannot be written; see mqtt://broker/topic/x and 1/2/3"
    events = [PeerFailed(peer="peer1", error="E", message=message, status=1)]
    text = run_page(copied(run, experiment=experiment, events=events, summary=run.summary | {"stopped": stop}))
    said = "".join(checked(text).text)
    assert "/home" not in text
    assert "olga" not in text  # which no digest contains
    for left in (
        "{peer}.csv",
        'keys = "my keys"',
        "roster.toml",
        "budget.jsonl",
        "peer1.state cannot",
        "mqtt://broker/topic/x and 1/2/3",
    ):
        assert left in said
    outcomes = [RunOutcome(values={"data.options": f"{{'path': '{home}/{each}'}}"}, seed=0, score=0.5) for each in "ab"]
    assert "/home" not in comparison_page(
        compare(outcomes, metric="accuracy"), [ComparedRun(copied(run, experiment=experiment), 0)], name="c"
    )


@pytest.mark.slow
def test_control_characters_are_shown_and_not_obeyed(run):
    events = [PeerFailed(peer="p\x1b[2J", error="E", message="one\u202etwo\x07", status=1)]
    text = run_page(copied(run, events=events))
    assert not {"\x1b", "\u202e", "\x07"} & {*text}
    assert "p\\x1b[2J" in text
    assert "one\\u202etwo\\x07" in text


@pytest.mark.slow
def test_alarms_come_before_everything_else(run):
    alarms = [msgspec.to_builtins(LossRose(peer="peer0", round=2, now={"loss": 9.0}))]
    changes = {"alarms": alarms, "accounted": False, "advice": ["a warning of the run"]}
    page = checked(run_page(copied(run, summary=run.summary | changes)))
    said = "".join(page.text)
    assert said.index("Alarm.") < said.index("Together") < said.index("Warning.")
    assert "the loss rose steeply in round 3" in said
    assert "--unaccounted" in said


@pytest.mark.slow
def test_alarms_that_repeat_each_other_are_one_box_and_one_event(run):
    alarms = [LossRose(peer="peer0", round=round, now={"loss": 9.0}) for round in range(11, 15)]
    listed = [msgspec.to_builtins(each) for each in alarms]
    page = checked(run_page(copied(run, summary=run.summary | {"alarms": listed}, events=alarms)))
    said = "".join(page.text)
    assert said.count("the loss rose steeply") == 2
    assert said.count("the loss rose steeply in round 15") == 2
    assert said.count("and 3 more like it, rounds 12 to 15") == 2


@pytest.mark.slow
def test_an_interrupted_run_says_so_and_shows_what_there_is(run):
    failed = PeerFailed(peer="peer1", error="StorageError", message="the disk is full", status=1)
    said = "".join(checked(run_page(copied(run, summary={}, events=[failed]))).text)
    assert "The run is not finished" in said
    assert "the disk is full" in said
    assert "Scores after round" in said
    assert "".join(checked(run_page(copied(run, summary={}, metrics=[]))).text)


@pytest.mark.slow
def test_the_page_of_one_peer_has_its_scores_and_events(run):
    keys = (
        "schema",
        "name",
        "accounted",
        "privacy",
        "alarms",
        "best",
        "stopped",
        "common",
        "seed",
        "versions",
        "began",
    )
    summary = {key: run.summary.get(key) for key in keys}
    summary |= {"kind": "peer", "peer": "peer0", "scores": {"accuracy": 0.91, "loss": 0.3}, "unsettled": {}}
    summary["alone"] = {"accuracy": 0.95, "loss": 0.4}
    events = [StepsUnsettled(peer="peer0", steps={"peer1": 2})]
    metrics = [record for record in run.metrics if record.peer == "peer0"]
    said = "".join(checked(run_page(copied(run, summary=summary, metrics=metrics, events=events))).text)
    assert "peer0 learned a model with accuracy 0.910, loss 0.300" in said
    assert "Alone it reaches accuracy 0.950, so learning together lost 0.040." in said
    assert "-0.040" in said  # the gain in accuracy, and that in loss
    assert "-0.100" in said
    bare = copied(run, summary=summary | {"scores": {}, "alone": {}}, metrics=metrics)
    assert "peer0 has the result; there is no score." in "".join(checked(run_page(bare)).text)
    other = copied(run, summary=summary, metrics=metrics)
    levels = {chart.title: chart.levels for chart in score_charts(other)}
    assert levels["accuracy by round"] == [("alone", 0.95)]
    assert [chart.x for chart in score_charts(other) if chart.title == "accuracy by bytes"] == ["MB sent"]
    assert levels["loss by round"] == [("alone", 0.4)]
    assert "2 gossip steps with peer1 may have moved only one of two models" in said


@pytest.mark.slow
def test_a_run_without_scores_and_one_with_scores_that_are_no_numbers_have_pages(run):
    bare = [msgspec.structs.replace(record, scores={}) for record in run.metrics]
    summary = run.summary | {"metric": None, "together": None, "alone": None, "pooled": None}
    assert "there is no score" in run_page(copied(run, summary=summary, metrics=bare))
    once = run_page(copied(run, summary=summary | {"rounds": 1}, metrics=bare))
    assert "learned together for 1 round; there is no score" in once
    nan = [msgspec.structs.replace(each, scores={"loss": math.nan, "accuracy": 0.5}) for each in run.metrics]
    checked(run_page(copied(run, metrics=nan)))


@pytest.mark.slow
def test_many_peers_and_rounds_stay_small():
    facts = {"distance": 0.1, "bytes_in": 0, "seconds_training": 0.1, "seconds_waiting": 0.0, "received": 2}
    metrics = [
        Record(
            peer=f"peer{peer:02}",
            round=round,
            scores={"loss": 1 / (1 + round), "accuracy": 1 - 1 / (1 + round + peer)},
            bytes_out=100 * round,
            training_loss=0.1,
            **facts,
        )
        for round in range(1000)
        for peer in range(64)
    ]
    run = Run(read({"rounds": 1000, "topology": {"peers": 64}}))
    run.metrics = metrics
    text = run_page(run)
    checked(text)
    assert len(text) < 500_000


def comparison():
    outcomes = [
        RunOutcome(
            values={"learning.rate": rate}, seed=seed, score=base + seed / 100, bytes_sent=sent, gradients=5, rounds=2
        )
        for rate, base, sent in (("0.1", 0.5, 100), ("0.5", 0.7, 300))
        for seed in range(3)
    ]
    return compare(outcomes, metric="accuracy", against={"learning.rate": "0.1"})


RATES = (("0.1", 0.5), ("0.3", 0.75))


@pytest.mark.slow
def test_the_page_of_a_comparison_has_its_numbers_and_warnings(run):
    found = comparison()
    said = "".join(
        checked(comparison_page(found, [ComparedRun(run, 0), ComparedRun(run, 1)], name="Sweep of small")).text
    )
    for each in found.settings:
        assert f"{each.score.mean:.3f} ± {each.score.half:.3f}" in said
    assert f"{found.differences[0].difference.mean:+.3f}" in said
    assert "rate 0.5 cost 3 times the bytes of rate 0.1" in said
    assert "has the best mean" in said
    assert run.summary["privacy"]["statement"] in said


def test_a_comparison_over_one_seed_mentions_no_test_and_no_interval():
    outcomes = [RunOutcome(values={"learning.rate": rate}, seed=0, score=score) for rate, score in RATES]
    page = checked(comparison_page(compare(outcomes, metric="accuracy"), [], name="one seed"))
    said = "".join(page.text)
    assert "rate 0.3 has the best mean, accuracy 0.750 over one seed." in said
    assert "Differences over one seed have no interval; add seeds." in said
    assert not re.search("significant|Student|95 %|Holm", said)


def test_a_comparison_of_failures_and_of_one_setting_have_pages():
    failed = [RunOutcome(values={"a": "1"}, seed=0, failure="no"), RunOutcome(values={"a": "2"}, seed=0, failure="no")]
    assert "No run has a score" in comparison_page(compare(failed, metric="accuracy"), [], name="none")
    checked(comparison_page(compare([RunOutcome(values={}, seed=0, score=0.5)], metric="accuracy"), [], name="one"))


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_a_browser_has_nothing_to_complain_about(run, tmp_path):
    """Violations of the content security policy are messages on the console."""
    for name, text in {
        "run": run_page(run),
        "comparison": comparison_page(comparison(), [ComparedRun(run, 0), ComparedRun(run, 1)], name="c"),
        "control": "<!doctype html><script>console.log('seen')</script>",
    }.items():
        (tmp_path / f"{name}.html").write_text(text)
        told = subprocess.run(
            [
                *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"),
                *(f"--user-data-dir={tmp_path}/profile", f"file://{tmp_path}/{name}.html"),
            ],
            check=True,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert ("CONSOLE" in told.stderr) == (name == "control")
        assert ("</main>" in told.stdout) == (name != "control")


def test_a_notebook_shows_the_result(run):
    text = run._repr_html_()
    assert verdict(run.summary, run.metrics, rounds=2) in html.unescape(text)
    assert f"{run.summary['per_peer']['peer0']['together']:.3f}" in text
    assert "<script" not in copied(run, summary=run.summary | {"metric": HOSTILE})._repr_html_()


def test_the_history_of_a_run_is_a_data_frame_where_pandas_is_installed(run, monkeypatch):
    """A stand-in for pandas shows what its data frame is given."""
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=lambda columns: columns))
    found = run.history
    assert found["accuracy"] == [record.scores["accuracy"] for record in run.metrics]
    assert found["peer"] == [record.peer for record in run.metrics]
    assert {len(column) for column in found.values()} == {len(run.metrics)}
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match=r'pip install "p2pfl-mqtt\[pandas\]"'):
        _ = run.history


def test_a_score_with_the_name_of_a_field_has_a_column_of_its_own(run):
    other = [msgspec.structs.replace(record, scores={"round": 0.5}) for record in run.metrics]
    columns = columns_of(other)
    assert columns["round"] == [record.round for record in run.metrics]
    assert columns["score round"] == [0.5] * len(other)
