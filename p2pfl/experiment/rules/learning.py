"""Rules of training, of waiting for slow peers, and of compression."""

from __future__ import annotations

from p2pfl.experiment.rules.rule import Composition, SettingsRule, When, accelerated, each

APART = "leave it out, or take an algorithm whose peers wait for each other"
HURRIED: tuple[tuple[When, str], ...] = (
    (
        lambda it: it.hurried and it.algorithm.asynchronous,
        "with {algorithm}, whose peers do not wait for each other",
    ),
    (
        lambda it: it.hurried and (it.mode.masks or it.mode.sums),
        'with privacy.mode = "{mode}", where a missing neighbour hides no other peer',
    ),
    (
        lambda it: it.hurried and it.experiment.learning.stop is not None,
        "with learning.stop, which all peers decide together",
    ),
    (
        lambda it: it.hurried and it.experiment.learning.patience is not None,
        "with learning.patience, after which all peers stop together",
    ),
)
WAITING = (
    *(SettingsRule("transport.hurry", when, because, "leave one of the two out") for when, because in HURRIED),
    *each(
        (lambda it: not it.algorithm.asynchronous, "with {algorithm}, whose peers wait for each other"),
        keys=("simulation.delay", "simulation.slow"),
        remedy="leave it out, or take gossip_learning",
    ),
    *each(
        (
            lambda it: it.mode.masks or it.mode.sums,
            "with {algorithm}, whose peers merge models of different cycles, in which masks do not cancel",
        ),
        keys=("privacy.mode",),
        base=lambda it: it.algorithm.asynchronous,
        remedy=APART,
    ),
    *each(
        (lambda it: it.algorithm.asynchronous, "with {algorithm}, which merges by age and mixes nothing"),
        keys=("gossip.acceleration",),
        remedy=APART,
    ),
    *each(
        (lambda it: it.algorithm.asynchronous, "with {algorithm}, whose peers send once per cycle and do not wait"),
        keys=("gossip.steps",),
        remedy=APART,
    ),
    *each(
        (
            lambda it: it.algorithm.asynchronous,
            "with {algorithm}, whose peers run cycles of their own and take no decision together",
        ),
        keys=("learning.stop", "learning.patience"),
        remedy=APART,
    ),
    *each(
        (lambda it: it.algorithm.asynchronous, "with {algorithm}, whose peers come and go in cycles of their own"),
        keys=("data.scale", "learning.consensus"),
        remedy=APART,
    ),
    *each(
        (
            lambda it: it.algorithm.asynchronous,
            "with {algorithm}, whose peers miss models by design, and each code depends on the one before",
        ),
        keys=("compression.name",),
        remedy=APART,
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
        (
            lambda it: it.experiment.learning.example_noise > 0,
            "with learning.example_noise, under which learning.example_clip bounds the gradient of each sample",
        ),
        keys=("learning.max_norm",),
        remedy="leave it out",
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
            lambda it: it.differences and accelerated(it),
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
