"""Report of an audit as one self-contained HTML page."""

from __future__ import annotations

import math

from p2pfl.plugins.audit.audit import Audit
from p2pfl.plugins.audit.words import EXPOSED, EXPOSED_HEADS, EXPOSED_MEANING, lessons, list_exposed, number, verdict
from p2pfl.results.facts import Block, Bullets, FactTable, Happening, Note, Section, Styled
from p2pfl.results.pages.rendering import page

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


GAMES = """\
mu is the distance between the views with and without the update, in standard deviations; 0 reveals nothing, 1 gives \
69 % correct guesses, 3 gives 93 %. A build fails if even the lower bound of the measurement (all bounds hold \
together in 999 of 1000 audits) exceeds the accounted mu.\
"""

CANARIES = """\
Updates of random directions, each planted by a coin in real rounds. Epsilon is the value that the guesses of one run \
prove; such bounds are far below the true one for Gaussian noise.\
"""

MEMBERSHIP = """\
Area under the ROC curve after each round, where 0.5 is chance; every peer learned from a random half of its samples. \
The ceiling is the largest area that the guarantee permits, and 1 without a guarantee.\
"""

INVERSION = """\
The worst case: an update of one step on one sample. PSNR is in decibels, and higher is better for the attacker; a \
reconstruction that beats the constant by 3 dB counts as recognised.\
"""


def audit_page(audit: Audit) -> str:
    """Return the report as HTML with its style included."""
    hidden = f"mode {audit.mode}; clip {number(audit.clip)}, private noise {number(audit.noise)}, masks "
    head = [
        Note(f"{hidden}{number(audit.mask)}", style="small"),
        audit.smaller,
        Note(verdict(audit), style="alarm" if audit.broken else "verdict"),
        Bullets([Happening(sentence, style="bad") for sentence in audit.broken]) if audit.broken else None,
    ]
    sections: list[Section] = [
        ("lessons", "What each observer can learn", _lessons(audit)),
        ("claims", "Claims that hold whatever the data", _claims(audit)),
        ("exposed", EXPOSED, [EXPOSED_MEANING, exposure_table(audit)] if audit.exposures else []),
        *_attacks(audit),
        ("limits", "What this does not show", LIMITS.splitlines()),
    ]
    return page(f"Audit of {audit.name}", sections, head=head)


def _attacks(audit: Audit) -> list[Section]:
    """Return the results of observers of single models; there are none for sums."""
    if not audit.games:
        reason = "No peer receives a single model, so the attacks on single models are left out."
        return [("attacks", "Attacks on single models", [reason])]
    members: list[Block | None] = [MEMBERSHIP, _inferences(audit)]
    return [
        ("game", "The game: was the update released?", [GAMES, game_table(audit)]),
        ("canaries", "Canaries", [CANARIES, _canaries(audit)]),
        ("membership", "Membership", members if audit.inferences else ["No peer has enough samples."]),
        ("inversion", "Reconstructed samples", _inversions(audit)),
    ]


def _lessons(audit: Audit) -> list[Block | None]:
    found: list[Block | None] = []
    for lesson in lessons(audit):
        found.append(Note(f"Promised: {lesson.promised}.", lead=f"{lesson.observer}."))
        found.append(Bullets([Happening(sentence) for sentence in lesson.sentences]))
    return found


def _claims(audit: Audit) -> list[Block | None]:
    if not audit.claims:
        return ["None: nothing is hidden."]
    tables: dict[str, list[list[object]]] = {}
    for claim in audit.claims:
        figures = [number(claim.measured, infinite="all"), number(claim.allowed), _mark(claim.broken)]
        tables.setdefault(claim.part, []).append([claim.name, claim.sentence, *figures])
    heads = ("claim", "in words", "found", "at most", "verdict")
    return [
        Note(CHANCE, style="small"),
        *(FactTable(f"Of {part}", heads, rows, text=2) for part, rows in tables.items()),
    ]


def exposure_table(audit: Audit) -> FactTable:
    """Return what the totals of the first tree show; without rows for other models."""
    return FactTable(
        "By number of peers and observer", EXPOSED_HEADS, [list_exposed(e) for e in audit.exposures], text=2
    )


def game_table(audit: Audit) -> FactTable:
    """Return the games of each observer."""
    rows = [
        [
            *(game.observer, game.victim, game.player, str(game.releases)),
            *_bounds(game.measured, game.lower, game.accounted),
            _mark(game.broken, bounded=math.isfinite(game.accounted)),
        ]
        for game in audit.games
    ]
    heads = ("observer", "victim", "player", "releases", "mu", "surely", "accounted", "verdict")
    return FactTable("Games by observer", heads, rows, text=3)


def _bounds(measured: float, lower: float, accounted: float) -> tuple[str, str, str]:
    return number(measured, infinite="all"), number(lower, infinite="all"), number(accounted)


def _canaries(audit: Audit) -> FactTable:
    rows = [
        [
            *(each.observer, str(each.count)),
            *(f"{rate:.3f}" for rate in (each.auc, each.tpr_percent, each.tpr_permille)),
            *_bounds(each.measured, each.lower, each.accounted),
            *(f"{each.epsilon:.2f}", number(each.bound)),
            _mark(each.broken, bounded=math.isfinite(each.accounted)),
        ]
        for each in audit.canaries
    ]
    heads = ("observer", "canaries", "AUC", "TPR at 1 %", "at 0.1 %", "mu", "surely", "accounted", "epsilon above")
    return FactTable("Canaries by observer", (*heads, "accounted", "verdict"), rows)


def _inferences(audit: Audit) -> FactTable:
    rows = [
        [
            *(each.observer, str(each.round), each.attack),
            *(f"{each.auc:.3f} ± {each.error:.3f}", f"{each.ceiling:.3f}"),
            _mark(each.broken, bounded=each.ceiling < 1),
        ]
        for each in audit.inferences
    ]
    return FactTable("Attacks by observer", ("observer", "round", "attack", "AUC", "ceiling", "verdict"), rows, text=3)


def _inversions(audit: Audit) -> list[Block | None]:
    if not audit.inversions:
        return ["The model does not begin with a linear layer, whose gradients give a sample away at once."]
    rows = [
        [each.observer, f"{each.psnr:.1f} dB (constant {each.baseline:.1f})", "yes" if each.recognised else "no"]
        for each in audit.inversions
    ]
    return [INVERSION, FactTable("Reconstructions by observer", ("observer", "PSNR", "recognised"), rows, text=3)]


def _mark(broken: bool, *, bounded: bool = True) -> str:  # noqa: FBT001 (the value to mark)
    if not bounded:
        return "no claim"
    return Styled("broken", "bad") if broken else Styled("holds", "good")
