"""One table of combinations that do not work, each with the reason.

Validation, the table of docs/algorithms.md and ``p2pfl explain`` read it. A rule reads settings and declared traits
only, never names of algorithms, codecs or robust rules, so the same rules apply to a class of your own.
"""

from __future__ import annotations

from collections.abc import Iterator

from p2pfl.core.errors import ExperimentError
from p2pfl.experiment.rules.graphs import MIXED
from p2pfl.experiment.rules.learning import COMPRESSED, LEARNING, WAITING
from p2pfl.experiment.rules.robustness_rules import CONTESTED
from p2pfl.experiment.rules.rule import Composition, SettingsRule, When, accelerated, each

SUMMED: tuple[tuple[str, When, str, str], ...] = (
    (
        "learning.stop",
        lambda it: it.mode.sums and it.experiment.learning.stop is not None,
        "it shows others how far each model moved",
        "none",
    ),
    (
        "learning.patience",
        lambda it: it.mode.sums and it.experiment.learning.patience is not None,
        "peers show each other whether their validation loss still improves",
        "none",
    ),
    (
        "learning.fraction",
        lambda it: it.mode.sums and it.experiment.learning.fraction < 1,
        "a sum over few participants reveals their models",
        "1",
    ),
    (
        "privacy.participation",
        lambda it: it.mode.sums and it.experiment.privacy.participation < 1,
        "no accountant covers secret participation in sums",
        "1",
    ),
    (
        "privacy.colluders",
        lambda it: it.mode.sums and it.experiment.privacy.colluders < 1,
        "the receiver of a sum is itself a peer",
        "1 or more",
    ),
    (
        "gossip.steps",
        lambda it: it.mode.sums and it.experiment.gossip.steps not in (None, 1),
        "each further gossip step shows every receiver another sum",
        "1",
    ),
    (
        "gossip.acceleration",
        lambda it: it.mode.sums and accelerated(it),
        "there is one gossip step per round",
        '"none"',
    ),
)
"""Requirements of secure sums: a key, when it is refused, why, and the value to set."""

PAIRWISE = 'change it, or set privacy.mode to "pairwise"'
PRIVATE = (
    *each(
        (lambda it: it.algorithm.no_privacy, "with {algorithm}, which {why}"),
        keys=("privacy.mode",),
        remedy="change the mode or the algorithm",
    ),
    *each(
        (
            lambda it: it.mode.masks and it.algorithm.needs_equal_steps,
            "with {algorithm} under masks, because it {why} and the masks would not cancel",
        ),
        keys=("learning.stragglers",),
        remedy='set it to 0, or privacy.mode to "none"',
    ),
    SettingsRule(
        "privacy.mode",
        lambda it: it.mode.masks and it.graph and not it.graph.keeps_mean,
        "on {kind}, whose weights do not keep the mean in which masks cancel",
        "change it, or take another topology such as epidemic_oracle",
    ),
    *each(
        (
            lambda it: it.mode.sums,
            'with privacy.mode = "{mode}", under which no peer receives the models that it needs',
        ),
        keys=("learning.consensus",),
        remedy="leave one of them out",
    ),
    *each(
        (
            lambda it: it.claims or (it.mode.hides and not it.mode.masks and not it.mode.sums),
            "with private noise, whose guarantee does not cover the exact statistics of the features",
        ),
        keys=("data.scale",),
        remedy="leave the noise out, or scale the features by known bounds instead",
    ),
    *each(
        (
            lambda it: it.claims,
            "with private noise, whose guarantee does not cover whether the validation loss of a peer improves",
        ),
        keys=("learning.patience",),
        remedy="leave one of them out",
    ),
    SettingsRule(
        "learning.algorithm",
        lambda it: it.mode.sums and not it.algorithm.linear and it.algorithm.nonlinear,
        'with privacy.mode = "{mode}", which needs sums of models, because the algorithm {why}',
        PAIRWISE,
    ),
    SettingsRule(
        "topology.kind",
        lambda it: it.mode.sums and it.graph and it.graph.period > 1,
        'with privacy.mode = "{mode}", because each graph shows every receiver another sum',
        'take one graph for all rounds, or set privacy.mode to "pairwise"',
        "a schedule of {it.graph.period} graphs",
    ),
    *(
        SettingsRule(
            key,
            when,
            f'with privacy.mode = "{{mode}}", because {because}',
            f'{"leave it out" if value == "none" else f"set it to {value}"}, or set privacy.mode to "pairwise"',
        )
        for key, when, because, value in SUMMED
    ),
)
"""Privacy modes."""


def _decided(when: When) -> When:
    return lambda it: it.mode.masks and it.experiment.privacy.departures != "unsettled" and when(it)


def _sparse(it: Composition) -> bool:
    """Return whether one gossip step does not give everybody the average of all models."""
    return it.graph is not None and not it.graph.uniform


DECIDED = tuple(
    SettingsRule("privacy.departures", _decided(when), because, "leave one of the two out")
    for when, because in (
        (
            lambda it: it.experiment.privacy.mask_graph != "same",
            "with privacy.mask_graph, because only neighbours vote on a model",
        ),
        (lambda it: not it.algorithm.linear, "with {algorithm}, which {it.algorithm.nonlinear}"),
        (
            lambda it: _sparse(it) and (it.graph.period > 1 or it.graph.directed or not it.graph.symmetric),
            "on {kind} with these weights, because masks cancel only where both ends of an edge weigh it alike",
        ),
        (
            lambda it: _sparse(it) and it.experiment.learning.stop,
            "with learning.stop on {kind}, where peers flood the condition to stop after a round counts",
        ),
        (
            lambda it: _sparse(it) and it.experiment.learning.patience,
            "with learning.patience on {kind}, where peers flood the condition to stop after a round counts",
        ),
        (
            lambda it: _sparse(it) and it.experiment.transport.quorum < 1,
            "with transport.quorum below 1 on {kind}, where all peers agree on the number of the first attempt",
        ),
    )
)
"""Agreement on which releases of a round count."""

ADDED = (
    SettingsRule(
        "learning.algorithm",
        lambda it: it.learner and it.algorithm.additive and not it.learner.additive,
        "with this learner, whose model does not follow from totals",
        "take another algorithm, or a model such as boosting",
    ),
    SettingsRule(
        "learning.algorithm",
        lambda it: it.learner and it.learner.additive and not it.algorithm.additive,
        "with this learner, whose model follows from exact totals alone",
        'set it to "exact"',
    ),
    *each(
        (
            lambda it: it.algorithm.additive and it.mode.hides and not it.mode.masks and not it.mode.sums,
            "with {algorithm}, whose totals are exact and have no private noise",
        ),
        keys=("privacy.mode",),
        remedy='set it to "pairwise", which hides the contributions to every total, or to "none"',
    ),
    *each(
        (
            lambda it: it.exact and it.mode.hides,
            "with {algorithm} and this model, whose totals have no private noise",
        ),
        keys=("privacy.noise", "privacy.epsilon"),
        remedy=(
            'leave it out, or set model.name to "random_boosting", "private_glm", "private_description", '
            '"private_kaplan_meier" or "private_pca", whose totals take noise'
        ),
    ),
    *each(
        (lambda it: it.algorithm.additive, "with {algorithm}, because a total takes all peers"),
        keys=("simulation.absence",),
        remedy="leave it out",
    ),
    *each(
        (lambda it: it.algorithm.additive, "with {algorithm}, whose models end by themselves"),
        keys=("learning.stop", "learning.patience"),
        remedy="leave it out, or set model.options.early_stopping where the model has it",
    ),
)
"""Models that follow from exact totals."""

SHARED = (
    SettingsRule(
        "telemetry.share",
        lambda it: it.experiment.telemetry.share != "none" and it.experiment.telemetry.observers is None,
        "without telemetry.observers, the file with the keys of those who may look",
        "name one, which p2pfl identity NAME --roster FILE writes",
    ),
    SettingsRule(
        "telemetry.share",
        lambda it: it.experiment.telemetry.share == "scores" and it.claims and not it.experiment.telemetry.unaccounted,
        "with private noise, whose guarantee does not cover scores of private data",
        'set it to "health", or set telemetry.unaccounted = true',
    ),
    SettingsRule(
        "telemetry.share",
        lambda it: (
            it.experiment.telemetry.share != "none" and it.mode.hides and it.experiment.privacy.participation < 1
        ),
        "with privacy.participation below 1, because rounds and times reveal who takes part",
        'set it to "none"',
    ),
    SettingsRule(
        "telemetry.share",
        lambda it: it.experiment.telemetry.share != "none" and it.experiment.learning.example_noise > 0,
        "with learning.example_noise, because the time of a training reveals how large its secret batches are",
        'set it to "none"',
    ),
)
"""Telemetry for observers."""

RULES = (*SHARED, *ADDED, *DECIDED, *CONTESTED, *PRIVATE, *WAITING, *LEARNING, *COMPRESSED, *MIXED)
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
    for said in refusals(it):
        raise ExperimentError(said)


def refusals(it: Composition) -> Iterator[str]:
    """Return the sentences of all rules that refuse a composition; the first one is reported."""
    return filter(None, (rule.refusal(it) for rule in RULES))
