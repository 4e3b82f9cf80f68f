"""What has been spent on a data set, in a file beside it: one line a peer and release, appended before it is sent."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from p2pfl.errors import BudgetError, InputError, StorageError
from p2pfl.experiment import Experiment, Plan
from p2pfl.privacy.spending import Cost, spent


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One release of one peer.

    Attributes
    ----------
    run, peer, round
        Which release it was.
    mu, probability
        What it cost, see :class:`p2pfl.privacy.spending.Cost`.
    """

    run: str
    peer: str
    round: int
    mu: float
    probability: float = 1.0


class Budget:
    """A file of entries; several processes may append to it at once.

    Parameters
    ----------
    path
        Made when something is spent for the first time.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of(cls, experiment: Experiment) -> Budget | None:
        """The one that an experiment names, or the one beside its data file."""
        if experiment.privacy.mode == "none":
            return None
        if experiment.privacy.budget is not None:
            return cls(Path(experiment.privacy.budget))
        data = experiment.data.options.get("path")
        return cls(Path(f"{data}.budget.jsonl")) if isinstance(data, str) else None

    def before(self, peers: Iterable[str], *, delta: float) -> Counter[Cost]:
        """What the one of ``peers`` that has spent most has spent so far."""
        costs: dict[str, Counter[Cost]] = {peer: Counter() for peer in peers}
        for entry in self._entries():
            if entry.peer in costs:
                costs[entry.peer][Cost(entry.mu, entry.probability)] += 1
        return max(costs.values(), key=lambda each: spent(each, delta=delta), default=Counter())

    def spend(self, peers: Sequence[str], *, run: str, round: int, cost: Cost) -> None:
        """Note a release; it is on disk when this returns.

        Raises
        ------
        StorageError
            If it cannot be written, so that nothing may be sent.
        """
        entries = [Entry(run=run, peer=peer, round=round, mu=cost.mu, probability=cost.probability) for peer in peers]
        lines = b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)
        try:
            with self.path.open("ab", buffering=0) as file:
                while lines:  # a disk that is nearly full takes a part, and refuses the rest
                    lines = lines[file.write(lines) :]
                os.fsync(file.fileno())
        except OSError as error:
            raise StorageError(
                f"expected to write to the privacy budget {self.path}, got: {error.strerror}; without it nothing is "
                "sent: free some space, or choose another place with privacy.budget"
            ) from None

    def _entries(self) -> Iterable[Entry]:
        try:
            lines = self.path.read_bytes().splitlines()
        except FileNotFoundError:
            return
        except OSError as error:
            raise InputError(
                f"{self.path}: expected a privacy budget that can be read, got: {error.strerror}"
            ) from None
        for number, line in enumerate(lines, start=1):
            try:
                yield msgspec.json.decode(line, type=Entry)
            except msgspec.MsgspecError as error:
                raise InputError(
                    f"{self.path}, line {number}: expected what a release cost, got: {error}; correct the line, for "
                    "what is not counted is spent twice"
                ) from None


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

    Raises
    ------
    InputError
        If nothing is left of the budget.
    """

    def __init__(self, plan: Plan, peers: Sequence[str], *, run: str) -> None:
        self._peers = tuple(peers)
        self._run = run
        self._budget = Budget.of(plan.experiment) if plan.protection.claimed else None
        self.protection = plan.protection
        if self._budget is not None:
            before = self._budget.before(peers, delta=plan.experiment.privacy.delta)
            self.protection = plan.protection.after(before)
            if not self.protection.affordable:
                raise InputError(
                    f"expected privacy.epsilon = {plan.experiment.privacy.epsilon} to allow one round more, got "
                    f"{self.protection.spent({}):.3g} spent already by {self._budget.path}: raise it, or stop here"
                )
        self._costs: Counter[Cost] = Counter()
        self._whole: list[int] = []  # rounds that count by more than their private noise
        self._exposed = False

    @property
    def rounds(self) -> range:
        """The rounds that the budget allows."""
        return range(self.protection.affordable if self.protection.claimed else self.protection.rounds)

    def charge(self, round: int, *, whole: bool) -> None:
        """Count a release before it is sent; ``whole`` unless somebody to share masks with is missing.

        Without all its masks a row counts as hidden by its private noise alone, whoever is missing.

        Raises
        ------
        BudgetError
            If it would cost more than is left of the budget: then nothing may be sent.
        """
        if not self.protection.claimed:
            return
        if self._exposed:
            self.expose()
            whole = False
        cost = self.protection.cost if whole else self.protection.local
        costs = self._costs + Counter({cost: 1})
        if not self.protection.allows(costs):
            why = "" if whole else ", in which somebody to share masks with is missing,"
            raise BudgetError(
                f"expected privacy.epsilon = {self.protection.wanted.epsilon:g} to allow round {round + 1}{why} too, "
                f"got {self.protection.spent(costs):.3g} with it: raise it, or run fewer rounds"
            )
        if self._budget is not None:
            self._budget.spend(self._peers, run=self._run, round=round, cost=cost)
        self._costs = costs
        if whole:
            self._whole.append(round)

    def expose(self) -> None:
        """Count all releases, those before as well, as hidden by their private noise alone.

        Sums of which one is not what it should be show more than was looked at, also of what was released before.

        Raises
        ------
        BudgetError
            If that would cost more than is left of the budget; then nothing may be sent any more.
        """
        self._exposed = True
        if not self.protection.claimed or not self._whole:
            return
        nominal, floor = self.protection.cost, self.protection.local
        rest = Cost(math.sqrt(max(0.0, floor.mu**2 - nominal.mu**2)), floor.probability)  # squares of mu add
        costs = self._costs + Counter({rest: len(self._whole)})
        if not self.protection.allows(costs):
            raise BudgetError(
                f"expected privacy.epsilon = {self.protection.wanted.epsilon:g} to allow {len(self._whole)} rounds of "
                f"sums that somebody is missing from, got {self.protection.spent(costs):.3g} with them: raise it, or "
                "run fewer rounds"
            )
        if self._budget is not None:
            for round in self._whole:
                self._budget.spend(self._peers, run=self._run, round=round, cost=rest)
        self._costs, self._whole = costs, []

    @property
    def spent(self) -> float | None:
        """Epsilon so far, earlier runs on the same data included; ``None`` where none is claimed."""
        return self.protection.spent(self._costs)
