"""What has been spent on a data set, in a file beside it: one line a peer and release, appended before it is sent."""

from __future__ import annotations

import fcntl
import hashlib
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from p2pfl.errors import BudgetError, InputError, StorageError
from p2pfl.experiment import Experiment
from p2pfl.experiment.schema import Privacy
from p2pfl.privacy.spending import Cost, spent

if TYPE_CHECKING:
    from p2pfl.experiment import Plan
    from p2pfl.experiment.protection import Protection


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One release of one peer.

    Attributes
    ----------
    run, peer, round
        Which release it was.
    mu, probability
        What it cost, see :class:`p2pfl.privacy.spending.Cost`.
    adjacency, colluders
        Against what: costs under others do not add up with it.
    swarm
        A digest of the names of all peers of its experiment.
    """

    run: str
    peer: str
    round: int
    mu: float
    probability: float = 1.0
    adjacency: Literal["zero-out", "replace"]
    colluders: int
    swarm: str


class Budget:
    """A file of entries; several runs may spend at once, one release after the other.

    All are kept under one adjacency and one number of colluders: costs under others are others.

    Parameters
    ----------
    path
        Made when something is spent for the first time.
    wanted
        The guarantee that is counted.
    names
        Of all peers of the experiment.
    """

    def __init__(self, path: Path, wanted: Privacy, names: Iterable[str]) -> None:
        self.path = path
        self._wanted = wanted
        self._swarm = hashlib.sha256(msgspec.json.encode(sorted(names))).hexdigest()[:16]
        self._costs: dict[str, dict[str, Counter[Cost]]] = {}  # by swarm and peer
        self._place = 0, 0  # bytes and lines read so far

    @classmethod
    def of(cls, experiment: Experiment, protection: Protection) -> Budget | None:
        """The one that an experiment names, or the one beside its data file; ``None`` where nothing is claimed."""
        if not protection.claimed:
            return None
        data = experiment.data.options.get("path")
        path = experiment.privacy.budget or (f"{data}.budget.jsonl" if isinstance(data, str) else None)
        return None if path is None else cls(Path(path), experiment.privacy, protection.graph.peers)

    def before(self, peers: Iterable[str]) -> Counter[Cost]:
        """What the one of ``peers`` that has spent most has spent so far.

        A name stands for the same data wherever the experiment had the same peers. In a swarm of others the data of a
        peer may have been anybody's, so there it counts what he spent who spent most.

        Raises
        ------
        InputError
            If the file cannot be read, or is kept under another adjacency or for other colluders.
        """
        self._catch_up()
        own = self._costs.get(self._swarm, {})
        worst = _most([own.get(peer, Counter()) for peer in peers], delta=self._wanted.delta)
        for swarm, others in self._costs.items():
            if swarm != self._swarm:
                worst += _most([*others.values()], delta=self._wanted.delta)
        return worst

    def spend(
        self, peers: Sequence[str], *, run: str, round: int, cost: Cost, check: Callable[[], None] | None = None
    ) -> None:
        """Note a release; it is on disk when this returns.

        ``check`` is called while nobody else can spend, and raises where nothing may be spent.

        Raises
        ------
        StorageError
            If it cannot be written, so that nothing may be sent.
        """
        lines = b"".join(msgspec.json.encode(self._entry(peer, run, round, cost)) + b"\n" for peer in peers)
        fresh = not self.path.exists()
        try:
            with self.path.open("ab", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                if check is not None:
                    check()
                while lines:  # a disk that is nearly full takes a part, and refuses the rest
                    lines = lines[file.write(lines) :]
                os.fsync(file.fileno())
        except OSError as error:
            raise StorageError(
                f"expected to write to the privacy budget {self.path}, got: {error.strerror}; without it nothing is "
                "sent: free some space, or choose another place with privacy.budget"
            ) from None
        except BudgetError:
            if fresh and not self.path.stat().st_size:
                self.path.unlink()
            raise

    def _entry(self, peer: str, run: str, round: int, cost: Cost) -> Entry:
        return Entry(
            run=run,
            peer=peer,
            round=round,
            mu=cost.mu,
            probability=cost.probability,
            adjacency=self._wanted.adjacency,
            colluders=self._wanted.colluders,
            swarm=self._swarm,
        )

    def _catch_up(self) -> None:
        """Read what was appended since; what cannot be read stays unread."""
        start, number = self._place
        try:
            with self.path.open("rb") as file:
                file.seek(start)
                data = file.read()
        except FileNotFoundError:
            return
        except OSError as error:
            raise InputError(
                f"{self.path}: expected a privacy budget that can be read, got: {error.strerror}"
            ) from None
        entries = []
        for line in data.splitlines():
            number += 1
            try:
                entries.append(msgspec.json.decode(line, type=Entry))
            except msgspec.MsgspecError as error:
                raise InputError(
                    f"{self.path}, line {number}: expected what a release cost, got: {error}; correct the line, for "
                    "what is not counted is spent twice"
                ) from None
        self._place = start + len(data), number
        for entry in entries:
            self._check(entry)
            costs = self._costs.setdefault(entry.swarm, {}).setdefault(entry.peer, Counter())
            costs[Cost(entry.mu, entry.probability)] += 1

    def _check(self, entry: Entry) -> None:
        """Refuse to add up what means different things."""
        kept, wanted = (entry.adjacency, entry.colluders), (self._wanted.adjacency, self._wanted.colluders)
        if kept != wanted:
            say = 'privacy.adjacency = "{}" and privacy.colluders = {}'.format
            raise InputError(
                f"{self.path}: expected {say(*kept)}, under which it is kept, got {say(*wanted)}, under which "
                "costs are others: keep to them, or name another file in privacy.budget, which counts nothing of this"
            )


def _most(costs: Sequence[Counter[Cost]], *, delta: float) -> Counter[Cost]:
    """That which comes to the largest epsilon."""
    kinds = {frozenset(each.items()) for each in costs}  # few, however many peers there are
    return max((Counter(dict(kind)) for kind in kinds), key=lambda each: spent(each, delta=delta), default=Counter())


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
    earlier
        What earlier lives in this run have spent, for where there is no such file.

    Raises
    ------
    InputError
        If nothing is left of the budget.
    """

    def __init__(
        self, plan: Plan, peers: Sequence[str], *, run: str, earlier: Mapping[Cost, int] | None = None
    ) -> None:
        self._peers = tuple(peers)
        self._run = run
        self._budget = Budget.of(plan.experiment, plan.protection)
        self._refused = False  # a release
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

    def expose(self) -> None:
        """Count all releases, those before as well, as hidden by their private noise alone.

        Sums of which one is not what it should be show more than was looked at, also of what was released before.

        Raises
        ------
        BudgetError
            If that would cost more than is left of the budget; then nothing may be sent any more.
        """
        self._exposed = True
        if not self._protection.claimed or not self._whole:
            return
        count, nominal, floor = len(self._whole), self._protection.cost, self._protection.local
        rest = math.sqrt(count * max(0.0, floor.mu**2 - nominal.mu**2))  # squares of mu add
        what = f"{count} rounds of sums that somebody is missing from"
        self._spend(self._whole[-1], Cost(rest, floor.probability), what=what)
        self._whole = []

    def _spend(self, round: int, cost: Cost, *, what: str) -> None:
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

        if self._budget is None:
            check()
        else:
            self._budget.spend(self._peers, run=self._run, round=round, cost=cost, check=check)
        self._costs[cost] += 1

    def _spent_before(self) -> Counter[Cost]:
        return Counter() if self._budget is None else self._budget.before(self._peers)

    @property
    def spent(self) -> float | None:
        """Epsilon so far, earlier runs on the same data included; ``None`` where none is claimed."""
        return self._protection.spent(self._costs)

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
