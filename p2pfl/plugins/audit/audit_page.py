"""Report of an audit as one self-contained HTML page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from p2pfl.experiment.catalogue import mode_traits
from p2pfl.plugins.audit.attacks.first_tree import Exposure
from p2pfl.plugins.audit.attacks.inversion import Inversion
from p2pfl.plugins.audit.attacks.membership_inference import MIXED_MODEL, best_inference
from p2pfl.plugins.audit.audit import AccountedBound, Audit
from p2pfl.plugins.audit.claims import TRAINING, Result, number, share
from p2pfl.plugins.audit.pipeline import OPEN_OBSERVER
from p2pfl.results.facts import Block, Bullets, FactTable, Happening, Note, Section
from p2pfl.results.pages.rendering import page

EXPOSURE_CAPTION = "What the total of the first tree shows of the training samples of the peers in it"
"""Heading of the figures of :func:`exposure_table`."""

EXPOSURE_NOTE = (
    "A bin whose samples all have one class gives that class away, and a bin of one sample its class or target, to "
    'whoever knows in which bin a person is. "Of one" are bins with one sample; "by a feature" is the share of samples '
    'that a given feature gives away, in the mean over features; "by any" is the share that at least one does.'
)
"""Meaning of the figures of :func:`exposure_table`."""

LIMITS_NOTE = """\
An audit finds faults; it does not prove privacy. These attackers reached the measured mu; no attacker can exceed \
the accounted mu, if the accountant's model holds.
The observer of the games knows everything but the one update, like the accountant's adversary. Attackers of \
membership and inversion know less; their failure proves little, and inversion in particular fails long before \
differential privacy gives a meaningful guarantee.
The audit does not include peers that answer dishonestly, echo a victim's model or choose the data of others. \
Without noise, a neighbour that also sees the victim's other neighbours knows its exact update (Pasquini, Raynal, \
Troncoso, S&P 2023): decentralisation alone protects no peer.
"""

CHANCE_NOTE = """\
A correct build exceeds the limit of each statistical claim once in 100,000 audits; all attacks together raise a \
false alarm in fewer than one audit in 500.
"""


GAMES_NOTE = """\
mu is the distance between the views with and without the update, in standard deviations; 0 reveals nothing, 1 gives \
69 % correct guesses, 3 gives 93 %. A build fails if even the lower bound of the measurement (all bounds hold \
together in 999 of 1000 audits) exceeds the accounted mu.\
"""

CANARIES_NOTE = """\
Updates of random directions, each planted by a coin in real rounds. Epsilon is the value that the guesses of one run \
prove with a confidence of 95 %, beside the one that they would prove if all were right; such bounds are far below the \
true one for Gaussian noise.\
"""

TEXTS_NOTE = """\
Random token sequences among the training samples of one peer, each planted by a coin. The observer orders them by \
how much their loss falls in the models that it sees. Exposure is the median rank of the planted ones, in bits. \
Epsilon is the value that the guesses of one run prove with a confidence of 95 %, beside the one that they would prove \
if all were right. "At most" is the epsilon, over the rounds that were tried, of a sample of a peer that trains in \
each of them, or that of replacing all updates of the peer by others, where private noise hides these: it is larger \
than that of leaving all of them out, which the experiment may state. The verdict compares at a smaller delta, and its \
bounds hold together; the guarantee is not tested if it would hold even if all guesses were right.\
"""

MEMBERSHIP_NOTE = """\
Area under the ROC curve after each round, where 0.5 is chance; every peer learned from a random half of its samples. \
The ceiling is the largest area that the guarantee permits, and 1 without a guarantee.\
"""

INVERSION_NOTE = """\
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
        ("exposed", EXPOSURE_CAPTION, [EXPOSURE_NOTE, exposure_table(audit)] if audit.exposures else []),
        *_attacks(audit),
        ("limits", "What this does not show", LIMITS_NOTE.splitlines()),
    ]
    return page(f"Audit of {audit.name}", sections, head=head)


def _attacks(audit: Audit) -> list[Section]:
    """Return the results of observers of single models; there are none for sums."""
    if not audit.games:
        reason = "No peer receives a single model, so the attacks on single models are left out."
        return [("attacks", "Attacks on single models", [reason])]
    few = "Not tried: the samples are the learner's own, or no peer has enough of them."
    untried = (
        "Not tried: the model does not begin with a linear layer, whose gradients give a sample away at once, and is "
        "too large for a search with its gradients, takes whole numbers, or has no second derivatives."
    )
    return [
        ("game", "The game: was the update released?", [GAMES_NOTE, table("Games by observer", audit.games, text=3)]),
        ("canaries", "Canaries", [CANARIES_NOTE, table("Canaries by observer", audit.canaries)]),
        *([("texts", "Canaries in text", _tried(TEXTS_NOTE, "Texts by observer", audit.texts))] if audit.texts else []),
        ("membership", "Membership", _tried(MEMBERSHIP_NOTE, "Attacks by observer", audit.inferences, few, text=3)),
        (
            "inversion",
            "Reconstructed samples",
            _tried(INVERSION_NOTE, "Reconstructions by observer", audit.inversions, untried, text=4),
        ),
    ]


def _tried(
    note: str, caption: str, results: Sequence[Result | Inversion], reason: str = "", *, text: int = 1
) -> list[Block | None]:
    """Return the results of an attack, or the reason why there are none."""
    return [note, table(caption, results, text=text)] if results else [reason]


def _lessons(audit: Audit) -> list[Block | None]:
    blocks = list[Block | None]()
    for lesson in lessons(audit):
        blocks.append(Note(f"Promised: {lesson.promised}.", lead=f"{lesson.observer}."))
        blocks.append(Bullets([Happening(sentence) for sentence in lesson.sentences]))
    return blocks


def _claims(audit: Audit) -> list[Block | None]:
    if not audit.claims:
        return ["None: nothing is hidden."]
    parts = {part: [claim for claim in audit.claims if claim.part == part] for part in audit.parts}
    return [Note(CHANCE_NOTE, style="small"), *(table(f"Of {part}", claims, text=2) for part, claims in parts.items())]


def table(caption: str, results: Sequence[Result | Exposure | Inversion], *, text: int = 1) -> FactTable:
    """Return results as a table, whose first columns are text."""
    return FactTable(caption, [*results[0].figures], [[*each.figures.values()] for each in results], text=text)


def exposure_table(audit: Audit) -> FactTable:
    """Return the table of the samples that totals of the first tree show."""
    return table("By number of peers and observer", audit.exposures, text=2)


@dataclass(frozen=True)
class Lesson:
    """Summary of what one observer can learn.

    Parameters
    ----------
    observer
        Name of the observer, with the peers that help it if they are few.
    promised
        Guarantee of the accountant.
    sentences
        Results of the attacks.
    """

    observer: str
    promised: str
    sentences: tuple[str, ...]


def verdict(audit: Audit) -> str:
    """Return one sentence that summarises the audit."""
    broken = len(audit.broken)
    if broken:
        return f"{broken} claim{'s' if broken > 1 else ''} of this build {'are' if broken > 1 else 'is'} broken."
    if audit.promised:
        return "No attack saw more than the accountant allows."
    if mode_traits(audit.mode).sums:
        return "No differential privacy is claimed: peers receive exact sums, and no single model without masks."
    if audit.mask > 0:
        return (
            "No differential privacy is claimed, so none can be broken: masks hide which of the honest peers "
            "sent which part of the sum, as intended; they do not hide the sum."
        )
    if audit.noise > 0:
        return (
            "No differential privacy is claimed, as updates are not clipped, so none can be broken: the noise "
            "is as specified."
        )
    if any(claim.part == TRAINING for claim in audit.claims):
        return "Training hides single samples as is accounted; peers as a whole are not hidden, and send their models."
    return "Nothing is claimed, so nothing can be broken: models are sent unprotected."


def lessons(audit: Audit) -> list[Lesson]:
    """Return the lesson of an unprotected release, and then the lessons of each observer."""
    if not audit.games:
        return [_lesson(audit, promise) for promise in audit.promises]
    first = Lesson(
        "any observer of unprotected updates",
        "nothing",
        ("Reads every update as it is.", *_models(audit, OPEN_OBSERVER)),
    )
    second = Lesson(
        "any receiver of the mixed model",
        _describe_promise(audit.promises[0]),
        ("Is post-processing.", *_models(audit, MIXED_MODEL)),
    )
    return [first, second, *(_lesson(audit, promise) for promise in audit.promises)]


def _lesson(audit: Audit, promise: AccountedBound) -> Lesson:
    helpers = f" ({', '.join(promise.colluders)})" if 0 < len(promise.colluders) <= 3 else ""
    sentences = [each.sentence for each in audit.games if each.observer == promise.observer]
    sentences += [each.sentence for each in audit.canaries if each.observer == promise.observer]
    return Lesson(
        promise.observer + helpers, _describe_promise(promise), (*sentences, *_models(audit, promise.observer))
    )


def _models(audit: Audit, observer: str) -> list[str]:
    """Return the results of attacks on samples."""
    members = [each for each in audit.inferences if each.observer == observer]
    texts = [each.sentence for each in audit.texts if each.observer == observer]
    inverted = [each.sentence for each in audit.inversions if each.observer == observer]
    return [*texts, *([best_inference(members)] if members else []), *inverted]


def _describe_promise(promise: AccountedBound) -> str:
    if math.isinf(promise.mu):
        return "nothing"
    return (
        f"at most mu {promise.mu:.3g} per release, which is {share(promise.mu)} correct guesses about the "
        f"update of {promise.victim}, and epsilon {promise.epsilon:.3g} at delta {promise.delta:g} over "
        f"{promise.rounds} rounds"
    )
