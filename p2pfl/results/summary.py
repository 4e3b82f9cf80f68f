"""Summary of a run, which answers what learning together gained."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from p2pfl.algorithms.baselines import Baseline, baseline, train_alone
from p2pfl.core.explanations import Explained
from p2pfl.core.process import one_thread
from p2pfl.core.rows import Rows
from p2pfl.core.tensors import torch
from p2pfl.data import Federation
from p2pfl.experiment import Plan
from p2pfl.experiment.accounts import beside
from p2pfl.learning import Learner, Pools, learner_traits
from p2pfl.learning.learner import ComparesItself, Explains, OwnBaselines
from p2pfl.privacy.accounting.examples import SampledSteps
from p2pfl.results.comparisons.gain_intervals import gain_interval, share_interval
from p2pfl.results.content import (
    BestKept,
    Evaluated,
    FeatureStatistics,
    GainInterval,
    PeerResult,
    Summary,
    Unsettled,
    WorkerResult,
)
from p2pfl.results.notices.advice import advice
from p2pfl.results.notices.kinds import LossRose
from p2pfl.results.records import Record
from p2pfl.results.spending.observers import stated
from p2pfl.results.spending.promises import promise
from p2pfl.results.spending.stated import BudgetStop, StatedGuarantee

MAX_LISTED = 64
"""Largest number of peers whose gains have intervals."""


class Apart(Protocol):
    """Function that trains peers alone."""

    def __call__(self, learner: Learner, peers: tuple[str, ...], /, *, rounds: int) -> Baseline:
        """Train for as many rounds."""


@dataclass(frozen=True)
class Durations:
    """Durations of a run, in seconds.

    Attributes
    ----------
    start
        Time until the first round.
    rounds
        Time from there to the end of the last one.
    total
        Total time without the baselines.
    training
        Time of local training of all peers together; ``None`` if the records contain it.
    """

    start: float
    rounds: float
    total: float
    training: float | None = None


def computing_share(records: Sequence[Record]) -> float | None:
    """Return the share of the time of their rounds in which peers train; ``None`` without times, as in a simulation.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> some = {"peer": "ada", "scores": {}, "training_loss": None, "distance": 0.0, "bytes_out": 0, "bytes_in": 0}
    >>> some |= {"received": 0, "seconds_training": 3.0, "seconds_waiting": 1.0}
    >>> ends = [datetime(2026, 1, 1, second=second, tzinfo=UTC) for second in (10, 14)]
    >>> computing_share([Record(round=round, time=end, **some) for round, end in enumerate(ends)])
    0.75
    """
    begun, ended, training = dict[str, float](), dict[str, float](), 0.0
    for record in records:
        if record.time is None:
            return None
        ended[record.peer] = record.time.timestamp()
        begun.setdefault(record.peer, ended[record.peer] - record.seconds_training - record.seconds_waiting)
        training += record.seconds_training
    spans = sum(ended[peer] - begun[peer] for peer in ended)
    return training / spans if spans > 0 else None


def summarise(
    plan: Plan,
    *,
    together: Mapping[str, Mapping[str, float]],
    records: Sequence[Record],
    seconds: Durations,
    memory: int | None = None,
    written: int | None = None,
    agreed: Mapping[str, Any] | None = None,
    stopped: BudgetStop | None = None,
    alarms: Sequence[LossRose] = (),
    unsettled: Mapping[str, Unsettled] | None = None,
    best: Mapping[str, BestKept] | None = None,
    spent: float | None = None,
    played: Mapping[str, Mapping[SampledSteps, int]] | None = None,
    baselines: bool = True,
    everyone: Callable[[], Federation] | None = None,
    gradients: int | None = None,
    evaluation: Evaluated | None = None,
    apart: Apart = baseline,
    models: Callable[[], Mapping[str, torch.Tensor]] = dict,
    workers: Sequence[WorkerResult] = (),
    registered: int | None = None,
    sent: int | None = None,
) -> Summary:
    """Return the content of ``summary.json``, with equal keys for ``run`` and ``simulate``, and means of honest peers.

    Parameters
    ----------
    plan
        Plan with the data of all peers.
    together
        Final scores of each peer.
    records
        All records of the run.
    seconds
        Durations of the run.
    memory
        Private memory of a peer in bytes, if each has its own process.
    agreed
        Common results of all peers: ``statistics`` of the features, and the score of the ``common`` model.
    stopped
        Where the privacy budget ended the run; ``None`` if it did not.
    alarms
        Events that harmed the result, and whether they still do.
    unsettled
        By peer, what it could not settle with its neighbours, if anything.
    best
        By peer the round, loss and file of its best model, if one is kept.
    spent
        Largest epsilon of a peer, including charges after its last record; that of the records by default.
    played
        By peer, the number of rounds for each kind of steps of DP-SGD, including repeated rounds and earlier runs; the
        number of records by default.
    baselines
        True to train every peer alone and one model on all data, for comparison; otherwise they are ``None``.
    everyone
        Function that returns the data of all peers, for the model on all data; those of the plan by default.
    gradients
        Number of gradients that all peers computed, if it was counted.
    evaluation
        Amount evaluated after each round, if that was not all.
    apart
        Function like :func:`p2pfl.algorithms.baselines.baseline`, with which every peer is trained alone.
    models
        Returns the final model ``[P]`` by peer, where it is known, for intervals of other gains than in accuracy, and
        for importances or coefficients of features.
    workers
        Processes that shared the peers of a simulation, if there were several.
    registered
        Number of all peers, if some have no results; by default those of ``together``.
    sent
        Bytes that all peers sent; the sum over ``records`` by default.

    Returns
    -------
    Summary
        Without provenance, which :meth:`p2pfl.results.Run.finish` adds.
    """
    peers = tuple(sorted(together))
    named = next((scores for scores in map(together.__getitem__, peers) if scores), {})  # some peers may have no scores
    metric = next((name for name in named if name != "loss"), "loss")
    scored = metric in named  # a user-defined learner may have no scores
    rounds = 1 + max((record.round for record in records), default=-1)
    score = {peer: together[peer].get(metric) for peer in peers}
    among = frozenset(plan.honest)
    honest = [peer for peer in peers if peer in among]
    compared = Compared()
    between: dict[str, GainInterval | None] = {}
    bare = plan.learner.bare
    if baselines and isinstance(bare, ComparesItself):
        compared = _own_comparison(bare.baselines(models()), metric=metric)
    elif baselines and scored:
        with one_thread():
            trained = apart(plan.learner, peers, rounds=rounds)
            if metric in trained.scores:  # scores of a stack are those that all its peers have
                compared = _compare_baselines(plan, together, trained, everyone, rounds=rounds, metric=metric)
                between = _intervals(plan, peers, (trained.rows, models), (compared.single, score), metric=metric)
    last = {record.peer: record for record in records}
    training = seconds.training
    guarantee = describe(
        plan,
        spent=max([spent or 0.0, *(record.privacy_spent or 0.0 for record in last.values())]),
        rounds=rounds,
        played=played,
    )
    return Summary(
        name=plan.experiment.name,
        peers=len(peers) if registered is None else registered,
        rounds=rounds,
        stopped=stopped,
        accounted=plan.accounted,
        steps=0 if plan.protection.totals else plan.gossip.steps,
        metric=metric if scored else None,
        alone=_mean([compared.single[peer] for peer in honest if peer in compared.single]) if compared.single else None,
        together=_mean([value for peer in honest if (value := score[peer]) is not None]) if scored else None,
        pooled=compared.pooled,
        lossless=compared.lossless,
        difference=compared.difference,
        common=(agreed or {}).get("common"),
        per_peer={
            peer: PeerResult(
                compared.single.get(peer),
                score[peer],
                attacker=peer not in among,
                interval=between.get(peer),
                **_counts(plan, peer),
            )
            for peer in peers
        },
        start_s=seconds.start,
        wall_s=seconds.rounds,
        total_s=seconds.total,
        training_s=sum(record.seconds_training for record in records) if training is None else training,
        computing=computing_share(records),
        peer_memory=memory,
        bytes_written=written,
        bytes_sent=sum(record.bytes_out for record in last.values()) if sent is None else sent,
        missed=sum(len(record.missed) for record in records),
        alarms=tuple(alarms),
        unsettled=dict(unsettled or {}),
        best=dict(best or {}),
        advice=tuple(_advise(plan, records)),
        statistics=msgspec.convert((agreed or {}).get("statistics"), FeatureStatistics | None),
        privacy=msgspec.convert(guarantee, StatedGuarantee),
        gradients=gradients,
        evaluation=evaluation,
        workers=tuple(workers),
        explained=_explain_common(plan, honest, models),
    )


def explain(learner: Learner, row: torch.Tensor | None) -> Explained | None:
    """Return the explanation of a model ``[P]``; ``None`` if it has none, or there is no model."""
    bare = learner.bare
    return bare.explained(row) if row is not None and isinstance(bare, Explains) else None


def _explain_common(
    plan: Plan, peers: Sequence[str], models: Callable[[], Mapping[str, torch.Tensor]]
) -> Explained | None:
    """Return the explanation of the common model of all peers."""
    if not plan.protection.totals:
        return None
    final = models()
    return explain(plan.learner, next((final[peer] for peer in peers if peer in final), None))


def _counts(plan: Plan, peer: str) -> dict[str, int]:
    """Return the numbers of a peer's samples; nothing for a learner that has data of its own."""
    sizes = plan.federation.sizes(peer)
    return {"samples": sizes.train, "tested": sizes.test} if sizes.train else {}


UNSCALED_SENTENCE = (
    "the columns of the table keep their units, because a guarantee covers no mean and deviation of the samples; set "
    "data.options.bounds to their public bounds"
)
"""Advice on a shared table under a claim."""


def _advise(plan: Plan, records: Sequence[Record]) -> list[str]:
    first = [UNSCALED_SENTENCE] if plan.asked.unscaled else []
    return first + advice(
        records,
        steps=plan.gossip.steps,
        noise=plan.protection.settings.noise,
        attack=plan.experiment.attack.name,
        rule=plan.experiment.robustness.rule,
        masked=plan.masked,
        totals=bool(plan.protection.totals),
        finished=learner_traits(plan.learner).converges,
        guess=_guess(plan),
    )


def _guess(plan: Plan) -> float:
    """Return the loss of a model that finds all classes equally likely; infinite with another loss."""
    classes = plan.federation.dataset.classes
    usual = plan.experiment.learning.loss in (None, "cross_entropy")
    return math.log(classes) if classes and usual else math.inf


@dataclass(frozen=True)
class Compared:
    """Scores with which learning together is compared.

    Attributes
    ----------
    single
        Scores of peers that learn alone; empty without baselines.
    pooled
        Score of one model on all data; ``None`` with a learner that cannot train it.
    lossless
        True if that model has, at each peer, exactly the scores of the model of the peers; ``None`` unless models
        follow from totals, or where other processes hold samples.
    difference
        As :class:`p2pfl.learning.learner.OwnBaselines` has it.
    """

    single: Mapping[str, float] = field(default_factory=dict)
    pooled: float | None = None
    lossless: bool | None = None
    difference: float | None = None


def _own_comparison(baselines: OwnBaselines, *, metric: str) -> Compared:
    """Return what a learner compares learning together with."""
    single = {peer: scores[metric] for peer, scores in baselines.alone.items() if metric in scores}
    pooled, difference = (baselines.pooled or {}).get(metric), baselines.difference
    return Compared(single, pooled, None if difference is None else difference == 0, difference)


def _compare_baselines(
    plan: Plan,
    together: Mapping[str, Mapping[str, float]],
    trained: Baseline,
    everyone: Callable[[], Federation] | None,
    *,
    rounds: int,
    metric: str,
) -> Compared:
    """Return the scores of peers that learned alone, and of one model on all data with as many epochs or steps.

    A user-defined learner has no model on all data, because only its owner knows how to train it.
    """
    peers = tuple(sorted(together))
    single = dict(zip(peers, trained.scores[metric].tolist(), strict=True))
    bare = plan.learner.bare
    if not isinstance(bare, Pools):
        return Compared(single)
    union = (everyone() if everyone else plan.federation).of(*plan.honest).pooled()
    everything = bare.pooled(union, peers=len(peers), rounds=rounds)
    *_, rows = train_alone(everything, union.peers, rounds=rounds)
    pooled = float(everything.evaluate(rows, peers=union.peers)[metric][0])
    comparable = plan.protection.totals and plan.federation.elsewhere is None
    return Compared(single, pooled, _lossless(plan, together, rows) if comparable else None)


def _lossless(plan: Plan, together: Mapping[str, Mapping[str, float]], rows: Rows) -> bool:
    """Return whether a model on all data ``[1, P]`` has, at each peer, the scores of the model of the peers."""
    peers = tuple(sorted(together))
    scores = plan.learner.evaluate(rows.expand(len(peers), -1), peers=peers)
    return all(
        together[peer].get(name) == float(values[number])
        for name, values in scores.items()
        for number, peer in enumerate(peers)
    )


def _intervals(
    plan: Plan,
    peers: tuple[str, ...],
    models: tuple[Rows | None, Callable[[], Mapping[str, torch.Tensor]]],
    scores: tuple[Mapping[str, float], Mapping[str, float | None]],
    *,
    metric: str,
) -> dict[str, GainInterval | None]:
    """Return the intervals of the gains of the first peers from models and scores, each alone and together."""
    before, after = scores
    scored = {peer: value for peer in peers[:MAX_LISTED] if (value := after[peer]) is not None}
    if metric == "accuracy" and plan.federation.dataset.targets.dim() == 1:
        counts = {peer: _counts(plan, peer).get("tested", 0) for peer in scored}
        return {
            peer: share_interval(scored[peer], before[peer], count=count) for peer, count in counts.items() if count
        }
    rows, final = models
    if rows is None:
        return {}
    apart, together = dict(zip(peers, rows, strict=True)), final()
    both = [peer for peer in scored if peer in together]
    settings: dict[str, Any] = {"metric": metric, "seed": plan.experiment.seed, "peers": len(both)}
    return {
        peer: gain_interval(
            plan.learner, peer, alone=apart[peer], together=together[peer], recorded=scored[peer], **settings
        )
        for peer in both
    }


def describe(
    plan: Plan,
    *,
    spent: float | None,
    rounds: int | None = None,
    played: Mapping[str, Mapping[SampledSteps, int]] | None = None,
) -> dict[str, Any]:
    """Return the privacy statement: what hides the updates, what this guarantees, and what it does not.

    After a run it contains who learns what.

    Parameters
    ----------
    plan
        Resolved experiment.
    spent
        Epsilon so far; ``None`` before the run, for the cost of all rounds.
    rounds
        Number of rounds that have run; all by default.
    played
        Argument as in :func:`summarise`.
    """
    count = plan.protection.affordable if rounds is None else rounds
    account = beside(plan.experiment)
    examples = plan.examples(count, played=played)
    statement = promise(
        plan.experiment, plan.protection, spent=spent, examples=examples, recomputable=plan.recomputable
    )
    if statement["epsilon"] is not None or examples is not None:
        statement["account"] = None if account is None else account.name
    return statement if spent is None else statement | stated(plan.protection, rounds=count)


def assess(plan: Plan, rows: Rows, peers: tuple[str, ...]) -> dict[str, torch.Tensor]:
    """Return the scores on the test part, each ``[R]``; with a validation part also those under ``validation_...``."""
    scores = plan.learner.evaluate(rows, peers=peers)
    if plan.validates:
        validation = plan.learner.evaluate(rows, peers=peers, part="validation")
        scores = scores | {f"validation_{name}": values for name, values in validation.items()}
    return scores


def scores(evaluated: Mapping[str, torch.Tensor], index: int) -> dict[str, float]:
    """Return the scores of one peer from those of the stack."""
    return {name: float(values[index]) for name, values in evaluated.items()}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
