"""The page of principal components."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from p2pfl.results.charts import Chart, Curve
from p2pfl.results.facts import Block, BlockGroup, FactTable, Note, Section
from p2pfl.results.pages.rendering import page
from p2pfl.results.plots import chart_figure

MOST = 30
"""Components that the page lists."""


def components_page(name: str, found: Mapping[str, Any], *, disclosed: str) -> str:
    """Return the page of principal components.

    Parameters
    ----------
    name
        Name of the experiment.
    found
        Results of :func:`p2pfl.plugins.exact.statistics.projected.projected`.
    disclosed
        Facts that the totals have shown to each peer.
    """
    sections: list[Section] = [
        ("variance", "Variance", [_variance(found)]),
        ("components", "Components", [components_table(found)]),
        ("disclosure", "What peers have learned", [f"Every peer has learned {disclosed}."]),
    ]
    units = "features divided by their deviations" if found["standardised"] else "features in their own units"
    head = Note(f"{found['samples']} samples of all peers, {len(found['names'])} {units}.", style="small")
    return page(f"Principal components of {name}", sections, head=[head])


def largest(names: Sequence[str], loadings: Sequence[float], *, most: int = 4) -> list[tuple[str, float]]:
    """Return the features that a component is made of, the largest loadings first."""
    order = sorted(range(len(names)), key=lambda place: -abs(loadings[place]))[:most]
    return [(names[place], loadings[place]) for place in order]


def _variance(found: Mapping[str, Any]) -> Block | None:
    share = found["share"][:MOST]
    places = [float(place + 1) for place in range(len(share))]
    whole = list(accumulate(share))
    curves = [Curve("each", places, share, style=0), Curve("all so far", places, whole, style=1)]
    about = f"The first component has {share[0]:.1%} of the variance, the first {len(share)} have {whole[-1]:.1%}."
    chart = Chart("Share of the variance", about, "component", "share", curves, whole=True)
    return BlockGroup([chart_figure(chart)], "figures")


def components_table(found: Mapping[str, Any], *, most: int = MOST) -> FactTable:
    """Return the first components: largest loadings, variance and share of it."""
    rows = [
        (
            place + 1,
            ", ".join(f"{name} {value:+.2f}" for name, value in largest(found["names"], loadings)),
            f"{variance:.5g}",
            f"{share:.1%}",
            f"{whole:.1%}",
        )
        for place, (loadings, variance, share, whole) in enumerate(
            zip(found["components"][:most], found["variance"], found["share"], accumulate(found["share"]), strict=False)
        )
    ]
    heads = ("component", "largest loadings", "variance", "share", "in all")
    return FactTable("Largest loadings and variance", heads, rows, text=2)
