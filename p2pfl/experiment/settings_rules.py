"""One table of combinations that do not work, each with the reason.

Validation, the table of docs/algorithms.md and ``p2pfl explain`` read it. A rule reads settings and declared traits
only, never names of algorithms, codecs or robust rules, so the same rules apply to a class of your own.
"""

from __future__ import annotations

from collections.abc import Iterator

from p2pfl.core.errors import ExperimentError
from p2pfl.experiment.composition import Composition
from p2pfl.experiment.rules.data_rules import ADDED, BEGUN_APART, COLUMNS
from p2pfl.experiment.rules.learning_rules import COMPRESSED, CONTESTED, GROWING, LEARNING, MIXED, UNSCORED, WAITING
from p2pfl.experiment.rules.privacy_rules import DECIDED, PRIVATE, SHARED
from p2pfl.experiment.rules.round_rules import CROWDED, DEVICED, PACED, RARE, WITHOUT_END

RULES = (
    *SHARED,
    *DEVICED,
    *COLUMNS,
    *ADDED,
    *DECIDED,
    *CONTESTED,
    *PRIVATE,
    *WAITING,
    *LEARNING,
    *COMPRESSED,
    *UNSCORED,
    *MIXED,
    *RARE,
    *GROWING,
    *WITHOUT_END,
    *PACED,
    *BEGUN_APART,
    *CROWDED,
)
"""All of them, in the order in which they are reported."""


def check(it: Composition) -> None:
    """Refuse a composition whose parts do not work together.

    Raises
    ------
    ExperimentError
        A rule applies; the message is the sentence of the first one.

    Examples
    --------
    >>> from p2pfl.experiment.schema import Experiment, LearningSettings
    >>> check(Composition.of(Experiment(learning=LearningSettings(algorithm="gossip_learning", stop=0.1))))
    Traceback (most recent call last):
    p2pfl.core.errors.ExperimentError: learning.stop = 0.1 does not work with gossip_learning, whose peers run cycles \
of their own and take no decision together; leave it out, or take an algorithm whose peers wait for each other
    """
    for refusal in refusals(it):
        raise ExperimentError(refusal)


def refusals(it: Composition) -> Iterator[str]:
    """Return the sentences of all rules that refuse a composition; the first one is reported."""
    return filter(None, (rule.refusal(it) for rule in RULES))
