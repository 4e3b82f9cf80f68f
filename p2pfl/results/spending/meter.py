"""Meter of the cost of releases: it records what has happened, then decides about the next release."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from p2pfl.core.errors import BudgetError, InputError
from p2pfl.privacy.accounting.examples import SampledSteps
from p2pfl.privacy.accounting.spending import Cost
from p2pfl.results.notices.kinds import BudgetExceeded
from p2pfl.results.spending.budget import PeerAccounts
from p2pfl.results.spending.sampling import SamplingMeter
from p2pfl.results.spending.stated import BudgetStop

if TYPE_CHECKING:
    from p2pfl.experiment import Plan
    from p2pfl.experiment.protection import Protection


def stopped(peers: Sequence[BudgetStop | None]) -> BudgetStop | None:
    """Return the most frequent result of :meth:`Meter.stopped` for some peers, with the number of these.

    Examples
    --------
    >>> stopped([BudgetStop(3, 9, 8.0), None, BudgetStop(3, 9, 8.0)])
    BudgetStop(done=3, rounds=9, epsilon=8.0, account=None, peers=2, among=3)
    """
    commonest = Counter(stop for stop in peers if stop is not None).most_common(1)
    if not commonest:
        return None
    ((stop, count),) = commonest
    return msgspec.structs.replace(stop, peers=count, among=len(peers))


class Meter:
    """Counter of what the local peers spend in a run, which decides when to stop.

    Parameters
    ----------
    plan
        Resolved experiment.
    peers
        Names of the local peers.
    run
        Name of this run in the budget file.
    earlier, sampled
        Costs of earlier incarnations in this run, if there is no budget file; and by peer, their training.
    more
        Whether the run needs another round; false where it goes on and may have played all that the budget permits.

    Attributes
    ----------
    samples
        Counter of the cost of training for single samples.

    Raises
    ------
    InputError
        Nothing is left of the budget.
    """

    def __init__(
        self,
        plan: Plan,
        peers: Sequence[str],
        *,
        run: str,
        earlier: Mapping[Cost, int] | None = None,
        sampled: Mapping[str, Mapping[SampledSteps, int]] | None = None,
        more: bool = True,
    ) -> None:
        self.samples = SamplingMeter(plan, peers, run=run, earlier=sampled)
        self._peers = tuple(peers)
        self._run = run
        self._budget = PeerAccounts.of(plan.experiment, plan.protection, peers)
        self._refused = False  # True once a release has been refused
        self._protection = plan.protection.after({})
        # whether a sent release has been corrected
        self._corrected = any(cost != self._protection.cost for cost in earlier or {})
        self._costs = self._spent_before() + (Counter() if self._budget is not None else Counter(earlier or {}))
        again = dict(earlier or {}) if plan.protection.sums is not None else {}
        # rounds charged less than private noise alone; the cost of a round takes as long as a round of a small model
        self._whole = [0] * again.get(self._protection.cost, 0) if again else []
        self._exposed = bool(again)  # sums lacked this peer between its incarnations
        self._left = self._protection.after(self._costs)
        if more and self._budget is not None and not self.rounds:
            raise InputError(
                f"privacy.epsilon = {plan.experiment.privacy.epsilon} does not permit another round, as "
                f"{self.spent:.3g} is spent already by {self._budget.path(peers)}; "
                f"{_remedy(self._protection)}, or stop here"
            )

    @property
    def rounds(self) -> range:
        """Return the rounds that the budget permits, if no other run spends from it."""
        return self.since(0)

    def since(self, first: int) -> range:
        """Return the permitted rounds of a run that starts or continues with the round ``first``."""
        rounds = self._left.rounds
        return range(first, min(rounds, first + self._left.affordable) if self._left.claimed else rounds)

    @property
    def claims(self) -> bool:
        """True if releases have a cost, which takes a while to add and to write."""
        return self._protection.claimed

    @property
    def costs(self) -> Counter[Cost]:
        """Costs of all incarnations in this run."""
        return self._costs.copy()

    def charge(self, round: int, *, whole: bool) -> None:
        """Record the cost of a release before it is sent; ``whole`` unless a mask partner is missing.

        Without all its masks, private noise alone protects a model, whichever partner is missing.

        Raises
        ------
        BudgetError
            The release would cost more than is left of the budget; nothing may be sent.
        """
        if not self.claims:
            return
        if self._exposed:
            self.expose()
            whole = False
        why = "" if whole else ", in which a mask partner is missing,"
        cost = self._protection.cost if whole else self._protection.local
        self._spend(round, cost, what=f"round {round + 1}{why}", most=self._most if whole else cost)
        if whole:
            self._whole.append(round)

    def correct(self, round: int) -> None:
        """Record that private noise alone protected a sent release, whatever is left of the budget.

        A release that was charged with all its masks costs the difference: squares of mu add. With secret participation
        such a difference has no closed form, and the full release is charged again.

        Parameters
        ----------
        round
            Round whose release lacked a mask.

        Raises
        ------
        StorageError
            The cost cannot be written.
        """
        if not self.claims:
            return
        nominal, floor = self._protection.cost, self._protection.local
        rest = math.sqrt(max(0.0, floor.mu**2 - nominal.mu**2)) if floor.probability == 1 else floor.mu
        if rest:
            self._write(round, Cost(rest, floor.probability))
            self._corrected = True

    def check(self, round: int) -> None:
        """Check that the corrected releases are within the budget, before a release that would cost nothing more.

        Parameters
        ----------
        round
            Round of the release.

        Raises
        ------
        BudgetError
            More than the budget has been spent; nothing may be sent any more.
        """
        if (over := self._over) is not None:
            self._refused = True
            raise BudgetError(
                f"privacy.epsilon = {over.epsilon:g} does not permit another attempt at round {round + 1}, because "
                f"releases that lacked a mask have made it {over.spent:.3g}; raise it, or run fewer rounds"
            )

    def expose(self) -> None:
        """Charge all releases, including earlier ones, as protected by private noise alone, before a sum is shown.

        A sum without all its contributions reveals more than was checked, also about earlier releases.

        Raises
        ------
        BudgetError
            The cost would exceed the rest of the budget; nothing may be sent any more.
        """
        self._exposed = True
        if (rest := self._rest) is not None:
            what = f"{len(self._whole)} rounds of sums without a missing peer"
            self._spend(self._whole[-1], rest, what=what)
            self._whole = []

    def exposed(self) -> None:
        """Record the cost of :meth:`expose` for a sum that has been shown, whatever is left.

        Raises
        ------
        StorageError
            The cost cannot be written.
        """
        self._exposed = True
        if (rest := self._rest) is not None:
            self._write(self._whole[-1], rest)
            self._whole = []

    def doubt(self) -> None:
        """Record that a sum was refused: nothing has been shown, and :meth:`expose` precedes the next release."""
        self._exposed = True

    @property
    def _most(self) -> Cost:
        """Cost that the next release may turn out to have; the budget has room for one such release, not for more."""
        return self._protection.cost if self._corrected else self._protection.at_most

    @property
    def _rest(self) -> Cost | None:
        """Cost of private noise alone beyond the charged cost, for the releases that counted as whole."""
        if not self._protection.claimed or not self._whole:
            return None
        nominal, floor = self._protection.cost, self._protection.local
        rest = math.sqrt(len(self._whole) * max(0.0, floor.mu**2 - nominal.mu**2))  # squares of mu add
        return Cost(rest, floor.probability)

    def _spend(self, round: int, cost: Cost, *, what: str, most: Cost | None = None) -> None:
        """Record a cost, if enough is left for it, or for what it may become."""

        def check(before: Counter[Cost]) -> None:
            costs = before + Counter({most or cost: 1})
            if not self._protection.allows(costs):
                if self._budget is not None:
                    self._costs = self._spent_before()  # other runs may have spent as well
                self._refused = True
                raise BudgetError(
                    f"privacy.epsilon = {self._protection.wanted.epsilon:g} does not permit {what}, which would "
                    f"make it {self._protection.spent(costs):.3g}; raise it, or run fewer rounds"
                )

        self._write(round, cost, check=check)

    def _write(self, round: int, cost: Cost, *, check: Callable[[Counter[Cost]], None] | None = None) -> None:
        """Record a cost, in the file first: it is durable there when this returns."""
        if self._budget is not None:
            self._budget.spend(self._peers, run=self._run, round=round, cost=cost, check=check)
            self._costs = self._spent_before()  # other runs may have spent as well
            return
        if check is not None:
            check(self._costs)
        self._costs[cost] += 1

    def _spent_before(self) -> Counter[Cost]:
        return Counter() if self._budget is None else self._budget.before(self._peers)

    @property
    def spent(self) -> float | None:
        """Epsilon so far, including earlier runs on the same data; ``None`` without a claim or a secret source."""
        return self._protection.spent(self._costs) if self._protection.secret else None

    @property
    def overdrawn(self) -> BudgetExceeded | None:
        """Return a notice if more than the budget has been spent; otherwise ``None``."""
        return self._over if self._protection.secret else None

    @property
    def _over(self) -> BudgetExceeded | None:
        """The notice, also where the noise follows from a seed: such a run stops where another one would."""
        wanted, spent = self._protection.wanted.epsilon, self._protection.spent(self._costs)
        if wanted is None or spent is None or not self._corrected or self._protection.allows(self._costs):
            return None
        return BudgetExceeded(peer=self._peers[0], spent=spent, epsilon=wanted)

    def stopped(self, done: int) -> BudgetStop | None:
        """Return how the budget stopped the run after ``done`` rounds; ``None`` if it did not."""
        protection, wanted = self._protection, self._protection.wanted.epsilon
        if wanted is None or not protection.claimed or done >= protection.rounds:
            return None
        if not self._refused and protection.allows(self._costs + Counter({self._most: 1})):
            return None
        account = None if self._budget is None or not self._left.before else str(self._budget.path(self._peers))
        count = len(self._peers)
        return BudgetStop(done, protection.rounds, wanted, account, peers=count, among=count)


def _remedy(protection: Protection) -> str:
    """Return how a run gets another round: noise that follows from epsilon takes all of it in one run of totals."""
    return "raise it and set privacy.noise" if protection.totals and not protection.wanted.noise else "raise it"
