"""A training loop of one's own describes its model, so that its files predict and are exported as others."""

import dataclasses

import numpy as np
import pytest

import hospitals
from p2pfl import ExternalLearner, OwnModel
from p2pfl.core.errors import InputError
from p2pfl.experiment import plan, read
from p2pfl.results.models import Predictor
from p2pfl.simulation import simulate


@pytest.fixture
def wards(tmp_path):
    """A folder with the tables of three hospitals, the plan of a run with p2pfl's learner, and a loop around that."""
    hospitals.write(tmp_path)
    table = hospitals.experiment(tmp_path, model={"name": "linear"})
    table["data"]["scale"] = False  # which a loop of one's own does itself
    table["data"]["options"]["columns"] = {name: each for name, each in hospitals.COLUMNS.items() if name != "weight"}
    usual = plan(read(table))

    def train(row, *, peer, round):
        return usual.learner.fit(row.unsqueeze(0), peers=[peer], round=round).rows[0]

    def own(describe=None):
        first = usual.federation.peers[0]
        learner = ExternalLearner(
            train,
            start=usual.learner.start([first])[0],
            samples=lambda peer: int(usual.learner.samples([peer])[0]),
            layout=usual.learner.layout,
            describe=describe,
        )
        return dataclasses.replace(usual, learner=learner)

    return tmp_path, usual, own


def test_what_it_describes_predicts_as_a_model_of_p2pfl(wards):
    folder, usual, own = wards
    simulate(usual, folder=folder / "usual", baselines=False)
    described = own(lambda: OwnModel("linear", usual.federation.dataset))
    simulate(described, folder=folder / "own", baselines=False)
    values = [
        Predictor.load(folder / run / "peers" / "peer0.safetensors").predict(folder / "peer0.csv").values
        for run in ("usual", "own")
    ]
    np.testing.assert_allclose(values[1], values[0], rtol=0, atol=1e-6)


def test_without_a_description_the_error_asks_for_one(wards):
    folder, _, own = wards
    simulate(own(), folder=folder / "own", baselines=False)
    with pytest.raises(InputError, match="let your learner describe its model"):
        Predictor.load(folder / "own" / "peers" / "peer0.safetensors")
