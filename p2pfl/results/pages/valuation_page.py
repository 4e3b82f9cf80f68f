"""The page of the values of peers' data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from p2pfl.results.pages.markup import Markup, tag
from p2pfl.results.pages.parts import page, table
from p2pfl.results.pages.svg import Interval, intervals

NAMES = {"shapley": "Shapley value", "banzhaf": "Banzhaf value", "loo": "Loss without the peer"}
"""Kinds of values in words."""


def valuation_page(name: str, found: Mapping[str, Any]) -> str:
    """Return the page of the values of peers' data.

    Parameters
    ----------
    name
        Name of the experiment.
    found
        Fields of :class:`p2pfl.plugins.study.valuation.Valuation`.
    """
    kind = NAMES[found["method"]]
    sections = [
        ("values", kind, _chart(found, kind)),
        ("table", "Table", _table(found, kind)),
        ("meaning", "What it means", tag("p", " ".join(sentences(found)))),
    ]
    return page(f"Value of the data of {name}", sections, head=[tag("p", f"By {found['metric']}.", class_="small")])


def sentences(found: Mapping[str, Any]) -> list[str]:
    """Return what the values mean in words."""
    drawn = any(each["low"] is not None for each in found["values"])
    how = "drawn coalitions, with 95 % intervals of what the draws leave open" if drawn else "coalitions"
    sign = ", which counts negative" if found["everybody"] < 0 else ""
    models = f"{found['coalitions']} models of {how}, scored on the test data of all peers by {found['metric']}{sign}"
    scores = f"{found['everybody']:.4f} with everybody, {found['nobody']:.4f} untrained."
    whole = ["The values add up to the difference."] if found["method"] == "shapley" else []
    return [f"{models}: {scores}", *whole, "Other seeds, models and test data give other values."]


def _chart(found: Mapping[str, Any], kind: str) -> Markup | None:
    rows = sorted(found["values"], key=lambda each: -each["value"])
    entries = [
        Interval(
            f"{each['peer']}: {each['value']:+.4f}, {each['samples']} samples",
            each["value"],
            None if each["low"] is None else (each["high"] - each["low"]) / 2,
            style="c0" if each["value"] >= 0 else "c1",
        )
        for each in rows
    ]
    about = f"{rows[0]['peer']} is worth most, {rows[-1]['peer']} least."
    drawn = intervals(entries, name="values", title=kind, description=about, x=f"rise of {found['metric']}")
    return None if drawn is None else tag("div", drawn, class_="figures")


def _table(found: Mapping[str, Any], kind: str) -> Markup:
    rows = [
        (
            each["peer"],
            each["samples"],
            f"{each['value']:+.5f}",
            "-" if each["low"] is None else f"{each['low']:+.5f} to {each['high']:+.5f}",
        )
        for each in found["values"]
    ]
    return table(f"{kind} of each peer", ("peer", "samples", "value", "95 % interval"), rows)
