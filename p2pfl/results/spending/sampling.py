"""Counter of the steps of DP-SGD that local peers make; rounds that run again count again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from p2pfl.learning import Learner
from p2pfl.learning.learner import ProtectsSamples
from p2pfl.privacy.accounting.examples import SampledSteps
from p2pfl.results.spending.budget import PeerAccounts

if TYPE_CHECKING:
    from p2pfl.experiment import Plan


class SamplingMeter:
    """Counter of the cost of training for single samples of the local peers.

    Parameters
    ----------
    plan
        Resolved experiment.
    peers
        Names of the local peers.
    run
        Name of this run in the budget file.
    earlier
        By peer, rounds for each kind of steps in earlier incarnations of this run.

    Attributes
    ----------
    own
        By peer, the number of rounds of this run for each kind of steps, including earlier incarnations; of no peer
        without DP-SGD.
    """

    def __init__(
        self,
        plan: Plan,
        peers: Sequence[str],
        *,
        run: str,
        earlier: Mapping[str, Mapping[SampledSteps, int]] | None = None,
    ) -> None:
        learner = plan.learner.bare
        self._learner = learner if isinstance(learner, ProtectsSamples) and learner.noise else None
        self._budget = None if self._learner is None else PeerAccounts.at(plan.experiment, plan.protection, peers)
        self._run = run
        counted = () if self._learner is None else peers
        self.own = {peer: Counter((earlier or {}).get(peer, {})) for peer in counted}
        self._all = self.own if self._budget is None else {peer: self._budget.sampled(peer) for peer in peers}

    def follow(self, learner: Learner) -> None:
        """Count the next rounds by the sampling of the same learner on other data, whose number sets the rate."""
        bare = learner.bare
        if self._learner is not None and isinstance(bare, ProtectsSamples):
            self._learner = bare

    @property
    def played(self) -> dict[str, dict[SampledSteps, int]] | None:
        """Rounds by peer and kind of steps, including earlier runs on the same budget; ``None`` without DP-SGD."""
        return None if self._learner is None else {peer: dict(rounds) for peer, rounds in self._all.items()}

    def count_turns(self, rounds: Sequence[int]) -> None:
        """Count training of local peers that are in rounds of their own; -1 for one that did not train.

        Raises
        ------
        StorageError
            As :meth:`count`.
        """
        for round in sorted({*rounds} - {-1}):
            self.count(round, [each == round for each in rounds])

    def count(self, round: int, active: Sequence[bool] | None) -> None:
        """Count a round of training, before anything that depends on it leaves.

        Parameters
        ----------
        round
            Round number.
        active
            Local peers that trained; all by default.

        Raises
        ------
        StorageError
            The budget file cannot be written, so nothing may be sent.
        """
        if self._learner is None:
            return
        trained = [peer for peer, here in zip(self.own, active or [True] * len(self.own), strict=True) if here]
        steps = {peer: SampledSteps(self._learner.noise, *self._learner.cost(peer)) for peer in trained}
        steps = {peer: each for peer, each in steps.items() if each.steps}
        if self._budget is not None:
            self._budget.sample(steps, run=self._run, round=round)
        for peer, each in steps.items():
            self.own[peer][each] += 1
            if self._all is not self.own:
                self._all[peer][each] += 1
