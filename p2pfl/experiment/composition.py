"""Facts of a run that rules read: settings, and the traits of what they name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from p2pfl import topology as graphs
from p2pfl.core.traits import CodecTraits, DataTraits, LearnerTraits, ModelTraits, ModeTraits, RuleTraits, Traits
from p2pfl.experiment.catalogue import codec_traits, exact_traits, mode_traits, rule_traits, traits_of
from p2pfl.experiment.partitionings import partitioning
from p2pfl.experiment.schema import DeviceSettings, Experiment


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
    peers
        Number of peers.
    complete
        True if all peers are neighbours.
    """

    period: int
    directed: bool
    symmetric: bool
    keeps_mean: bool
    keeps_consensus: bool
    uniform: bool
    peers: int
    complete: bool

    @classmethod
    def of(cls, topology: graphs.Topology | graphs.Schedule, weights: Sequence[graphs.Weights]) -> Graph:
        """Return the facts of a topology and the weights of its gossip steps."""
        return cls(
            topology.period,
            any(topology.at(phase).directed for phase in range(topology.period)),
            all(each.symmetric for each in weights),
            all(each.keeps_mean for each in weights),
            all(each.keeps_consensus for each in weights),
            all(each.averages for each in weights),
            len(topology.peers),
            topology.period == 1 and topology.at(0).is_complete,
        )


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
    data
        Traits of the way in which data lie at peers.
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
    data: DataTraits = field(default_factory=DataTraits)

    @classmethod
    def of(cls, experiment: Experiment, *, live: bool = False) -> Composition:
        """Return what the names of an experiment stand for."""
        divided = partitioning(experiment.data)
        return cls(
            experiment,
            traits_of(experiment.learning.algorithm),
            mode_traits(experiment.privacy.mode),
            codec_traits(experiment.compression.name),
            rule_traits(experiment.robustness.rule),
            live=live,
            data=DataTraits() if divided is None else divided.traits,
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
        return self.algorithm.additive and not exact_traits(self.experiment.model.name).noisy

    @property
    def test_share(self) -> float:
        """Share of the samples that are held out for scores: that of the file, or the one that the model declares."""
        given = self.experiment.data.test
        if given is not None:
            return given
        named = self.algorithm.additive and self.experiment.learning.learner is None
        return (exact_traits(self.experiment.model.name) if named else ModelTraits()).test

    @property
    def weighted(self) -> str:
        """The setting that gives models unequal weights; empty if none does."""
        privacy = self.experiment.privacy
        causes = {} if self.algorithm.full_participation else self._unequal
        causes["privacy.participation below 1"] = self.mode.hides and privacy.participation < 1
        causes['gossip.weights = "push"'] = self.experiment.gossip.weights == "push"
        return next((name for name, given in causes.items() if given), "")

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
            "simulation.devices": self.clients is not None,
        }

    @property
    def clients(self) -> DeviceSettings | None:
        """Devices that decide who takes part: in a simulation of peers that wait for each other."""
        return None if self.live or self.algorithm.asynchronous else self.experiment.simulation.devices

    @property
    def tilted(self) -> bool:
        """True if mixing changes equal models, as push-sum does, and the algorithm does not divide the change out."""
        return self.graph is not None and not self.graph.keeps_consensus and not self.algorithm.weighs_neighbours

    @property
    def fragments(self) -> int:
        """Number of parts of a model, of which each round releases the next one."""
        count = self.value("learning.algorithm_options.fragments")
        return count if isinstance(count, int) else 1

    @property
    def plain_sgd(self) -> bool:
        """True if local steps are plain gradient descent."""
        learning = self.experiment.learning
        return learning.optimizer == "sgd" and not learning.options.get("momentum")

    def value(self, key: str) -> Any:
        """Return the value of a key of the experiment file, or of an option; ``None`` for one that is not given."""
        value: Any = self.experiment
        for name in key.split("."):
            value = value.get(name) if isinstance(value, Mapping) else getattr(value, name)
        return value
