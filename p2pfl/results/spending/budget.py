"""Privacy that runs have spent, in the accounts of their peers: one line per peer and release, before it is sent."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from p2pfl.core.errors import InputError
from p2pfl.experiment import Experiment
from p2pfl.experiment.account_entries import AccountEntry, Entry, RunEntry, SampleEntry
from p2pfl.experiment.accounts import PrivacyAccount, accounts, beside
from p2pfl.experiment.schema import PrivacySettings
from p2pfl.privacy.accounting.examples import SampledSteps, compose_epsilon
from p2pfl.privacy.accounting.spending import Cost, spent
from p2pfl.results.spending.account_file import AccountFile

if TYPE_CHECKING:
    from p2pfl.experiment.protection import Protection

__all__ = ["Budget", "PeerAccounts", "beside"]

_T = TypeVar("_T")


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
        self._samplings: dict[str, dict[str, Counter[SampledSteps]]] = {}  # likewise
        self._file = AccountFile(path)

    def before(self, peers: Iterable[str], *, owned: bool = False) -> Counter[Cost]:
        """Return the largest cost so far of any of ``peers``, for peers as a whole.

        A name stands for the same data in all experiments with the same peers. In an experiment with other peers the
        data of a peer may have belonged to any of them, so there the peer with the largest cost counts.

        Parameters
        ----------
        peers
            Names of peers.
        owned
            True if all entries are of the data of these peers.

        Raises
        ------
        InputError
            The file cannot be read, or has another adjacency or number of colluders.
        """
        self._catch_up()
        return self._counted(self._costs, peers, partial(spent, delta=self._wanted.delta), owned=owned)

    def sampled(self, peers: Iterable[str], *, owned: bool = False) -> Counter[SampledSteps]:
        """Return the largest cost so far of any of ``peers``, for single samples.

        Parameters
        ----------
        peers, owned
            Arguments as for :meth:`before`.

        Raises
        ------
        InputError
            As :meth:`before`.
        """
        self._catch_up()
        return self._counted(self._samplings, peers, partial(compose_epsilon, delta=self._wanted.delta), owned=owned)

    def _counted(
        self,
        kept: Mapping[str, Mapping[str, Counter[_T]]],
        peers: Iterable[str],
        price: Callable[[Mapping[_T, int]], float],
        *,
        owned: bool,
    ) -> Counter[_T]:
        costs = Counter[_T]()
        for swarm, spenders in kept.items():
            if owned:
                costs += sum(spenders.values(), Counter[_T]())
            elif swarm == self._swarm:
                costs += _most([spenders.get(peer, Counter()) for peer in peers], price)
            else:
                costs += _most([*spenders.values()], price)
        return costs

    def spend(
        self,
        peers: Sequence[str],
        *,
        run: str,
        round: int,
        cost: Cost,
        samples: bool = False,
        check: Callable[[], None] | None = None,
    ) -> None:
        """Record a release; it is on disk when this returns.

        ``check`` is called while no other run can spend, and raises if nothing may be spent.

        Parameters
        ----------
        peers, run, round, cost
            The release.
        samples
            True for a cost for single samples, that of a total.
        check
            Function to call first.

        Raises
        ------
        StorageError
            The entry cannot be written, so nothing may be sent.
        """
        self._append([self._entry(peer, run, round, cost, samples=samples) for peer in peers], check)

    def sample(self, steps: Mapping[str, SampledSteps], *, run: str, round: int) -> None:
        """Record the training of a round, by peer; it is on disk when this returns.

        Raises
        ------
        StorageError
            The entry cannot be written, so nothing may be sent.
        """
        facts: dict[str, Any] = {"run": run, "round": round, "swarm": self._swarm}
        self._append(
            [
                SampleEntry(peer=peer, noise=each.noise, rate=each.rate, steps=each.steps, **facts)
                for peer, each in steps.items()
            ]
        )

    def _append(self, entries: Sequence[Entry | SampleEntry], check: Callable[[], None] | None = None) -> None:
        def made() -> Sequence[AccountEntry]:
            self._catch_up()
            if check is not None:
                check()
            return entries

        self._file.append(made)

    def _entry(self, peer: str, run: str, round: int, cost: Cost, *, samples: bool) -> Entry | SampleEntry:
        """Return the entry of a release; for single samples, that of a total, a Gaussian mechanism with all of them."""
        wanted = self._wanted
        facts: dict[str, Any] = {"run": run, "peer": peer, "round": round, "swarm": self._swarm}
        facts |= {"adjacency": wanted.adjacency, "colluders": wanted.colluders}
        if samples:
            return SampleEntry(noise=1 / cost.mu, rate=cost.probability, steps=1, **facts)
        return Entry(mu=cost.mu, probability=cost.probability, **facts)

    def _catch_up(self) -> None:
        """Read the lines appended since the last call; lines that cannot be read stay unread."""
        for entry in self._file.read():
            if isinstance(entry, RunEntry):
                continue
            if isinstance(entry, SampleEntry):
                if entry.colluders is not None:
                    self._check(entry)
                steps = self._samplings.setdefault(entry.swarm, {}).setdefault(entry.peer, Counter())
                steps[SampledSteps(entry.noise, entry.rate, entry.steps)] += 1
                continue
            self._check(entry)
            costs = self._costs.setdefault(entry.swarm, {}).setdefault(entry.peer, Counter())
            costs[Cost(entry.mu, entry.probability)] += 1

    def _check(self, entry: Entry | SampleEntry) -> None:
        """Raise :class:`InputError` for an entry under other conditions."""
        kept, wanted = (entry.adjacency, entry.colluders), (self._wanted.adjacency, self._wanted.colluders)
        if kept != wanted:
            conditions = 'privacy.adjacency = "{}" and privacy.colluders = {}'.format
            raise InputError(
                f"{self.path}: the budget is kept under {conditions(*kept)}, but the experiment has "
                f"{conditions(*wanted)}, under which costs differ; change the experiment, or name another file "
                "in privacy.budget, which then starts at zero"
            )


def _most(costs: Sequence[Counter[_T]], price: Callable[[Mapping[_T, int]], float]) -> Counter[_T]:
    """Return the counts with the largest epsilon."""
    kinds = {frozenset(each.items()) for each in costs}  # few kinds, however many peers there are
    return max((Counter(dict(kind)) for kind in kinds), key=price, default=Counter())


class PeerAccounts:
    """Accounts of the data of the local peers of a run, each in its own file or all in one.

    Parameters
    ----------
    recorded
        Account of each local peer.
    wanted
        Guarantee to count.
    names
        Names of all peers of the experiment.
    samples
        True if releases cost single samples something, and not peers as a whole: totals with private noise.
    """

    def __init__(
        self,
        recorded: Mapping[str, PrivacyAccount],
        wanted: PrivacySettings,
        names: Iterable[str],
        *,
        samples: bool = False,
    ) -> None:
        self._recorded, self._wanted, self._samples = recorded, wanted, samples
        paths = {account.path for account in recorded.values()}
        self._files = {path: Budget(path, wanted, names) for path in paths}

    @classmethod
    def of(cls, experiment: Experiment, protection: Protection, peers: Iterable[str]) -> PeerAccounts | None:
        """Return the accounts of the data of some peers; ``None`` if they have none, or nothing is claimed."""
        return cls.at(experiment, protection, peers) if protection.claimed else None

    @classmethod
    def at(cls, experiment: Experiment, protection: Protection, peers: Iterable[str]) -> PeerAccounts | None:
        """Return the accounts of the data of some peers, with or without a claim; ``None`` if they have none.

        There are none where the noise follows from a seed: such a run has no cost that could be counted.
        """
        recorded = accounts(experiment, peers) if protection.secret else {}
        names = protection.graph.peers
        return cls(recorded, experiment.privacy, names, samples=bool(protection.totals)) if recorded else None

    def path(self, peers: Iterable[str]) -> Path:
        """Return the path of the account from which most was spent of any of ``peers``."""
        return max(self._groups(peers), key=lambda each: self._price(self._spent(*each)))[0].path

    def before(self, peers: Iterable[str]) -> Counter[Cost]:
        """Return the largest cost so far of any of ``peers``, in the unit of the run.

        Raises
        ------
        InputError
            An account cannot be read, or has another adjacency or number of colluders.
        """
        return _most([self._spent(*each) for each in self._groups(peers)], self._price)

    def sampled(self, peer: str) -> Counter[SampledSteps]:
        """Return the largest cost so far of a peer, for single samples.

        Raises
        ------
        InputError
            As :meth:`before`.
        """
        return self._sampled(self._recorded[peer], [peer])

    def spend(
        self,
        peers: Sequence[str],
        *,
        run: str,
        round: int,
        cost: Cost,
        check: Callable[[Counter[Cost]], None] | None = None,
    ) -> None:
        """Record a release of each peer in its account; all are on disk when this returns.

        Parameters
        ----------
        peers, run, round, cost
            The release.
        check
            Function that is called with what was spent from an account, while no other run can spend from it, and
            raises if nothing may be spent.

        Raises
        ------
        StorageError
            An entry cannot be written, so nothing may be sent.
        """
        groups = self._groups(peers)
        if check is not None and len(groups) > 1:  # before any of them is charged
            for account, members in groups:
                check(self._spent(account, members))
        for account, members in groups:

            def checked(account: PrivacyAccount = account, members: Sequence[str] = members) -> None:
                if check is not None:
                    check(self._spent(account, members))

            file = self._files[account.path]
            file.spend(members, run=run, round=round, cost=cost, samples=self._samples, check=checked)

    def sample(self, steps: Mapping[str, SampledSteps], *, run: str, round: int) -> None:
        """Record the training of a round, by peer; it is on disk when this returns.

        Raises
        ------
        StorageError
            An entry cannot be written, so nothing may be sent.
        """
        for account, members in self._groups(steps):
            self._files[account.path].sample({peer: steps[peer] for peer in members}, run=run, round=round)

    def _groups(self, peers: Iterable[str]) -> list[tuple[PrivacyAccount, list[str]]]:
        """Return the peers of each account."""
        groups: dict[PrivacyAccount, list[str]] = {}
        for peer in peers:
            groups.setdefault(self._recorded[peer], []).append(peer)
        return [*groups.items()]

    def _spent(self, account: PrivacyAccount, peers: Sequence[str]) -> Counter[Cost]:
        if self._samples:
            costs = Counter[Cost]()
            for each, count in self._sampled(account, peers).items():
                costs[Cost(1 / each.noise if each.noise else math.inf, each.rate)] += each.steps * count
            return costs
        return self._files[account.path].before(peers, owned=account.owned)

    def _sampled(self, account: PrivacyAccount, peers: Sequence[str]) -> Counter[SampledSteps]:
        return self._files[account.path].sampled(peers, owned=account.owned)

    def _price(self, costs: Mapping[Cost, int]) -> float:
        return spent(costs, delta=self._wanted.delta)
