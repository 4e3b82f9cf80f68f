"""One table of combinations that do not work, each with the reason.

Validation, the table of docs/algorithms.md and ``p2pfl explain`` read it. A rule reads settings and declared traits
only, never names of algorithms, codecs or robust rules, so the same rules apply to a class of your own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from p2pfl.core.errors import ExperimentError
from p2pfl.core.traits import DataTraits
from p2pfl.experiment.catalogue import traits_of
from p2pfl.experiment.composition import Composition
from p2pfl.experiment.former_settings import former_runs
from p2pfl.experiment.timetable import Timetable

FRAGMENTS = "learning.algorithm_options.fragments"

When = Callable[[Composition], object]
"""Condition of a rule: false, or a reason that may be part of its sentence."""


@dataclass(frozen=True)
class SettingsRule:
    """One combination of settings that is refused.

    Parameters
    ----------
    refuses
        Key of the experiment file whose value is refused.
    when
        Condition; what it returns is ``{why}`` in ``because``.
    because
        What the value does not work with, and why. ``{algorithm}``, ``{mode}``, ``{codec}``, ``{rule}`` and ``{kind}``
        are names, ``{it}`` is the composition.
    remedy
        Advice to the user.
    got
        Refused value if it is not that of the key, with names in braces like ``because``.

    Examples
    --------
    >>> from p2pfl.experiment.schema import Experiment, LearningSettings
    >>> rule = SettingsRule("learning.stop", lambda it: it.algorithm.personal, "with {algorithm}", "leave it out")
    >>> rule.refusal(Composition.of(Experiment(learning=LearningSettings(algorithm="ditto", stop=0.1))))
    'learning.stop = 0.1 does not work with ditto; leave it out'
    """

    refuses: str
    when: When
    because: str
    remedy: str = "leave one of the two out"
    got: str = ""

    def refusal(self, it: Composition) -> str | None:
        """Return the sentence that refuses a composition; ``None`` if the rule does not apply."""
        why = self.when(it)
        if not why:
            return None
        names = {
            "why": why,
            "it": it,
            "algorithm": it.experiment.learning.algorithm,
            "mode": it.experiment.privacy.mode,
            "codec": it.experiment.compression.name,
            "rule": it.experiment.robustness.rule,
            "kind": it.experiment.topology.kind,
        }
        value = it.value(self.refuses)
        if self.got:
            refused = f"{self.refuses}: {self.got.format(**names)} does not work"
        elif value is None:
            refused = f"{self.refuses} is not set, which does not work"
        else:
            refused = f"{self.refuses} = {_show_value(value)} does not work"
        return f"{refused} {self.because.format(**names)}; {self.remedy}"


def _show_value(value: Any) -> str:
    """Return a value as messages show it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return f'"{value}"' if isinstance(value, str) else str(value)


def is_set(key: str) -> When:
    """Return the condition that a key has a value other than that of an attack on labels."""
    return lambda it: it.value(key) not in (None, False, 0, "none", "label_flip")


def each(*cases: tuple[When, str], keys: tuple[str, ...], remedy: str) -> tuple[SettingsRule, ...]:
    """Return a rule for each key and each case; it applies if the key is set and the case holds."""

    def applies(key: str, when: When) -> When:
        asked = is_set(key)
        return lambda it: asked(it) and when(it)

    return tuple(SettingsRule(key, applies(key, when), why, remedy) for key in keys for when, why in cases)


def acceleration(it: Composition) -> object:
    """Return the name of the acceleration, false if there is none."""
    return it.experiment.gossip.acceleration != "none" and it.experiment.gossip.acceleration


HURRIED: tuple[tuple[When, str], ...] = (
    (lambda it: it.algorithm.asynchronous, "with {algorithm}, whose peers do not wait for each other"),
    (
        lambda it: it.mode.masks or it.mode.sums,
        'with privacy.mode = "{mode}", where a missing neighbour hides no other peer',
    ),
    (lambda it: it.experiment.learning.stop is not None, "with learning.stop, which all peers decide together"),
    (
        lambda it: it.experiment.learning.patience is not None,
        "with learning.patience, after which all peers stop together",
    ),
)
"""Conditions under which no peer leaves slow neighbours behind."""

UNSYNCHRONISED = (
    (("gossip.acceleration",), "which merges by age and mixes nothing"),
    (("gossip.steps",), "whose peers send once per cycle and do not wait"),
    (("learning.stop", "learning.patience"), "whose peers run cycles of their own and take no decision together"),
    (("data.scale", "learning.consensus"), "whose peers come and go in cycles of their own"),
    (("compression.name",), "whose peers miss models by design, and each code depends on the one before"),
)
"""Keys that do not work with peers that do not wait for each other."""

APART = "leave it out, or take an algorithm whose peers wait for each other"


def _with_deadline(when: When) -> When:
    return lambda it: it.experiment.transport.hurry < 1 and when(it)


def _fraction_of_cycle(it: Composition) -> bool:
    devices = it.experiment.simulation.devices
    return devices is not None and not devices.slowdown.is_integer()


WAITING = (
    *(SettingsRule("transport.hurry", _with_deadline(when), because) for when, because in HURRIED),
    *each(
        (lambda it: not it.algorithm.asynchronous, "with {algorithm}, whose peers wait for each other"),
        keys=("simulation.delay",),
        remedy="leave it out, or take gossip_learning",
    ),
    SettingsRule(
        "simulation.devices.slowdown",
        lambda it: not it.live and it.algorithm.asynchronous and _fraction_of_cycle(it),
        "with {algorithm}, whose slow peers make one cycle in a whole number of those of the others",
        "round it",
    ),
    *each(
        (
            lambda it: it.algorithm.asynchronous and (it.mode.masks or it.mode.sums),
            "with {algorithm}, whose peers merge models of different cycles, in which masks do not cancel",
        ),
        keys=("privacy.mode",),
        remedy=APART,
    ),
    *(
        rule
        for keys, because in UNSYNCHRONISED
        for rule in each(
            (lambda it: it.algorithm.asynchronous, f"with {{algorithm}}, {because}"), keys=keys, remedy=APART
        )
    ),
)
"""Peers that wait for each other, and peers that do not."""


def _changes_in_a_round(it: Composition) -> str:
    """Return what changes the learning rate within a round; empty if nothing does."""
    schedule = it.experiment.learning.scheduling
    return "warmup" if schedule.warmup else 'by = "step"' if schedule.by == "step" else ""


LEARNING = (
    SettingsRule(
        "learning.algorithm",
        lambda it: (it.local or it.experiment.model.norm == "local") and not it.algorithm.keeps_local,
        "with layers that stay with each peer, because it would average them",
        'set it to fedbn or fedper, or set model.norm to "frozen" or "group"',
    ),
    SettingsRule(
        "learning.algorithm",
        lambda it: it.algorithm.needs_local and (it.local is False or it.experiment.model.norm in {"frozen", "group"}),
        "with a model none of whose layers stays with its peer",
        "set it to fedavg, or take a model with batch normalisation and leave model.norm out",
    ),
    SettingsRule(
        "learning.algorithm",
        lambda it: it.learner and not it.learner.gradients and it.algorithm.needs_gradients,
        "with this learner, which provides no gradients, because the algorithm {why}",
        "take fedavg, or a learner that declares gradients",
    ),
    SettingsRule(
        "privacy.mask",
        lambda it: it.blind_masks,
        "with this learner, which declares no steps from which masks could be sized",
        "set it to ten times the change of a parameter in one round, or declare known_steps",
    ),
    *each(
        (
            lambda it: it.learner and not it.learner.any_data,
            "with a learner of your own, whose features p2pfl does not know",
        ),
        keys=("data.scale",),
        remedy="leave it out, and scale the features in the learner",
    ),
    *each(
        (
            lambda it: not it.algorithm.private_examples,
            "with {algorithm}, whose steps the accountant does not know to take secret batches",
        ),
        keys=("learning.example_noise",),
        remedy="leave it out, or change learning.algorithm to fedavg",
    ),
    SettingsRule(
        "learning.optimizer",
        lambda it: it.algorithm.plain_sgd_only and not it.plain_sgd,
        "with {algorithm}, which divides a change by the steps that made it",
        'set it to "sgd" without momentum, or take another algorithm',
        '"{it.experiment.learning.optimizer}" with {it.experiment.learning.options}',
    ),
    SettingsRule(
        "learning.schedule",
        lambda it: (it.algorithm.plain_sgd_only or it.algorithm.own_optimizer) and _changes_in_a_round(it),
        "with {algorithm}, which needs one learning rate in a round",
        "leave it out, or take another algorithm",
        "{why}",
    ),
    *each(
        (lambda it: it.algorithm.personal, "with {algorithm}, in which each peer ends with a model of its own"),
        keys=("learning.consensus",),
        remedy="leave one of them out",
    ),
    *each(
        (
            lambda it: it.algorithm.silent_rounds,
            "with {algorithm}, which has rounds without a new release and would stop in the first of them",
        ),
        keys=("learning.stop",),
        remedy="leave it out",
    ),
)
"""Rules of training."""

COMPRESSED = (
    *each(
        (
            lambda it: it.mode.hides,
            (
                'with privacy.mode = "{mode}", whose masks and noise are exact whole numbers and do not cancel after '
                'a loss (compression.zstd and the algorithm "partial" work)'
            ),
        ),
        (lambda it: it.algorithm.no_compression, "with {algorithm}, which {why}"),
        (
            lambda it: it.differences and it.graph and it.graph.period > 1,
            "on a schedule of topologies, because a peer keeps one weighted sum of what its neighbours have sent",
        ),
        (
            lambda it: it.differences and acceleration(it),
            'with gossip.acceleration = "{why}", which expects plain mixing',
        ),
        keys=("compression.name",),
        remedy="leave one of the two out",
    ),
    SettingsRule(
        "compression.name",
        lambda it: it.algorithm.needs_difference_codec and not it.differences,
        "with {algorithm}, which is defined by the compressed differences that it sends",
        (
            'set it to "quantise", "qsgd", "top_k" or "random_k", or take dpsgd with '
            'learning.algorithm_options.order = "adapt_then_combine"'
        ),
    ),
)
"""Codecs."""


def _averaging_key(it: Composition) -> str:
    causes = {"learning.consensus": it.experiment.learning.consensus, "data.scale": it.experiment.data.scale}
    return next((key for key, given in causes.items() if given), "")


CONTESTED = (
    *each(
        (
            lambda it: it.mode.masks,
            (
                'with privacy.mode = "{mode}", under which masks cancel only in the average, so no single model can '
                "be recognised as Byzantine"
            ),
        ),
        (
            lambda it: it.mode.sums,
            'with privacy.mode = "{mode}", under which peers receive sums and no single model',
        ),
        (lambda it: it.algorithm.needs_plain_averages, "with {algorithm}, which {why}"),
        (lambda it: it.algorithm.asynchronous, "with {algorithm}, which merges models of different cycles by age"),
        (
            lambda it: it.weighted,
            "with {why}, because a Byzantine peer would inflate its own weight",
        ),
        (acceleration, 'with gossip.acceleration = "{why}", which expects linear mixing'),
        (_averaging_key, "with {why}, which takes a plain average that one malicious peer could spoil"),
        (
            lambda it: it.differences,
            'with compression.name = "{codec}", under which peers send differences and no models',
        ),
        keys=("robustness.rule", "attack.name"),
        remedy="change one of the two",
    ),
    *each(
        (lambda it: it.codec, 'with compression.name = "{codec}", which encodes true models'),
        keys=("attack.name",),
        remedy='leave one of the two out, or set attack.name to "label_flip"',
    ),
)
"""Robust rules and attacks: both need single, true models that are averaged plainly."""

UNSCORED = (
    SettingsRule(
        "data.test",
        lambda it: it.experiment.data.test == 0 and not it.algorithm.additive,
        "with {algorithm}, whose models are compared by their scores on samples that nobody trains on",
        "set it above 0, or take a model from exact totals",
    ),
    SettingsRule(
        "data.options",
        lambda it: bool(it.experiment.data.options.get("key_across")) and not it.algorithm.additive,
        "with {algorithm}, which takes no totals",
        "leave it out, or take a model from exact totals",
        "key_across = true",
    ),
)
"""Models without scores."""

MIXED = (
    SettingsRule(
        "gossip.weights",
        lambda it: it.tilted and it.algorithm.full_participation,
        "with {algorithm}, which does not divide by weights",
        "take sgp or fedavg, or other weights",
        '"push"',
    ),
    SettingsRule(
        "gossip.weights",
        lambda it: it.tilted and not it.unequal,
        "with learning.weighted = false, because it divides by the weights of peers",
        "set learning.weighted to true, or take other weights",
        '"push"',
    ),
    SettingsRule(
        "topology.kind",
        lambda it: it.graph and it.graph.period > 1 and it.algorithm.needs_one_graph,
        "with {algorithm}, which {why}",
        "take one graph, such as a ring, or another algorithm",
        "a schedule of {it.graph.period} graphs",
    ),
    SettingsRule(
        "gossip.weights",
        lambda it: it.graph and not it.graph.symmetric and it.algorithm.needs_symmetric_weights,
        "with {algorithm}, which {why}",
        'take an undirected topology with gossip.weights = "metropolis", or another algorithm',
        "an asymmetric matrix",
    ),
    *each(
        (lambda it: it.algorithm.no_acceleration, "with {algorithm}, which {why}"),
        keys=("gossip.acceleration",),
        remedy="leave it out, or take another algorithm",
    ),
    *each(
        (
            lambda it: it.graph and (it.graph.period > 1 or it.graph.directed),
            "on a schedule of topologies or a directed one",
        ),
        (lambda it: it.graph and not it.graph.symmetric, "under weights that are not symmetric"),
        keys=("gossip.acceleration",),
        remedy="leave it out, or change the topology or gossip.weights",
    ),
)
"""Topologies, weights and acceleration."""

SUMMED = (
    ("learning.stop", None, "it shows others how far each model moved"),
    ("learning.patience", None, "peers show each other whether their validation loss still improves"),
    ("learning.fraction", 1, "a sum over few participants reveals their models"),
    ("privacy.participation", 1, "no accountant covers secret participation in sums"),
    ("gossip.steps", 1, "each further gossip step shows every receiver another sum"),
    ("gossip.acceleration", "none", "there is one gossip step per round"),
)
"""Keys that secure sums need unset or at one value, and why."""


def _summed(key: str, value: object) -> When:
    return lambda it: it.mode.sums and it.value(key) not in (None, value)


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
        FRAGMENTS,
        lambda it: it.mode.sums and _fragments(it),
        'with privacy.mode = "{mode}", because sums of other parts of the models each round show more than was checked',
        'leave it out, or set privacy.mode to "pairwise"',
    ),
    SettingsRule(
        "topology.kind",
        lambda it: it.mode.sums and it.graph and it.graph.period > 1,
        'with privacy.mode = "{mode}", because each graph shows every receiver another sum',
        'take one graph for all rounds, or set privacy.mode to "pairwise"',
        "a schedule of {it.graph.period} graphs",
    ),
    SettingsRule(
        "privacy.colluders",
        lambda it: it.mode.sums and it.experiment.privacy.colluders < 1,
        'with privacy.mode = "{mode}", because the receiver of a sum is itself a peer',
        'set it to 1 or more, or set privacy.mode to "pairwise"',
    ),
    *(
        SettingsRule(
            key,
            _summed(key, value),
            f'with privacy.mode = "{{mode}}", because {because}',
            f'{"set it to 1" if value == 1 else "leave it out"}, or set privacy.mode to "pairwise"',
        )
        for key, value, because in SUMMED
    ),
)
"""Privacy modes."""


def _goes_on(when: When) -> When:
    return lambda it: it.mode.masks and it.experiment.privacy.departures == "go_on" and when(it)


def _fragments(it: Composition) -> bool:
    """Return whether each round releases another part of the model."""
    return _fragment_count(it) > 1


def _fragment_count(it: Composition) -> int:
    """Return of how many parts a model each round releases the next one."""
    count = it.value(FRAGMENTS)
    return count if isinstance(count, int) else 1


DECIDED = (
    SettingsRule(
        "privacy.departures",
        lambda it: it.mode.masks and it.algorithm.additive and it.experiment.privacy.departures != "wait",
        "with {algorithm}, whose totals are taken again without a missing peer",
        "leave it out",
    ),
    SettingsRule(
        "privacy.departures",
        _goes_on(lambda it: it.graph and not it.graph.symmetric and it.experiment.gossip.weights != "push"),
        "on {kind} with these weights, which keep the mean only with all peers",
        'set it to "wait", or take an undirected topology with gossip.weights = "metropolis"',
    ),
    SettingsRule(
        "privacy.departures",
        _goes_on(acceleration),
        "with gossip.acceleration, which is fitted to the graph of all peers",
        'set it to "wait", or leave gossip.acceleration out',
    ),
    SettingsRule(
        "transport.gather.quorum",
        lambda it: (
            it.mode.masks
            and not it.algorithm.additive
            and it.experiment.transport.gathering.quorum < 1
            and it.experiment.privacy.departures != "go_on"
        ),
        'with privacy.departures = "{it.experiment.privacy.departures}", under which no round is played without a peer',
        'set it to 1, or set privacy.departures to "go_on"',
    ),
    SettingsRule(
        "simulation.loss",
        lambda it: not it.live and it.mode.masks and not it.algorithm.additive and it.experiment.simulation.loss > 0,
        'with privacy.mode = "{mode}", under which a round counts once all its models have arrived',
        "set it to 0, or simulation.absence above 0",
    ),
    SettingsRule(
        "simulation.absence",
        lambda it: (
            not it.live
            and it.mode.masks
            and it.graph
            and not it.graph.symmetric
            and it.experiment.gossip.weights != "push"
            and it.experiment.simulation.absence > 0
        ),
        "under masks on {kind} with these weights, which keep the mean only with all peers",
        'set it to 0, or take an undirected topology with gossip.weights = "metropolis"',
    ),
)
"""Agreement on which rounds count."""

BLOCKS = "with columns of the same people at different peers"
"""Beginning of a reason."""

COLUMNS = (
    SettingsRule(
        "learning.algorithm",
        lambda it: it.data.columns and not it.algorithm.additive,
        f"{BLOCKS}, whose models follow from exact totals",
        "leave it out, and set model.name to a model of totals, such as glm",
    ),
    SettingsRule(
        "privacy.mode",
        lambda it: it.data.columns and not it.mode.masks and it.graph and it.graph.peers > 2,
        f"{BLOCKS}, because a total to one peer would show the part of each of the others",
        'set it to "pairwise"',
    ),
    SettingsRule(
        "privacy.mode",
        lambda it: it.data.columns and it.mode.masks and it.graph and it.graph.peers == 2,
        f"{BLOCKS} if there are two, because each of two knows the part of the other in a total",
        'set it to "none": products are encrypted, and all messages are sealed',
    ),
    SettingsRule(
        "topology.kind",
        lambda it: it.data.columns and it.graph and not it.graph.uniform,
        f"{BLOCKS}, because any two of them exchange messages that nobody else may read",
        'set it to "complete"',
    ),
    *each(
        (
            lambda it: it.data.columns,
            (
                f"{BLOCKS}: a guarantee for columns against the label holder needs noise as large as the predictor in "
                "the last step, too"
            ),
        ),
        keys=("privacy.epsilon", "privacy.noise"),
        remedy="leave it out",
    ),
    *each(
        (lambda it: it.data.columns, f"{BLOCKS}, whose owners standardise and check their columns themselves"),
        keys=("data.scale", "data.validation", "learning.learner"),
        remedy="leave it out",
    ),
    *each(
        (lambda it: it.data.columns, f"{BLOCKS}, each of which ends with a model of its own columns"),
        keys=("learning.consensus",),
        remedy="leave it out",
    ),
    SettingsRule(
        "attack.name",
        lambda it: it.data.columns and it.value("attack.name") != "none",
        f"{BLOCKS}, one of which alone has labels",
        "leave it out",
    ),
)
"""Columns of the same people at different peers."""

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


def _shared(when: When) -> When:
    return lambda it: it.experiment.telemetry.share != "none" and when(it)


DEVICES = "simulation.devices"


def _devices(when: When) -> When:
    return lambda it: it.clients is not None and when(it)


def _slow_by_samples(it: Composition) -> bool:
    return it.clients is not None and it.clients.sample_seconds > 0


DEVICED = tuple(
    SettingsRule(DEVICES, _devices(when), because, remedy, got="a table of clients")
    for when, because, remedy in (
        (
            lambda it: it.algorithm.full_participation,
            "with {algorithm}, all of whose peers take part in each round",
            "leave it out, or take an algorithm with participants, such as fedavg",
        ),
        (
            lambda it: it.graph is not None and not it.graph.uniform,
            "on {kind}, where clients that are away would have to pass on models",
            'set topology.kind = "complete", or leave it out',
        ),
        (
            lambda it: it.experiment.privacy.participation < 1,
            "with privacy.participation below 1, whose epsilon assumes that devices never decide who takes part",
            "set privacy.participation = 1 and learning.fraction instead, whose epsilon charges every round",
        ),
        (
            lambda it: it.claims and _slow_by_samples(it),
            "with private noise and sample_seconds, by which the samples of one client decide whether others count",
            "leave out sample_seconds or the noise",
        ),
        (
            lambda it: it.mode.sums,
            'with privacy.mode = "{mode}", because a sum over few participants reveals their models',
            'leave it out, or set privacy.mode to "pairwise" with privacy.clip and privacy.noise',
        ),
        (
            lambda it: it.experiment.simulation.absence > 0 or it.experiment.learning.dropped > 0,
            "with simulation.absence or stragglers that are dropped, which say otherwise who takes part",
            "leave one of them out",
        ),
    )
)
"""Clients that come, go and take their time."""

SHARED = tuple(
    SettingsRule("telemetry.share", _shared(when), because, remedy)
    for when, because, remedy in (
        (
            lambda it: it.experiment.telemetry.observers is None,
            "without telemetry.observers, the file with the keys of those who may look",
            "name one, which p2pfl identity NAME --roster FILE writes",
        ),
        (
            lambda it: it.experiment.telemetry.share == "scores" and it.claims,
            "with private noise, whose guarantee does not cover scores of private data",
            'set it to "health", or to "unaccounted" to share them all the same',
        ),
        (
            lambda it: it.mode.hides and it.experiment.privacy.participation < 1,
            "with privacy.participation below 1, because rounds and times reveal who takes part",
            'set it to "none"',
        ),
        (
            lambda it: it.experiment.learning.example_noise > 0,
            "with learning.example_noise, because the time of a training reveals how large its secret batches are",
            'set it to "none"',
        ),
    )
)
"""Telemetry for observers."""

MAX_ALL_TO_ALL = 128
"""Live peers up to which each may send to all others: a round of 64 on a complete graph keeps two cores busy for 3 s,
and a round of 128 four times as long."""


def _many(it: Composition) -> bool:
    """Return whether more peers run live than can each send to all others."""
    return it.live and it.graph is not None and it.graph.peers > MAX_ALL_TO_ALL


RARE = (
    SettingsRule(
        FRAGMENTS,
        lambda it: _fragment_count(it) > max(1, it.experiment.horizon),
        "with rounds = {it.experiment.horizon}, because each round sends one fragment and some would never be sent",
        "set it to at most the number of rounds",
    ),
    SettingsRule(
        "learning.algorithm_options.overlap",
        lambda it: it.experiment.horizon == 1 and it.value("learning.algorithm_options.overlap") in ("start", "late"),
        "with rounds = 1, because the models that travel are those before the only training",
        'set rounds to 2 or more, or overlap to "none"',
    ),
)
"""Rounds in which parts of models travel, or models before their training."""


def _rate_by_step(it: Composition) -> object:
    """Return what counts steps over all rounds, where the rows decide how many a round has."""
    return it.experiment.learning.steps is None and _changes_in_a_round(it)


GROWING = (
    *each(
        (
            lambda it: not (":" in it.experiment.data.name or it.experiment.data.name == "table"),
            'with data.name = "{it.experiment.data.name}", which is no table or function of each peer',
        ),
        (lambda it: it.experiment.learning.learner, "with a learner of your own, which reads its data itself"),
        (lambda it: it.algorithm.additive, "with {algorithm}, whose totals need the same rows in all rounds"),
        (lambda it: it.algorithm.asynchronous, "with {algorithm}, whose peers run cycles of their own"),
        (
            lambda it: it.unequal and it.mode.sums,
            'with privacy.mode = "{mode}" and learning.weighted = true, because the protection depends on all sizes',
        ),
        (
            lambda it: it.unequal and it.mode.hides and it.experiment.privacy.participation < 1,
            (
                "with privacy.participation below 1 and learning.weighted = true, because its weights follow from "
                "the rows at the start"
            ),
        ),
        (_rate_by_step, "with learning.schedule and {why}, because more rows make more steps in a round"),
        keys=("data.refresh",),
        remedy="leave one of the two out",
    ),
)
"""Data that are read again between rounds."""


def _endless(when: When, because: str, remedy: str) -> SettingsRule:
    """Return a rule about rounds without an end."""
    return SettingsRule("rounds", lambda it: it.experiment.endless and when(it), because, remedy)


WITHOUT_END = (
    _endless(
        lambda it: it.algorithm.additive,
        "with {algorithm}, whose totals make the model in a number of rounds",
        "set it to a number",
    ),
    _endless(
        lambda it: it.data != DataTraits(),
        'with data.split = "{it.experiment.data.split}", whose training has a number of rounds',
        "set it to a number",
    ),
    _endless(
        lambda it: it.experiment.learning.scheduling.name is not None,
        "with learning.schedule, whose rates are those of a number of rounds",
        "leave the schedule out (its warmup may stay), or set rounds to a number",
    ),
    _endless(
        lambda it: it.experiment.learning.example_noise,
        "with learning.example_noise, because each round costs privacy of the samples and none is the last",
        "set rounds to a number",
    ),
    _endless(
        lambda it: it.mode.sums,
        'with privacy.mode = "{mode}", whose whole numbers grow with the rounds',
        'set rounds to a number, or privacy.mode to "pairwise"',
    ),
    _endless(
        lambda it: it.claims and it.experiment.privacy.epsilon is None,
        "with private noise and no privacy.epsilon, because each round costs privacy and nothing says when to stop",
        "set privacy.epsilon, with which the peers stop once it is spent, or set rounds to a number",
    ),
    _endless(
        lambda it: it.experiment.privacy.epsilon is not None and not it.experiment.privacy.noise,
        "with privacy.epsilon and no privacy.noise, which would follow from the number of rounds",
        "set privacy.noise, or set rounds to a number",
    ),
)
"""Rounds without an end."""


def _asleep(when: When, because: str, remedy: str) -> SettingsRule:
    """Return a rule about a device that leaves the others from time to time."""

    def applies(it: Composition) -> object:
        pace = it.experiment.transport.pace
        return it.live and pace and (pace.awake or pace.bytes) and when(it)

    return SettingsRule("transport.pace", applies, because, remedy, got="a pace with awake or bytes")


def _awake_briefly(it: Composition) -> bool:
    """Return whether a window of this device may end before the members of a round admit it and play the next."""
    table = Timetable.of(it.experiment.transport.pace)
    return min((window.seconds for window in table.awake), default=math.inf) < 2 * table.every


PACED = (
    SettingsRule(
        "transport.pace",
        lambda it: it.live and it.experiment.transport.pace and it.algorithm.asynchronous,
        "with {algorithm}, whose peers run cycles of their own",
        "leave it out, or take an algorithm whose peers wait for each other",
        got="a pace",
    ),
    _asleep(
        lambda it: it.mode.masks and it.experiment.privacy.departures != "go_on",
        'with privacy.departures = "{it.experiment.privacy.departures}", under which all wait for a peer that leaves',
        'leave them out, or set privacy.departures to "go_on"',
    ),
    _asleep(
        lambda it: it.experiment.learning.weighted and not it.mode.masks,
        "with learning.weighted = true, because the weights drift as devices leave and return hundreds of times",
        "set learning.weighted = false",
    ),
    _asleep(
        lambda it: it.mode.masks and _awake_briefly(it),
        'with privacy.mode = "{mode}" and hours shorter than twice "every", because the members of one round admit a '
        "device to the next",
        "lengthen the hours of awake",
    ),
    _asleep(lambda it: it.algorithm.additive, "with {algorithm}, whose totals need all peers", "leave them out"),
    _asleep(
        lambda it: it.mode.sums,
        'with privacy.mode = "{mode}", whose sums need the same senders in all rounds',
        'leave them out, or set privacy.mode to "pairwise" with privacy.departures = "go_on"',
    ),
    *(
        _asleep(is_set(key), f"with {key}, on which all peers decide together", "leave one of them out")
        for key in ("learning.stop", "learning.patience", "learning.consensus", "data.scale")
    ),
)
"""Pauses between rounds, and devices that sleep."""


def _begins_apart(it: Composition) -> bool:
    return "{peer}" in (it.experiment.model.pretrained or "")


def _unreleased(it: Composition) -> str:
    """Return the algorithm of a former run whose peers kept models or layers of their own; empty if they did not.

    Nothing that its settings name is imported, so that code of its own counts as such an algorithm.
    """
    former = next(former_runs(it.experiment), None) if _begins_apart(it) else None
    if former is None or former.experiment is None:
        return ""
    name = former.experiment.learning.algorithm
    if ":" in name and name != it.experiment.learning.algorithm:
        return name
    traits = traits_of(name)
    return name if traits.personal or traits.keeps_local or former.experiment.model.norm == "local" else ""


BEGUN_APART = (
    *each(
        (
            lambda it: _begins_apart(it) and (it.claims or it.mode.sums),
            'with a guarantee or with privacy.mode = "{mode}", which need one start that all know',
        ),
        (
            lambda it: _begins_apart(it) and it.differences,
            "with {codec}, whose differences begin with one start that all know",
        ),
        (
            lambda it: _begins_apart(it) and it.algorithm.personal,
            "with {algorithm}, whose models of their own nobody released",
        ),
        keys=("model.pretrained",),
        remedy="name one model for all peers, such as that of a peer with its name in place of {peer}",
    ),
    SettingsRule(
        "model.pretrained",
        _unreleased,
        "with the models of a run of {why}, in which peers may keep models or layers that nobody released",
        "name one model that all peers may know, or leave it out",
    ),
)
"""Peers that begin with models of their own."""

CROWDED = (
    SettingsRule(
        "topology.kind",
        lambda it: _many(it) and it.graph is not None and it.graph.complete,
        f"with {{it.graph.peers}} live peers, because each sends to all others, which ends at {MAX_ALL_TO_ALL}",
        'take a graph of few neighbours, such as "random_regular" with topology.degree = 4, or p2pfl simulate',
    ),
)
"""Numbers of live peers at which messages to all others end."""

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
