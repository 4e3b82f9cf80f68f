"""Protection of an experiment's updates and its guarantee: noise, mask graph, budget."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypedDict

from p2pfl import topology as graphs
from p2pfl.experiment import schema
from p2pfl.experiment.modes import Mode
from p2pfl.privacy import Settings
from p2pfl.privacy.accounting.accountant import Guarantee, account, account_total, find_isolated, table
from p2pfl.privacy.accounting.spending import Cost, affordable, spent

if TYPE_CHECKING:
    from p2pfl.privacy.accounting.sum_leakage import Sums  # it needs torch, and most experiments have none

SLACK = 1e-6
"""Share by which an epsilon may be exceeded, because calibrated noise meets it up to rounding."""


class Accounted(TypedDict):
    """Numbers from which the accountant computes a guarantee."""

    clip: float
    noise: float
    mask: float
    bits: int
    adjacency: Literal["zero-out", "replace"]
    size: int


@dataclass(frozen=True)
class Protection:
    """Protection of the models of a run.

    Attributes
    ----------
    wanted
        Section ``[privacy]`` of the experiment file.
    mode
        Privacy mode, which wraps the neighbourhoods and states what it promises.
    settings
        Noise and masks, as set or as calibrated to ``wanted.epsilon``.
    graph
        Graph of the mask partners.
    size
        P, the number of parameters.
    rounds
        Number of rounds.
    before
        Costs of earlier runs on the same data.
    calibrated
        Guarantee of one round that calibration computed, so that :attr:`guarantee` need not.
    sums
        Sums over neighbourhoods, if others receive those and no models.
    totals
        Facts that totals show of the data of all peers, if they alone leave peers; else empty. Then private noise
        is in units of what one sample can change, and the guarantee is for single samples.
    given
        Condition of the guarantee in words, such as a scaling that depends on the data of all peers; else empty.
    secret
        True if nobody can compute the private noise of the run again. Where it follows from a seed, it hides nothing
        from whoever knows the seed, and no epsilon is stated.
    learned
        What each observer learns, where totals go to single peers; empty where all peers learn the same.
    """

    wanted: schema.PrivacySettings
    mode: Mode
    settings: Settings
    graph: graphs.Topology
    size: int
    rounds: int
    before: Mapping[Cost, int] | None = None
    calibrated: Guarantee | None = None
    sums: Sums | None = None
    totals: str = ""
    given: str = ""
    secret: bool = True
    learned: Mapping[str, str] = field(default_factory=dict)

    @property
    def scale(self) -> float:
        """Largest standard deviation of the masks in a parameter of a released model."""
        if not self.settings.mask:
            return 0.0
        degree = max(self.graph.degree(peer) for peer in self.graph.peers)
        return self.settings.mask * math.sqrt(degree)

    @property
    def claimed(self) -> bool:
        """True if the run claims differential privacy, which needs private noise and a clip."""
        return self.settings.noise > 0 and not math.isinf(self.settings.clip)

    @property
    def partners(self) -> int:
        """Number of mask partners that must be present for a release."""
        return fewest_partners(self.wanted, claimed=self.claimed)

    @cached_property
    def guarantee(self) -> Guarantee:
        """Guarantee of one round against the broker and the worst ``colluders`` peers."""
        if self.totals:
            return self._totalled(self.wanted.colluders)
        if self.sums is not None:
            return self._summed(min(self.wanted.colluders, len(self.graph.peers) - 1))
        return self.calibrated or account(
            self.graph, colluders=min(self.wanted.colluders, len(self.graph.peers) - 1), **self._numbers
        )

    @property
    def cost(self) -> Cost:
        """Privacy cost of one round."""
        return Cost(self.guarantee.mu, self.settings.participation)

    @property
    def local(self) -> Cost:
        """Privacy cost of one round if all others collude, or if no mask partner is present."""
        return Cost(self.guarantee.local, self.settings.participation)

    @property
    def at_most(self) -> Cost:
        """Privacy cost that a round may turn out to have after the release, because a peer disappears.

        The budget has to allow it before the release, so that one death in a run cannot exceed the budget.
        """
        return self.local if self.wanted.departures == "go_on" else self.cost

    @cached_property
    def affordable(self) -> int:
        """Number of rounds that the budget allows, the last of them :attr:`at_most`; all of them without a budget."""
        if self.wanted.epsilon is None:
            return self.rounds
        last, before = self.at_most, Counter(self.before or {})
        if last != self.cost and not self.allows({last: 1}):
            return 0
        more = int(last != self.cost)
        rounds = affordable(
            self.cost,
            budget=self.wanted.epsilon * (1 + SLACK),
            delta=self.wanted.delta,
            rounds=self.rounds - more,
            before=before + Counter({last: more}),
        )
        return rounds + more

    @property
    def planned(self) -> Counter[Cost]:
        """Costs of all rounds that the budget allows, if one of them turns out to cost :attr:`at_most`."""
        if not self.affordable:
            return Counter()
        return Counter({self.cost: self.affordable - 1}) + Counter({self.at_most: 1})

    def spent(self, costs: Mapping[Cost, int]) -> float | None:
        """Return epsilon after rounds of these costs; ``None`` if the run claims none."""
        return self.total(Counter(self.before or {}) + Counter(costs)) if self.claimed else None

    def allows(self, costs: Mapping[Cost, int]) -> bool:
        """Return whether rounds of these costs stay within the budget; all do without a budget."""
        if self.wanted.epsilon is None or (costs.keys() == {self.cost} and costs[self.cost] <= self.affordable):
            return True
        spent = self.spent(costs)
        return spent is None or spent <= self.wanted.epsilon * (1 + SLACK)

    def total(self, costs: Mapping[Cost, int]) -> float:
        """Return epsilon of these costs alone."""
        return spent(costs, delta=self.wanted.delta)

    def observers(self) -> list[Guarantee]:
        """Return the guarantee of one round against each observer, ordered by what they know."""
        if self.totals:
            return [self._totalled(count) for count in sorted({0, 1, self.wanted.colluders})]
        if self.sums is not None:
            most = len(self.graph.peers) - 1
            return [self._summed(count) for count in sorted({0, 1, min(self.wanted.colluders, most), most})]
        count = min(self.wanted.colluders, len(self.graph.peers) - 1)
        few = table(self.graph, colluders=min(1, count), **self._numbers)
        if count in {len(each.colluders) for each in few}:
            return few
        return [*few[:-1], self.guarantee, few[-1]]  # the search for the worst set is not repeated

    def isolated(self, given: Guarantee, *, rounds: int) -> tuple[str, dict[Cost, int]]:
        """Return the peer that is worst off if the broker is malicious, and the costs of the rounds in that case.

        The broker makes all mask partners of one peer mask with it alone, see
        :func:`p2pfl.privacy.accounting.accountant.find_isolated`. Each of them charges its local floor for that, so a
        budget stops it
        after the rounds that the floor allows.

        Parameters
        ----------
        given
            Guarantee of one round against the same colluders and a broker that only listens.
        rounds
            Number of rounds of the run.

        Returns
        -------
        peer, costs
            Name of the peer, and the number of rounds by their cost.
        """
        peer, mu = given.peer, self.local.mu
        if self.sums is None:
            peer, mu = find_isolated(self.graph, colluders=len(given.colluders), **self._numbers)
        most = rounds
        if self.wanted.epsilon is not None and self.claimed:
            budget = self.wanted.epsilon * (1 + SLACK)
            most = affordable(self.local, budget=budget, delta=self.wanted.delta, rounds=rounds, before=self.before)
        costs = Counter({Cost(given.mu, self.settings.participation): rounds - most})
        return peer, dict(costs + Counter({Cost(max(mu, given.mu), self.settings.participation): most}))

    def _totalled(self, colluders: int) -> Guarantee:
        """Return the guarantee of one total against a number of peers that receive it."""
        peers, adjacency = self.graph.peers, self.wanted.adjacency
        return account_total(peers, noise=self.settings.noise, colluders=colluders, adjacency=adjacency)

    def _summed(self, colluders: int) -> Guarantee:
        """Return the guarantee of one round against a number of peers that receive sums."""
        assert self.sums is not None  # noqa: S101 (asked by the caller)
        numbers = self._numbers
        return self.sums.guarantee(
            colluders=colluders,
            clip=numbers["clip"],
            noise=numbers["noise"],
            bits=numbers["bits"],
            adjacency=numbers["adjacency"],
            size=numbers["size"],
        )

    def after(self, before: Mapping[Cost, int]) -> Protection:
        """Return the protection on data on which earlier runs have spent these costs."""
        return replace(self, before=before)

    @property
    def _numbers(self) -> Accounted:
        settings = self.settings
        return {
            "clip": settings.clip,
            "noise": settings.noise,
            "mask": settings.mask,
            "bits": settings.bits,
            "adjacency": self.wanted.adjacency,
            "size": self.size,
        }


def fewest_partners(wanted: schema.PrivacySettings, *, claimed: bool) -> int:
    """Return how many mask partners a release needs: one more than may collude, unless a guarantee counts them.

    Examples
    --------
    >>> fewest_partners(schema.PrivacySettings(mode="pairwise", colluders=2), claimed=False)
    3
    """
    if wanted.partners is not None:
        return wanted.partners
    return 1 if claimed else wanted.colluders + 1
