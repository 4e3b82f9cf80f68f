"""The graph of a swarm for the page: what events do not repeat, and where peers are drawn."""

import pytest

from p2pfl.core.errors import P2PFLError
from p2pfl.experiment import read
from p2pfl.plugins.watch.feed import MAX_DRAWN_PEERS, graph_of


def experiment(topology):
    return {"name": "plant", "rounds": 3, "topology": topology, "gossip": {"steps": 1}}


def test_each_peer_has_a_place():
    setting, places = graph_of(read(experiment({"kind": "ring", "peers": 5})))
    assert (len(setting.peers), len(setting.edges)) == (5, 5)
    assert places.keys() == {*setting.peers}


def test_a_graph_that_cannot_be_read_is_an_error(tmp_path):
    settings = experiment({"kind": str(tmp_path / "none.graphml")})
    (tmp_path / "none.graphml").write_text("")
    with pytest.raises(P2PFLError):
        graph_of(read(settings))


def test_many_peers_have_no_places():
    setting, places = graph_of(read(experiment({"kind": "ring", "peers": MAX_DRAWN_PEERS + 1})))
    assert len(setting.peers) == MAX_DRAWN_PEERS + 1
    assert places == {}
