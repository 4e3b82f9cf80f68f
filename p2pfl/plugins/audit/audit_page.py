"""Report of an audit as one self-contained HTML page, without the samples unless it is asked for them."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence

import numpy as np

from p2pfl.plugins.audit.attacks.inversion import Inversions
from p2pfl.plugins.audit.audit import Audit
from p2pfl.plugins.audit.pictures import uri
from p2pfl.plugins.audit.pipeline import Floats
from p2pfl.plugins.audit.words import EXPOSED, EXPOSED_HEADS, EXPOSED_MEANING, lessons, list_exposed, number, verdict

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
h1 { margin-bottom: 0 } h2 { margin-top: 2.2rem; border-bottom: 1px solid #ddd }
table { border-collapse: collapse; margin: .6rem 0 } th, td { padding: .25rem .8rem .25rem 0; text-align: left }
th { font-weight: 600; white-space: nowrap; border-bottom: 1px solid #999 } td + td.n, th.n { text-align: right }
.wide { overflow-x: auto } .verdict { padding: .7rem 1rem; border-left: 6px solid #2a7 ; background: #f2faf6 }
.verdict.broken { border-color: #c33; background: #fdf3f3 } .bad { color: #c33; font-weight: 600 }
.pictures img { image-rendering: pixelated; width: 72px; min-height: 12px; margin: 2px; border: 1px solid #ccc }
.small { color: #666; font-size: 90% }
"""

LIMITS = """\
An audit finds faults; it does not prove privacy. These attackers reached the measured mu; no attacker can exceed \
the accounted mu, if the accountant's model holds.
The observer of the games knows everything but the one update, like the accountant's adversary. Attackers of \
membership and inversion know less; their failure proves little, and inversion in particular fails long before \
differential privacy gives a meaningful guarantee.
The audit does not include peers that answer dishonestly, echo a victim's model or choose the data of others. \
Without noise, a neighbour that also sees the victim's other neighbours knows its exact update (Pasquini, Raynal, \
Troncoso, S&P 2023): decentralisation alone protects no peer.
"""

CHANCE = """\
A correct build exceeds the limit of each statistical claim once in 100,000 audits; all attacks together raise a \
false alarm in fewer than one audit in 500.
"""


def page(audit: Audit, *, samples: bool = False) -> str:
    """Return the report as HTML with its style included.

    Parameters
    ----------
    audit
        Results of the attacks.
    samples
        Whether to show attacked training samples and their reconstructions, which are private.
    """
    title = html.escape(f"Audit of {audit.name}")
    hidden = f"mode {audit.mode}; clip {number(audit.clip)}, private noise {number(audit.noise)}, masks "
    parts = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>',
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>',
        f"<h1>{title}</h1>",
        f'<p class="small">{html.escape(hidden)}{number(audit.mask)}</p>',
        *([] if audit.smaller is None else [f"<p>{html.escape(audit.smaller)}</p>"]),
        *_verdict(audit),
        "<h2>What each observer can learn</h2>",
        *_lessons(audit),
        "<h2>Claims that hold whatever the data</h2>",
        *_claims(audit),
        *_exposures(audit),
        *_attacks(audit, samples=samples),
        "<h2>What this does not show</h2>",
        *(f"<p>{html.escape(limit)}</p>" for limit in LIMITS.splitlines()),
        "</body></html>",
    ]
    return "\n".join(parts)


def _attacks(audit: Audit, *, samples: bool) -> Iterable[str]:
    """Yield the results of observers of single models; there are none for sums."""
    if not audit.games:
        yield "<p>No peer receives a single model, so the attacks on single models are left out.</p>"
        return
    yield "<h2>The game: was the update released?</h2>"
    yield from _games(audit)
    yield "<h2>Canaries</h2>"
    yield from _canaries(audit)
    yield "<h2>Membership</h2>"
    yield from _inferences(audit)
    yield "<h2>Reconstructed samples</h2>"
    yield from _pictures(audit.inversions, samples=samples)


def _verdict(audit: Audit) -> Iterable[str]:
    broken = audit.broken
    yield f'<p class="verdict{" broken" if broken else ""}"><b>{html.escape(verdict(audit))}</b></p>'
    if broken:
        yield _list(broken, kind="bad")


def _lessons(audit: Audit) -> Iterable[str]:
    for lesson in lessons(audit):
        yield f"<h3>{html.escape(lesson.observer)}</h3><p>Promised: {html.escape(lesson.promised)}.</p>"
        yield _list(lesson.sentences)


def _claims(audit: Audit) -> Iterable[str]:
    if not audit.claims:
        yield "<p>None: nothing is hidden.</p>"
        return
    yield f'<p class="small">{html.escape(CHANCE)}</p>'
    for part in dict.fromkeys(claim.part for claim in audit.claims):
        rows = [
            [
                claim.name,
                html.escape(claim.sentence),
                number(claim.measured, infinite="all"),
                number(claim.allowed),
                _mark(claim.broken),
            ]
            for claim in audit.claims
            if claim.part == part
        ]
        yield f"<h3>Of {html.escape(part)}</h3>"
        yield _table(["claim", "in words", "found", "at most", ""], rows)


def _exposures(audit: Audit) -> Iterable[str]:
    """Yield what the totals of the first tree show; nothing of other models."""
    if audit.exposures:
        yield f"<h2>{EXPOSED}</h2>"
        yield f"<p>{html.escape(EXPOSED_MEANING)}</p>"
        yield _table(EXPOSED_HEADS, [list_exposed(each) for each in audit.exposures])


def _games(audit: Audit) -> Iterable[str]:
    yield (
        "<p>mu is the distance between the views with and without the update, in standard deviations; 0 "
        "reveals nothing, 1 gives 69 % correct guesses, 3 gives 93 %. A build fails if even the lower bound of "
        "the measurement (all bounds hold together in 999 of 1000 audits) exceeds the accounted mu.</p>"
    )
    rows = [
        [
            html.escape(game.observer),
            game.victim,
            game.player,
            str(game.releases),
            number(game.measured, infinite="all"),
            number(game.lower, infinite="all"),
            number(game.accounted),
            _mark(game.broken, bounded=math.isfinite(game.accounted)),
        ]
        for game in audit.games
    ]
    yield _table(["observer", "victim", "player", "releases", "mu", "surely", "accounted", ""], rows)


def _canaries(audit: Audit) -> Iterable[str]:
    yield (
        "<p>Updates of random directions, each planted by a coin in real rounds. Epsilon is the value that the "
        "guesses of one run prove; such bounds are far below the true one for Gaussian noise.</p>"
    )
    rows = [
        [
            html.escape(each.observer),
            str(each.count),
            f"{each.auc:.3f}",
            f"{each.tpr_percent:.3f}",
            f"{each.tpr_permille:.3f}",
            number(each.measured, infinite="all"),
            number(each.lower, infinite="all"),
            number(each.accounted),
            f"{each.epsilon:.2f}",
            number(each.bound),
            _mark(each.broken, bounded=math.isfinite(each.accounted)),
        ]
        for each in audit.canaries
    ]
    heads = ["observer", "canaries", "AUC", "TPR at 1 %", "at 0.1 %", "mu", "surely", "accounted", "epsilon above"]
    yield _table([*heads, "accounted", ""], rows)


def _inferences(audit: Audit) -> Iterable[str]:
    if not audit.inferences:
        yield "<p>No peer has enough samples.</p>"
        return
    yield (
        "<p>Area under the ROC curve after each round, where 0.5 is chance; every peer learned from a random "
        "half of its samples. The ceiling is the largest area that the guarantee permits, and 1 without a "
        "guarantee.</p>"
    )
    rows = [
        [
            html.escape(each.observer),
            str(each.round),
            each.attack,
            f"{each.auc:.3f} ± {each.error:.3f}",
            f"{each.ceiling:.3f}",
            _mark(each.broken, bounded=each.ceiling < 1),
        ]
        for each in audit.inferences
    ]
    yield _table(["observer", "round", "attack", "AUC", "ceiling", ""], rows)


def _pictures(inversions: Inversions, *, samples: bool) -> Iterable[str]:
    truth = inversions.truth
    low, high = float(truth.min()), float(truth.max())
    yield (
        "<p>The worst case: an update of one step on one sample. PSNR is in decibels, and higher is better for "
        "the attacker; a reconstruction that beats the constant by 3 dB counts as recognised.</p>"
    )
    rows = [["the truth", "", "", "", _strip(truth, low=low, high=high)]] if samples else []
    rows += [
        [
            html.escape(each.observer),
            each.attack,
            f"{each.psnr:.1f} dB (constant {each.baseline:.1f})",
            "" if each.ssim is None else f"{each.ssim:.2f}",
            *([_strip(each.pictures, low=low, high=high)] if samples else []),
        ]
        for each in inversions.found
    ]
    heads = ["observer", "attack", "PSNR", "SSIM", *(["reconstruction"] if samples else [])]
    yield f'<div class="pictures">{_table(heads, rows)}</div>'
    if not samples:
        yield "<p>The samples and their reconstructions are private and left out; --samples shows them.</p>"


def _strip(pictures: Floats, *, low: float, high: float) -> str:
    """Return some samples side by side."""
    scaled = np.clip((pictures - low) / max(high - low, 1e-12), 0.0, 1.0)
    return "".join(f'<img alt="" src="{uri(one)}">' for one in scaled)


def _list(sentences: Sequence[str], *, kind: str = "") -> str:
    items = "".join(f'<li class="{kind}">{html.escape(sentence)}</li>' for sentence in sentences)
    return f"<ul>{items}</ul>"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table whose cells are HTML already."""
    head = "".join(f"<th>{cell}</th>" for cell in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>'


def _mark(broken: bool, *, bounded: bool = True) -> str:  # noqa: FBT001 (the value to mark)
    if not bounded:
        return "no claim"
    return '<span class="bad">broken</span>' if broken else "holds"
