"""Count what the releases of a run cost: record what has happened, then decide about the next release."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from p2pfl.errors import BudgetError, InputError
from p2pfl.privacy.accounting.examples import Sampling
from p2pfl.privacy.accounting.spending import Cost
from p2pfl.report.budget import Budget
from p2pfl.report.sampling import SamplingMeter

if TYPE_CHECKING:
    from p2pfl.experiment import Plan


def stopped(peers: Sequence[str | None]) -> str | None:
    """What :meth:`Meter.stopped` says of most of those peers that it says something of, in one sentence.

    Examples
    --------
    >>> stopped(["3 of 9 rounds: ...", None, "3 of 9 rounds: ..."])
    '3 of 9 rounds: ... (2 of 3 peers)'
    """
    said = Counter(sentence for sentence in peers if sentence is not None).most_common(1)
    if not said:
        return None
    ((sentence, count),) = said
    return sentence if count == len(peers) else f"{sentence} ({count} of {len(peers)} peers)"


class Meter:
    """Adds up what the peers at hand spend in a run, and says when to stop.

    Parameters
    ----------
    plan
        The experiment, resolved.
    peers
        Whose releases are counted.
    run
        Names this run in the budget's file.
    earlier, sampled
        What earlier lives in this run have spent, for where there is no such file; and how they trained.

    Attributes
    ----------
    samples
        Counts what training costs single samples.

    Raises
    ------
    InputError
        If nothing is left of the budget.
    """

    def __init__(
        self,
        plan: Plan,
        peers: Sequence[str],
        *,
        run: str,
        earlier: Mapping[Cost, int] | None = None,
        sampled: Mapping[Sampling, int] | None = None,
    ) -> None:
        self.samples = SamplingMeter(plan, peers, run=run, earlier=sampled)
        self._peers = tuple(peers)
        self._run = run
        self._budget = Budget.of(plan.experiment, plan.protection)
        self._refused = False  # a release
        self._corrected = False  # one that has left
        self._protection = plan.protection.after({})
        self._costs = self._spent_before() + (Counter() if self._budget is not None else Counter(earlier or {}))
        again = dict(earlier or {}) if plan.protection.sums is not None else {}
        self._whole = [0] * again.get(self._protection.cost, 0)  # rounds that count by more than their private noise
        self._exposed = bool(again)  # while no life of ours was there, sums lacked us
        self._left = self._protection.after(self._costs)
        if self._budget is not None and not self.rounds:
            raise InputError(
                f"expected privacy.epsilon = {plan.experiment.privacy.epsilon} to allow one round more, got "
                f"{self.spent:.3g} spent already by {self._budget.path}: raise it, or stop here"
            )

    @property
    def rounds(self) -> range:
        """The rounds that the budget allows, if nobody else spends of it."""
        return self.since(0)

    def since(self, first: int) -> range:
        """Those of a run that begins, or goes on, with the round ``first``."""
        rounds = self._left.rounds
        return range(first, min(rounds, first + self._left.affordable) if self._left.claimed else rounds)

    @property
    def costs(self) -> Counter[Cost]:
        """What has been spent, by all lives in this run."""
        return self._costs.copy()

    def charge(self, round: int, *, whole: bool) -> None:
        """Count a release before it is sent; ``whole`` unless somebody to share masks with is missing.

        Without all its masks a row counts as hidden by its private noise alone, whoever is missing.

        Raises
        ------
        BudgetError
            If it would cost more than is left of the budget: then nothing may be sent.
        """
        if not self._protection.claimed:
            return
        if self._exposed:
            self.expose()
            whole = False
        why = "" if whole else ", in which somebody to share masks with is missing,"
        cost = self._protection.cost if whole else self._protection.local
        self._spend(round, cost, what=f"round {round + 1}{why} too")
        if whole:
            self._whole.append(round)

    def correct(self, round: int) -> None:
        """Record that a release which has left was hidden by its private noise alone, whatever is left.

        A release that was charged with all its masks costs the difference: squares of mu add. Where peers sit out in
        secret such a difference has no closed form, and the release counts again in full.

        Parameters
        ----------
        round
            Whose release turned out to lack a mask.

        Raises
        ------
        StorageError
            If it cannot be written.
        """
        if not self._protection.claimed:
            return
        nominal, floor = self._protection.cost, self._protection.local
        rest = math.sqrt(max(0.0, floor.mu**2 - nominal.mu**2)) if floor.probability == 1 else floor.mu
        if rest:
            self._write(round, Cost(rest, floor.probability))
            self._corrected = True

    def expose(self) -> None:
        """Count all releases, those before as well, as hidden by their private noise alone, before a sum is shown.

        Sums of which one is not what it should be show more than was looked at, also of what was released before.

        Raises
        ------
        BudgetError
            If that would cost more than is left of the budget; then nothing may be sent any more.
        """
        self._exposed = True
        if (rest := self._rest) is not None:
            what = f"{len(self._whole)} rounds of sums that somebody is missing from"
            self._spend(self._whole[-1], rest, what=what)
            self._whole = []

    def exposed(self) -> None:
        """Record what :meth:`expose` counts for a sum that has been shown, whatever is left.

        Raises
        ------
        StorageError
            If it cannot be written.
        """
        self._exposed = True
        if (rest := self._rest) is not None:
            self._write(self._whole[-1], rest)
            self._whole = []

    def doubt(self) -> None:
        """Note that a sum was not given: nothing has been shown, and :meth:`expose` comes before the next release."""
        self._exposed = True

    @property
    def _rest(self) -> Cost | None:
        """What the releases that count as whole cost more than that if private noise alone hides them."""
        if not self._protection.claimed or not self._whole:
            return None
        nominal, floor = self._protection.cost, self._protection.local
        rest = math.sqrt(len(self._whole) * max(0.0, floor.mu**2 - nominal.mu**2))  # squares of mu add
        return Cost(rest, floor.probability)

    def _spend(self, round: int, cost: Cost, *, what: str) -> None:
        """Record what is about to happen, if enough is left for it."""

        def check() -> None:
            if self._budget is not None:
                self._costs = self._spent_before()  # others may have spent, too
            costs = self._costs + Counter({cost: 1})
            if not self._protection.allows(costs):
                self._refused = True
                raise BudgetError(
                    f"expected privacy.epsilon = {self._protection.wanted.epsilon:g} to allow {what}, got "
                    f"{self._protection.spent(costs):.3g} with it: raise it, or run fewer rounds"
                )

        self._write(round, cost, check=check)

    def _write(self, round: int, cost: Cost, *, check: Callable[[], None] | None = None) -> None:
        """Record a cost, in the file first: it is durable there when this returns."""
        if self._budget is not None:
            self._budget.spend(self._peers, run=self._run, round=round, cost=cost, check=check)
        elif check is not None:
            check()
        self._costs[cost] += 1

    def _spent_before(self) -> Counter[Cost]:
        return Counter() if self._budget is None else self._budget.before(self._peers)

    @property
    def spent(self) -> float | None:
        """Epsilon so far, earlier runs on the same data included; ``None`` where none is claimed."""
        return self._protection.spent(self._costs)

    @property
    def overdrawn(self) -> str | None:
        """Why more than the budget has been spent, in a sentence; ``None`` if it has not."""
        wanted, spent = self._protection.wanted.epsilon, self.spent
        if wanted is None or spent is None or not self._corrected or self._protection.allows(self._costs):
            return None
        return f"epsilon {spent:.3g} has been spent, more than privacy.epsilon = {wanted:g}: a release lacked a mask"

    def stopped(self, done: int) -> str | None:
        """Why no round followed after so many, in a sentence, if it is the budget."""
        protection, wanted = self._protection, self._protection.wanted.epsilon
        if wanted is None or not protection.claimed or done >= protection.rounds:
            return None
        if not self._refused and protection.allows(self._costs + Counter({protection.cost: 1})):
            return None
        before = "" if self._budget is None or not self._left.before else f", with what {self._budget.path} had before"
        return (
            f"{done} of {protection.rounds} rounds: one more would have exceeded privacy.epsilon = {wanted:g}{before}"
        )
