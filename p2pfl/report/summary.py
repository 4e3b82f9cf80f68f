"""What learning together gave: the answer to the user's question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from p2pfl.algorithms.baselines import alone
from p2pfl.experiment import Plan
from p2pfl.experiment.plan import learner
from p2pfl.report.run import Record


def summarise(
    plan: Plan, *, together: Mapping[str, Mapping[str, float]], records: Sequence[Record], seconds: Mapping[str, float]
) -> dict[str, Any]:
    """The content of ``summary.json``.

    Parameters
    ----------
    plan
        With the data of all peers whose baselines are asked for.
    together
        Final scores of each peer.
    records
        All records of the run.
    seconds
        ``wall_s`` and other durations.
    """
    peers = tuple(sorted(together))
    metric = next((name for name in together[peers[0]] if name != "loss"), "loss")
    rounds = 1 + max((record.round for record in records), default=-1)
    single = alone(plan.learner, peers, rounds=rounds)[metric].tolist()
    union = plan.federation.pooled()
    everything = learner(plan.experiment, union, peers=len(peers))
    pooled = float(alone(everything, union.peers, rounds=rounds)[metric][0])
    score = {peer: together[peer][metric] for peer in peers}
    last = {record.peer: record for record in records}
    return {
        "name": plan.experiment.name,
        "peers": len(peers),
        "rounds": rounds,
        "steps": plan.steps,
        "metric": metric,
        "alone": _mean(single),
        "together": _mean(list(score.values())),
        "pooled": pooled,
        "per_peer": {peer: {"alone": own, "together": score[peer]} for peer, own in zip(peers, single, strict=True)},
        **seconds,
        "bytes_sent": sum(record.bytes_out for record in last.values()),
        "missed": sum(len(record.missed) for record in records),
        "privacy": describe(plan),
    }


def describe(plan: Plan) -> dict[str, Any]:
    """What hides the updates, and what is not promised."""
    settings, mode = plan.privacy, plan.experiment.privacy.mode
    hidden = {
        "none": "nothing is hidden: every neighbour and the broker can read each row",
        "independent": "private noise stays in the models; no differential privacy is claimed yet",
        "pairwise": (
            "masks hide each update among its honest neighbours and cancel in the mean; no differential privacy is "
            "claimed yet, and masks of peers that vanish do not cancel yet"
        ),
    }[mode]
    return {
        "mode": mode,
        "clip": settings.clip if settings.clip != float("inf") else None,
        "noise": settings.noise,
        "mask": settings.mask,
        "statement": hidden,
        "epsilon": None,
    }


def scores(evaluated: Mapping[str, torch.Tensor], index: int) -> dict[str, float]:
    """One peer's scores out of the stack's."""
    return {name: float(values[index]) for name, values in evaluated.items()}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
