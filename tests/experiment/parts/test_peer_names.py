"""A list of names in ``topology.peers`` names the peers of any graph, in place of their number."""

import pytest

import p2pfl
from p2pfl.core.errors import InputError
from p2pfl.experiment import read, write
from p2pfl.experiment.parts.peer_graph import built, peers_of

NAMES = ["north", "south", "east", "west"]


def graph(kind, **more):
    return built(read({"topology": {"kind": kind, "peers": NAMES, **more}}))


@pytest.mark.parametrize("kind", ["ring", "complete", "star", "hypercube", "one_peer_exponential", "base"])
def test_a_graph_is_the_same_but_for_the_names(kind):
    numbered = built(read({"topology": {"kind": kind, "peers": 4}}))
    assert graph(kind) == numbered.named(sorted(NAMES))
    assert graph(kind).peers == ("east", "north", "south", "west")


def test_names_live_in_the_plan_and_the_resolved_file():
    experiment = read({"topology": {"peers": NAMES}, "data": {"name": "wine"}, "model": {"name": "linear"}})
    assert peers_of(experiment) == p2pfl.plan(experiment).topology.peers == tuple(sorted(NAMES))
    assert 'peers = [\n    "north",' in write(experiment)
    assert experiment.topology.count == 4


@pytest.mark.parametrize(
    ("peers", "sentence"),
    [
        (["a", "b", "a"], 'topology.peers has the name "a" twice; leave one out'),
        (["a b"], "topology.peers is"),
        ([], "topology.peers is"),
    ],
)
def test_names_that_cannot_be_are_refused_in_one_sentence(peers, sentence):
    with pytest.raises(InputError) as caught:
        p2pfl.plan(read({"topology": {"peers": peers}, "data": {"name": "wine"}}))
    assert sentence in str(caught.value)
