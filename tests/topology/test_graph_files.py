import json
import re
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given as holds_for
from hypothesis import strategies as st

from p2pfl import topology as graphs
from p2pfl.core.errors import TopologyError
from p2pfl.topology import Topology

SHIPPED = sorted((Path(__file__).parents[2] / "topologies").glob("*.json"))
CONNECTED = [
    *(graphs.complete(1), graphs.path(2), graphs.star(6), graphs.torus(3, 4)),
    graphs.small_world(20, degree=4, rewire=0.3, seed=1),
]


def refuses(sentence):
    return pytest.raises(TopologyError, match=re.escape(sentence))


WRITERS = {
    ".graphml": nx.write_graphml,
    ".gml": nx.write_gml,
    ".edgelist": nx.write_edgelist,
    ".edges": nx.write_edgelist,
    ".adjlist": nx.write_adjlist,
    ".json": lambda graph, path: path.write_text(json.dumps(nx.node_link_data(graph, edges="edges"))),
    ".JSON": lambda graph, path: path.write_text(json.dumps(nx.node_link_data(graph, edges="links"))),
}


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("topology", [*CONNECTED[1:], graphs.exponential(6)])
def test_every_format_networkx_writes_is_read_back(suffix, topology, tmp_path):
    if topology.directed and suffix in {".edgelist", ".edges", ".adjlist"}:
        topology = Topology(topology.peers, topology.edges)  # these cannot say that they are directed
    graph = nx.relabel_nodes(topology.to_graph(), {peer: peer for peer in reversed(topology.peers)})
    nx.set_edge_attributes(graph, 0.5, "weight")
    WRITERS[suffix](graph, tmp_path / f"graph{suffix}")
    assert graphs.load(tmp_path / f"graph{suffix}") == topology


def test_numbers_may_be_names_and_parallel_edges_count_once(tmp_path):
    (tmp_path / "bare.gml").write_text("graph [ node [ id 1 ] node [ id 2 ] edge [ source 1 target 2 ] ]")
    (tmp_path / "columns.edges").write_text("# comment\n1 2 0.5\n2 1 7\n")
    double = nx.node_link_data(nx.MultiGraph([(1, 2), (1, 2)]), edges="edges")
    (tmp_path / "multi.json").write_text(json.dumps(double))
    for name in ("bare.gml", "columns.edges", "multi.json"):
        assert graphs.load(tmp_path / name) == Topology(("1", "2"), (("1", "2"),))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_topologies_are_connected_weighable_and_say_when_to_use_them(path):
    topology = graphs.load(path)
    graphs.check_connected(topology)
    assert graphs.contraction([graphs.metropolis(topology)]) < 0.9
    assert re.fullmatch(r"Use it [^.]+\.", json.loads(path.read_text())["graph"]["description"])


def test_there_are_shipped_topologies():
    assert {"hospitals", "office", "village"} <= {path.stem for path in SHIPPED}


@pytest.mark.filterwarnings("ignore:No key type")  # networkx takes damaged attribute types for text, and says so
@pytest.mark.parametrize("suffix", [".graphml", ".gml", ".json", ".edgelist", ".adjlist"])
@holds_for(data=st.data())
def test_a_damaged_file_is_either_read_or_refused_in_one_sentence(suffix, data, tmp_path_factory):
    path = tmp_path_factory.mktemp("damaged") / f"graph{suffix}"
    WRITERS[suffix](graphs.ring(3).to_graph(), path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(content)))
        stop = data.draw(st.integers(start, min(start + 20, len(content))))
        content[start:stop] = data.draw(st.binary(max_size=4) | st.sampled_from([b"[", b"]", b"{}", b'"', b"<", b"1"]))
    path.write_bytes(content)
    try:
        graphs.load(path)
    except TopologyError as error:
        assert "\n" not in str(error)  # noqa: PT017  # a damaged file may also be a good one


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        (
            "graph.txt",
            "",
            "does not have a suffix of a topology file (.graphml, .gml, .json, .edgelist, .edges",
        ),
        ("graph.json", None, "does not exist; check the path"),
        (
            "graph.json",
            "{",
            "is not a readable .json graph (JSONDecodeError: ",
        ),
        ("graph.json", "[]", "is not a readable .json graph (TypeError: "),
        ("graph.json", "{}", "is not a readable .json graph (KeyError: 'nodes'); fix the file"),
        (
            "graph.json",
            "[" * 100_000,
            "is not a readable .json graph (RecursionError: ",
        ),
        (
            "graph.graphml",
            "<graphml",
            "is not a readable .graphml graph (ParseError: ",
        ),
        ("graph.graphml", "<graphml/>", "graph (NetworkXError: "),
        ("graph.gml", "graph", "graph (NetworkXError: "),
        (
            "graph.edgelist",
            b"\xff\xfe a",
            "is not a readable .edgelist graph (UnicodeDecodeError: ",
        ),
        ("graph.edgelist", "", "the graph has no peers; add at least one"),
        (
            "graph.edges",
            "ada ada",
            'an edge connects "ada" to itself; remove it, as a peer always mixes in its own model',
        ),
        (
            "graph.adjlist",
            "ada b/c",
            'b/c\' is not a valid peer name; rename it with 1 to 22 letters, digits, "-" or "_',
        ),
        (
            "graph.json",
            '{"nodes": [{"id": 1}, {"id": "1"}], "edges": []}',
            'peer name "1" is used twice; rename one of the peers',
        ),
    ],
)
def test_files_that_are_no_topology_are_refused_in_one_sentence(name, content, sentence, tmp_path):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with refuses(sentence) as caught:
        graphs.load(path)
    assert str(path) in str(caught.value)
