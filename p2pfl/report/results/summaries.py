"""The two kinds of ``summary.json``: that of all peers, and that of one."""

from __future__ import annotations

from typing import Literal

import msgspec

from p2pfl.explanations import Explained
from p2pfl.report.notices.damage import LossRose, MasksUncancelled
from p2pfl.report.notices.kinds import SCHEMA
from p2pfl.report.provenance import Versions
from p2pfl.report.results.peers import BestKept, GainInterval, PeerResult, Unsettled
from p2pfl.report.results.swarms import Evaluated, FeatureStatistics, PushSumWeights, WorkerResult
from p2pfl.report.spending.stated import BudgetStop, StatedGuarantee


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
        Where the privacy budget ended the run; null if it did not.
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
        True if models follow from totals and that model has exactly the scores of the peers' model on the test data
        of each peer, to the last bit; null for other models.
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
        Where the privacy budget ended the run; null if it did not.
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
