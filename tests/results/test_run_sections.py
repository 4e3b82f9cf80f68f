"""Sections of the page of a run: gains with intervals, the topology, who learns what, and costs as bars."""

import math
import re
import sys
from unittest import mock

import pytest

from markup import checked
from p2pfl import topology as graphs
from p2pfl.experiment import read
from p2pfl.results.comparisons.exports import run_paper
from p2pfl.results.comparisons.intervals import newcombe, wilson
from p2pfl.results.pages.gains import gains
from p2pfl.results.pages.graph_section import neighbourhoods
from p2pfl.results.pages.rendering import fragment
from p2pfl.results.pages.run_page import run_page
from p2pfl.results.run import Run
from p2pfl.results.run_files import apart_by_masks
from p2pfl.simulation import simulate
from p2pfl.topology.networkx_graphs import positions
from swarms import SMALL


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    changes = ["privacy.mode=pairwise", "privacy.epsilon=8", "privacy.clip=1"]
    return simulate(read(SMALL, changes=changes), folder=tmp_path_factory.mktemp("sections") / "run")


def of(text, heading):
    """Return the rows of the table with a caption, each as its cells."""
    found = text.partition(f"<caption>{heading}<")[2].partition("</table>")[0]
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", found)
    return [re.findall(r"<t[hd][^>]*>(?:<[^>]*>)?([^<]*)", row) for row in rows]


@pytest.mark.parametrize(
    ("right", "reference", "count", "low", "high"), [(9, 3, 10, 0.1705, 0.8090), (10, 0, 10, 0.6075, 1.0)]
)
def test_intervals_of_differences_are_those_that_newcombe_printed(right, reference, count, low, high):
    found = newcombe(right / count, reference / count, count)
    assert [round(end, 4) for end in found] == [low, high]


def test_an_interval_of_a_share_stays_between_zero_and_one_and_holds_the_share():
    for count in (1, 5, 300):
        for right in range(0, count + 1, max(1, count // 5)):
            low, high = wilson(right / count, count)
            assert -1e-12 <= low <= right / count + 1e-12
            assert right / count - 1e-12 <= high <= 1 + 1e-12


@pytest.mark.slow
def test_each_gain_stands_beside_its_samples_and_its_interval(run):
    summary = run.summary
    rows = {row[0]: row for row in of(run_page(run), f"{summary['metric']} by peer")}
    for name, score in summary["per_peer"].items():
        low, high = newcombe(score["together"], score["alone"], score["tested"])
        assert low < score["together"] - score["alone"] < high
        assert rows[name][1] == str(score["samples"])
        assert rows[name][-1] == f"{low:+.3f} to {high:+.3f}"
    assert rows["one model on all data"][1] == str(sum(each["samples"] for each in summary["per_peer"].values()))


def graph_of(run):
    """Return the axes of the graph on the page of a run, and its tables as HTML."""
    blocks = neighbourhoods(run)
    return blocks[0].blocks[0].draw().axes[0], fragment(blocks)


def test_the_graph_of_a_run_is_drawn_and_listed(run):
    axes, found = graph_of(run)
    graph = of(found, "Neighbours by peer")
    edges = {frozenset((row[0], other)) for row in graph if row for other in row[1].split(", ") if row[0] != "peer"}
    lines, dots = axes.collections
    assert len(edges) == len(lines.get_segments()) == 12
    assert len(dots.get_offsets()) == 6
    assert {text.get_text() for text in axes.texts} == {*run.summary["per_peer"]}
    assert ["edges", "12"] in of(found, "Graph")


def test_arrows_of_a_directed_graph_lead_to_the_receivers():
    run = Run(read({"topology": {"kind": "exponential", "peers": 8}}))
    axes, found = graph_of(run)
    arrows, _ = axes.collections
    assert len(arrows.U) == 24
    assert of(found, "Neighbours by peer")[1] == ["peer0", "peer4, peer6, peer7"]
    union = graphs.build("exponential", peers=8, seed=0)
    places = positions(union)
    for (sender, receiver), start, across, up in zip(union.edges, arrows.XY, arrows.U, arrows.V, strict=True):
        assert tuple(start) == places[sender]
        assert (start[0] + across, start[1] + up) == pytest.approx(places[receiver], abs=0.1)


def test_a_topology_whose_file_is_gone_is_named(tmp_path):
    lost = Run(read({"topology": {"kind": str(tmp_path / "gone.json")}}))
    assert "gone.json" in fragment(neighbourhoods(lost))
    assert str(tmp_path) not in fragment(neighbourhoods(lost))


def test_a_topology_of_very_many_peers_is_not_built_again():
    many = Run(read({"topology": {"kind": "random_regular", "peers": 100_000, "degree": 8}}))
    with mock.patch("p2pfl.experiment.parts.peer_graph.built", side_effect=AssertionError):
        assert neighbourhoods(many) == []


def test_a_score_that_is_no_number_has_no_interval(run):
    broken = {name: each | {"together": math.nan} for name, each in run.summary["per_peer"].items()}
    text = fragment(gains(run.summary | {"per_peer": broken}, run.metrics))
    assert "nan" not in text
    assert "95 %" not in text


@pytest.mark.slow
def test_the_page_to_sign_says_what_each_observer_could_learn(run):
    text = run_page(run)
    checked(text)
    rows = of(text, "What all rounds give away, by observer")[1:]
    stated = run.summary["privacy"]["observers"]
    assert [row[0] for row in rows] == [each["observer"] for each in stated]
    [promised] = [each for each in stated if each["promised"]]
    assert promised["epsilon"] == pytest.approx(run.summary["privacy"]["epsilon"])
    assert {each["observer"] for each in stated} >= {"broker that only listens", "broker that lies", "everyone else"}


@pytest.mark.slow
def test_a_run_without_a_claim_has_no_table_of_observers():
    found = simulate(read(SMALL, changes=["privacy.mode=pairwise", "rounds=1"]))
    assert "observers" not in found.summary["privacy"]
    assert "by observer" not in run_page(found)


def test_the_table_of_a_run_for_latex_has_the_numbers_of_its_summary(run):
    text = run_paper(run).tex()
    for name, score in run.summary["per_peer"].items():
        assert rf"{name} & ${score['alone']:.3f}$ & ${score['together']:.3f}$ &" in text
    assert text.count("{") == text.count("}")


@pytest.mark.slow
def test_the_page_does_not_take_masks_for_a_lack_of_consensus():
    changes = ["topology.kind=complete", "gossip.steps=1", "rounds=2"]
    masked = simulate(read(SMALL, changes=[*changes, "privacy.mode=pairwise"]))
    assert "last gossip step, most of it by masks" in run_page(masked)
    plain = run_page(simulate(read(SMALL, changes=[*changes, "privacy.mode=none"])))
    assert "masks" not in plain.partition("how far models move")[2].partition("</figure>")[0]


@pytest.mark.parametrize(
    ("changes", "masked"),
    [
        ([], True),
        (["gossip.steps=3"], False),
        (["topology.kind=ring"], False),
        (["topology.kind=ring", "gossip.steps=1"], True),
        (["topology.kind=gone.json"], True),
        (["topology.kind=gone.json", "privacy.mode=none"], False),
    ],
)
def test_without_a_summary_the_experiment_says_whether_distances_measure_masks(changes, masked):
    table = SMALL | {"topology": {"kind": "complete", "peers": 6}, "gossip": {}}
    experiment = read(table, changes=["privacy.mode=pairwise", *changes])
    assert apart_by_masks({}, experiment) is masked
    assert apart_by_masks({"scores": {}, "privacy": {"mask": 0.0}}, experiment) is False


@pytest.mark.slow
def test_a_notebook_shows_a_plot_as_a_picture_with_whole_rounds(monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)  # which registers figures with notebooks
    picture = simulate(read(SMALL, changes=["rounds=3"]), baselines=False).plot()
    assert picture._repr_png_().startswith(b"\x89PNG")
    assert all(tick == int(tick) for tick in picture.axes[-1].get_xticks())
