"""Claims about the accounting: bounds of the accountant by other formulas, and what the meter charges."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from p2pfl.core.neighbourhood import Public
from p2pfl.experiment import Plan
from p2pfl.plugins.audit.claims import ACCOUNTING, ExactClaim, claim
from p2pfl.plugins.audit.pipeline import drop_budget
from p2pfl.plugins.audit.second_accountant import gaussian_epsilon, sampled_epsilon, sums_mu, worst_mu
from p2pfl.privacy.accounting.accountant import Guarantee
from p2pfl.privacy.accounting.spending import Cost
from p2pfl.privacy.keys import SeededSource
from p2pfl.results.spending.meter import Meter
from p2pfl.simulation.stacked import StackedNeighbourhood
from p2pfl.topology import metropolis, ring

MAX_RECOMPUTED_PEERS = 512
"""Most peers whose bounds are computed once more."""

CHARGED_RELEASES = 3
"""Number of releases that are charged, and number of times that one is corrected."""


def accounts(plan: Plan, *, stated: Sequence[Guarantee]) -> list[ExactClaim]:
    """Check the accounting of an experiment that claims differential privacy of the data of peers.

    Parameters
    ----------
    plan
        Resolved experiment.
    stated
        Guarantee of one round against each observer.

    Examples
    --------
    >>> from p2pfl.experiment import plan, read
    >>> private = {"mode": "pairwise", "clip": 1.0, "noise": 1.0, "mask": 4.0}
    >>> resolved = plan(read({"topology": {"peers": 6}, "privacy": private}))
    >>> [claim.broken for claim in accounts(resolved, stated=resolved.protection.observers())][:6]
    [False, False, False, False, False, False]
    """
    protection = plan.protection
    if not protection.claimed:
        return []
    claims = [] if protection.totals else [*_bounds(plan, stated), _releases(plan)]
    return [*claims, _epsilons(plan), *_charges(plan)]


def _bounds(plan: Plan, stated: Sequence[Guarantee]) -> list[ExactClaim]:
    """Compare mu of each observer with another computation."""
    if len(plan.protection.graph.peers) > MAX_RECOMPUTED_PEERS:
        return []
    name = "mu of {observer}"
    return [claim(ACCOUNTING, name, _mu(plan, each), each.mu * (1 + 1e-6), observer=each.observer) for each in stated]


def _mu(plan: Plan, guarantee: Guarantee) -> float:
    """Return mu of one release against the colluders of a guarantee, or against worse ones that are as many."""
    protection, settings = plan.protection, plan.protection.settings
    change = (2.0 if protection.wanted.adjacency == "replace" else 1.0) * (
        settings.clip + 2.0**-settings.bits * math.sqrt(protection.size) / 2
    )
    numbers: dict[str, float] = {"change": change, "noise": settings.noise}
    if protection.sums is None:
        return worst_mu(protection.graph, **numbers, mask=settings.mask, colluders=guarantee.colluders)
    peers = protection.graph.peers
    view = plan.weights[0].matrix.toarray()
    return sums_mu(view, **numbers, colluders=[peers.index(name) for name in guarantee.colluders])


def _epsilons(plan: Plan) -> ExactClaim:
    """Compare the epsilon of all rounds with another computation, and with what the experiment asks for."""
    protection = plan.protection
    costs = dict(protection.planned) or {protection.cost: protection.rounds}
    delta, stated = protection.wanted.delta, protection.spent(costs)
    asked = protection.wanted.epsilon
    allowed = min(math.inf if stated is None else stated, math.inf if asked is None else asked * (1 + 1e-5))
    sampled = any(cost.probability < 1 for cost in costs)
    allowed = allowed * (1.01 if sampled else 1 + 1e-6) + (0.01 if sampled else 1e-9)
    return claim(ACCOUNTING, "epsilon of all rounds", _epsilon(costs, delta=delta), allowed)


def _epsilon(costs: Mapping[Cost, int], *, delta: float) -> float:
    if all(cost.probability == 1 for cost in costs):
        return gaussian_epsilon(math.sqrt(sum(count * cost.mu**2 for cost, count in costs.items())), delta=delta)
    return sampled_epsilon({(cost.mu, cost.probability): count for cost, count in costs.items()}, delta=delta)


def _charges(plan: Plan) -> list[ExactClaim]:
    """Compare what a meter charges with the cost of each release, or with that of private noise alone."""
    floor = plan.protection.local.mu
    claims = [
        _charge(plan, "releases are charged", mu=plan.protection.cost.mu),
        _charge(plan, "corrections are charged in full", mu=floor, correct=True),
        _charge(plan, "releases without a mask are charged", mu=floor, whole=False),
    ]
    if plan.protection.sums is not None:
        claims.append(_charge(plan, "sums that lack a peer are charged", mu=floor, expose=True))
    return claims


def _charge(
    plan: Plan, name: str, *, mu: float, whole: bool = True, correct: bool = False, expose: bool = False
) -> ExactClaim:
    """Charge releases that have all their masks or not, and may turn out to lack one, or whose sums lack a peer."""
    meter = _meter(plan)
    for round in range(CHARGED_RELEASES):
        meter.charge(round, whole=whole)
        if correct:
            meter.correct(round)
    if expose:
        meter.exposed()
    if plan.protection.cost.probability == 1:
        charged = sum(count * cost.mu**2 for cost, count in meter.costs.items())
    else:  # squares do not add, so each release must be charged in full
        charged = mu**2 * sum(count for cost, count in meter.costs.items() if cost.mu >= mu * (1 - 1e-9))
    return claim(ACCOUNTING, name, CHARGED_RELEASES * mu**2 - charged, 1e-9 * mu**2)


def _meter(plan: Plan) -> Meter:
    """Return the meter of one peer, whose budget never ends and is in no file."""
    bare = drop_budget(plan.experiment)
    endless = replace(plan.protection, wanted=bare.privacy, before=None)
    outside = replace(plan, asked=replace(plan.asked, experiment=bare), protection=endless, sized=None)
    return Meter(outside, plan.protection.graph.peers[:1], run="audit")


def _releases(plan: Plan) -> ExactClaim:
    """Check that each release is charged before it leaves."""
    order, graph = list[str](), ring(4)
    settings = replace(plan.protection.settings, mask=0.0)

    class SentNeighbourhood(StackedNeighbourhood):
        async def mix(self, released: Any) -> Any:
            order.append("sent")
            return await super().mix(released)

    async def release() -> None:
        net = plan.protection.mode.wrap(
            SentNeighbourhood([metropolis(graph)], round=0, seed=0),
            settings=settings,
            masks=None,
            source=SeededSource(0),
            round=0,
            charge=lambda: order.append("charged"),
        )
        start = torch.zeros(len(graph.peers), 8, dtype=torch.float64)  # [N, P]
        for _ in range(CHARGED_RELEASES):
            await net.mix(await net.release(start, since=Public(start)))

    asyncio.run(release())
    lacking = sum(
        Counter(order[: position + 1])["sent"] > Counter(order[: position + 1])["charged"]
        for position in range(len(order))
    )
    return claim(ACCOUNTING, "every release is charged first", lacking or CHARGED_RELEASES - order.count("sent"))
