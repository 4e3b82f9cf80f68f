"""Claims of an audit: a measurement, the most that a correct build measures, and a sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import ndtr

from p2pfl.plugins.audit import statistical_tests
from p2pfl.privacy.total_masks import Ring
from p2pfl.results.facts import Styled

RELEASE = "the release"
STACKED = "stacked peers"
LIVE = "live peers"
SUMS = "live sums"
TOTALS = "the totals"
TRAINING = "training on samples"
ACCOUNTING = "the accounting"
"""Parts of the system that are tested, the headings of the report."""

CLIP_LENGTHS = (1.01, 1.1, 1.5, 3.0, 1e6)
"""Lengths of the updates that must be clipped, in clips: a soft clip lets those through that are hardly too long."""

SENTENCES = {
    # the release
    "masks cancel": "The masks of all peers sum to zero exactly.",
    "updates are clipped": "An update of {lengths} clips moves the release by at most one clip.",
    "sitting out does not show": "A peer that abstains in secret releases the same as with an update of zero.",
    "as many sit out as are accounted": (
        "In {turns} rounds a peer participates in a share of {share:g}, up to chance (standard deviations off)."
    ),
    "keys of runs differ": "No two keys of {count:,} runs are equal, as they would be with only 2^32 seeds.",
    "keys of a run differ": "No two of {count:,} keys of one run are equal, as they would be with only 2^32 seeds.",
    # noise of stacked and live peers, of totals and of training
    "{noise} has its deviation": "The standard deviation is what is accounted (relative error).",
    "{noise} is normal": "A histogram, tails included, fits the normal distribution (chi-square).",
    "{noise} is fine-grained": "Each bit far below the deviation is 1 half of the time (standard deviations off).",
    "{noise} is everywhere": "Every number of a row and every release has it in full (surprise in powers of ten).",
    "{noise} is never shared": "No two releases of any peers, rounds, attempts or runs have correlated noise.",
    "{noise} never repeats": "The numbers of a release are independent of each other (standard deviations off).",
    "noise never comes twice": "No two of {count:,} releases have the same noise, as they would from few keys.",
    "masks need a private key": "An outsider who knows all public keys cannot compute a mask (masks computed).",
    "sitting out is unforeseeable": "Two runs agree on half of {count} coins, up to chance (standard deviations off).",
    # live peers
    "live masks cancel": "The masks of all live peers sum to zero in every round (points).",
    "releases after a restart{of} are fresh": "Earlier releases predict no part of later ones (share of deviation).",
    "noise after a restart{of} is fresh": "Earlier releases predict no part of later noise (share of the deviation).",
    "every release is charged": "Every release is charged, also those that a restart repeats (releases missing).",
    "live peers draw new keys": "Two runs of one experiment with one seed announce no public key twice (keys).",
    "live peers seal anew": "Two runs of one experiment publish no sealed block of 16 bytes twice (blocks).",
    "live peers encrypt under new keys": "Two runs of one experiment share no key of any encryption (keys).",
    "no key and nonce encrypt twice": (
        "No two messages are encrypted under one key and nonce, not even by peers that resume, once or from copies."
    ),
    # live sums
    "terms are masked": "Contributions as sent are uniform in the ring, bit by bit (standard deviations off).",
    "sums of some terms stay masked": (
        "All contributions to a sum but one leave uniform masks together (standard deviations off)."
    ),
    "masks of sums are never used again": "Two contributions of a sender differ by uniform numbers.",
    "keys of sums are of one use": "The key of a mask is of one sum and participant set (keys that are not).",
    # totals
    "masks of totals cancel": "The masks of a total leave the exact sum.",
    "masks of totals are uniform": "What a peer adds to a total is uniform in its ring (standard deviations off).",
    "no two totals share masks": (
        "Masks of totals of other attempts, rounds, participants and runs differ by uniform numbers."
    ),
    "masks of a total never repeat": "A mask differs from itself, moved, by uniform numbers (standard deviations off).",
    "keys of totals are of one use": "A key names round, attempt, number and participants of the total, and both ends.",
    "a total to one peer is exact": "The masks of what peers send to one peer leave the exact sum in the ring.",
    "one peer learns the sum alone": (
        "What peers send to one peer, and every sum over some of them, is uniform whatever they contribute."
    ),
    "noise of a total, {observer}": "The accountant counts the noise of all peers but the colluders, and no more (mu).",
    "nobody is alone in a cell": "No cell of the totals, as the check of small cells leaves it, has one (cells).",
    "nobody is alone beside the samples of a peer": "No peer that subtracts its samples leaves one person (cells).",
    "nobody has nearly a whole sum": "No mean that is stated tells the largest value to within 10 % (means).",
    "nobody has nearly all of a combination of columns": "No sum of products is one row, but for a tenth (rows).",
    "no bin of the first tree has one person": "No sum of derivatives below a root is that of one person (bins).",
    "predictors do not give columns away": (
        "All linear predictors tell the label holder hardly more of others' columns than the last one does: R² "
        "{everything} with all, {last} with the last, {alone} with its own columns (rise)."
    ),
    "distances show the columns of everybody": (
        "The label holder computes the columns of all people from distances and the columns of {known} people. This "
        "always succeeds, and the privacy statement says so; glm with maps shows less (1 - R²)."
    ),
    "the indicator of one person shows their row": (
        "A party that enters the indicator of one person as a column shows the solver that person's row. This always "
        "succeeds, and the privacy statement says so (error of the row)."
    ),
    "gradients show labels": (
        "From the gradients of {rounds} rounds of a split network, {attacker}, who knows some labels, guesses those of "
        "others. The privacy statement says so; label_epsilon protects labels (1 less the AUC)."
    ),
    "gradients show changed labels alone": (
        "From the gradients of {rounds} rounds of a split network, {attacker}, who knows some labels, guesses other "
        "labels, drawn at random, no better than randomised response allows (AUC)."
    ),
    "a completed network shows labels": (
        "{attacker}, who knows {known} labels, trains a top on its part of a split network, and guesses labels with an "
        "AUC of {completed}, where its columns alone give {own}. The privacy statement says so (1 less the AUC)."
    ),
    "a completed network shows changed labels alone": (
        "{attacker}, who knows {known} labels and trains a top on its part of a split network, guesses labels that a "
        "coin has drawn no better than randomised response allows (AUC). Labels on which its columns depend it guesses "
        "with an AUC of {completed}, where its columns alone give {own}: label_epsilon does not prevent that."
    ),
    "a prediction is a few equations": (
        "To predict a person, the label holder receives {numbers}. Whoever knows all coefficients solves them as "
        "equations for {columns} linearly independent columns of others (share of the columns that follows linearly)."
    ),
    "guessed people are refused": "A party with one row more than agreed in data.options.sizes ends the run (rows).",
    "every total is charged": "Every total is charged before it is sent (totals that are not).",
    "{totals}, {observer}": "Whether a sample is there cannot be told by {totals} beyond the accountant's mu.",
    "what a sample changes": "A sample changes a total by no more than the noise is made for, whatever its features.",
    "two runs show no person": (
        "After a run the account refuses one without a single person, whose part the difference shows "
        "({count} people tried; those who are shown)."
    ),
    "two runs show no peer": (
        "After a run the account refuses one without a single peer, whose part the difference shows "
        "({count} times tried; those that are shown)."
    ),
    "the difference of two models is the row of who left": (
        "Whoever has the totals of two runs of which one lacks a single person reads their row and target. This always "
        "succeeds, so withdrawals of few people are refused ({count} people tried; error of the row)."
    ),
    "the difference of two sums is the row of who left": (
        "Whoever has the totals of two analyses of which one lacks a single person reads their row. This always "
        "succeeds, so withdrawals of few people are refused ({count} people tried; error of the row)."
    ),
    "the difference of two Cox regressions is the row and the time of who left": (
        "Whoever has the totals of two runs of which one lacks a single person reads their row, when they left, and "
        "whether with the event. This always succeeds, so withdrawals of few people are refused ({count} people tried; "
        "error of the row)."
    ),
    "the difference of the roots of two forests is the bins of who left": (
        "Whoever has the totals of two runs of which one lacks a single person reads the bins of those features that "
        "the first nodes draw, with the class, if a tree has drawn the person; so withdrawals of few people are "
        "refused ({count} people tried; not read)."
    ),
    "the difference of two first trees is the bins of who left": (
        "Whoever has the totals of two runs of which one lacks a single person reads the bins of their features, and "
        "their class. This always succeeds, so withdrawals of few people are refused ({count} people tried; not read)."
    ),
    # training on samples
    "gradients of samples are clipped": "A sample whose gradient has {lengths} clips moves a step by one clip.",
    "batches have the accounted rate": "Samples are in a batch as often as is accounted (surprise in powers of ten).",
    "each sample has its rate": "Each sample is in a batch as often as is accounted (surprise in powers of ten).",
    "samples join independently": "Two samples share a batch, or successive ones, as often as by chance (surprise).",
    "sizes of batches vary": "Sizes of batches vary as those of independent choices (standard deviations off).",
    "a round has its steps": "A round adds the noise of as many steps as are accounted (relative error of the number).",
    "a round has its samples": "Batches of a round have as many samples as are accounted (surprise in powers of ten).",
    "steps are accounted as they are made": "Meter and summary account for rate, steps and noise in full (ratio).",
    "epsilon of samples is that of their steps": (
        "The steps of all rounds cost at most the stated epsilon, by another computation (epsilon)."
    ),
    "gradients of samples are their own": "The gradient of a sample is the same in any batch (relative difference).",
    # the accounting
    "mu of {observer}": "{observer} can learn at most the stated mu from a release, by another computation.",
    "epsilon of all rounds": "All releases cost at most the epsilon that is stated, by another computation.",
    "releases are charged": "A release is charged at its mu (mu squared that is missing).",
    "corrections are charged in full": "A release that turns out to lack a mask is charged at the local floor.",
    "releases without a mask are charged": "A release that lacks a mask is charged at the local floor.",
    "sums that lack a peer are charged": "All releases are charged at the local floor once a sum lacked a peer.",
    "every release is charged first": "A release is charged before it is sent (releases that are not).",
}
"""Meaning of each claim, by its name."""


@dataclass(frozen=True)
class ExactClaim:
    """Exact claim, and the measurement that tests it.

    Parameters
    ----------
    name, sentence
        Claim in short, and as a sentence.
    measured, allowed
        Measurement, and the largest value that the claim permits.
    part
        Part of the system that is tested, as the heading in the report.
    """

    name: str
    sentence: str
    measured: float
    allowed: float
    part: str

    @property
    def broken(self) -> bool:
        """True if the claim does not hold."""
        return not self.measured <= self.allowed

    @property
    def fault(self) -> str:
        """Sentence for a broken claim."""
        return f"{self.name}: measured {self.measured:.6g}, which exceeds {self.allowed:.6g}"

    @property
    def figures(self) -> dict[str, str]:
        """Row of a table."""
        figures = {"found": number(self.measured, infinite="all"), "at most": number(self.allowed)}
        return {"claim": self.name, "in words": self.sentence, **figures, "verdict": verdict_of(self)}


class Result(Protocol):
    """Claim, or result of an attack of one observer."""

    @property
    def broken(self) -> bool:
        """True if more was seen than the guarantee permits."""

    @property
    def fault(self) -> str:
        """Sentence for a broken guarantee."""

    @property
    def figures(self) -> dict[str, str]:
        """Row of a table, by its heads."""


def verdict_of(result: Result, *, bounded: bool = True, tested: bool = True) -> str:
    """Return the last cell of a row; there is no claim where nothing is ``bounded``."""
    if not bounded:
        return "no claim"
    if not tested:
        return "not tested"
    return Styled("broken", "bad") if result.broken else Styled("holds", "good")


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


def bounds(measured: float, lower: float, accounted: float) -> dict[str, str]:
    """Return a measured mu, its lower confidence bound and the accountant's bound as cells of a row."""
    surely = {"mu": number(measured, infinite="all"), "surely": number(lower, infinite="all")}
    return {**surely, "accounted": number(accounted)}


def share(mu: float) -> str:
    r"""Return the rate of correct guesses between two equally likely cases at :math:`\mu`, :math:`\Phi(\mu/2)`.

    Examples
    --------
    >>> share(0.0), share(1.0), share(math.inf)
    ('50 %', '69 %', '100 %')
    """
    return f"{100 * float(ndtr(mu / 2)):.0f} %"


def claim(part: str, name: str, measured: float, allowed: float = 0.0, **words: str | float) -> ExactClaim:
    """Return a claim of :data:`SENTENCES` with its measurement.

    Parameters
    ----------
    part
        Part of the system that is tested.
    name
        Key of the sentence.
    measured, allowed
        Measurement, and the largest value that the claim permits.
    words
        What the braces in name and sentence stand for.

    Examples
    --------
    >>> claim(ACCOUNTING, "mu of {observer}", 1.0, 2.0, observer="broker").name
    'mu of broker'
    """
    return ExactClaim(name.format(**words), SENTENCES[name].format(**words), float(measured), float(allowed), part)


def list_lengths() -> str:
    """Return :data:`CLIP_LENGTHS` in words."""
    return ", ".join(f"{length:g}" for length in CLIP_LENGTHS)


def uniform(part: str, name: str, rows: Sequence[Ring]) -> ExactClaim:
    """Count the ones in every bit of numbers of a ring, of each row separately and of all together: half are ones.

    Parameters
    ----------
    part, name
        Part and name of the claim.
    rows
        Rows that are uniform if the build is correct, ``[P]`` each.

    Examples
    --------
    >>> from p2pfl.privacy.keys import SeededSource
    >>> rows = [np.frombuffer(SeededSource(0).bytes(8000, purpose="demo", peer="ada"), np.uint64)]
    >>> uniform(SUMS, "terms are masked", rows).broken
    False
    >>> uniform(SUMS, "terms are masked", [rows[0] >> np.uint64(24)]).broken
    True
    """
    if not rows:
        return claim(part, name, math.inf)
    width, size = 8 * rows[0].itemsize, rows[0].size
    ones = np.array(
        [
            [np.count_nonzero(row >> np.uint64(bit) & np.uint64(1)) for bit in range(width)]
            for row in (row.astype(np.uint64) for row in rows)
        ]
    )  # [M, bits]
    alone = np.abs(ones - size / 2) / (size / 4) ** 0.5
    together = np.abs(ones.sum(axis=0) - len(rows) * size / 2) / (len(rows) * size / 4) ** 0.5
    return claim(part, name, max(alone.max(), together.max()), statistical_tests.normal(tests=ones.size + width))
