"""Privacy statements and charges in the evidence of a run, computed again from its settings."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Sequence

from p2pfl.experiment import Plan
from p2pfl.plugins.evidence.recorded_chain import PeerEvidence
from p2pfl.plugins.evidence.verification import Difference
from p2pfl.results.formats import count_of
from p2pfl.results.spending.promises import promise

TOLERANCE = 1e-6
"""Relative difference of two charges that come from other versions of the same mathematics."""

NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?", re.ASCII)


def compare_promises(resolved: Plan, chains: Sequence[PeerEvidence]) -> Iterator[Difference]:
    """Yield peers that promised or charged something else than the settings give.

    Each release of a round, and each contribution to its totals, costs what the accountant says; earlier runs on the
    same data can only add to it.

    Parameters
    ----------
    resolved
        Plan of the experiment.
    chains
        Evidence of each peer.
    """
    protection = resolved.protection
    statement = promise(resolved.experiment, protection, spent=None)["statement"]
    digest = hashlib.sha256(statement.encode()).hexdigest()
    cost = repr(protection.cost) if resolved.claims else None
    for own in chains:
        if any(began.statement != digest for began in own.beginnings):
            yield Difference(own.peer, -1, "its privacy statement is not that of the settings")
        for charge in sorted({str(began.charge) for began in own.beginnings if not _equal(began.charge, cost)}):
            yield Difference(own.peer, -1, f"its evidence states a cost of {charge} a round; the settings give {cost}")
        if cost is None:
            continue
        released = 0
        for round, played in own.played.items():
            released += bool(own.sent(round)) or any(own.peer in total.participants for total in played.totals)
            least = protection.total({protection.cost: released}) if released else 0.0
            if (played.spent or 0.0) < least * (1 - TOLERANCE):
                paid = f"{played.spent or 0.0:.3g}"
                yield Difference(
                    own.peer,
                    round,
                    f"it has spent epsilon {paid}, and its {count_of(released, 'round')} cost {least:.3g}",
                )
                break


def _equal(charge: str | None, cost: str | None) -> bool:
    """Return whether two costs in words are the same, but for the last digits of their numbers."""
    first, second = charge or "", cost or ""
    pairs = zip(NUMBER.findall(first), NUMBER.findall(second), strict=False)
    return NUMBER.sub("", first) == NUMBER.sub("", second) and all(
        math.isclose(float(each), float(other), rel_tol=TOLERANCE) for each, other in pairs
    )
