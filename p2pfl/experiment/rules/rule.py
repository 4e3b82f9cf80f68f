"""The form of a rule, and the facts that rules read: settings, and the traits of what they name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from p2pfl import topology as graphs
from p2pfl.core.traits import CodecTraits, LearnerTraits, ModelTraits, ModeTraits, RuleTraits, Traits
from p2pfl.experiment.catalogue import MODELS, codec_traits, declared, mode_traits, rule_traits, traits_of
from p2pfl.experiment.schema import Experiment

ROUNDING = 1e-12
"""Difference of two equal weights, one of which is what the others leave of 1."""


@dataclass(frozen=True)
class Graph:
    """Facts of a topology and its weights that rules read.

    Parameters
    ----------
    period
        Number of graphs that take turns.
    directed, symmetric
        True if edges go one way; true if both ends weigh them alike.
    keeps_mean, keeps_consensus
        True if mixing keeps the mean of all models, and leaves equal models as they are.
    uniform
        True if one gossip step gives everybody the average of all models.
    """

    period: int
    directed: bool
    symmetric: bool
    keeps_mean: bool
    keeps_consensus: bool
    uniform: bool

    @classmethod
    def of(cls, topology: graphs.Topology | graphs.Schedule, weights: Sequence[graphs.Weights]) -> Graph:
        """Return the facts of a topology and the weights of its gossip steps."""
        return cls(
            topology.period,
            any(topology.at(phase).directed for phase in range(topology.period)),
            all(each.symmetric for each in weights),
            all(each.keeps_mean for each in weights),
            all(each.keeps_consensus for each in weights),
            all(_averages(each) for each in weights),
        )


def _averages(weights: graphs.Weights) -> bool:
    """Return whether weights give everybody the average of all models."""
    data, count = weights.matrix.data, len(weights.peers)
    if len(data) != count**2 or not data.all():
        return False
    rows = data.reshape(count, count)
    return bool((rows.max(axis=1) - rows.min(axis=1) < ROUNDING).all())


@dataclass(frozen=True)
class Composition:
    """Facts of a run that rules read: its settings, and the traits of what they name.

    Parameters
    ----------
    experiment
        The settings.
    algorithm, mode, codec, rule
        Traits; ``None`` for a codec or robust rule that is not there.
    graph, learner
        Facts of the topology, and traits of the learner; rules about them pass while they are ``None``.
    live
        True if peers run apart and exchange messages, so that any of them may be late.
    local
        True if tensors of the model stay with each peer; ``None`` while the model is unknown.
    """

    experiment: Experiment
    algorithm: Traits
    mode: ModeTraits
    codec: CodecTraits | None = None
    rule: RuleTraits | None = None
    graph: Graph | None = None
    learner: LearnerTraits | None = None
    live: bool = False
    local: bool | None = None

    @classmethod
    def of(cls, experiment: Experiment, *, live: bool = False) -> Composition:
        """Return what the names of an experiment stand for."""
        return cls(
            experiment,
            traits_of(experiment.learning.algorithm),
            mode_traits(experiment.privacy.mode),
            codec_traits(experiment.compression.name),
            rule_traits(experiment.robustness.rule),
            live=live,
        )

    def on(self, topology: graphs.Topology | graphs.Schedule, weights: Sequence[graphs.Weights]) -> Composition:
        """Return the same on a topology."""
        return replace(self, graph=Graph.of(topology, weights))

    @property
    def blind_masks(self) -> bool:
        """True if the default mask would need a number of steps that the learner does not declare."""
        privacy = self.experiment.privacy
        unknown = self.learner is not None and not self.learner.known_steps and not self.algorithm.additive
        return unknown and self.mode.masks and privacy.mask is None and not self.claims

    @property
    def differences(self) -> bool:
        """True if the codec sends differences from earlier messages."""
        return self.codec is not None and self.codec.differences

    @property
    def claims(self) -> bool:
        """True if the settings ask for differential privacy, of peers or of samples."""
        privacy = self.experiment.privacy
        noisy = self.mode.hides and (privacy.noise > 0 or privacy.epsilon is not None)
        return noisy or self.experiment.learning.example_noise > 0

    @property
    def unscaled(self) -> bool:
        """True if a shared table keeps its units, because a guarantee covers no statistics of its samples."""
        data = self.experiment.data
        return data.name == "csv" and self.claims and "bounds" not in data.options

    @property
    def exact(self) -> bool:
        """True if models follow from totals in which there is no private noise."""
        if self.learner is not None:
            return self.algorithm.additive and not self.learner.noisy
        return self.algorithm.additive and not declared(MODELS.kind(self.experiment.model.name), ModelTraits()).noisy

    @property
    def weighted(self) -> str:
        """The setting that gives models unequal weights; empty if none does."""
        privacy = self.experiment.privacy
        found = {} if self.algorithm.full_participation else self._unequal
        found["privacy.participation below 1"] = self.mode.hides and privacy.participation < 1
        found['gossip.weights = "push"'] = self.experiment.gossip.weights == "push"
        return next((name for name, given in found.items() if given), "")

    @property
    def unequal(self) -> bool:
        """True if ``[learning]`` gives models unequal weights."""
        return any(self._unequal.values())

    @property
    def _unequal(self) -> dict[str, bool]:
        """Settings of ``[learning]`` that give models unequal weights, and which of them are in force."""
        learning = self.experiment.learning
        return {
            "learning.weighted = true": learning.weighted,
            "learning.fraction below 1": learning.fraction < 1,
            "learning.stragglers that are dropped": learning.dropped > 0,
        }

    @property
    def tilted(self) -> bool:
        """True if mixing changes equal models, as push-sum does, and the algorithm does not divide the change out."""
        return self.graph is not None and not self.graph.keeps_consensus and not self.algorithm.weighs_neighbours

    @property
    def hurried(self) -> bool:
        """True if peers leave slow neighbours behind."""
        return self.experiment.transport.hurry < 1

    @property
    def plain_sgd(self) -> bool:
        """True if local steps are plain gradient descent."""
        learning = self.experiment.learning
        return learning.optimizer == "sgd" and not learning.options.get("momentum")

    def value(self, key: str) -> Any:
        """Return the value of a key of the experiment file."""
        section, _, name = key.partition(".")
        return getattr(getattr(self.experiment, section), name)


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
            refused = f"{self.refuses} = {_shown(value)} does not work"
        return f"{refused} {self.because.format(**names)}; {self.remedy}"


def _shown(value: Any) -> str:
    """Return a value as messages show it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return f'"{value}"' if isinstance(value, str) else str(value)


def is_set(key: str) -> When:
    """Return the condition that a key has a value other than that of an attack on labels."""
    return lambda it: it.value(key) not in (None, False, 0, "none", "label_flip")


def each(
    *cases: tuple[When, str], keys: tuple[str, ...], base: When | None = None, remedy: str
) -> tuple[SettingsRule, ...]:
    """Return a rule for each key and each case; it applies if the key is set and ``base`` and the case hold."""

    def applies(key: str, when: When) -> When:
        asked = is_set(key)
        return lambda it: asked(it) and (base is None or base(it)) and when(it)

    return tuple(SettingsRule(key, applies(key, when), why, remedy) for key in keys for when, why in cases)


def accelerated(it: Composition) -> object:
    """Return the name of the acceleration, false if there is none."""
    return it.experiment.gossip.acceleration != "none" and it.experiment.gossip.acceleration
