"""Predictions with the other parties, live: they are those from files, rows are counted, and absence is marked."""

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from p2pfl import simulate
from p2pfl.core.errors import DataError, InputError, ModelError, PrivacyError, RunError
from p2pfl.experiment import plain, read
from p2pfl.learning.additive import add_up, answer_questions
from p2pfl.network.peer import Peer
from p2pfl.network.transport import MemoryTransport
from p2pfl.plugins.vertical import prediction_command
from p2pfl.plugins.vertical.block import FACTS
from p2pfl.plugins.vertical.keys import read_keys
from p2pfl.plugins.vertical.live_prediction import AnswerLog, PredictionLearner, plan_prediction, run_keys
from p2pfl.plugins.vertical.vertical_prediction import block_files, predict_rows, predict_together, read_party_file
from p2pfl.privacy.keys import FIRST, SeededSource
from swarms import timeless
from vertical_files import write_clinic

NOW = datetime(2026, 3, 1, tzinfo=UTC)
PEERS = ("ada", "bob", "cleo")


TREES = {"name": "boosting", "options": {"loss": "log_loss", "max_depth": 2}}
NETWORK = {"name": "split_network", "options": {"labels": "shown", "width": 3, "hidden": [4]}}


def simulated(folder, rows, **changes):
    """Return a run of two parties and a helper, whose new tables are in the folder ``new``."""
    settings = write_clinic(folder) | changes
    settings["data"]["options"]["rows"] = rows
    return simulate(settings, folder=folder / "run")


@pytest.fixture(scope="module", params=["common", "labelled"])
def run(request, tmp_path_factory):
    """A run of a logistic regression."""
    return simulated(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module", params=["trees", "trees of labelled rows", "network", "network of labelled rows"])
def other(request, tmp_path_factory):
    """A run of boosting, or of a split network."""
    name, _, rows = request.param.partition(" of ")
    changes = {"model": TREES, "rounds": 4} if name == "trees" else {"model": NETWORK, "rounds": 2}
    return simulated(tmp_path_factory.mktemp(name), rows.removesuffix(" rows") or "common", **changes)


def parts_of(run):
    keys = read_keys(run.experiment.data.options["keys"])
    new = run.folder.parent / "new"
    return {
        peer: read_party_file(path, str(new / f"{peer}.csv"), keys, unaccounted=False)
        for peer, path in block_files(run).items()
    }


def planned(run, folder, *peers, most=100, files=None):
    """Return the plan and the learner of a session in which some peers are in this process."""
    files = {peer: file for peer, file in (files or parts_of(run)).items() if peer in peers}
    logs = {"ada": AnswerLog(folder / "answered.jsonl", most)} if "ada" in peers else {}
    return plan_prediction(run.experiment, files, logs, now=lambda: NOW)


def in_process(run, folder, **options):
    """Return the predictions of a session whose peers are all in this process."""
    _, learner = planned(run, folder, *PEERS, **options)
    start = learner.start(("bob",))[0]
    answer_questions(learner.drawing(SeededSource(3)).asking(start, round=0), lambda asked: add_up(asked, PEERS))
    return learner.results[-1]


@pytest.mark.slow
def test_sums_of_the_parties_give_the_predictions_of_their_files(run, tmp_path):
    predictions = in_process(run, tmp_path)
    wanted = predict_together(run, str(run.folder.parent / "new" / "{peer}.csv"))
    assert np.abs(predictions.values - wanted.values).max() < 1e-9
    assert predictions.parties == wanted.parties
    lacking = "bob" if run.experiment.data.options["rows"] == "labelled" else "alone"
    assert set(predictions.parties) == {"ada bob", lacking}


@pytest.mark.slow
def test_splits_and_embeddings_of_the_parties_give_the_predictions_of_their_files(other, tmp_path):
    run = other
    predictions = in_process(run, tmp_path)
    wanted = predict_together(run, str(run.folder.parent / "new" / "{peer}.csv"))
    assert np.abs(predictions.values - wanted.values).max() < 1e-7
    assert predictions.parties == wanted.parties
    lacking = "bob" if run.experiment.data.options["rows"] == "labelled" else "alone"
    assert [who for who in predictions.parties if who != "ada bob"] == [lacking]
    alone = predict_rows(parts_of(run)["bob"], np.zeros_like(parts_of(run)["bob"].predictor), [()] * 20)
    assert np.abs(predictions.values - alone.values).max() > 0.01


@pytest.mark.slow
def test_parts_of_two_runs_of_one_experiment_end_the_session(other, tmp_path):
    experiment = other.experiment
    changes = {"model": plain(experiment)["model"], "rounds": experiment.rounds, "seed": 2}
    again = simulated(tmp_path, experiment.data.options["rows"], **changes)
    with pytest.raises(DataError, match="ada has a part of another model than bob"):
        in_process(other, tmp_path, files=parts_of(other) | {"ada": parts_of(again)["ada"]})


def test_numbers_that_nobody_can_add_end_the_session(run, tmp_path):
    _, learner = planned(run, tmp_path, *PEERS)

    def total(question):
        answered = add_up(question, PEERS)
        to = question.to
        if (
            to is not None and (to.peer, to.among) == ("bob", ("ada",)) and 1 < question.size <= 40
        ):  # no digest, no pseudonyms
            to.take(np.full(question.size, 2**60))
        return answered

    asking = learner.drawing(SeededSource(3)).asking(learner.start(("bob",))[0], round=0)
    with pytest.raises(PrivacyError, match="bob receives numbers that ada cannot add to predictions"):
        answer_questions(asking, total)


def test_the_predictions_are_those_of_the_joined_table(run, tmp_path):
    """From the coefficients of both files and the columns of both tables, as whoever had them all would predict."""
    predictions, parts = in_process(run, tmp_path), parts_of(run)
    ada = {key: row for row, key in enumerate(parts["ada"].keys[0])}
    for row, key in enumerate(parts["bob"].keys[0]):
        if key not in ada:
            continue
        eta = float(parts["bob"].tensors["bias"][0])
        for file, place in ((parts["bob"], row), (parts["ada"], ada[key])):
            tensors = file.tensors
            eta += ((file.features[place] - tensors["mean"]) / tensors["deviation"]) @ tensors["weight"]
        assert predictions.values[row, 1] == pytest.approx(1 / (1 + np.exp(-eta)), abs=1e-6)


def test_a_feature_holder_records_which_of_its_rows_were_asked_for_and_answers_no_more_than_its_limit(run, tmp_path):
    in_process(run, tmp_path, most=30)
    path = tmp_path / "answered.jsonl"
    assert path.stat().st_mode & 0o777 == 0o600
    asked, answered = map(json.loads, path.read_text().splitlines())
    assert asked["asked"] == 20
    assert sorted(answered["rows"]) == [*range(19)]
    with pytest.raises(DataError, match="ada answers 10 more rows within 24 hours, but bob asks for 20"):
        in_process(run, tmp_path, most=30)
    log = AnswerLog(path, 30)
    assert log.left(NOW + timedelta(hours=23)) == 10
    assert log.left(NOW + timedelta(hours=25)) == 30


@pytest.mark.parametrize("stated", [(-1_000_000, 1), (5, -1)])
def test_a_negative_request_ends_the_session_and_lifts_no_limit(run, tmp_path, monkeypatch, stated):
    monkeypatch.setattr(PredictionLearner, "_request", lambda *_: np.array(stated))
    _, learner = planned(run, tmp_path, *PEERS, most=30)
    asking = learner.drawing(SeededSource(3)).asking(learner.start(("bob",))[0], round=0)
    with pytest.raises(PrivacyError, match="it does not follow the protocol, so do not answer it again"):
        answer_questions(asking, lambda asked: add_up(asked, PEERS))
    assert learner.asked  # so that a feature holder goes on with the next request
    log = learner.logs["ada"]
    assert log.left(NOW) == 30
    log.note(NOW, asked=-1_000_000)
    assert log.left(NOW) == 30


def test_a_record_whose_last_line_a_crash_has_cut_off_goes_on(tmp_path):
    log = AnswerLog(tmp_path / "answered.jsonl", 30)
    log.note(NOW, asked=5)
    for cut in (b"", log.path.read_bytes()):
        log.path.write_bytes(cut + b'{"time": "2026-03')
        log.note(NOW, asked=7)
        assert log.left(NOW) == (18 if cut else 23)
        assert log.path.stat().st_mode & 0o777 == 0o600


def test_the_label_holder_alone_receives_what_tells_parts_of_models_apart(run, tmp_path):
    def public(folder, files):
        folder.mkdir()
        totals, (_, learner) = [], planned(run, folder, *PEERS, files=files)

        def total(question):
            answered = add_up(question, PEERS)
            totals.extend([] if question.to else answered.tolist())
            return answered

        asking = learner.drawing(SeededSource(3)).asking(learner.start(("bob",))[0], round=0)
        answer_questions(asking, total)
        return totals

    files = parts_of(run)
    others = {
        peer: replace(file, tensors={**file.tensors, FACTS[0]: file.tensors[FACTS[0]] + 1})
        for peer, file in files.items()
    }
    assert public(tmp_path / "one", files) == public(tmp_path / "other", others)


def test_a_prediction_that_is_no_number_ends_the_session(run, tmp_path):
    files = parts_of(run)
    features = files["ada"].features.copy()
    features[:, 0] = np.nan
    with pytest.raises(ModelError, match="ada adds nan to a prediction"):
        in_process(run, tmp_path, files=files | {"ada": replace(files["ada"], features=features)})


def test_the_statement_of_a_session_names_what_each_peer_learns(run, tmp_path):
    protection = planned(run, tmp_path, "bob")[0].protection
    labelled = run.experiment.data.options["rows"] == "labelled"
    common = "which of its rows each party has" if labelled else "which of its rows all parties have"
    assert protection.learned["bob, the label holder"].startswith(f"{common}; the sum of the others' parts")
    assert protection.learned["ada, a feature holder"] == "for which of its rows bob asks"
    assert protection.learned["cleo, the helper"] == "the sizes of all overlaps, and which keys repeat"
    assert "how many rows each party has, and how many all have, by key" in protection.learned["every peer"]
    for what in (common, "which keys repeat", protection.learned["every peer"]):
        assert what in protection.totals


def test_a_label_holder_asks_for_no_more_rows_than_it_has_stated(run, tmp_path, monkeypatch):
    monkeypatch.setattr(PredictionLearner, "_request", lambda self, peer: np.array([5, self.files[peer].width]))
    with pytest.raises(DataError, match="bob comes with 20 rows, but 5 are agreed"):
        in_process(run, tmp_path)


@pytest.mark.parametrize(
    ("model", "rows", "sentence"),
    [
        ({"name": "kernel", "options": {}}, "common", 'of model.name = "kernel" would show rows of the parties'),
        ({"name": "glm", "options": {"family": "gaussian"}}, "hidden", "hides which people are common"),
    ],
)
def test_models_that_would_show_rows_and_hidden_rows_are_predicted_from_files_alone(tmp_path, model, rows, sentence):
    settings = write_clinic(tmp_path)
    settings["data"]["options"]["rows"] = rows
    with pytest.raises(InputError, match=sentence):
        run_keys(read(settings | {"model": model}))


def test_parts_of_different_models_end_the_session(run, tmp_path):
    files = parts_of(run)
    tensors = {**files["ada"].tensors, FACTS[0]: files["ada"].tensors[FACTS[0]] + 1}
    with pytest.raises(DataError, match="ada has a part of another model than bob"):
        in_process(run, tmp_path, files=files | {"ada": replace(files["ada"], tensors=tensors)})


@pytest.mark.slow
def test_live_peers_predict_what_their_files_do(run, tmp_path):
    plans = {peer: planned(run, tmp_path, peer) for peer in PEERS}

    async def play():
        transport = MemoryTransport()

        async def one(name, plan):
            async with Peer(name, plan, transport=transport, source=SeededSource(3), incarnation=FIRST) as peer:
                await peer.run()

        async with asyncio.TaskGroup() as tasks:
            for name, (plan, _) in plans.items():
                tasks.create_task(one(name, plan))

    timeless(play())
    [predictions] = plans["bob"][1].results
    wanted = predict_together(run, str(run.folder.parent / "new" / "{peer}.csv"))
    assert np.abs(predictions.values - wanted.values).max() < 1e-9
    assert not plans["ada"][1].results + plans["cleo"][1].results
    assert [learner.asked for _, learner in plans.values()] == [[20]] * 3


def test_a_peer_that_comes_too_late_for_a_session_begins_the_next_one(run, monkeypatch):
    """A session that is over when a peer joins returns at once, before a question was asked."""
    sessions, new = [], str(run.folder.parent / "new" / "{peer}.csv")

    def join(_, peer, **__):
        sessions.append(peer)
        if len(sessions) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(prediction_command, "join_session", join)
    monkeypatch.setattr(prediction_command, "SESSION_PAUSE", 0.0)
    ask = {"brokers": ["mqtt://127.0.0.1:1"], "most": 9, "unaccounted": False}
    with pytest.raises(KeyboardInterrupt):
        prediction_command.take_part(run.folder, None, name="cleo", **ask)
    with pytest.raises(RunError, match="the other peers do not end an earlier request"):
        prediction_command.take_part(run.folder, new.format(peer="bob"), name="bob", **ask)
    assert sessions == ["cleo"] * 3 + ["bob"] * prediction_command.MAX_LATE_SESSIONS
