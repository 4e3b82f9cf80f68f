"""Where the mass of running sums is at the end: in rows, on its way, or with peers that died."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from p2pfl.algorithms import Accounting, State
from p2pfl.experiment import Plan
from p2pfl.neighbourhood import derived

LEAST = 1e-9
"""Of a mass that is worth a word: what is less comes of rounding."""

Given = Mapping[str, float]
"""By neighbour: the mass that a peer gave it beyond what it had of it."""


def given(plan: Plan, state: State, *, peers: tuple[str, ...]) -> dict[str, dict[str, float]] | None:
    """By peer of a state what it gave its neighbours; ``None`` of an algorithm that keeps no account of it."""
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
    r"""Add up what peers said at their end.

    Everybody puts a mass of 1 in, and holds at its end :math:`1 - \sum_j g_{ij}`. What survivors gave each other and
    nobody had is on its way, for good; what they gave others, these took, with their own 1.

    Parameters
    ----------
    plan
        Whose peers share which edges.
    said
        By survivor what it gave each neighbour. Who said nothing has died, or ended with an error.

    Returns
    -------
    dict
        ``of``, the masses that were put in; ``held`` by the survivors' rows; ``on_its_way``; ``lost``, of which each
        entry has ``peers`` and the ``mass`` that they took: one peer, or several of which each has an edge to another
        of them, of which nobody alive knows what went along it; and all of it as a ``statement``, empty where
        nothing is missing.
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
    """The sentence."""
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
    return f"of {found['of']} masses {', '.join(missing)}: the average is that of the other {_number(found['held'])}"


def _number(mass: float) -> str:
    return f"{mass:.4g}"
