"""Content of ``summary.json``, of all peers and of one; docs/schema.json is made of these classes."""

from __future__ import annotations

from typing import Literal

import msgspec

from p2pfl.core.explanations import Explained
from p2pfl.results.notices.kinds import SCHEMA, LossRose
from p2pfl.results.provenance import Versions
from p2pfl.results.spending.stated import BudgetStop, StatedGuarantee


class Unsettled(msgspec.Struct, frozen=True):
    """State that one peer could not settle with its neighbours.

    Attributes
    ----------
    steps
        That may have moved only one of two models, by neighbour.
    sums
        That lacked the part of a neighbour, by neighbour.
    earlier
        Neighbours that did not learn what an earlier incarnation left open.
    """

    steps: dict[str, int] = {}
    sums: dict[str, int] = {}
    earlier: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.steps or self.sums or self.earlier)


class BestKept(msgspec.Struct, frozen=True):
    """The best model of a peer.

    Attributes
    ----------
    round
    loss
        Mean.
    part
        Data of this loss: ``validation`` or ``train``.
    file
    """

    round: int
    loss: float
    part: str
    file: str


class GainInterval(msgspec.Struct, frozen=True):
    """95 % interval of the gain of a score on new data.

    Attributes
    ----------
    low, high
    method
        ``newcombe`` for a share of samples; ``paired t`` for other means over samples; ``bootstrap`` for scores of a
        whole set.
    draws
        Bootstrap samples.
    """

    low: float
    high: float
    method: Literal["newcombe", "paired t", "bootstrap"]
    draws: int | None = None


class PeerResult(msgspec.Struct, frozen=True):
    """Scores of one peer.

    Attributes
    ----------
    alone
        Of a model trained alone.
    together
        Of the model learned with the others.
    attacker
    samples
        Training samples.
    tested
        Samples behind the scores.
    interval
        Of the gain on new data (95 %).
    """

    alone: float | None
    together: float | None
    attacker: bool
    samples: int | None = None
    tested: int | None = None
    interval: GainInterval | None = None


class Evaluated(msgspec.Struct, frozen=True):
    """Peers that a simulation evaluated after each round but the last.

    Attributes
    ----------
    every
        Rounds from one evaluation to the next.
    peers
    """

    every: int
    peers: int


class WorkerResult(msgspec.Struct, frozen=True):
    """One of several processes of a simulation.

    Attributes
    ----------
    peers
    bytes_sent
        To the other processes.
    training_s
    memory
        Largest resident bytes.
    """

    peers: int
    bytes_sent: int
    training_s: float
    memory: int | None


class FeatureStatistics(msgspec.Struct, frozen=True):
    """Statistics by which features are scaled.

    Attributes
    ----------
    samples
        Training samples.
    classes
        Samples of each class.
    mean
        Of each feature.
    deviation
        Likewise.
    """

    samples: int
    classes: tuple[float, ...] | None
    mean: tuple[float, ...]
    deviation: tuple[float, ...]


class Summary(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="swarm"):
    """``summary.json`` of ``run`` and ``simulate``; scores are means over the honest peers, tables by peer.

    Attributes
    ----------
    schema
    name
        Experiment.
    peers
    rounds
        Rounds that ran.
    steps
        Gossip steps in a round; 0 for models from totals.
    stopped
        Where the privacy budget ended the run.
    accounted
        Whether the privacy account counts the run.
    metric
    alone
        Of models trained alone.
    together
        Of the models learned together.
    pooled
        Of one model of all data.
    lossless
        Whether a model from totals scores to the last bit as that of the pooled data.
    difference
        Largest difference of a coefficient from that of the pooled data, in standard errors or relative to the largest,
        where peers hold different columns.
    common
        Scores of the common model on all test data. For classifiers also ``calibration_error`` and ``brier``; with two
        classes ``auc`` (from bins, at most ``auc_bound`` off), ``hosmer_lemeshow`` and ``hosmer_lemeshow_p`` (ten
        groups).
    per_peer
    start_s
        Until the first round.
    wall_s
        All rounds.
    total_s
        Without baselines.
    training_s
        All peers.
    computing
        Share of the time of its rounds in which a peer trains.
    peer_memory
        Median of the private bytes of a peer process.
    bytes_written
        By a peer to disk per round since it last started.
    bytes_sent
        By all peers.
    missed
        Models that did not arrive in time.
    alarms
    unsettled
    best
    advice
        What is clearly wrong and what to change.
    statistics, privacy
    gradients
        Computed by all peers.
    evaluation
        Unless every round was evaluated in full.
    predicted
        Whether ``simulate --network`` predicted the durations.
    seed
    algorithm, split, versions
    began
        Start, in UTC.
    workers, explained
    """

    schema: Literal[1] = SCHEMA
    name: str
    peers: int
    rounds: int
    stopped: BudgetStop | None
    accounted: bool
    steps: int
    metric: str | None
    alone: float | None
    together: float | None
    pooled: float | None
    common: dict[str, float] | None
    per_peer: dict[str, PeerResult]
    start_s: float
    wall_s: float
    total_s: float
    training_s: float
    computing: float | None = None
    peer_memory: int | None
    bytes_written: int | None = None
    bytes_sent: int
    missed: int
    alarms: tuple[LossRose, ...]
    unsettled: dict[str, Unsettled]
    best: dict[str, BestKept]
    advice: tuple[str, ...]
    statistics: FeatureStatistics | None
    privacy: StatedGuarantee
    gradients: int | None = None
    evaluation: Evaluated | None = None
    workers: tuple[WorkerResult, ...] = ()
    lossless: bool | None = None
    difference: float | None = None
    explained: Explained | None = None
    predicted: bool | msgspec.UnsetType = msgspec.UNSET
    seed: int | msgspec.UnsetType = msgspec.UNSET
    algorithm: str | msgspec.UnsetType = msgspec.UNSET
    split: str | msgspec.UnsetType = msgspec.UNSET
    versions: Versions | msgspec.UnsetType = msgspec.UNSET
    began: str | msgspec.UnsetType | None = msgspec.UNSET


class PeerSummary(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="peer"):
    """``summary.json`` of ``peer``, which knows one peer of a run.

    Attributes
    ----------
    schema
    name
        Experiment.
    peer
    accounted
        Whether the privacy account counts the run.
    scores
    alone
        Of a model trained alone for as many rounds.
    common
        Of the common model.
    stopped
        Where the privacy budget ended the run.
    privacy
    alarms
    computing
        Share of the time of its rounds in which a peer trains.
    bytes_written
        By a peer to disk per round since it last started.
    unsettled
    best
    intervals
        Of the gains, by score.
    explained
    seed
    algorithm, split, versions
    began
        Start, in UTC.
    """

    schema: Literal[1] = SCHEMA
    name: str
    peer: str
    accounted: bool
    scores: dict[str, float]
    common: dict[str, float] | None
    stopped: BudgetStop | None
    privacy: StatedGuarantee
    alarms: tuple[LossRose, ...]
    unsettled: dict[str, Unsettled]
    best: dict[str, BestKept]
    alone: dict[str, float] | None = None
    intervals: dict[str, GainInterval] = {}
    explained: Explained | None = None
    computing: float | None = None
    bytes_written: int | None = None
    seed: int | msgspec.UnsetType = msgspec.UNSET
    algorithm: str | msgspec.UnsetType = msgspec.UNSET
    split: str | msgspec.UnsetType = msgspec.UNSET
    versions: Versions | msgspec.UnsetType = msgspec.UNSET
    began: str | msgspec.UnsetType | None = msgspec.UNSET
