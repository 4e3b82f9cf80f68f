"""Section on privacy: the statement, what hides the models, who could learn what, and room for a signature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from p2pfl.results.pages import curves
from p2pfl.results.pages.markup import Markup, join, tag
from p2pfl.results.pages.parts import TOTAL, pairs, table
from p2pfl.results.pages.svg import figures
from p2pfl.results.run import Run

NAMES = {
    "mode": "mode",
    "clip": "clip: bound of what a peer changes in a release",
    "noise": "deviation of the private noise",
    "mask": "deviation of a mask",
    "participation": "probability of taking part in a round",
    "epsilon": "epsilon spent",
    "delta": "delta",
    "adjacency": "what the guarantee compares",
    "colluders": "peers that may collude",
}


def privacy(run: Run) -> Markup | None:
    """Return the statement of the run, word by word, what stands behind it, and room for a signature."""
    found = run.summary.get("privacy")
    if found is None:
        return None
    facts = {label: found[key] for key, label in NAMES.items() if found.get(key) is not None}
    chart = curves.spending(run)
    signed = tag(
        "div", [tag("div", part) for part in ("read and accepted: name", "date", "signature")], class_="signed"
    )
    statement = tag("p", tag("strong", "Statement of the run:"), f" {found['statement']}")
    return join(
        [
            tag("div", statement, class_="verdict"),
            pairs("What hides the models", {name: _fact(value) for name, value in facts.items()}),
            _learned(found.get("learned", {})),
            _observers(found.get("observers", ())),
            None if chart is None else figures([chart], name="privacy"),
            signed,
        ]
    )


def _learned(found: Mapping[str, str]) -> Markup | None:
    """Return who learns which totals."""
    return pairs("Who learns what", found) if found else None


def _observers(found: Sequence[Mapping[str, Any]]) -> Markup | None:
    """Return the guarantee against each observer over all rounds that ran; the promised one is in bold."""
    if not found:
        return None
    rows: list[list[object]] = []
    for each in found:
        numbers = [_number(each["epsilon"]), f"{each['auc']:.3f}", f"{each['tpr']:.3f}"]
        row = [each["observer"], each.get("peer") or "", *numbers]
        rows.append([TOTAL, *row] if each["promised"] else row)
    note = (
        "Epsilon of the peer that is worst off. AUC and TPR are those of the best attack that there can be: TPR is its "
        "rate of true positives at 1 % of false ones. A broker that lies drops, delays and repeats messages, and "
        "isolates a peer. The run promises the line in bold. The table counts the rounds of this run and assumes "
        "that no peer disappears."
    )
    heads = ("who looks", "peer", "epsilon", "AUC", "TPR at 1 %")
    return join([table("What all rounds give away, by observer", heads, rows, text=2), tag("p", note, class_="small")])


def _number(value: float | None) -> str:
    return "unbounded" if value is None else f"{value:.3g}"


def _fact(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
