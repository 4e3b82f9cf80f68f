"""Packages register ways in which data lie at peers; here peers hold one number of one person each."""

import importlib.metadata
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from p2pfl import simulate
from p2pfl.core import registry
from p2pfl.core.errors import ExperimentError
from p2pfl.core.rows import Layout
from p2pfl.core.traits import DataTraits, LearnerTraits
from p2pfl.data import no_data
from p2pfl.experiment import plan, read
from p2pfl.experiment.partitionings import Disclosure
from p2pfl.experiment.schema import PARTITIONINGS
from p2pfl.learning.additive import Question, Step
from p2pfl.learning.learner import OwnBaselines, SequentialLearner

NUMBERS = {"peer0": 1.0, "peer1": 2.0, "peer2": 4.0}
SETTINGS = {
    "data": {"name": "numbers"},
    "model": {"name": "glm", "options": {"family": "gaussian"}},
    "topology": {"kind": "complete", "peers": 3},
    "privacy": {"mode": "pairwise"},
}


class NumberLearner(SequentialLearner):
    """Every peer learns the sum, keeps its own number, and the first one knows a score."""

    traits = LearnerTraits(additive=True, converges=True, private=True)
    layout = Layout(("sum", "own"), ((1,), (1,)))
    dtype = torch.float64
    gradients_missing = "it has none"

    def on(self, _):
        return self

    def start(self, peers):
        return torch.zeros(len(peers), 2, dtype=torch.float64)

    def samples(self, peers):
        return torch.zeros(len(peers), dtype=torch.int64)

    def train(self, row, **_):
        return row, 0.0

    def asking(self, _, **__):
        total = yield Question(lambda peer: np.array([int(NUMBERS[peer])]), size=1)
        public = torch.tensor([float(total[0]), 0.0], dtype=torch.float64)
        return Step(public, over=True, own=lambda peer: public + torch.tensor([0.0, NUMBERS[peer]]))

    def evaluate(self, rows, *, peers, **_):
        known = torch.tensor([peer == "peer0" for peer in peers])
        return {"auc": torch.where(known, rows[:, 0] / 10, torch.nan)}

    def kept(self, row, *, peer):
        return {"sum": row[:1], f"number of {peer}": row[1:]}

    def described(self, peer=None):
        return {} if peer is None else {"owner": peer}

    def baselines(self, models):
        return OwnBaselines({"peer0": {"auc": 0.5}}, {"auc": float(models["peer0"][0]) / 10}, 2e-9)


@dataclass(frozen=True)
class Numbers:
    traits = DataTraits(columns=True)

    def federate(self, _, *, peers, only=None):
        return no_data(only or peers)

    def learner(self, *_):
        return NumberLearner()

    def disclosed(self, *_):
        return Disclosure("peers show their sum", {"every peer": "the sum", "the broker": "sizes"})


NUMBER_PEERS = Numbers()


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    own = importlib.metadata.EntryPoint("numbers", f"{__name__}:NUMBER_PEERS", PARTITIONINGS)
    known = registry.entry_points
    monkeypatch.setattr(
        registry,
        "entry_points",
        lambda group: [own, *known(group=group)] if group == PARTITIONINGS else known(group=group),
    )
    registry._entries.cache_clear()
    yield
    registry._entries.cache_clear()


def test_a_partitioning_brings_data_learner_and_statement_of_its_own(tmp_path):
    run = simulate(SETTINGS, folder=tmp_path / "run")
    assert run.summary["privacy"]["learned"] == {"every peer": "the sum", "the broker": "sizes"}
    assert run.summary["privacy"]["statement"].startswith("peers show their sum; no differential privacy is claimed")
    assert [float(run.models[peer]["sum"]) for peer in NUMBERS] == [7.0, 7.0, 7.0]


def test_the_file_of_a_peer_has_its_private_model_and_no_name_of_anothers(tmp_path):
    simulate(SETTINGS, folder=tmp_path / "run")
    for peer, number in NUMBERS.items():
        path = tmp_path / "run" / "peers" / f"{peer}.safetensors"
        assert float(load_file(path)[f"number of {peer}"]) == number
        with safe_open(path, "pt") as file:
            assert f'"owner": "{peer}"' in file.metadata()["p2pfl"]
        assert not any(other in str(path.read_bytes()) for other in NUMBERS if other != peer)
    assert not (tmp_path / "run" / "model.json").exists()


def test_the_summary_has_the_score_of_the_one_peer_that_has_one():
    summary = simulate(SETTINGS).summary
    assert (summary["metric"], summary["alone"], summary["together"], summary["pooled"]) == ("auc", 0.5, 0.7, 0.7)
    assert (summary["lossless"], summary["difference"]) == (False, 2e-9)
    assert summary["per_peer"]["peer1"]["together"] is None


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"topology": {"kind": "ring", "peers": 5}}, 'topology.kind = "ring" does not work .* set it to "complete"'),
        (
            {"privacy": {"mode": "none"}},
            'privacy.mode = "none" .* the part of each of the others; set it to "pairwise"',
        ),
        ({"privacy": {"mode": "pairwise", "epsilon": 1.0}}, "noise as large as the predictor in the last step, too"),
        ({"data": {"name": "numbers", "scale": True}}, "data.scale = true .* standardise and check their columns"),
        ({"learning": {"consensus": True}}, "learning.consensus = true .* a model of its own columns"),
        ({"attack": {"name": "label_flip", "peers": ["peer0"]}}, "one of which alone has labels"),
        ({"simulation": {"absence": 0.1}}, "because a total takes all peers"),
    ],
)
def test_what_does_not_work_with_columns_at_different_peers_is_one_sentence(changes, sentence):
    with pytest.raises(ExperimentError, match=sentence):
        plan(read(SETTINGS | changes))


def test_algorithms_that_take_no_totals_are_refused():
    with pytest.raises(ExperimentError, match=r'learning.algorithm = "fedavg" .* set model.name to a model of totals'):
        plan(read(SETTINGS | {"model": {"name": "linear"}, "learning": {"algorithm": "fedavg"}}))


def test_the_partitioning_knows_its_models_and_all_follow_from_totals():
    made = plan(read(SETTINGS | {"model": {"name": "of_columns"}}))
    assert made.experiment.learning.algorithm == "exact"
