"""The graph of a swarm is made outside of the server, which holds none of the libraries behind it."""

import json
import subprocess
import sys

import pytest

from p2pfl.core.errors import P2PFLError
from p2pfl.experiment import read
from p2pfl.plugins.watch.graph_process import ForkedResult, graph_of
from p2pfl.plugins.watch.source import DRAWN

HEAVY = ("networkx", "numpy", "scipy", "torch", "sklearn", "pandas", "matplotlib")
"""Libraries that a server does not need."""

GRAPHS = [
    {"kind": "ring", "peers": 5},
    {"kind": "random_regular", "peers": 12, "degree": 3},
]

forking = pytest.mark.skipif(sys.platform in {"darwin", "win32"}, reason="the graph is made in the process itself")


def fresh(code, *arguments):
    """Run code in a new interpreter; return what it prints, as JSON."""
    told = subprocess.run(
        [sys.executable, "-c", f"import json, sys\n{code}", *arguments], check=True, capture_output=True, text=True
    )
    assert told.stderr == ""
    return json.loads(told.stdout)


def experiment(topology):
    return {"name": "plant", "rounds": 3, "topology": topology, "gossip": {"steps": 1}}


@pytest.mark.slow
@pytest.mark.sampled(fast=1)
@forking
@pytest.mark.parametrize("topology", GRAPHS, ids=lambda each: each["kind"])
def test_another_process_makes_the_same_graph(topology):
    code = """
from p2pfl.experiment import read
from p2pfl.plugins.watch.graph_process import graph_of
setting, places = graph_of(read(json.loads(sys.argv[1])))
print(json.dumps([setting.peers, setting.edges, places, "networkx" in sys.modules]))
"""
    peers, edges, places, held = fresh(code, json.dumps(experiment(topology)))
    setting, expected = graph_of(read(experiment(topology)))
    assert (peers, edges) == ([*setting.peers], [[*edge] for edge in setting.edges])
    assert {peer: tuple(place) for peer, place in places.items()} == expected
    assert not held


@pytest.mark.slow
@forking
@pytest.mark.parametrize("source", ["p2pfl.plugins.watch.watch_command", "p2pfl.plugins.watch.live_observer"])
def test_the_server_of_a_run_and_of_a_swarm_holds_no_library_of_numbers(growing, source):
    code = f"""
from pathlib import Path
import {source}, p2pfl.plugins.watch.serving
from p2pfl.plugins.watch import frames
from p2pfl.plugins.watch.app import Server
from p2pfl.plugins.watch.feed import Feed
from p2pfl.plugins.watch.prometheus import exposition
with Feed(Path(sys.argv[1])) as feed:
    feed.refresh()
    assert feed.places
    Server(feed)
    frames.frame(feed.swarm, now=feed.at, stage=feed.stage)
    exposition(feed.swarm, now=feed.at, stage=feed.stage)
print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))
"""
    growing.learn(3)
    assert fresh(code, str(growing.folder)) == []


@pytest.mark.slow
@forking
def test_a_graph_that_nobody_asks_for_ends_with_what_made_it():
    code = """
from multiprocessing import active_children
from p2pfl.plugins.watch.graph_process import ForkedResult
import signal
with ForkedResult(signal.pause) as work:
    begun = len(active_children())
print(json.dumps([begun, len(active_children())]))
"""
    assert fresh(code) == [1, 0]


@pytest.mark.slow
@forking
def test_whoever_waits_for_a_graph_that_is_no_longer_needed_stops_waiting():
    code = """
from p2pfl.core.errors import P2PFLError
from p2pfl.plugins.watch.graph_process import ForkedResult
import signal, threading
work, said = ForkedResult(signal.pause), []
def ask():
    try:
        work.result()
    except P2PFLError as error:
        said.append(str(error))
asking = threading.Thread(target=ask)
asking.start()
work.close()
asking.join()
print(json.dumps(said))
"""
    assert fresh(code) == ["the graph was no longer needed before it was made; start the command again"]


@forking
def test_an_error_of_the_other_process_is_raised_in_this_one():
    code = """
from p2pfl.core.errors import InputError
from p2pfl.plugins.watch.graph_process import ForkedResult
import os
def fail():
    raise InputError(f"process {os.getpid()} cannot")
try:
    ForkedResult(fail).result()
except InputError as error:
    print(json.dumps([str(error), os.getpid(), ForkedResult(os.getpid).result()]))
"""
    said, own, other = fresh(code)
    assert said == f"process {own} cannot"
    assert own != other


def test_a_graph_that_cannot_be_read_is_an_error(tmp_path):
    settings = experiment({"kind": str(tmp_path / "none.graphml")})
    (tmp_path / "none.graphml").write_text("")
    with pytest.raises(P2PFLError):
        graph_of(read(settings))


def test_a_process_that_holds_the_library_makes_the_graph_itself():
    here = []
    with ForkedResult(lambda: here.append(1)) as work:
        assert here == []  # nobody has asked for it
        work.result()
        work.result()
    assert here == [1]


def test_many_peers_have_no_places():
    setting, places = graph_of(read(experiment({"kind": "ring", "peers": DRAWN + 1})))
    assert len(setting.peers) == DRAWN + 1
    assert places == {}
