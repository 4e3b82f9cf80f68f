"""Rules of training, and of how peers wait for each other, compress, judge and mix models."""

from __future__ import annotations

from p2pfl.experiment.composition import Composition
from p2pfl.experiment.rules.settings_rule import SettingsRule, When, acceleration, each

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
    *each(
        (
            lambda it: it.experiment.learning.learner or (it.learner and not it.learner.gradients),
            "with a learner of your own, in which p2pfl cannot bound what one sample changes",
        ),
        keys=("learning.example_noise",),
        remedy="leave it out and set privacy.epsilon, which protects all samples of a peer together, or name the model "
        "in [model]",
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
