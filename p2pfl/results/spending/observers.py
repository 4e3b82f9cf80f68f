"""The table of observers: what all rounds give away to each, whether the broker only listens or also lies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from p2pfl.experiment.protection import Protection
from p2pfl.privacy.accounting import divergence
from p2pfl.privacy.accounting.accountant import Guarantee
from p2pfl.privacy.accounting.spending import Cost

MAX_TABLE_PEERS = 64
"""Peers up to which a summary has the table: the search for the worst observers of more takes seconds."""


def stated(protection: Protection, *, rounds: int) -> dict[str, Any]:
    """Return who learns what from so many rounds, as parts of a :class:`StatedGuarantee`.

    Parameters
    ----------
    protection
        Protection of the updates.
    rounds
        Number of rounds that ran.
    """
    if protection.totals:
        return {"learned": learned(protection)}
    if not protection.claimed or not protection.secret or not rounds or len(protection.graph.peers) > MAX_TABLE_PEERS:
        return {}
    observers = lines(protection, protection.observers(), rounds=rounds)
    kept = ("observer", "peer", "promised", "epsilon")
    return {
        "observers": [
            {key: each[key] for key in kept} | {key: each["attack"][key] for key in ("auc", "tpr")}
            for each in observers
        ]
    }


def learned(protection: Protection) -> dict[str, str]:
    """Return what each party learns where exact totals leave the peers, and nothing else."""
    if protection.learned:
        return dict(protection.learned)
    peers, colluders = len(protection.graph.peers), protection.wanted.colluders
    facts = {
        "the broker": "sizes and times of messages",
        "every peer": f"the {'noisy ' if protection.claimed else ''}totals over all {peers} peers: {protection.totals}",
        "every peer, by subtraction": (
            "the totals without its own contribution, which are those of the other peers together"
        ),
    }
    if not protection.mode.traits.masks:
        facts["a peer on the way"] = "the contributions that pass through it, up the spanning tree of the topology"
    if colluders > 1:
        facts[f"{colluders} colluding peers"] = f"the totals of the other {peers - colluders}"
    return facts


def lines(protection: Protection, against: Sequence[Guarantee], *, rounds: int | None = None) -> list[dict[str, Any]]:
    """Return a line for each observer: those beside a broker that only listens, those beside one that lies, everyone.

    Parameters
    ----------
    protection
        Protection of the updates.
    against
        One round's guarantee against each observer beside a broker that only listens, and against everyone else.
    rounds
        Number of rounds; by default as many as the budget allows.
    """
    everyone = [given for given in against if len(given.colluders) and _everyone(protection, given)]
    fewer = [given for given in against if given not in everyone]
    rounds = rounds or protection.affordable or protection.rounds

    def heard(given: Guarantee) -> dict[str, Any]:
        return _line(protection, given, {Cost(given.mu, _joins(protection)): rounds}, broker="listens")

    def lied_to(given: Guarantee) -> dict[str, Any]:
        peer, costs = protection.isolated(given, rounds=rounds)
        return _line(protection, given, costs, broker="lies") | {"peer": peer, "promised": False}

    return [*map(heard, fewer), *map(lied_to, fewer), *map(heard, everyone)]


def listening(observers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines whose broker only listens: those against which something can be promised."""
    return [each for each in observers if each["broker"] == "listens"]


def epsilon(protection: Protection, given: Guarantee, rounds: int) -> float:
    """Return epsilon against an observer after so many rounds of this run."""
    return protection.total({Cost(given.mu, _joins(protection)): rounds})


def _line(protection: Protection, given: Guarantee, costs: dict[Cost, int], *, broker: str) -> dict[str, Any]:
    rounds = sum(costs.values())
    mu = math.sqrt(sum(count * cost.mu**2 for cost, count in costs.items()))
    attack = divergence.ceilings(mu)
    return {
        "observer": _who(protection, given, broker=broker),
        "broker": broker,
        "promised": protection.claimed and len(given.colluders) == _promised(protection),
        "adjacency": given.adjacency,
        "colluders": "everyone else" if _everyone(protection, given) else list(given.colluders),
        "peer": given.peer,
        "search": given.search,
        "rounds": rounds,
        "mu": _finite(mu),
        "epsilon": _finite(protection.total(costs)),
        "delta": protection.wanted.delta,
        "local_epsilon": _finite(protection.total({protection.local: rounds})),
        "attack": {"auc": attack.auc, "accuracy": attack.accuracy, "tpr": attack.tpr, "fpr": attack.fpr},
    }


def _who(protection: Protection, given: Guarantee, *, broker: str) -> str:
    count = len(given.colluders)
    if count and _everyone(protection, given):
        return "everyone else"
    if not count:
        return "broker that only listens" if broker == "listens" else "broker that lies"
    return f"1 neighbour, broker {broker}" if count == 1 else f"{count} colluders, broker {broker}"


def _everyone(protection: Protection, given: Guarantee) -> bool:
    return len(given.colluders) >= len(protection.graph.peers) - 1


def _promised(protection: Protection) -> int:
    return min(protection.wanted.colluders, len(protection.graph.peers) - 1)


def _joins(protection: Protection) -> float:
    return protection.settings.participation


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
