"""Peers with different columns as processes over a real mosquitto: killed while they learn, asked for predictions."""

import csv
import json
import re

import numpy as np
import pytest
import tomli_w
from safetensors.numpy import load_file

from p2pfl import simulate
from p2pfl.network.transport.broker import embedded, mosquitto
from vertical_files import write_clinic

pytestmark = [pytest.mark.slow, pytest.mark.skipif(mosquitto() is None, reason="mosquitto is not installed")]

PEERS = ("ada", "bob", "cleo")

MODELS = {
    "the sum of the others' parts of the linear predictor of": {"name": "glm", "options": {"family": "binomial"}},
    "on which side of each split of the others": {
        "name": "boosting",
        "options": {"loss": "log_loss", "max_depth": 2},
    },
    "the sum of the others' embeddings of": {
        "name": "split_network",
        "options": {"labels": "shown", "width": 3, "hidden": [4]},
    },
}
"""Models by what the label holder receives for each new row; sessions of all three are tested in one process, too."""


@pytest.fixture
def settings(place):
    """The experiment of a clinic, in a file."""
    made = write_clinic(place)
    (place / "clinic.toml").write_text(tomli_w.dumps(made))
    return made


def test_a_run_that_is_killed_while_it_learns_resumes_to_the_same_coefficients(start, p2pfl, place, settings):
    for more in ([], *[["--unaccounted"]] * 4):
        command = start("run", "clinic.toml", "--set", "data.test=0.0", *more)
        command.until("learning begins")
        command.kill()
        folder = max((place / "runs").iterdir())
        if not (folder / "metrics.jsonl").read_text():
            break  # learning takes half a second, and a busy machine may kill later
    assert not (folder / "metrics.jsonl").read_text()  # no round was over
    resumed = p2pfl("run", "--resume", folder, "--json", *more)
    assert resumed.status == 0, resumed.err
    settings["data"]["test"] = 0.0
    wanted = simulate(settings, baselines=False, unaccounted=True).models
    for peer in ("ada", "bob"):
        kept = load_file(folder / "peers" / f"{peer}.safetensors")
        away = np.abs(kept["weight"] - wanted[peer]["weight"].numpy()) / kept["error"]
        assert away.max() < 1e-5


@pytest.mark.sampled(fast=0, all=1)
@pytest.mark.parametrize("seen", MODELS)
def test_new_people_are_predicted_over_a_broker_and_by_the_label_holder_alone_where_a_party_is_away(
    fork, p2pfl, place, settings, seen
):
    run = simulate(settings | {"model": MODELS[seen]}, folder=place / "run")
    new = str(place / "new" / "{peer}.csv")
    with embedded(kind="mosquitto") as broker:
        live = ("predict", run.folder, "--live", "--broker", broker.url, "--name")
        ada = fork(*live, "ada", new.format(peer="ada"))
        cleo = fork(*live, "cleo", "-")
        together = read(p2pfl(*live, "bob", new.format(peer="bob")))
        again = read(p2pfl(*live, "bob", new.format(peer="bob")))
        ada.until("ada has answered a request for 20 rows")
        ada.process.kill()
        kept = run.folder / "experiment.toml"
        kept.write_text(kept.read_text().replace("gather = 60.0", "gather = 8.0"))
        asked = p2pfl(*live, "bob", new.format(peer="bob"))
        alone = read(asked)
        cleo.ctrl_c()
        assert cleo.end().status == 130
    files = read(p2pfl("predict", run.folder, new))
    own = read(p2pfl("predict", run.folder / "peers" / "bob.safetensors", new.format(peer="bob")))
    assert [row["parties"] for row in together] == [row["parties"] for row in files] == ["ada bob"] * 19 + ["alone"]
    assert chances(together) == pytest.approx(chances(files), abs=1e-6)
    assert chances(again) == chances(together)
    assert re.search(r"ada(, cleo)? (did not come|left again) within 8 s", asked.err)
    assert "all rows have the prediction of bob alone" in asked.err
    assert f"bob receives {seen} each of its rows" in asked.err
    assert {row["parties"] for row in alone} == {"alone"}
    assert chances(alone) == pytest.approx(chances(own))
    lines = (run.folder / "peers" / "ada.answered.jsonl").read_text().splitlines()
    assert [json.loads(line).get("asked") for line in lines] == [20, None, 20, None]


def test_what_cannot_be_predicted_live_is_one_sentence(p2pfl, place, settings):
    run = simulate(settings, folder=place / "run")
    live = ("predict", run.folder, "--live", "--broker", "mqtt://127.0.0.1:1")
    for arguments, sentence in (
        (["new/bob.csv"], "has the models of ada, bob, cleo; name one peer with --name"),
        (["-", "--name", "bob"], "bob needs the table of its new rows"),
        (["new/bob.csv", "--name", "cleo"], "cleo has no rows; write - for its table"),
        (["new/bob.csv", "--name", "dan"], "has no part of the model of dan; name the run directory of this peer"),
        (["new/bob.csv", "--name", "bob", "--average", "x"], "--average takes models of whole peers"),
    ):
        refused = p2pfl(*live, *arguments)
        assert refused.status == 2, refused
        assert sentence in refused.err


def read(output):
    """Return the rows of predictions."""
    assert output.status == 0, output.err
    return [*csv.DictReader(output.out.splitlines())]


def chances(rows):
    return [float(row["probability of yes"]) for row in rows]
