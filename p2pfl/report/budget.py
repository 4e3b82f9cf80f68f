"""What has been spent on a data set, in a file beside it: one line a peer and release, appended before it is sent."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from p2pfl.errors import BudgetError, InputError, StorageError
from p2pfl.experiment import Experiment
from p2pfl.experiment.schema import Privacy
from p2pfl.privacy.spending import Cost, spent

if TYPE_CHECKING:
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
