"""Count the steps of DP-SGD that the peers at hand make: rounds that are played again count again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from p2pfl.learning.example_private import ExamplePrivateLearner
from p2pfl.privacy.accounting.examples import Sampling
from p2pfl.report.budget import Budget

if TYPE_CHECKING:
    from p2pfl.experiment import Plan


class SamplingMeter:
    """Adds up what training costs the single samples of the peers at hand.

    Parameters
    ----------
    plan
        The experiment, resolved.
    peers
        Whose training is counted.
    run
        Names this run in the budget's file.
    earlier
        What the one peer at hand did in earlier incarnations of this run.

    Attributes
    ----------
    own
        By peer, how many rounds of this run had which steps, those of earlier incarnations included.
    """

    def __init__(
        self, plan: Plan, peers: Sequence[str], *, run: str, earlier: Mapping[Sampling, int] | None = None
    ) -> None:
        learner = plan.learner.bare
        self._learner = learner if isinstance(learner, ExamplePrivateLearner) and learner.noise else None
        self._budget = None if self._learner is None else Budget.at(plan.experiment, plan.protection)
        self._run = run
        self.own = {peer: Counter(earlier or {}) for peer in peers}
        self._all = self.own if self._budget is None else {peer: self._budget.sampled(peer) for peer in peers}

    @property
    def played(self) -> dict[str, dict[Sampling, int]] | None:
        """By peer, how many rounds had which steps, earlier runs on the same account included; ``None`` without any."""
        return None if self._learner is None else {peer: dict(rounds) for peer, rounds in self._all.items()}

    def told(self, peer: str) -> tuple[tuple[float, float, int, int], ...] | None:
        """Return what :attr:`played` says of a peer as noise, rate, steps and count, to send it elsewhere."""
        if self._learner is None:
            return None
        return tuple((each.noise, each.rate, each.steps, count) for each, count in sorted(self._all[peer].items()))

    def count(self, round: int, active: Sequence[bool] | None) -> None:
        """Count a round that was trained, before anything that follows from it leaves.

        Parameters
        ----------
        round
            Which round.
        active
            Who of the peers at hand trained; all by default.

        Raises
        ------
        StorageError
            If the budget's file cannot be written, so that nothing may be sent.
        """
        if self._learner is None:
            return
        trained = [peer for peer, here in zip(self.own, active or [True] * len(self.own), strict=True) if here]
        steps = {peer: Sampling(self._learner.noise, *self._learner.cost(peer)) for peer in trained}
        steps = {peer: each for peer, each in steps.items() if each.steps}
        if self._budget is not None:
            self._budget.sample(steps, run=self._run, round=round)
        for peer, each in steps.items():
            self.own[peer][each] += 1
            if self._all is not self.own:
                self._all[peer][each] += 1
