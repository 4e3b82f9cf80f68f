"""Charts of pages: what is drawn, and as what it stands in the page."""

import math
import sys
from pathlib import Path

import pytest

from markup import HOSTILE, checked
from p2pfl.core.errors import InputError
from p2pfl.results.charts import MAX_POINTS, Chart, Curve, Interval
from p2pfl.results.comparisons.figures import MAX_LINES
from p2pfl.results.facts import Figure
from p2pfl.results.pages.rendering import page
from p2pfl.results.plots import COLOURS, blank, chart_figure, intervals, lines

pytest.importorskip("matplotlib")


def drawn(*curves, **settings):
    """Return the lines of a chart, without those of levels."""
    return lines(Chart("t", "d", "x", "y", curves, **settings)).axes[0].lines[: len(curves)]


def test_a_curve_is_drawn_where_its_values_are():
    [line] = drawn(Curve("c", [0, 1, 2], [0.0, 1.0, 0.5]))
    assert line.get_xdata().tolist() == [0, 1, 2]
    assert line.get_ydata().tolist() == [0.0, 1.0, 0.5]


def test_what_is_no_number_is_left_out_of_a_curve_and_an_empty_chart_is_none():
    [line] = drawn(Curve("c", [0, 1, 2], [0.1, math.nan, 0.5]))
    assert line.get_xdata().tolist() == [0, 2]
    assert chart_figure(Chart("t", "d", "x", "y", [Curve("c", [0], [math.inf])])) is None
    assert chart_figure(Chart("t", "d", "x", "y", [Curve("c", [0, 1], [0.0, -1.0])], log=True)) is None
    assert chart_figure(Chart("t", "d", "x", "y", [])) is None


def test_a_long_curve_is_thinned_out_and_keeps_its_ends():
    many = list(range(5001))
    [line] = drawn(Curve("c", many, many, many, many))
    assert len(line.get_xdata()) <= MAX_POINTS + 1
    assert [line.get_xdata()[0], line.get_xdata()[-1]] == [0, 5000]


def test_no_two_curves_of_a_chart_look_alike():
    curves = [Curve(f"curve {place}", [0, 1], [0.0, 1.0], style=place) for place in range(MAX_LINES)]
    looks = {(line.get_color(), line.get_linestyle(), str(line._dash_pattern)) for line in drawn(*curves)}
    assert len(looks) == MAX_LINES


def test_the_levels_of_a_chart_are_in_its_legend():
    picture = lines(Chart("t", "d", "x", "y", [Curve("c", [0, 1], [0.5, 0.5])], levels=[("alone", 0.25)], whole=True))
    assert [text.get_text() for text in picture.legends[0].get_texts()] == ["c", "alone: 0.250"]
    assert picture.axes[0].lines[1].get_ydata() == [0.25, 0.25]


def test_rounds_are_whole_numbers_even_if_there_is_only_one():
    axes = lines(Chart("t", "d", "x", "y", [Curve("c", [1], [0.5])], whole=True)).axes[0]
    low, high = axes.get_xlim()
    assert [tick for tick in axes.get_xticks() if low <= tick <= high] == [1]


def test_intervals_lie_beside_zero_on_their_side():
    axes = intervals([Interval("a", 0.2, 0.1, "#0072B2"), Interval("b", -0.3, None, "#D55E00")], x="x").axes[0]
    bars = [collection.get_segments()[0][:, 0].tolist() for collection in axes.collections]
    assert bars == [pytest.approx([0.1, 0.3])]
    assert [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "o"] == [0.2, -0.3]
    low, high = axes.get_xlim()
    assert low < -0.3
    assert high > 0.3


def named(text):
    """Return a figure whose texts come from others."""

    def draw():
        picture = blank()
        axes = picture.subplots()
        axes.plot([0, 1], [1, 2], label=text, color=COLOURS[0])
        axes.set(title=text, xlabel=text)
        axes.set_xticks([0], [text])
        axes.legend()
        return picture

    return Figure(text, text, draw)


def test_no_text_of_a_figure_becomes_markup_and_formulas_stay_text():
    text = page("t", [("a", "A", [named(HOSTILE), named("$x_1$ \u7cd6 \x1b[2J /home/olga/data.csv")])])
    found = checked(text)
    assert not {"script", "img"} & {name for name, _ in found.elements}
    said = "".join(found.text)
    assert said.count("alert(1)") >= 6
    assert said.count("$x_1$ \u7cd6 \\x1b[2J data.csv") >= 5
    assert "olga" not in text


def test_the_colours_of_a_figure_are_those_of_the_page():
    text = page("t", [("a", "A", [named("t")])])
    figure = text.partition("<figure")[2].partition("</figure>")[0]
    assert "var(--c0)" in figure
    assert "#0072b2" not in figure


def test_a_page_without_matplotlib_has_everything_but_figures(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    text = page("t", [("a", "A", ["words", named("drawn")])])
    checked(text)
    assert "words" in text
    assert "<svg" not in text
    assert text.count("p2pfl-mqtt[plot]") == 1


def test_a_figure_that_cannot_be_drawn_says_why():
    def refuse():
        raise InputError("<b> has nothing to plot")

    text = page("t", [("a", "A", [Figure("t", "d", refuse)])])
    assert "&lt;b&gt; has nothing to plot." in text


def test_every_template_is_escaped():
    templates = Path(sys.modules["p2pfl.results.pages.rendering"].__file__).parent / "templates"
    texts = [path.read_text() for path in templates.glob("*.html")]
    assert texts
    assert not any("safe" in text or "autoescape" in text for text in texts)
