"""What an audit found, in words: of each observer, what he could learn without noise and with it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from scipy.special import ndtr

from p2pfl.audit.audit import Audit, Promise
from p2pfl.audit.canaries import Canaries
from p2pfl.audit.game import Game
from p2pfl.audit.inversion import Inversion
from p2pfl.audit.membership import MIXED, Inference
from p2pfl.audit.pipeline import OPEN
from p2pfl.experiment.catalogue import mode_traits


@dataclass(frozen=True)
class Lesson:
    """What one observer could learn.

    Parameters
    ----------
    observer
        Who, with the names of those that help him if they are few.
    promised
        What the accountant says.
    sentences
        What the attacks say.
    """

    observer: str
    promised: str
    sentences: tuple[str, ...]


def verdict(audit: Audit) -> str:
    """One sentence on all of it."""
    broken = len(audit.broken)
    if broken:
        return f"{broken} claim{'s' if broken > 1 else ''} of this build {'are' if broken > 1 else 'is'} broken."
    if audit.promised:
        return "No attack saw more than the accountant allows."
    if mode_traits(audit.mode).sums:
        return "No differential privacy is claimed: peers are given exact sums, and no single model left unmasked."
    if audit.mask > 0:
        return (
            "No differential privacy is claimed, so none can be broken: masks hide who of the honest peers sent what, "
            "and they do; they do not hide the sum."
        )
    if audit.noise > 0:
        return (
            "No differential privacy is claimed, as updates are not clipped, so none can be broken: the noise is what "
            "it should be."
        )
    return "Nothing is claimed, so nothing can be broken: rows leave as they are."


def lessons(audit: Audit) -> list[Lesson]:
    """First what there is to learn where nothing is hidden, then each observer."""
    if not audit.games:
        return [_lesson(audit, promise) for promise in audit.promises]
    first = Lesson(
        "anybody, if nothing were hidden",
        "nothing",
        ("Reads every update as it is.", *_models(audit, OPEN)),
    )
    second = Lesson(
        "whoever has the mixed model", _promised(audit.promises[0]), ("Is post-processing.", *_models(audit, MIXED))
    )
    return [first, second, *(_lesson(audit, promise) for promise in audit.promises)]


def share(mu: float) -> str:
    r"""How often the better of two equally likely cases is guessed at :math:`\mu`, :math:`\Phi(\mu/2)`.

    Examples
    --------
    >>> share(0.0), share(1.0), share(math.inf)
    ('50 %', '69 %', '100 %')
    """
    return f"{100 * float(ndtr(mu / 2)):.0f} %"


def number(value: float, *, infinite: str = "none") -> str:
    """A number for people: few digits, and what is infinite in a word.

    Examples
    --------
    >>> number(0.41234), number(3e9), number(math.inf)
    ('0.412', 'over 1000', 'none')
    """
    if math.isinf(value):
        return infinite
    return "over 1000" if value > 1000 else format(value, ".3g")


def _lesson(audit: Audit, promise: Promise) -> Lesson:
    helpers = f" ({', '.join(promise.colluders)})" if 0 < len(promise.colluders) <= 3 else ""
    sentences = [_told(game) for game in audit.games if game.observer == promise.observer]
    sentences += [_sorted(each) for each in audit.canaries if each.observer == promise.observer]
    return Lesson(promise.observer + helpers, _promised(promise), (*sentences, *_models(audit, promise.observer)))


def _promised(promise: Promise) -> str:
    if math.isinf(promise.mu):
        return "nothing"
    return (
        f"at most mu {promise.mu:.3g} a release, which is {share(promise.mu)} right guesses about the update of "
        f"{promise.victim}, and epsilon {promise.epsilon:.3g} at delta {promise.delta:g} over {promise.rounds} rounds"
    )


def _told(game: Game) -> str:
    times = "one release" if game.releases == 1 else f"{game.releases} releases and what was mixed of them"
    limit = "" if math.isinf(game.accounted) else f", the accountant's limit {share(game.accounted)}"
    if game.accounted < game.measured and not game.broken:
        limit += ", within the error of what was measured"
    warning = ": MORE THAN IS ACCOUNTED" if game.broken else ""
    cases = f"about {share(game.measured)} of cases (a coin: 50 %{limit})"
    return f"From {times} he tells {game.question} in {cases}{warning}."


def _sorted(canaries: Canaries) -> str:
    return (
        f"Of {canaries.count} updates, planted or not, he tells one from the other in {100 * canaries.auc:.0f} % of "
        f"pairs and finds {100 * canaries.tpr_percent:.0f} % at one false alarm in a hundred; one run proves epsilon "
        f"above {canaries.epsilon:.2f}."
    )


def _models(audit: Audit, observer: str) -> list[str]:
    """Of membership and inversion."""
    said = []
    mine = [each for each in audit.inferences if each.observer == observer]
    if mine:
        best = _most(mine)
        likely = NormalDist().inv_cdf(1 - 0.025 / len(mine))  # that the best of so many is by chance above
        chance = ", which is chance" if best.auc - likely * best.error <= 0.5 else ""
        said.append(
            f"Tells a sample that a peer learned from and one that it did not apart in {100 * best.auc:.0f} % of pairs "
            f"(± {100 * best.error:.0f} %, best of {len(mine)} attacks){chance}."
        )
    said += [_returned(each) for each in audit.inversions.found if each.observer == observer]
    return said


def _most(found: Sequence[Inference]) -> Inference:
    return max(found, key=lambda each: each.auc)


def _returned(each: Inversion) -> str:
    how = "From the first layer's gradient" if each.attack == "analytic" else "By a search for what has that gradient"
    came = "comes back" if each.recognised else "does not come back"
    quality = f"{each.psnr:.0f} dB, where a constant has {each.baseline:.0f} dB"
    return f"{how} the one sample that a peer learned from {came}: {quality}."
