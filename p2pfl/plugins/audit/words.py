"""Results of an audit in words: for each observer, what it can learn without noise and with it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from scipy.special import ndtr

from p2pfl.experiment.catalogue import mode_traits
from p2pfl.plugins.audit.attacks.canaries import Canaries
from p2pfl.plugins.audit.attacks.first_tree import Exposure
from p2pfl.plugins.audit.attacks.game import GameResult
from p2pfl.plugins.audit.attacks.membership_inference import MIXED
from p2pfl.plugins.audit.audit import AccountedBound, Audit
from p2pfl.plugins.audit.claims import TRAINING
from p2pfl.plugins.audit.pipeline import OPEN

EXPOSED = "What the total of the first tree shows of the training samples of the peers in it"
"""Heading of the figures of :func:`list_exposed`."""

EXPOSED_HEADS = ("peers", "seen by", "samples", "bins", "of one", "by a feature", "by any")
"""Columns of the figures of :func:`list_exposed`."""

EXPOSED_MEANING = (
    "A bin whose samples all have one class gives that class away, and a bin of one sample its class or target, to "
    'whoever knows in which bin a person is. "Of one" are bins with one sample; "by a feature" is the share of samples '
    'that a given feature gives away, in the mean over features; "by any" is the share that at least one does.'
)
"""Meaning of the figures of :func:`list_exposed`."""


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
    """Return what an unprotected release reveals, and then what each observer can learn."""
    if not audit.games:
        return [_lesson(audit, promise) for promise in audit.promises]
    first = Lesson(
        "any observer of unprotected updates",
        "nothing",
        ("Reads every update as it is.", *_models(audit, OPEN)),
    )
    second = Lesson(
        "any receiver of the mixed model", _promised(audit.promises[0]), ("Is post-processing.", *_models(audit, MIXED))
    )
    return [first, second, *(_lesson(audit, promise) for promise in audit.promises)]


def share(mu: float) -> str:
    r"""Return the rate of correct guesses between two equally likely cases at :math:`\mu`, :math:`\Phi(\mu/2)`.

    Examples
    --------
    >>> share(0.0), share(1.0), share(math.inf)
    ('50 %', '69 %', '100 %')
    """
    return f"{100 * float(ndtr(mu / 2)):.0f} %"


def number(value: float, *, infinite: str = "none") -> str:
    """Format a number for people: few digits, and a word for infinity.

    Examples
    --------
    >>> number(0.41234), number(3e9), number(math.inf)
    ('0.412', 'over 1000', 'none')
    """
    if math.isinf(value):
        return infinite
    return "over 1000" if value > 1000 else format(value, ".3g")


def list_exposed(each: Exposure) -> list[str]:
    """Return the figures of a number of peers, in the order of :data:`EXPOSED_HEADS`.

    Examples
    --------
    >>> list_exposed(Exposure(8, "everybody", 800.0, 1200.0, 90.0, 0.125, 0.5))
    ['8', 'everybody', '800', '1200', '90', '12.5 %', '50.0 %']
    """
    counts = [f"{count:.0f}" for count in (each.samples, each.bins, each.single)]
    shares = [f"{100 * known:.1f} %" for known in (each.given, each.some)]
    return [str(each.peers), each.observer, *counts, *shares]


def _lesson(audit: Audit, promise: AccountedBound) -> Lesson:
    helpers = f" ({', '.join(promise.colluders)})" if 0 < len(promise.colluders) <= 3 else ""
    sentences = [_answer(game) for game in audit.games if game.observer == promise.observer]
    sentences += [_sorted(each) for each in audit.canaries if each.observer == promise.observer]
    return Lesson(promise.observer + helpers, _promised(promise), (*sentences, *_models(audit, promise.observer)))


def _promised(promise: AccountedBound) -> str:
    if math.isinf(promise.mu):
        return "nothing"
    return (
        f"at most mu {promise.mu:.3g} per release, which is {share(promise.mu)} correct guesses about the "
        f"update of {promise.victim}, and epsilon {promise.epsilon:.3g} at delta {promise.delta:g} over "
        f"{promise.rounds} rounds"
    )


def _answer(game: GameResult) -> str:
    times = "one release" if game.releases == 1 else f"{game.releases} releases and their mixes"
    limit = "" if math.isinf(game.accounted) else f", the accountant's limit {share(game.accounted)}"
    if game.accounted < game.measured and not game.broken:
        limit += ", within the error of the measurement"
    warning = ": MORE THAN THE ACCOUNTANT ALLOWS" if game.broken else ""
    cases = f"about {share(game.measured)} of cases (a coin: 50 %{limit})"
    return f"From {times} the observer decides {game.question} correctly in {cases}{warning}."


def _sorted(canaries: Canaries) -> str:
    return (
        f"Of {canaries.count} updates, planted or not, the observer orders {100 * canaries.auc:.0f} % of pairs "
        f"correctly and finds {100 * canaries.tpr_percent:.0f} % at one false alarm in a hundred; one run "
        f"proves epsilon above {canaries.epsilon:.2f}."
    )


def _models(audit: Audit, observer: str) -> list[str]:
    """Return the results of membership inference and inversion."""
    sentences = []
    mine = [each for each in audit.inferences if each.observer == observer]
    if mine:
        best = max(mine, key=lambda each: each.auc)
        likely = NormalDist().inv_cdf(1 - 0.025 / len(mine))  # quantile of the best of several by chance
        chance = ", which is chance" if best.auc - likely * best.error <= 0.5 else ""
        sentences.append(
            f"Distinguishes a sample that a peer learned from and one that it did not in {100 * best.auc:.0f} % "
            f"of pairs (± {100 * best.error:.0f} %, best of {len(mine)} attacks){chance}."
        )
    for each in audit.inversions:
        if each.observer == observer:
            came = "comes back" if each.recognised else "does not come back"
            quality = f"{each.psnr:.0f} dB, where a constant has {each.baseline:.0f} dB"
            sentences.append(f"From the first layer's gradient the one sample of a step {came}: {quality}.")
    return sentences
