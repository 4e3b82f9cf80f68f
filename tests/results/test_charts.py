"""Charts of the pages of runs and comparisons."""

import math
import re

import pytest

from p2pfl.results.pages.comparison_page import MOST_CURVES
from p2pfl.results.pages.svg import Chart, Curve, Interval, figure, intervals


def points(markup, name):
    [found] = re.findall(rf'<{name} points="([^"]*)"', markup)
    return [tuple(float(part) for part in pair.split(",")) for pair in found.split()]


def test_a_curve_is_drawn_where_its_values_are():
    text = figure(Chart("t", "d", "x", "y", [Curve("c", [0, 1, 2], [0.0, 1.0, 0.5])]), name="f")
    [first, top, middle] = points(text, "polyline")
    assert first[0] < top[0] < middle[0]
    assert top[1] < middle[1] < first[1]
    assert middle[1] == pytest.approx((first[1] + top[1]) / 2, abs=0.2)
    assert top[0] == pytest.approx((first[0] + middle[0]) / 2, abs=0.2)


def test_what_is_no_number_is_left_out_of_a_curve_and_an_empty_chart_is_none():
    text = figure(Chart("t", "d", "x", "y", [Curve("c", [0, 1, 2], [0.1, math.nan, 0.5])]), name="f")
    assert len(points(text, "polyline")) == 2
    assert figure(Chart("t", "d", "x", "y", [Curve("c", [0], [math.inf])]), name="f") is None
    assert figure(Chart("t", "d", "x", "y", [Curve("c", [0, 1], [0.0, -1.0])], log=True), name="f") is None
    assert figure(Chart("t", "d", "x", "y", []), name="f") is None


def test_a_long_curve_is_thinned_out_and_keeps_its_ends():
    many = list(range(5001))
    found = points(figure(Chart("t", "d", "x", "y", [Curve("c", many, many, many, many)]), name="f"), "polyline")
    assert len(found) <= 402
    assert found[0][0] == 58
    assert found[-1][0] == 446


def test_a_constant_curve_has_an_axis():
    text = figure(Chart("t", "d", "x", "y", [Curve("c", [1, 2], [0.5, 0.5])], whole=True), name="f")
    assert "nan" not in text
    assert len({y for _, y in points(text, "polyline")}) == 1


def test_no_two_curves_of_a_chart_look_alike():
    curves = [Curve(f"curve {place}", [0, 1], [0.0, 1.0], style=place) for place in range(MOST_CURVES)]
    text = figure(Chart("t", "d", "x", "y", curves), name="f")
    looks = re.findall(r'<polyline points="[^"]*" class="([^"]*)"', text)
    assert len({*looks}) == len(looks) == MOST_CURVES


def test_intervals_lie_beside_zero_on_their_side():
    text = intervals([Interval("a", 0.2, 0.1), Interval("b", -0.3, 0.1)], name="i", title="t", description="d", x="x")
    zero = float(re.search(r'<line x1="([\d.]+)"[^>]*class="axis"', text)[1])
    one, other = (float(found) for found in re.findall(r'<circle cx="([\d.]+)"', text))
    assert other < zero < one
    assert intervals([], name="i", title="t", description="d", x="x") is None
