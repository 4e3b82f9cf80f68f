"""Content of ``summary.json``; docs/schema.json is made of these classes."""

from __future__ import annotations

from typing import Literal

import msgspec

from p2pfl.learning.scores.explanation import Explained
from p2pfl.report.notices.damage import LossRose, MasksUncancelled
from p2pfl.report.notices.kinds import SCHEMA
from p2pfl.report.provenance import Versions
from p2pfl.report.spending.stated import BudgetStop, StatedGuarantee


class Unsettled(msgspec.Struct, frozen=True):
    """State that one peer could not settle with its neighbours.

    Attributes
    ----------
    masks
        Number of masks that may not have cancelled, by partner.
    deviation
        Standard deviation of what these leave in a parameter of the average.
    steps
        Number of gossip steps that may have moved only one of the two models, by neighbour.
    sums
        Number of sums that lacked the part of a neighbour, by neighbour.
    earlier
        Neighbours that did not learn what an earlier incarnation left open.
    """

    masks: dict[str, int] = {}
    deviation: float = 0.0
    steps: dict[str, int] = {}
    sums: dict[str, int] = {}
    earlier: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.masks or self.steps or self.sums or self.earlier)


class BestKept(msgspec.Struct, frozen=True):
    """The best model of a peer.

    Attributes
    ----------
    round
        Round that it comes from, counted from 0.
    loss
        Its mean loss.
    part
        Part of the peer's data that it has this loss on: ``validation`` or ``train``.
    file
        File of the model in the run directory.
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
        Ends of the interval.
    method
        ``newcombe`` for a share of samples (Newcombe's method 10); ``paired t`` for other means over samples
        (Student's t for the differences of the two models on the same samples); ``bootstrap`` for scores of a whole
        set (percentiles of the differences on resampled test samples).
    draws
        Number of bootstrap samples; null for the other methods.
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
        Score of a model that the peer trains alone; null if unknown.
    together
        Score of the model that it learned with the others; null if unknown.
    attacker
        True if the peer attacks the others.
    samples
        Number of its training samples; null if a run does not split data itself.
    tested
        Number of samples that its scores are means over; null like ``samples``.
    interval
        Interval of the gain; null where nothing sound can be computed.
    """

    alone: float | None
    together: float | None
    attacker: bool
    samples: int | None = None
    tested: int | None = None
    interval: GainInterval | None = None


class LostWeight(msgspec.Struct, frozen=True):
    """Weight that peers took with them when they died.

    Attributes
    ----------
    peers
        Peers that died, joined by edges whose traffic no survivor knows.
    mass
        Weight that they took.
    """

    peers: tuple[str, ...]
    mass: float


class PushSumWeights(msgspec.Struct, frozen=True):
    """Places of the push-sum weights at the end of a run.

    Attributes
    ----------
    of
        Total weight at the start.
    held
        Weight in the models of survivors.
    on_its_way
        Weight that never arrived.
    lost
        Weight that died with peers.
    statement
        Sentence on what is missing in the average; empty if nothing is.
    """

    of: int
    held: float
    on_its_way: float
    lost: tuple[LostWeight, ...]
    statement: str


class Evaluated(msgspec.Struct, frozen=True):
    """Amount that a simulation evaluated after each round; it evaluated the last round in full.

    Attributes
    ----------
    every
        Rounds from one evaluation to the next.
    peers
        Number of evaluated peers.
    samples
        Largest number of samples of a peer; null for all.
    """

    every: int
    peers: int
    samples: int | None


class WorkerResult(msgspec.Struct, frozen=True):
    """Part of one process in a simulation by several.

    Attributes
    ----------
    peers
        Number of its peers.
    bytes_sent
        Bytes that it sent to the other processes.
    training_s
        Seconds of training.
    memory
        Largest resident memory in bytes; null where the system does not tell.
    """

    peers: int
    bytes_sent: int
    training_s: float
    memory: int | None


class FeatureStatistics(msgspec.Struct, frozen=True):
    """Statistics of the features of all peers, by which they are scaled.

    Attributes
    ----------
    samples
        Number of training samples.
    classes
        Number of samples of each class; null without classes.
    mean
        Mean of each feature.
    deviation
        Standard deviation of each feature.
    """

    samples: int
    classes: tuple[float, ...] | None
    mean: tuple[float, ...]
    deviation: tuple[float, ...]


class Summary(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="swarm"):
    """``summary.json`` of ``run`` and ``simulate``; scores are means over the honest peers.

    Attributes
    ----------
    schema
        Version of the format.
    name
        Name of the experiment.
    peers
        Number of peers.
    rounds
        Number of rounds that ran.
    steps
        Number of gossip steps in a round; 0 where the model follows from exact totals.
    stopped
        Early stop by the privacy budget; null if there was none.
    accounted
        True if the account of the data counts the run.
    metric
        Name of the score; null without one.
    alone
        Score of models that peers train alone; null if unknown.
    together
        Score of the models that the peers learned together; null if unknown.
    pooled
        Score of one model that is trained on all data; null if unknown.
    lossless
        True if models follow from totals and that model has the very scores of the peers' model on the test data of
        each peer, to the last bit; null for other models.
    common
        Scores of the one model of all peers on all test data, if they agreed on one; ``calibration_error`` is the
        expected calibration error of a classifier, and ``brier`` its Brier score; with two classes ``auc`` is the area
        under the ROC curve, of scores in bins, which is at most ``auc_bound`` from that of the scores themselves, and
        ``hosmer_lemeshow`` and ``hosmer_lemeshow_p`` are the statistic and the p-value of that test with ten groups.
    per_peer
        Scores by peer.
    start_s
        Seconds until the first round.
    wall_s
        Seconds from the first round to the end of the last one.
    total_s
        Seconds altogether, without the baselines.
    training_s
        Seconds of local training of all peers.
    peer_memory
        Private memory of a peer in bytes, the median; null where peers have no processes.
    bytes_sent
        Bytes that all peers sent.
    missed
        Number of models that did not arrive in time.
    masses
        Places of the push-sum weights; null for other algorithms.
    alarms
        Notices of what harmed the result, and whether it still does.
    unsettled
        State that could not be settled, by peer; peers with nothing open are left out.
    best
        Best model, by peer; peers that keep none are left out.
    advice
        Sentences on what is clearly wrong and what to change.
    statistics
        Statistics of the features; null if the peers did not agree on any.
    privacy
        Protection of the models, and its guarantee.
    gradients
        Number of gradients that all peers computed, of a batch or of all data; null where it is not counted.
    evaluation
        Amount that a simulation evaluated after each round; null where every round was evaluated in full.
    predicted
        True if the durations are predicted by ``simulate --network``; absent otherwise.
    seed
        Seed of the experiment; absent without provenance, as are the fields below.
    algorithm
        Algorithm, as in the experiment file.
    split
        Split of the data, as in the experiment file.
    versions
        Software and machine.
    began
        Start of the run in UTC, ISO 8601; null if it was not recorded.
    workers
        Processes that shared the peers of a simulation; empty if there was one.
    explained
        Importances or coefficients of the features; null where the model has none.
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
    peer_memory: int | None
    bytes_sent: int
    missed: int
    masses: PushSumWeights | None
    alarms: tuple[MasksUncancelled | LossRose, ...]
    unsettled: dict[str, Unsettled]
    best: dict[str, BestKept]
    advice: tuple[str, ...]
    statistics: FeatureStatistics | None
    privacy: StatedGuarantee
    gradients: int | None = None
    evaluation: Evaluated | None = None
    workers: tuple[WorkerResult, ...] = ()
    lossless: bool | None = None
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
        Version of the format.
    name
        Name of the experiment.
    peer
        Name of the peer.
    accounted
        True if the account of the data counts the run.
    scores
        Final scores of the peer.
    alone
        Scores of a model that the peer has trained alone for as many rounds; null if it has not.
    common
        Scores of the one model of all peers, if they agreed on one.
    stopped
        Early stop by the privacy budget; null if there was none.
    given
        Weight that the peer gave beyond what it received, by neighbour; null if the algorithm does not count it.
    vanished
        Neighbours that disappeared and did not come back, where weights are counted.
    privacy
        Protection of the models, and its guarantee.
    alarms
        Notices of what harmed the result, and whether it still does.
    unsettled
        State that could not be settled, by peer; empty if nothing is open.
    best
        Best model, by peer; empty if none is kept.
    intervals
        Intervals of the gains, by score; scores of which none can be computed are left out.
    explained
        Importances or coefficients of the features; null where the model has none.
    seed
        Seed of the experiment; absent without provenance, as are the fields below.
    algorithm
        Algorithm, as in the experiment file.
    split
        Split of the data, as in the experiment file.
    versions
        Software and machine.
    began
        Start of the run in UTC, ISO 8601; null if it was not recorded.
    """

    schema: Literal[1] = SCHEMA
    name: str
    peer: str
    accounted: bool
    scores: dict[str, float]
    common: dict[str, float] | None
    stopped: BudgetStop | None
    given: dict[str, float] | None
    vanished: tuple[str, ...]
    privacy: StatedGuarantee
    alarms: tuple[MasksUncancelled | LossRose, ...]
    unsettled: dict[str, Unsettled]
    best: dict[str, BestKept]
    alone: dict[str, float] | None = None
    intervals: dict[str, GainInterval] = {}
    explained: Explained | None = None
    seed: int | msgspec.UnsetType = msgspec.UNSET
    algorithm: str | msgspec.UnsetType = msgspec.UNSET
    split: str | msgspec.UnsetType = msgspec.UNSET
    versions: Versions | msgspec.UnsetType = msgspec.UNSET
    began: str | msgspec.UnsetType | None = msgspec.UNSET
