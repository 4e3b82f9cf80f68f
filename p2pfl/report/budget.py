"""What has been spent on a data set, in a file beside it: one line a peer and release, appended before it is sent."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from p2pfl.errors import BudgetError, InputError, StorageError
from p2pfl.experiment import Experiment
from p2pfl.experiment.schema import Privacy
from p2pfl.privacy.accounting.examples import Sampling, composed
from p2pfl.privacy.accounting.spending import Cost, spent

if TYPE_CHECKING:
    from p2pfl.experiment import Plan
    from p2pfl.experiment.protection import Protection


_T = TypeVar("_T")


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One release of one peer.

    Attributes
    ----------
    run, peer, round
        Which release it was.
    mu, probability
        What it cost, see :class:`p2pfl.privacy.accounting.spending.Cost`.
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


class SampleEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of DP-SGD of one peer in one round.

    Attributes
    ----------
    run, peer, round, swarm
        As in :class:`Entry`.
    noise, rate, steps
        What it cost each sample, see :class:`p2pfl.privacy.accounting.examples.Sampling`.
    """

    run: str
    peer: str
    round: int
    noise: float
    rate: float
    steps: int
    swarm: str


def beside(experiment: Experiment) -> Path | None:
    """Return the account that an experiment names, or the one beside its data file; ``None`` if it has neither."""
    data = experiment.data.options.get("path")
    path = experiment.privacy.budget or (f"{data}.budget.jsonl" if isinstance(data, str) else None)
    return None if path is None else Path(path)


def unpriced(plan: Plan) -> str | None:
    """Return why the account of its data cannot count a run, in a sentence; ``None`` if it can, or there is none.

    An account adds up what releases cost a peer as a whole, or what training costs single samples. A run that has no
    price in a unit of the account spends of it without a trace.

    Raises
    ------
    InputError
        If the account cannot be read.
    """
    path = beside(plan.experiment)
    if path is None or not path.exists():
        return None
    kinds = {type(entry) for entry in _entries(path, path.read_bytes().splitlines())}
    if Entry in kinds and not plan.protection.claimed:
        return (
            f"{path} counts what runs on this data cost each peer, and this run has no such price; set "
            "privacy.epsilon, or add --unaccounted to run it outside of the account"
        )
    if SampleEntry in kinds and plan.examples(0) is None:
        return (
            f"{path} counts what runs on this data cost each sample, and this run has no such price; set "
            "learning.example_noise, or add --unaccounted to run it outside of the account"
        )
    return None


def check_accounted(plan: Plan, *, unaccounted: bool = False) -> bool:
    """Refuse a run without a price on data that have an account, unless it may be outside of the account.

    Parameters
    ----------
    plan
        The experiment, resolved.
    unaccounted
        Whether the run may be outside of the account.

    Returns
    -------
    bool
        Whether no account lacks the run, which ``summary.json`` states as ``accounted``.

    Raises
    ------
    InputError
        If it has no price and may not be, or the account cannot be read.
    """
    reason = unpriced(plan)
    if reason is not None and not unaccounted:
        raise InputError(reason)
    return reason is None


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
        self._samplings: dict[str, dict[str, Counter[Sampling]]] = {}  # likewise
        self._place = 0, 0  # bytes and lines read so far

    @classmethod
    def of(cls, experiment: Experiment, protection: Protection) -> Budget | None:
        """The one that an experiment names, or the one beside its data file; ``None`` where nothing is claimed."""
        return cls.at(experiment, protection) if protection.claimed else None

    @classmethod
    def at(cls, experiment: Experiment, protection: Protection) -> Budget | None:
        """Return the one that an experiment names, or the one beside its data file, whatever is claimed."""
        path = beside(experiment)
        return None if path is None else cls(path, experiment.privacy, protection.graph.peers)

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
        price = partial(spent, delta=self._wanted.delta)
        worst = _most([own.get(peer, Counter()) for peer in peers], price)
        for swarm, others in self._costs.items():
            if swarm != self._swarm:
                worst += _most([*others.values()], price)
        return worst

    def sampled(self, peer: str) -> Counter[Sampling]:
        """Return the steps of DP-SGD that the account holds of a peer, counted as :meth:`before` counts costs.

        Raises
        ------
        InputError
            If the file cannot be read.
        """
        self._catch_up()
        price = partial(composed, delta=self._wanted.delta)
        found = Counter(self._samplings.get(self._swarm, {}).get(peer, Counter()))
        for swarm, others in self._samplings.items():
            if swarm != self._swarm:
                found += _most([*others.values()], price)
        return found

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
        self._append([self._entry(peer, run, round, cost) for peer in peers], check)

    def sample(self, steps: Mapping[str, Sampling], *, run: str, round: int) -> None:
        """Note the training of a round, by peer; it is on disk when this returns.

        Raises
        ------
        StorageError
            If it cannot be written, so that nothing may be sent.
        """
        self._append(
            [
                SampleEntry(
                    run=run,
                    peer=peer,
                    round=round,
                    noise=each.noise,
                    rate=each.rate,
                    steps=each.steps,
                    swarm=self._swarm,
                )
                for peer, each in steps.items()
            ]
        )

    def _append(self, entries: Sequence[Entry | SampleEntry], check: Callable[[], None] | None = None) -> None:
        lines = b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)
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
        entries = [*_entries(self.path, data.splitlines(), after=number)]
        self._place = start + len(data), number + len(entries)
        for entry in entries:
            if isinstance(entry, SampleEntry):
                steps = self._samplings.setdefault(entry.swarm, {}).setdefault(entry.peer, Counter())
                steps[Sampling(entry.noise, entry.rate, entry.steps)] += 1
                continue
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


def _entries(path: Path, lines: Sequence[bytes], *, after: int = 0) -> Iterator[Entry | SampleEntry]:
    """Read lines; ``after`` so many others."""
    for number, line in enumerate(lines, after + 1):
        try:
            table = msgspec.json.decode(line, type=dict[str, Any])
            yield msgspec.convert(table, SampleEntry) if "steps" in table else msgspec.convert(table, Entry)
        except msgspec.MsgspecError as error:
            raise InputError(
                f"{path}, line {number}: expected what a release cost, got: {error}; correct the line, for what is not "
                "counted is spent twice"
            ) from None


def _most(costs: Sequence[Counter[_T]], price: Callable[[Mapping[_T, int]], float]) -> Counter[_T]:
    """Return what comes to the largest epsilon."""
    kinds = {frozenset(each.items()) for each in costs}  # few, however many peers there are
    return max((Counter(dict(kind)) for kind in kinds), key=price, default=Counter())
