"""Difference of two runs: totals with and without a person, or with and without a peer.

Exact totals hide nobody from whoever has those of a second run that lacks one person: the difference is what that
person adds. So the attack succeeds wherever the account of the data admits the second run. It is tried on a copy of an
account in which the experiment has run once, with the people and peers of the user's own experiment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from p2pfl.core.draws import draw
from p2pfl.experiment import Plan
from p2pfl.experiment.accounts import PrivacyAccount
from p2pfl.plugins.audit.claims import TOTALS, ExactClaim, claim
from p2pfl.results.spending.ledger import RunLedger, run_ledgers
from p2pfl.results.spending.people import People

PEOPLE = 16
"""People of each owner who are left out, one at a time."""

BEFORE = datetime(2000, 1, 1, tzinfo=UTC)
"""Date of the first run, which nobody reads."""

FEWEST_PEERS = 3
"""Peers of which one can leave, so that others are left to hide each other."""


def subtract_runs(plan: Plan, *, seed: int = 0) -> list[ExactClaim]:
    """Try to learn people and peers from the difference of two runs.

    Parameters
    ----------
    plan
        Resolved experiment, whose totals are exact.
    seed
        Seed of the people who are left out.

    Returns
    -------
    list of ExactClaim
        Numbers of people and of peers that a second run shows; nothing for data without an account, such as bundled
        ones, which are public.
    """
    shown, tried, left, leaving = 0, 0, 0, 0
    with TemporaryDirectory() as folder:
        for number, ledger in enumerate(run_ledgers(plan, plan.federation.peers)):
            account = PrivacyAccount(Path(folder, f"{number}.jsonl"), ledger.account.owned)
            first = RunLedger(replace(plan, unaccounted=False), ledger.members, account)
            first.record(BEFORE)
            for people in _without_one(first.people, seed=seed, owner=ledger.members[0]):
                shown += not replace(first, given=people).objections()
                tried += 1
            if first.own and len(first.peers) >= FEWEST_PEERS:
                for peer in first.peers:
                    among = tuple(name for name in first.peers if name != peer)
                    left += peer not in ledger.members and not replace(first, among=among).objections()
                    leaving += peer not in ledger.members
    claims = [claim(TOTALS, "two runs show no person", shown, count=tried)] if tried else []
    return [*claims, claim(TOTALS, "two runs show no peer", left, count=leaving)] if leaving else claims


def _without_one(people: People, *, seed: int, owner: str) -> Iterator[People]:
    """Yield the people of an owner without one of them."""
    used = np.unique(np.concatenate([*people.parts.values(), np.empty(0, np.int64)]))
    for row in draw(seed, "audit people", owner).permutation(used)[:PEOPLE].tolist():
        yield replace(people, parts={name: part[part != row] for name, part in people.parts.items()})
