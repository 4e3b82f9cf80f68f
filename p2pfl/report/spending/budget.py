"""Privacy budget of a data set, in a file beside it: one line per peer and release, written before it is sent."""

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
from p2pfl.experiment.schema import PrivacySettings
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
        Identification of the release.
    mu, probability
        Cost of the release, see :class:`p2pfl.privacy.accounting.spending.Cost`.
    adjacency, colluders
        Conditions of the cost; costs under other conditions cannot be added.
    swarm
        Digest of the names of all peers of its experiment.
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
        Fields as in :class:`Entry`.
    noise, rate, steps
        Cost for each sample, see :class:`p2pfl.privacy.accounting.examples.Sampling`.
    """

    run: str
    peer: str
    round: int
    noise: float
    rate: float
    steps: int
    swarm: str


def beside(experiment: Experiment) -> Path | None:
    """Return the budget file that an experiment names, or the one beside its data file; ``None`` if it has neither."""
    data = experiment.data.options.get("path")
    path = experiment.privacy.budget or (f"{_common(data)}.budget.jsonl" if isinstance(data, str) else None)
    return None if path is None else Path(path)


def _common(data: str) -> Path:
    """Return one path for the data files of all peers: ``own/peers-table.csv`` for ``own/{peer}/table.csv``.

    Examples
    --------
    >>> str(_common("own/{peer}/table.csv")), str(_common("{peer}.csv")), str(_common("cells.csv"))
    ('own/peers-table.csv', 'peers.csv', 'cells.csv')
    """
    parts = Path(data).parts
    first = next((place for place, part in enumerate(parts) if "{peer}" in part), len(parts) - 1)
    return Path(*parts[:first], "-".join(parts[first:]).replace("{peer}", "peers"))


def unpriced(plan: Plan) -> str | None:
    """Return why the budget of its data cannot count a run, in a sentence; ``None`` if it can, or there is no budget.

    A budget counts the cost of releases for a peer as a whole, or of training for single samples. A run without
    such a cost would spend from the budget without a trace.

    Raises
    ------
    InputError
        The budget cannot be read.
    """
    path = beside(plan.experiment)
    if path is None or not path.exists():
        return None
    kinds = {type(entry) for entry in _entries(path, path.read_bytes().splitlines())}
    if kinds and plan.recomputable:
        return (
            f"{path} counts the cost of runs on this data, and no cost bounds this run, whose noise can be recomputed "
            "from the seed; give it no source, or run it outside of the budget with unaccounted"
        )
    if Entry in kinds and (not plan.protection.claimed or plan.protection.totals):
        return (
            f"{path} counts the cost of runs on this data for each peer, and this run has no such cost; set "
            "privacy.epsilon, or add --unaccounted to run it outside of the budget"
        )
    if SampleEntry in kinds and plan.examples(0) is None:
        return (
            f"{path} counts the cost of runs on this data for each sample, and this run has no such cost; set "
            "learning.example_noise, or add --unaccounted to run it outside of the budget"
        )
    return None


def check_accounted(plan: Plan, *, unaccounted: bool = False) -> bool:
    """Raise :class:`InputError` for a run that the budget of its data cannot count, unless that is permitted.

    Parameters
    ----------
    plan
        Resolved experiment.
    unaccounted
        True if the run may stay outside of the budget.

    Returns
    -------
    bool
        True if no account lacks the run, which ``summary.json`` states as ``accounted``.

    Raises
    ------
    InputError
        The run has no cost and may not stay outside, or the budget cannot be read.
    """
    reason = unpriced(plan)
    if reason is not None and not unaccounted:
        raise InputError(reason)
    return reason is None


class Budget:
    """File of entries; several runs may spend at once, one release after the other.

    All entries have the same adjacency and number of colluders, because costs under different conditions cannot be
    added.

    Parameters
    ----------
    path
        Path of the file, which the first entry creates.
    wanted
        Guarantee to count.
    names
        Names of all peers of the experiment.
    """

    def __init__(self, path: Path, wanted: PrivacySettings, names: Iterable[str]) -> None:
        self.path = path
        self._wanted = wanted
        self._swarm = hashlib.sha256(msgspec.json.encode(sorted(names))).hexdigest()[:16]
        self._costs: dict[str, dict[str, Counter[Cost]]] = {}  # by swarm and peer
        self._samplings: dict[str, dict[str, Counter[Sampling]]] = {}  # likewise
        self._place = 0, 0  # bytes and lines read so far

    @classmethod
    def of(cls, experiment: Experiment, protection: Protection) -> Budget | None:
        """Return the budget that an experiment names, or the one beside its data file; ``None`` without a claim.

        Noise in totals protects single samples, and a budget counts the cost for peers, so it counts no totals.
        """
        return cls.at(experiment, protection) if protection.claimed and not protection.totals else None

    @classmethod
    def at(cls, experiment: Experiment, protection: Protection) -> Budget | None:
        """Return the budget that an experiment names, or the one beside its data file, with or without a claim.

        There is none where the noise follows from a seed: such a run has no cost that could be counted.
        """
        path = beside(experiment)
        return None if path is None or not protection.secret else cls(path, experiment.privacy, protection.graph.peers)

    def before(self, peers: Iterable[str]) -> Counter[Cost]:
        """Return the largest cost so far of any of ``peers``.

        A name stands for the same data in all experiments with the same peers. In an experiment with other peers the
        data of a peer may have belonged to any of them, so there the peer with the largest cost counts.

        Raises
        ------
        InputError
            The file cannot be read, or has another adjacency or number of colluders.
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
        """Return the steps of DP-SGD that the budget holds of a peer, counted as :meth:`before` counts costs.

        Raises
        ------
        InputError
            The file cannot be read.
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
        """Record a release; it is on disk when this returns.

        ``check`` is called while no other run can spend, and raises if nothing may be spent.

        Raises
        ------
        StorageError
            The entry cannot be written, so nothing may be sent.
        """
        self._append([self._entry(peer, run, round, cost) for peer in peers], check)

    def sample(self, steps: Mapping[str, Sampling], *, run: str, round: int) -> None:
        """Record the training of a round, by peer; it is on disk when this returns.

        Raises
        ------
        StorageError
            The entry cannot be written, so nothing may be sent.
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
                while lines:  # a nearly full disk takes a part, and refuses the rest
                    lines = lines[file.write(lines) :]
                os.fsync(file.fileno())
        except OSError as error:
            raise StorageError(
                f"the privacy budget {self.path} cannot be written ({error.strerror}), and nothing is sent "
                "without it; free some space, or choose another place with privacy.budget"
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
        """Read the lines appended since the last call; lines that cannot be read stay unread."""
        start, number = self._place
        try:
            with self.path.open("rb") as file:
                file.seek(start)
                data = file.read()
        except FileNotFoundError:
            return
        except OSError as error:
            raise InputError(
                f"{self.path}: the privacy budget cannot be read ({error.strerror}); check the file"
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
        """Raise :class:`InputError` for an entry under other conditions."""
        kept, wanted = (entry.adjacency, entry.colluders), (self._wanted.adjacency, self._wanted.colluders)
        if kept != wanted:
            conditions = 'privacy.adjacency = "{}" and privacy.colluders = {}'.format
            raise InputError(
                f"{self.path}: the budget is kept under {conditions(*kept)}, but the experiment has "
                f"{conditions(*wanted)}, under which costs differ; change the experiment, or name another file "
                "in privacy.budget, which then starts at zero"
            )


def _entries(path: Path, lines: Sequence[bytes], *, after: int = 0) -> Iterator[Entry | SampleEntry]:
    """Parse lines, of which ``after`` others precede the first."""
    for number, line in enumerate(lines, after + 1):
        try:
            table = msgspec.json.decode(line, type=dict[str, Any])
            yield msgspec.convert(table, SampleEntry) if "steps" in table else msgspec.convert(table, Entry)
        except msgspec.MsgspecError as error:
            raise InputError(
                f"{path}, line {number}: the line is not the cost of a release ({error}); correct it, as "
                "uncounted costs are spent twice"
            ) from None


def _most(costs: Sequence[Counter[_T]], price: Callable[[Mapping[_T, int]], float]) -> Counter[_T]:
    """Return the counts with the largest epsilon."""
    kinds = {frozenset(each.items()) for each in costs}  # few kinds, however many peers there are
    return max((Counter(dict(kind)) for kind in kinds), key=price, default=Counter())
