"""Algorithms by name, and a user's own."""

from dataclasses import dataclass
from typing import Annotated

import msgspec
import pytest

from p2pfl.algorithms import FedAvg, Gossip
from p2pfl.errors import ExperimentError
from p2pfl.experiment import plan, read
from p2pfl.experiment.learners import algorithm


@dataclass(frozen=True)
class Own:
    gossip: Gossip
    mu: Annotated[float, msgspec.Meta(ge=0)] = 0.5


SMALL = {"topology": {"peers": 3}, "data": {"name": "wine"}, "model": {"name": "linear"}}
PLACE = f"{__name__}:Own"


def make(name, **options):
    return plan(read(SMALL | {"learning": {"algorithm": name, "algorithm_options": options}})).algorithm


def test_an_algorithm_of_ones_own_gets_what_it_has_parameters_for():
    made = algorithm(PLACE, options={"mu": 2.0}, given={"gossip": Gossip(3), "seed": 7})
    assert made == Own(Gossip(3), 2.0)


def test_a_known_algorithm_averages_over_the_peers_of_the_experiment():
    made = make("fedavg")
    assert isinstance(made, FedAvg)
    assert made.average.peers == ("peer0", "peer1", "peer2")


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("fedagv", {}, 'expected "package.module:Class" or one of .*, got "fedagv": did you mean "fedavg"'),
        ("fedavg", {"mu": 1.0}, "expected none for fedavg, got mu: drop or rename it"),
        (PLACE, {"nu": 1.0}, "expected mu for .*, got nu"),
        (PLACE, {"mu": "much"}, "algorithm_options.mu: expected `float`, got `str`, for 'much'"),
        (PLACE, {"mu": -1.0}, "algorithm_options.mu: expected `float` >= 0.0, for -1.0"),
    ],
)
def test_what_is_wrong_with_an_algorithm_is_said_in_one_sentence(name, options, sentence):
    with pytest.raises(ExperimentError, match=sentence):
        algorithm(name, options=options, given={"gossip": Gossip(), "average": None})
