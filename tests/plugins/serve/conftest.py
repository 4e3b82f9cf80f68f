"""A saved model, and what follows its file."""

from datetime import UTC, datetime

import pytest

import hospitals
from p2pfl.experiment import read
from p2pfl.plugins.serve.newest_model import NewestModel
from p2pfl.plugins.serve.served_model import ServedModel
from p2pfl.simulation import simulate


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """Return the folder with the tables of hospitals and the run that learned from them."""
    place = tmp_path_factory.mktemp("trained")
    hospitals.write(place)
    simulate(read(hospitals.experiment(place)), folder=place / "run", baselines=False)
    return place


@pytest.fixture
def model_file(trained):
    return trained / "run" / "peers" / "peer0.safetensors"


@pytest.fixture
def served(model_file):
    return ServedModel.read(model_file, model_file.read_bytes(), now=datetime(2026, 11, 27, tzinfo=UTC))


@pytest.fixture
def notes():
    return []


@pytest.fixture
def following(notes):
    """Return a function that returns the newest model of a place."""

    def follow(place, **options):
        return NewestModel(place, now=lambda: datetime.now(UTC), notify=notes.append, **options)

    return follow
