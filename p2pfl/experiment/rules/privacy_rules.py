"""Rules of privacy modes, of the agreement on rounds, and of telemetry."""

from __future__ import annotations

from p2pfl.experiment.rules.settings_rule import SettingsRule, When, acceleration, each

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
        "learning.algorithm_options.fragments",
        lambda it: it.mode.sums and it.fragments > 1,
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


def _shared(when: When) -> When:
    return lambda it: it.experiment.telemetry.share != "none" and when(it)


SHARED = tuple(
    SettingsRule("telemetry.share", _shared(when), because, remedy)
    for when, because, remedy in (
        (
            lambda it: it.live and it.experiment.telemetry.observers is None,
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
