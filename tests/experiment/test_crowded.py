"""Live peers that each send to all others end at a size, which is said before a run starts."""

import pytest

from p2pfl.core.errors import ExperimentError
from p2pfl.experiment import plan, read
from p2pfl.experiment.rules.round_rules import MAX_ALL_TO_ALL

TABLE = {"data": {"name": "digits", "split": "iid"}, "model": {"name": "linear"}, "gossip": {"steps": 1}}
MASKS = ["privacy.mode=pairwise", "privacy.mask=1.0", "privacy.departures=go_on"]
RING = ["topology.kind=circulant", "topology.degree=4"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            ["topology.kind=complete"],
            (
                'topology.kind = "complete" does not work with 129 live peers, because each sends to all others, which '
                'ends at 128; take a graph of few neighbours, such as "random_regular" with topology.degree = 4, or '
                "p2pfl simulate"
            ),
        ),
    ],
)
def test_more_live_peers_than_can_send_to_all_others_are_refused_and_simulated(changes, sentence):
    experiment = read(TABLE, changes=[*changes, f"topology.peers={MAX_ALL_TO_ALL + 1}"])
    with pytest.raises(ExperimentError) as caught:
        plan(experiment, live=True)
    assert str(caught.value) == sentence
    assert len(plan(experiment).topology.peers) == MAX_ALL_TO_ALL + 1
    few = read(TABLE, changes=[*changes, "topology.peers=8"])
    assert len(plan(few, live=True).topology.peers) == 8


@pytest.mark.parametrize("masks", [[], MASKS], ids=["plain", "masks"])
def test_more_live_peers_than_can_send_to_all_others_run_with_few_neighbours(masks):
    experiment = read(TABLE, changes=[*RING, *masks, f"topology.peers={MAX_ALL_TO_ALL + 1}"])
    assert len(plan(experiment, live=True).topology.peers) == MAX_ALL_TO_ALL + 1
