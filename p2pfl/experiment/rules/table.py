"""One table of combinations that do not work, each with the reason.

Validation, the table of docs/algorithms.md and ``p2pfl explain`` read it. A rule reads settings and declared traits
only, never names of algorithms, codecs or robust rules, so the same rules apply to a class of your own.
"""

from __future__ import annotations

from collections.abc import Iterator

from p2pfl.errors import ExperimentError
from p2pfl.experiment.rules.rule import Composition, Rule, When, each


def _averaged(it: Composition) -> str:
    found = {"learning.consensus": it.experiment.learning.consensus, "data.scale": it.experiment.data.scale}
    return next((key for key, given in found.items() if given), "")


def _accelerated(it: Composition) -> object:
    return it.experiment.gossip.acceleration != "none" and it.experiment.gossip.acceleration


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
        (_accelerated, 'with gossip.acceleration = "{why}", which expects linear mixing'),
        (_averaged, "with {why}, which takes a plain average that one malicious peer could spoil"),
        (
            lambda it: it.differences,
            'with compression.name = "{codec}", under which peers send differences and no models',
        ),
        keys=("robustness.rule", "attack.name"),
        remedy="change one of the two",
    ),
    *each(
        (lambda it: it.rule and it.rule.centred, "with {rule}, whose centre is the peer's own model"),
        keys=("robustness.nearest",),
        remedy="leave it out, or take another rule",
    ),
    Rule(
        "robustness.radius",
        lambda it: it.rule and it.rule.needs_radius and it.experiment.robustness.radius is None,
        "with {rule}",
        "set it to a number, or take another rule",
    ),
    *each(
        (lambda it: it.rule and not it.rule.needs_radius, "with {rule}"),
        keys=("robustness.radius",),
        remedy="leave it out, or take self_centred_clipping",
    ),
    *each(
        (lambda it: it.codec, 'with compression.name = "{codec}", which encodes true models'),
        keys=("attack.name",),
        remedy='leave one of the two out, or set attack.name to "label_flip"',
    ),
)
"""Robust rules and attacks: both need single, true models that are averaged plainly."""

HEALING = each(
    (
        lambda it: it.experiment.topology.file is not None,
        "with topology.file, which does not define the edges that replace those of a missing peer",
    ),
    (
        lambda it: it.experiment.topology.kind == "complete",
        "with complete graphs, where the remaining peers are neighbours anyway",
    ),
    (
        lambda it: it.mode.sums,
        (
            'with privacy.mode = "{mode}", where all senders must know the other neighbours of a receiver before they '
            "mask"
        ),
    ),
    (
        lambda it: it.experiment.gossip.weights,
        'with gossip.weights = "{why}", because an edge that heals has the same weight whichever peer is missing',
    ),
    (lambda it: it.algorithm.state_per_edge, "with {algorithm}, which {why}"),
    (
        lambda it: it.differences,
        'with compression.name = "{codec}", which sends differences from what neighbours have already',
    ),
    keys=("topology.heal",),
    remedy="leave out one of the two",
)
"""Topologies that heal over a missing peer."""

SUMMED: tuple[tuple[str, When, str, str], ...] = (
    (
        "learning.stop",
        lambda it: it.mode.sums and it.experiment.learning.stop is not None,
        "it shows others how far each model moved",
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
        lambda it: it.mode.sums and _accelerated(it),
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
    Rule(
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
    Rule(
        "learning.algorithm",
        lambda it: it.mode.sums and not it.algorithm.linear and it.algorithm.nonlinear,
        'with privacy.mode = "{mode}", which needs sums of models, because the algorithm {why}',
        PAIRWISE,
    ),
    Rule(
        "topology.kind",
        lambda it: it.mode.sums and it.graph and it.graph.period > 1,
        'with privacy.mode = "{mode}", because each graph shows every receiver another sum',
        'take one graph for all rounds, or set privacy.mode to "pairwise"',
        "a schedule of {it.graph.period} graphs",
    ),
    *(
        Rule(
            key,
            when,
            f'with privacy.mode = "{{mode}}", because {because}',
            f'{"leave it out" if value == "none" else f"set it to {value}"}, or set privacy.mode to "pairwise"',
        )
        for key, when, because, value in SUMMED
    ),
)
"""Privacy modes."""

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
)
WAITING = (
    *(Rule("transport.hurry", when, because, "leave one of the two out") for when, because in HURRIED),
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
        keys=("learning.stop",),
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

LEARNING = (
    Rule(
        "learning.algorithm",
        lambda it: it.learner and not it.learner.gradients and it.algorithm.needs_gradients,
        "with this learner, which provides no gradients, because the algorithm {why}",
        "take fedavg, or a learner that declares gradients",
    ),
    Rule(
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
    Rule(
        "learning.optimizer",
        lambda it: it.algorithm.plain_sgd_only and not it.plain_sgd,
        "with {algorithm}, which divides a change by the steps that made it",
        'set it to "sgd" without momentum, or take another algorithm',
        '"{it.experiment.learning.optimizer}" with {it.experiment.learning.options}',
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
"""How peers train."""

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
            lambda it: it.differences and _accelerated(it),
            'with gossip.acceleration = "{why}", which expects plain mixing',
        ),
        keys=("compression.name",),
        remedy="leave one of the two out",
    ),
    Rule(
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

MIXED = (
    Rule(
        "gossip.weights",
        lambda it: it.tilted and it.algorithm.full_participation,
        "with {algorithm}, which does not divide by weights",
        "take sgp or fedavg, or other weights",
        '"push"',
    ),
    Rule(
        "gossip.weights",
        lambda it: it.tilted and not it.unequal,
        "with learning.weighted = false, because it divides by the weights of peers",
        "set learning.weighted to true, or take other weights",
        '"push"',
    ),
    Rule(
        "topology.kind",
        lambda it: it.graph and it.graph.period > 1 and it.algorithm.needs_one_graph,
        "with {algorithm}, which {why}",
        "take one graph, such as a ring, or another algorithm",
        "a schedule of {it.graph.period} graphs",
    ),
    Rule(
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
    *each(
        (
            lambda it: it.live and it.mode.masks,
            (
                'with privacy.mode = "{mode}" and live peers, because a late model cannot be corrected under '
                "acceleration, and its masks would stay in the mean"
            ),
        ),
        keys=("gossip.acceleration",),
        remedy="leave it out, or use p2pfl simulate, where no peer is late",
    ),
)
"""Topologies, weights and acceleration."""


def _decided(when: When) -> When:
    return lambda it: it.mode.masks and it.experiment.privacy.departures != "unsettled" and when(it)


DECIDED = tuple(
    Rule("privacy.departures", _decided(when), because, "leave one of the two out")
    for when, because in (
        (
            lambda it: it.experiment.privacy.mask_graph != "same",
            "with privacy.mask_graph, because only neighbours vote on a model",
        ),
        (
            lambda it: it.experiment.gossip.steps != 1 and not it.algorithm.single_step,
            "without gossip.steps = 1, because a model that counts enters one gossip step",
        ),
        (lambda it: not it.algorithm.linear, "with {algorithm}, which {it.algorithm.nonlinear}"),
        (lambda it: it.experiment.topology.heal, "with topology.heal, because the voters follow from one graph"),
        (
            lambda it: it.graph and not it.graph.uniform,
            "on {kind}, because masks cancel within a round only where everybody averages all models",
        ),
    )
)
"""Agreement on which releases of a round count."""

ADDED = (
    Rule(
        "learning.algorithm",
        lambda it: it.learner and it.algorithm.additive and not it.learner.additive,
        "with this learner, whose model does not follow from totals",
        "take another algorithm, or a model such as boosting",
    ),
    Rule(
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
            lambda it: it.algorithm.additive and it.mode.hides,
            "with {algorithm}, whose totals no accountant covers",
        ),
        keys=("privacy.noise", "privacy.epsilon"),
        remedy="leave it out; masks hide contributions, and the totals themselves become known to all peers",
    ),
    *each(
        (lambda it: it.algorithm.additive, "with {algorithm}, because a total takes all peers"),
        keys=("simulation.absence",),
        remedy="leave it out",
    ),
    *each(
        (lambda it: it.algorithm.additive, "with {algorithm}, whose models end by themselves"),
        keys=("learning.stop",),
        remedy="leave it out, or set model.options.early_stopping where the model has it",
    ),
)
"""Models that follow from exact totals."""

RULES = (*ADDED, *DECIDED, *CONTESTED, *HEALING, *PRIVATE, *WAITING, *LEARNING, *COMPRESSED, *MIXED)
"""All of them, in the order in which they are reported."""


def check(it: Composition) -> None:
    """Refuse a composition whose parts do not work together.

    Raises
    ------
    ExperimentError
        A rule applies; the message is the sentence of the first one.

    Examples
    --------
    >>> from p2pfl.experiment.schema import Experiment, Learning
    >>> check(Composition.of(Experiment(learning=Learning(algorithm="gossip_learning", stop=0.1))))
    Traceback (most recent call last):
    p2pfl.errors.ExperimentError: learning.stop = 0.1 does not work with gossip_learning, whose peers run cycles of \
their own and take no decision together; leave it out, or take an algorithm whose peers wait for each other
    """
    for said in refusals(it):
        raise ExperimentError(said)


def refusals(it: Composition) -> Iterator[str]:
    """Return the sentences of all rules that refuse a composition; the first one is reported."""
    return filter(None, (rule.refusal(it) for rule in RULES))
