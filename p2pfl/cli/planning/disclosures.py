"""Statements on what models that follow from exact totals show to each observer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from p2pfl.cli.tables import facts as print_facts
from p2pfl.experiment import Plan
from p2pfl.experiment.accounts import beside
from p2pfl.experiment.protection import Protection
from p2pfl.privacy.accounting.accountant import Guarantee
from p2pfl.privacy.accounting.spending import Cost, spent
from p2pfl.results.spending.ledger import find_objections
from p2pfl.results.spending.observers import learned
from p2pfl.results.spending.promises import promise


def facts(plan: Plan) -> dict[str, Any]:
    """Return who learns what, as JSON values."""
    protection = plan.protection
    peers, colluders = len(protection.graph.peers), protection.wanted.colluders
    claimed = protection.claimed
    promised = promise(plan.experiment, protection, spent=None)
    return {
        "name": plan.experiment.name,
        "peers": peers,
        "mode": plan.experiment.privacy.mode,
        "claimed": claimed,
        "epsilon": promised["epsilon"],
        "delta": protection.wanted.delta if claimed else None,
        "noise": protection.settings.noise,
        "observers": [_against(protection, given) for given in protection.observers()] if claimed else [],
        "colluders": colluders,
        "rounds": None if plan.experiment.endless else protection.rounds,
        "learned": learned(protection),
        "warnings": [*_warnings(peers, colluders), *_spent(plan), *find_objections(plan, plan.federation.peers)],
        "statement": promised["statement"],
    }


def _against(protection: Protection, given: Guarantee) -> dict[str, Any]:
    """Return the guarantee of all rounds against one observer, as JSON values."""
    rounds, delta = protection.affordable or protection.rounds, protection.wanted.delta
    return {
        "observer": given.observer,
        "mu": given.mu * math.sqrt(rounds),
        "epsilon": spent({Cost(given.mu): rounds}, delta=delta),
    }


def _warnings(peers: int, colluders: int) -> list[str]:
    """Return sentences about too few peers."""
    if peers - max(1, colluders) >= 2:
        return []
    who = f"with {peers} peers, {max(1, colluders)} of which may look"
    return [f"{who}, the totals of the others are those of one peer alone; add peers"]


def _spent(plan: Plan) -> list[str]:
    """Return what earlier runs have spent of the data, as a sentence."""
    protection = plan.protection
    if not protection.claimed or not protection.before:
        return []
    left = "" if protection.affordable else ", and privacy.epsilon permits no further round"
    spent_before = protection.spent({})
    return [f"epsilon {spent_before:.3g} for a sample is spent already by {beside(plan.experiment)}{left}"]


def show(results: Mapping[str, Any]) -> None:
    """Print who learns what."""
    console = Console(highlight=False)
    console.print(Text(f"What all rounds of {results['name']} show", style="bold"))
    print_facts(results["learned"])
    if results["observers"]:
        console.print()
        print_facts({each["observer"]: f"epsilon {each['epsilon']:.3g} for a sample" for each in results["observers"]})
    for sentence in results["warnings"]:
        console.print()
        console.print(Text(sentence, style="yellow"), soft_wrap=not console.is_terminal)
    console.print()
    console.print(Text(results["statement"]), soft_wrap=not console.is_terminal)
