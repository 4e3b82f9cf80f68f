"""One table of what does not go together, and why.

Validation, the table of docs/algorithms.md and ``p2pfl explain`` read it. A rule looks at settings and at declared
traits only, never at names of algorithms, codecs or robust rules: a class of your own is held to the same rules.
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
                'with privacy.mode = "{mode}", as each row is under masks that only the average of all takes off: no '
                "row can be told from a lie"
            ),
        ),
        (
            lambda it: it.mode.sums,
            'with privacy.mode = "{mode}", as peers are given sums and no row that could be looked at',
        ),
        (lambda it: it.algorithm.needs_plain_averages, "with {algorithm}, which {why}"),
        (lambda it: it.algorithm.asynchronous, "with {algorithm}, which merges rows of different cycles by age"),
        (
            lambda it: it.weighted,
            "with {why}, as a weight is a claim that a malicious peer would inflate: all weigh alike",
        ),
        (_accelerated, 'with gossip.acceleration = "{why}", which expects linear mixing'),
        (_averaged, "with {why}, which takes a plain average that one malicious peer could spoil"),
        (
            lambda it: it.differences,
            'with compression.name = "{codec}", under which differences travel and no rows',
        ),
        keys=("robustness.rule", "attack.name"),
        remedy="change one of the two",
    ),
    *each(
        (lambda it: it.rule and it.rule.centred, "with {rule}, whose centre is the own row as it is"),
        keys=("robustness.nearest",),
        expected="false",
        remedy="leave it out, or take another rule",
    ),
    Rule(
        "robustness.radius",
        lambda it: it.rule and it.rule.needs_radius and it.experiment.robustness.radius is None,
        "with {rule}",
        "a number",
        "set it, or take another rule",
    ),
    *each(
        (lambda it: it.rule and not it.rule.needs_radius, "with {rule}"),
        keys=("robustness.radius",),
        expected="none",
        remedy="leave it out, or take self_centred_clipping",
    ),
    *each(
        (lambda it: it.codec, 'with compression.name = "{codec}", whose codes are of true rows'),
        keys=("attack.name",),
        expected='"none" or "label_flip"',
        remedy="leave one of the two out",
    ),
)
"""Robust rules and attacks: both need single, true models that are averaged plainly."""

HEALING = each(
    (
        lambda it: it.experiment.topology.file is not None,
        "with topology.file, which says who hears whom and not who would if somebody were missing",
    ),
    (
        lambda it: it.experiment.topology.kind == "complete",
        "with complete, where whoever is left hears everybody anyway",
    ),
    (
        lambda it: it.mode.sums,
        (
            'with privacy.mode = "{mode}", where a term is masked for those whom its receiver hears, which all senders '
            "must know alike"
        ),
    ),
    (
        lambda it: it.experiment.gossip.weights,
        'with gossip.weights = "{why}", as an edge that heals weighs alike whoever is missing',
    ),
    (lambda it: it.algorithm.state_per_edge, "with {algorithm}, which {why}"),
    (
        lambda it: it.differences,
        'with compression.name = "{codec}", which sends differences from what neighbours have already',
    ),
    keys=("topology.heal",),
    expected="false",
    remedy="leave out one of the two",
)
"""Topologies whose edges close over a missing peer."""

SUMMED: tuple[tuple[str, When, str, str], ...] = (
    (
        "learning.stop",
        lambda it: it.mode.sums and it.experiment.learning.stop is not None,
        "it tells others how far each row moved",
        "none",
    ),
    (
        "learning.fraction",
        lambda it: it.mode.sums and it.experiment.learning.fraction < 1,
        "a sum over few who take part shows their rows",
        "1",
    ),
    (
        "privacy.participation",
        lambda it: it.mode.sums and it.experiment.privacy.participation < 1,
        "what sitting out in secret saves is not known of sums",
        "1",
    ),
    (
        "privacy.colluders",
        lambda it: it.mode.sums and it.experiment.privacy.colluders < 1,
        "who is given a sum is a peer",
        "1 or more",
    ),
)
"""Requirements of secure sums: a key, when it is refused, why, and the remedy."""

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
            "with {algorithm} under masks, which {why}, so that they would not cancel",
        ),
        keys=("learning.stragglers",),
        expected="0",
        remedy='set it to 0, or privacy.mode to "none"',
    ),
    Rule(
        "privacy.mode",
        lambda it: it.mode.masks and it.graph and not it.graph.keeps_mean,
        "on {kind}, whose weights do not keep the mean in which masks cancel",
        'another than "pairwise"',
        "change it, or take another kind such as epidemic_oracle",
    ),
    *each(
        (
            lambda it: it.mode.sums,
            'with privacy.mode = "{mode}", under which nobody is shown what this is agreed on by',
        ),
        keys=("learning.consensus",),
        expected="false",
        remedy="leave one of them out",
    ),
    *each(
        (
            lambda it: it.claims or (it.mode.hides and not it.mode.masks and not it.mode.sums),
            "with private noise, whose guarantee does not cover the exact statistics of the features",
        ),
        keys=("data.scale",),
        expected="false",
        remedy="leave the noise out, or scale the features by known bounds instead",
    ),
    Rule(
        "learning.algorithm",
        lambda it: it.mode.sums and not it.algorithm.linear and it.algorithm.nonlinear,
        "",
        'one whose exchanges are one sum of rows each with privacy.mode = "{mode}"',
        PAIRWISE,
        '"{algorithm}", which {why}',
    ),
    *(
        Rule(key, when, f'with privacy.mode = "{{mode}}", for {because}', expected, PAIRWISE)
        for key, when, because, expected in SUMMED
    ),
)
"""Privacy modes."""

APART = "leave it out, or take an algorithm whose peers wait for each other"
HURRIED: tuple[tuple[When, str], ...] = (
    (
        lambda it: it.hurried and it.algorithm.asynchronous,
        "with {algorithm}, whose peers wait for nobody",
    ),
    (
        lambda it: it.hurried and (it.mode.masks or it.mode.sums),
        "with privacy.mode = {mode}, where a neighbour that is missing hides nobody",
    ),
    (
        lambda it: it.hurried and it.experiment.learning.stop is not None,
        "with learning.stop, which all decide together",
    ),
)
WAITING = (
    *(Rule("transport.hurry", when, because, "1", "leave out one of the two") for when, because in HURRIED),
    *each(
        (lambda it: not it.algorithm.asynchronous, "with {algorithm}, whose peers wait for each other"),
        keys=("simulation.delay", "simulation.slow"),
        expected="0",
        remedy="leave it out, or take gossip_learning",
    ),
    *each(
        (
            lambda it: it.mode.masks or it.mode.sums,
            "with {algorithm}, whose peers merge rows of different cycles, in which masks do not cancel",
        ),
        keys=("privacy.mode",),
        base=lambda it: it.algorithm.asynchronous,
        expected='"none" or "independent"',
        remedy=APART,
    ),
    *each(
        (lambda it: it.algorithm.asynchronous, "with {algorithm}, which merges by age and mixes nothing"),
        keys=("gossip.acceleration",),
        remedy=APART,
    ),
    *each(
        (lambda it: it.algorithm.asynchronous, "with {algorithm}, whose peers send once a cycle and wait for nobody"),
        keys=("gossip.steps",),
        expected="none",
        remedy=APART,
    ),
    *each(
        (
            lambda it: it.algorithm.asynchronous,
            "with {algorithm}, whose peers run cycles of their own and take no decision together",
        ),
        keys=("learning.stop",),
        expected="none",
        remedy=APART,
    ),
    *each(
        (lambda it: it.algorithm.asynchronous, "with {algorithm}, whose peers come and go in cycles of their own"),
        keys=("data.scale", "learning.consensus"),
        expected="false",
        remedy=APART,
    ),
    *each(
        (
            lambda it: it.algorithm.asynchronous,
            "with {algorithm}, whose peers miss rows by design, of which each code needs the one before",
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
        "",
        "an algorithm that asks for no gradients, which this learner does not show",
        "take fedavg, or a learner that declares them",
        "{algorithm}, which {why}",
    ),
    Rule(
        "privacy.mask",
        lambda it: it.blind_masks,
        "with this learner, of whose steps nothing is known from which masks could be sized",
        "a number",
        "set it to ten times what a number of the model moves in a round, or declare known_steps",
    ),
    *each(
        (
            lambda it: it.learner and not it.learner.any_data,
            "with a learner of your own, whose features nobody else can scale",
        ),
        keys=("data.scale",),
        expected="false",
        remedy="leave it out, and scale them in the learner",
    ),
    *each(
        (
            lambda it: not it.algorithm.private_examples,
            "with {algorithm}, of which the accountant does not know that each step takes a secret batch",
        ),
        keys=("learning.example_noise",),
        expected="0",
        remedy="leave it out, or change learning.algorithm to fedavg",
    ),
    Rule(
        "learning.optimizer",
        lambda it: it.algorithm.plain_sgd_only and not it.plain_sgd,
        "for {algorithm}, which divides a change by the steps that made it",
        '"sgd" without momentum',
        "change it, or take another algorithm",
        '"{it.experiment.learning.optimizer}" with {it.experiment.learning.options}',
    ),
    *each(
        (lambda it: it.algorithm.personal, "with {algorithm}, in which each peer ends with a model of its own"),
        keys=("learning.consensus",),
        expected="false",
        remedy="leave one of them out",
    ),
    *each(
        (
            lambda it: it.algorithm.silent_rounds,
            'with "{algorithm}", which has rounds that show nobody anything new and would end in the first of them',
        ),
        keys=("learning.stop",),
        expected="none",
        remedy="leave it out",
    ),
)
"""How peers train."""

COMPRESSED = (
    *each(
        (
            lambda it: it.mode.hides,
            (
                'with privacy.mode = "{mode}", as masks and noise are exact whole numbers, and what is lost of them '
                'does not cancel (zstd and the algorithm "partial" do)'
            ),
        ),
        (lambda it: it.algorithm.no_compression, "with {algorithm}, which {why}"),
        (
            lambda it: it.differences and it.graph and it.graph.period > 1,
            "with a schedule of topologies, as a peer keeps one weighted sum of what its neighbours have sent",
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
        '"quantise", "qsgd", "top_k" or "random_k"',
        'set one of them, or take dpsgd with learning.algorithm_options.order = "adapt_then_combine"',
    ),
)
"""Codecs."""

MIXED = (
    Rule(
        "gossip.weights",
        lambda it: it.tilted and it.algorithm.full_participation,
        "",
        '"push" only with an algorithm that divides by masses',
        "take sgp or fedavg, or other weights",
        "it with {algorithm}, whose peers count alike",
    ),
    Rule(
        "gossip.weights",
        lambda it: it.tilted and not it.unequal,
        'with "push"',
        "masses to divide by",
        "set it to true, or take other weights",
        "none with learning.weighted = false",
    ),
    Rule(
        "topology.kind",
        lambda it: it.graph and it.graph.period > 1 and it.algorithm.needs_one_graph,
        "for {algorithm}, which {why}",
        "the same graph in every exchange",
        "take another topology, such as a ring, or another algorithm",
        "{it.graph.period} graphs in turn",
    ),
    Rule(
        "gossip.weights",
        lambda it: it.graph and not it.graph.symmetric and it.algorithm.needs_symmetric_weights,
        "for {algorithm}, which {why}",
        "edges that weigh alike at both ends",
        'take an undirected topology with gossip.weights = "metropolis", or another algorithm',
    ),
    *each(
        (lambda it: it.algorithm.no_acceleration, "with {algorithm}, which {why}"),
        keys=("gossip.acceleration",),
        remedy="leave it out, or take another algorithm",
    ),
    *each(
        (
            lambda it: it.graph and (it.graph.period > 1 or it.graph.directed),
            "on a schedule of topologies or a directed one: it needs a constant, undirected topology",
        ),
        (lambda it: it.graph and not it.graph.symmetric, "under weights that are not symmetric"),
        keys=("gossip.acceleration",),
        remedy="leave it out, or change the topology or gossip.weights",
    ),
)
"""Topologies, weights and acceleration."""

RULES = (*CONTESTED, *HEALING, *PRIVATE, *WAITING, *LEARNING, *COMPRESSED, *MIXED)
"""All of them, in the order in which they are reported."""


def check(it: Composition) -> None:
    """Refuse what does not go together.

    Raises
    ------
    ExperimentError
        With the sentence of the first rule that applies.

    Examples
    --------
    >>> from p2pfl.experiment.schema import Experiment, Learning
    >>> check(Composition.of(Experiment(learning=Learning(algorithm="gossip_learning", stop=0.1))))
    Traceback (most recent call last):
    p2pfl.errors.ExperimentError: learning.stop: expected none with gossip_learning, whose peers run cycles of their \
own and take no decision together, got 0.1: leave it out, or take an algorithm whose peers wait for each other
    """
    for said in refusals(it):
        raise ExperimentError(said)


def refusals(it: Composition) -> Iterator[str]:
    """Return the sentences of all rules that refuse a composition, the one that is reported first."""
    return filter(None, (rule.refusal(it) for rule in RULES))
