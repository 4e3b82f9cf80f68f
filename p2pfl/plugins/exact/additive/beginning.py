"""Agreement before the first step of component-wise boosting: ends of columns, and the penalty of sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from p2pfl.core.encodings import Floats, Ints, from_wide, wide
from p2pfl.learning.additive import Question
from p2pfl.learning.exact_model import Asked, Owns
from p2pfl.plugins.exact.additive.base_learners import BaseLearner
from p2pfl.plugins.exact.sketch import EXPONENTS, FINE, coarse, fine, live, sketches

CANDIDATES, REFINEMENTS = 64, 12
"""Penalties of sites that are compared by one total, and such totals."""


def ends(
    learners: Sequence[BaseLearner], known: Mapping[str, tuple[float, float]], own: Owns, *, model: str
) -> Asked[tuple[Floats, Floats]]:
    """Return the ends of each column: those that are given, or those of the cells of its values.

    Parameters
    ----------
    learners
        Base learners, one for each column.
    known
        Ends of columns by name.
    own
        Samples of a peer.
    model
        Name of the model, for errors.
    """
    low, high = np.zeros(len(learners)), np.ones(len(learners))
    asked = [
        (number, learner.place)
        for number, learner in enumerate(learners)
        if learner.kind != "onehot" and learner.column not in known
    ]
    for number, learner in enumerate(learners):
        if learner.column in known:
            low[number], high[number] = known[learner.column]

    def values(peer: str) -> list[Any]:
        part = own(peer).train
        part.check_complete(peer, model=model)
        return [part.features[:, place] for _, place in asked]

    if not asked:
        return low, high
    total = yield Question(lambda peer: coarse(values(peer)), size=len(asked) * EXPONENTS)
    used = live(total)
    total = yield Question(lambda peer: fine(values(peer), used), size=len(used) * FINE)
    for (number, _), sketch in zip(asked, sketches(used, total, columns=len(asked)), strict=True):
        if len(sketch.counts):
            low[number], high[number] = sketch.low[0], sketch.high[-1]
    return low, high


def site_penalty(own: Owns, *, df: float, fraction: int) -> Asked[float]:
    """Return the penalty with which a random intercept of the peers has ``df`` degrees of freedom.

    Peers add their degrees of freedom under several penalties at once, so that nobody shows its number of samples.

    Parameters
    ----------
    own
        Samples of a peer.
    df
        Degrees of freedom.
    fraction
        Fraction bits of what peers add.
    """
    low, high = 0.0, 2.0**40
    for _ in range(REFINEMENTS):
        tried = low + (high - low) * np.arange(1, CANDIDATES) / CANDIDATES

        def terms(peer: str, tried: Floats = tried) -> Ints:
            samples = len(own(peer).train)
            shares = samples / (samples + tried)
            return wide(2 * shares - shares * shares, fraction=fraction)

        total = yield Question(terms, size=2 * (CANDIDATES - 1))
        above = from_wide(total, fraction=fraction) > df
        place = int(above.sum())  # degrees of freedom fall as the penalty rises
        low, high = (tried[place - 1] if place else low), (tried[place] if place < len(tried) else high)
    return 0.5 * (low + high)
