"""A model that three hospitals trained on their own tables."""

import pytest

import hospitals
from p2pfl.experiment import read
from p2pfl.results.models import Predictor
from p2pfl.simulation import simulate


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """The folder of the tables with the run directory ``run``, and the run."""
    folder = tmp_path_factory.mktemp("wards")
    hospitals.write(folder)
    experiment = hospitals.experiment(folder, model={"name": "mlp", "hidden": [8]})
    return folder, simulate(read(experiment), folder=folder / "run", baselines=False)


@pytest.fixture(scope="session")
def saved(trained):
    """The file of one peer's model."""
    return trained[0] / "run" / "peers" / "peer0.safetensors"


@pytest.fixture(scope="session")
def predictor(saved):
    return Predictor.load(saved)
