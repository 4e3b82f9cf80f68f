"""What learning together gave: the answer to the user's question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from p2pfl.algorithms.baselines import alone
from p2pfl.experiment import Plan
from p2pfl.learning import Pools
from p2pfl.privacy.accounting.examples import Sampling
from p2pfl.process import one_thread
from p2pfl.report.advice import advice
from p2pfl.report.masses import Given, account
from p2pfl.report.promises import promise
from p2pfl.report.records import Record
from p2pfl.rows import Rows


@dataclass(frozen=True)
class Durations:
    """How long a run took, in seconds.

    Attributes
    ----------
    start
        Until the first round.
    rounds
        From there to the end of the last one.
    total
        All of it but the baselines.
    training
        Spent on local training, by all peers together; ``None`` where the records say it.
    """

    start: float
    rounds: float
    total: float
    training: float | None = None


def summarise(
    plan: Plan,
    *,
    together: Mapping[str, Mapping[str, float]],
    records: Sequence[Record],
    seconds: Durations,
    memory: int | None = None,
    agreed: Mapping[str, Any] | None = None,
    stopped: str | None = None,
    given: Mapping[str, Given] | None = None,
    alarms: Sequence[str] = (),
    unsettled: Mapping[str, Any] | None = None,
    best: Mapping[str, Any] | None = None,
    spent: float | None = None,
    played: Mapping[str, Mapping[Sampling, int]] | None = None,
    baselines: bool = True,
) -> dict[str, Any]:
    """The content of ``summary.json``, the same keys for ``run`` and ``simulate``; means are of honest peers.

    Parameters
    ----------
    plan
        With the data of all peers.
    together
        Final scores of each peer.
    records
        All records of the run.
    seconds
        How long it took.
    memory
        Private memory of a peer in bytes, where each has its own process.
    agreed
        What all peers agreed on: ``statistics`` of the features, and what the ``common`` model scores.
    stopped
        Why not all rounds were played, if it is the budget.
    given
        By peer what it gave each neighbour at its end, where the algorithm keeps account of it.
    alarms
        What harmed the result while it ran, in sentences.
    unsettled
        By peer what it could not settle with its neighbours, of those that have something.
    best
        By peer the round, loss and file of its best model, where one is kept.
    spent
        Epsilon of the peer that has spent most, what was charged after its last record included; that of the records
        by default.
    played
        By peer, how many rounds had which steps of DP-SGD, those that were played again and earlier runs included; as
        many as there are records of by default.
    baselines
        Whether to train every peer alone and one model on all data, to compare; else they are ``None``.
    """
    peers = tuple(sorted(together))
    metric = next((name for name in together[peers[0]] if name != "loss"), "loss")
    scored = metric in together[peers[0]]  # a learner of one's own need not score
    rounds = 1 + max((record.round for record in records), default=-1)
    score = {peer: together[peer].get(metric) for peer in peers}
    honest = [peer for peer in peers if peer in plan.honest]
    single, pooled = None, None
    if baselines and scored:
        with one_thread():
            single, pooled = _baselines(plan, peers, rounds=rounds, metric=metric)
    last = {record.peer: record for record in records}
    training = seconds.training
    return {
        "name": plan.experiment.name,
        "peers": len(peers),
        "rounds": rounds,
        "stopped": stopped,
        "steps": plan.gossip.steps,
        "metric": metric if scored else None,
        "alone": None if single is None else _mean([single[peer] for peer in honest]),
        "together": _mean([value for peer in honest if (value := score[peer]) is not None]) if scored else None,
        "pooled": pooled,
        "common": (agreed or {}).get("common"),
        "per_peer": {
            peer: {
                "alone": None if single is None else single[peer],
                "together": score[peer],
                "attacker": peer not in plan.honest,
            }
            for peer in peers
        },
        "start_s": seconds.start,
        "wall_s": seconds.rounds,
        "total_s": seconds.total,
        "training_s": sum(record.seconds_training for record in records) if training is None else training,
        "peer_memory": memory,
        "bytes_sent": sum(record.bytes_out for record in last.values()),
        "missed": sum(len(record.missed) for record in records),
        "masses": account(plan, given) if given else None,
        "alarms": list(alarms),
        "unsettled": dict(unsettled or {}),
        "best": dict(best or {}),
        "advice": advice(
            records,
            steps=plan.gossip.steps,
            noise=plan.protection.settings.noise,
            attack=plan.experiment.attack.name,
            rule=plan.experiment.robustness.rule,
            masked=plan.masked,
        ),
        "statistics": (agreed or {}).get("statistics"),
        "privacy": describe(
            plan,
            spent=max([spent or 0.0, *(record.privacy_spent or 0.0 for record in last.values())]),
            rounds=rounds,
            played=played,
        ),
    }


def _baselines(
    plan: Plan, peers: tuple[str, ...], *, rounds: int, metric: str
) -> tuple[dict[str, float], float | None]:
    """Scores of peers that learn alone, and of one model on all data with as many epochs or steps in all.

    There is no model on all data for a learner of one's own: only its owner knows how to train that.
    """
    single = dict(zip(peers, alone(plan.learner, peers, rounds=rounds)[metric].tolist(), strict=True))
    bare = plan.learner.bare
    if not isinstance(bare, Pools):
        return single, None
    union = plan.federation.of(*plan.honest).pooled()
    everything = bare.pooled(union, peers=len(peers), rounds=rounds)
    pooled = float(alone(everything, union.peers, rounds=rounds)[metric][0])
    return single, pooled


def describe(
    plan: Plan,
    *,
    spent: float | None,
    rounds: int | None = None,
    played: Mapping[str, Mapping[Sampling, int]] | None = None,
) -> dict[str, Any]:
    """What hides the updates, what that promises, and what it does not.

    Parameters
    ----------
    plan
        The experiment, resolved.
    spent
        Epsilon so far; ``None`` before anything has run, for what all rounds will have spent.
    rounds
        How many have run; all of them by default.
    played
        As in :func:`summarise`.
    """
    examples = plan.examples(plan.protection.affordable if rounds is None else rounds, played=played)
    return promise(plan.protection, spent=spent, examples=examples)


def assess(plan: Plan, rows: Rows, peers: tuple[str, ...]) -> dict[str, torch.Tensor]:
    """Scores on the test part, each ``[R]``; with a validation part, also those under ``validation_...``."""
    found = plan.learner.evaluate(rows, peers=peers)
    if plan.experiment.data.validation > 0:
        held = plan.learner.evaluate(rows, peers=peers, part="validation")
        found = found | {f"validation_{name}": values for name, values in held.items()}
    return found


def scores(evaluated: Mapping[str, torch.Tensor], index: int) -> dict[str, float]:
    """One peer's scores out of the stack's."""
    return {name: float(values[index]) for name, values in evaluated.items()}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
