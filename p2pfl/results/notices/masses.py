"""Places of the push-sum weights at the end of a run: in models, on their way, or with peers that died."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from p2pfl.algorithms import Accounting, State
from p2pfl.core.neighbourhood import derived
from p2pfl.experiment import Plan

LEAST = 1e-9
"""Smallest weight worth mentioning; less is rounding."""

Given = Mapping[str, float]
"""By neighbour, the weight that a peer gave it beyond what it received from it."""


def given(plan: Plan, state: State, *, peers: tuple[str, ...]) -> dict[str, dict[str, float]] | None:
    """Return by peer of a state what it gave its neighbours; ``None`` for an algorithm without such counts."""
    if not isinstance(plan.algorithm, Accounting):
        return None
    said: dict[str, dict[str, float]] = {}
    for index, peer in enumerate(peers):
        own = slice(index, index + 1)
        extra = {name: value[own] for name, value in state.extra.items()}
        one = State(state.rows[own], derived(operator.itemgetter(own), state.public), extra=extra)
        around = plan.topology.neighbours(peer)
        said[peer] = {to: float(plan.algorithm.given(one, peers=(peer,), to=to)[0, -1]) for to in around}
    return said


def account(plan: Plan, said: Mapping[str, Given]) -> dict[str, Any]:
    r"""Add up the counts of the peers at their end.

    Every peer starts with a weight of 1, and ends with :math:`1 - \sum_j g_{ij}`. Weight that survivors gave each other
    and none received is lost on its way; peers that died took what they received and their own weight of 1.

    Parameters
    ----------
    plan
        Plan with the topology.
    said
        By survivor, what it gave each neighbour. Other peers died or ended with an error.

    Returns
    -------
    dict
        ``of``, the total weight at the start; ``held`` by the models of survivors; ``on_its_way``; ``lost``, where each
        entry has ``peers`` and the weight ``mass`` that they took: one peer, or several that are joined by edges
        whose traffic no survivor knows; and a ``statement`` of all this, empty if nothing is missing.
    """
    names = plan.topology.peers
    held = sum(1.0 - sum(each.values()) for each in said.values())
    way = sum(mass for each in said.values() for to, mass in each.items() if to in said)
    lost = [
        {"peers": dead, "mass": len(dead) + sum(each.get(peer, 0.0) for each in said.values() for peer in dead)}
        for dead in plan.topology.union.joined({*names} - said.keys())
    ]
    found = {"of": len(names), "held": held, "on_its_way": way, "lost": lost}
    return found | {"statement": _statement(found)}


def _statement(found: Mapping[str, Any]) -> str:
    """Return the statement."""
    missing = [
        f"the death of {each['peers'][0]} took {_number(each['mass'])}"
        if len(each["peers"]) == 1
        else f"the deaths of {', '.join(each['peers'])} took {_number(each['mass'])} together"
        for each in found["lost"]
    ]
    if abs(found["on_its_way"]) > LEAST:
        missing.append(f"{_number(found['on_its_way'])} never arrived")
    if not missing:
        return ""
    return (
        f"of a total weight of {found['of']} {', '.join(missing)}; the average is that of the other "
        f"{_number(found['held'])}"
    )


def _number(mass: float) -> str:
    return f"{mass:.4g}"
