"""Figures of several runs: what is drawn, where, and that it can be told apart."""

import math

import pytest

from p2pfl.core.errors import InputError
from p2pfl.experiment import read
from p2pfl.results import Record, Run
from p2pfl.results.comparisons.comparison import RunOutcome, compare
from p2pfl.results.comparisons.figures import COLOURS, MAX_LINES, STROKES, caption, figure
from p2pfl.results.comparisons.intervals import estimate

pytest.importorskip("matplotlib")

SCORES = {
    ("fedavg", "iid"): [[0.1, 0.5, 0.8], [0.2, 0.6, 0.9]],
    ("fedavg", "shards"): [[0.1, 0.3, 0.5], [0.1, 0.2, 0.4]],
    ("scaffold", "iid"): [[0.2, 0.7, 0.9], [0.3, 0.7]],
    ("scaffold", "shards"): [[0.1, 0.4, 0.6], [0.1, 0.5, 0.7]],
}


def run_of(scores):
    run = Run(read({"topology": {"peers": 2}}))
    more = {"training_loss": 0.1, "distance": 0.0, "bytes_in": 0, "received": 1}
    more |= {"seconds_training": 0.0, "seconds_waiting": 0.0}
    for round, score in enumerate(scores):
        run.record(
            [
                Record(peer=peer, round=round, scores={"accuracy": score + by}, bytes_out=(round + 1) * 10**6, **more)
                for peer, by in (("peer0", -0.05), ("peer1", 0.05))
            ]
        )
    return run


def compared(table, *, keys=("learning.algorithm", "data.split"), against=None):
    outcomes, runs = [], []
    for place, (values, seeds) in enumerate(table.items()):
        setting = dict(zip(keys, values, strict=True))
        outcomes += [RunOutcome(values=setting, seed=seed, score=each[-1]) for seed, each in enumerate(seeds)]
        runs += [(place, run_of(each)) for each in seeds]
    return compare(outcomes, metric="accuracy", against=against), runs


AGAINST = {"learning.algorithm": "fedavg"}


def test_settings_that_are_compared_share_a_panel_and_the_legend_is_outside():
    picture = figure(*compared(SCORES, against=AGAINST))
    shown = [axes for axes in picture.axes if axes.get_visible()]
    assert [axes.get_title(loc="left") for axes in shown] == ["iid", "shards"]
    assert [len(axes.lines) for axes in shown] == [2, 2]
    [legend] = picture.legends
    assert [text.get_text() for text in legend.get_texts()] == ["fedavg", "scaffold"]
    assert not any(axes.get_legend() for axes in shown)
    picture.draw_without_rendering()
    box = legend.get_window_extent()
    assert not any(box.overlaps(axes.get_tightbbox()) for axes in shown)
    assert shown[0].get_ylabel() == "accuracy"
    assert {axes.get_xlabel() for axes in shown} == {"round"}


def test_a_line_is_the_mean_over_the_seeds_and_the_band_its_interval():
    picture = figure(*compared(SCORES, against=AGAINST))
    line = picture.axes[0].lines[0]
    assert line.get_xdata().tolist() == [1, 2, 3]
    assert line.get_ydata().tolist() == pytest.approx([0.15, 0.55, 0.85])
    [path] = picture.axes[1].collections[1].get_paths()
    half = estimate([0.6, 0.7]).half
    ends = [y for x, y in path.vertices if x == 3]
    assert (min(ends), max(ends)) == pytest.approx((0.65 - half, 1.0))


def test_the_axis_shows_all_runs_and_not_the_interval_of_two():
    table = {("fedavg",): [[0.1, 0.5], [0.6, 0.9]], ("scaffold",): [[0.2, 0.4], [0.5, 0.8]]}
    picture = figure(*compared(table, keys=("learning.algorithm",)))
    low, high = picture.axes[0].get_ylim()
    assert 0 < low < 0.1
    assert 0.9 < high < 1
    ends = [y for band in picture.axes[0].collections for path in band.get_paths() for _, y in path.vertices]
    assert (min(ends), max(ends)) == (0, 1)


def test_a_legend_of_long_labels_is_inside_of_the_picture():
    table = {(f"{'very ' * 12}long {place}",): [[0.1, 0.2]] for place in range(3)}
    picture = figure(*compared(table, keys=("learning.algorithm",)))
    picture.draw_without_rendering()
    box = picture.legends[0].get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= picture.bbox.x1


def test_by_bytes_each_panel_has_an_axis_of_its_own():
    table = {("fedavg", "iid"): [[0.1] * 9], ("fedavg", "shards"): [[0.1, 0.2]]}
    table |= {("scaffold", split): scores for (_, split), scores in table.items()}
    one, other = figure(*compared(table, against=AGAINST), by="bytes").axes
    assert one.get_xlim()[1] > 2 * other.get_xlim()[1]


def test_a_line_ends_where_the_first_of_its_runs_ends():
    line = figure(*compared(SCORES, against=AGAINST)).axes[0].lines[1]
    assert line.get_xdata().tolist() == [1, 2]


def test_by_bytes_the_axis_has_what_all_peers_sent_with_a_unit():
    picture = figure(*compared(SCORES, against=AGAINST), by="bytes")
    assert picture.axes[0].lines[0].get_xdata().tolist() == pytest.approx([2, 4, 6])
    assert picture.axes[0].get_xlabel() == "MB sent by all peers"


def test_lines_differ_in_colour_or_stroke_and_neighbours_in_both():
    table = {(f"{place}",): [[0.1, 0.2 + place / 100]] for place in range(MAX_LINES)}
    picture = figure(*compared(table, keys=("learning.rate",)))
    looks = [(line.get_color(), line.get_linestyle(), line.get_marker()) for line in picture.axes[0].lines]
    strokes = [(style // len(COLOURS) + style) % len(STROKES) for style in range(MAX_LINES)]
    assert len({(colour, stroke) for (colour, *_), stroke in zip(looks, strokes, strict=True)}) == MAX_LINES
    for (one, _, mark), (other, _, marked), mine, theirs in zip(looks, looks[1:], strokes, strokes[1:], strict=False):
        assert one != other
        assert mark != marked
        assert mine != theirs
    table |= {("more",): [[0.1, 0.2]]}
    with pytest.raises(InputError, match="plot a sweep of fewer settings"):
        figure(*compared(table, keys=("learning.rate",)))


@pytest.mark.slow
@pytest.mark.sampled(fast=0)
@pytest.mark.parametrize("suffix", ["pdf", "svg", "png"])
def test_the_same_runs_give_the_same_file(suffix, tmp_path):
    comparison, runs = compared(SCORES, against=AGAINST)
    for name in ("one", "other"):
        figure(comparison, runs, path=tmp_path / f"{name}.{suffix}")
    one, other = (tmp_path / f"{name}.{suffix}" for name in ("one", "other"))
    assert one.read_bytes() == other.read_bytes()
    assert one.stat().st_size > 5000


def test_what_cannot_be_drawn_is_refused(tmp_path):
    comparison, runs = compared(SCORES, against=AGAINST)
    with pytest.raises(InputError, match="does not have the suffix of a picture"):
        figure(comparison, runs, path=tmp_path / "figure.txt")
    comparison, runs = compared({("a", "b"): [[math.nan]]})
    with pytest.raises(InputError, match="no run has rounds with accuracy to plot"):
        figure(comparison, runs)


def test_a_caption_says_what_lines_and_bands_are():
    said = (
        "Lines are means over the peers and 2 seeds. Bands are 95 % intervals of Student's t, and may reach beyond the "
        "axis."
    )
    assert caption(compared(SCORES)[0]) == said
    assert caption(compared({("a", "b"): [[0.5]]})[0]) == "Lines are means over the peers and 1 seed."
