"""Ledger of runs: what each shows of the data of an owner, and whether it shows few people with earlier ones.

The account of the data has a line for each run whose totals leave, a
:class:`~p2pfl.experiment.account_entries.RunEntry`, written before the first of them does. A run on exact totals is
refused where the difference from earlier runs, or any combination of them, shows fewer people of the owner than the
least number, or what a single other peer adds (:mod:`p2pfl.privacy.accounting.differencing`). Runs are compared if they
have a column in common. The owner can accept the run all the same, and the line says that they did. The same run may be
repeated, since it shows nothing new.

An owner knows their own people only. That a peer has other people than in an earlier run is seen in the account of that
peer, which refuses; so is a run that leaves a peer out, in the accounts of those that stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path

import numpy as np

from p2pfl.core.encodings import Ints
from p2pfl.core.errors import InputError
from p2pfl.experiment import Plan
from p2pfl.experiment.account_entries import RunEntry
from p2pfl.experiment.accounts import PrivacyAccount, accounts, data_files
from p2pfl.experiment.approval import approval_of, experiment_digest
from p2pfl.experiment.site_policy import policy_paths, read_policy
from p2pfl.learning.exact_learner import ExactLearner
from p2pfl.privacy.accounting.differencing import Exposure, KnownSum, find_exposures
from p2pfl.privacy.keys import Identity
from p2pfl.results.spending.account_file import AccountFile
from p2pfl.results.spending.people import KnownRows, People, packed, people_of, unpacked

LEAST = 5
"""Least number of people that two runs may differ in; a model that asks for more has more."""

WHOLE = "all"
"""Name of all parts of the data together, which statistics count."""

ACCEPTANCE = "or add --unaccounted to accept it, which the account records"
"""Sentence about overruling the refusal of a run, for its owner."""


def run_ledgers(plan: Plan, peers: Sequence[str]) -> list[RunLedger]:
    """Return the ledgers of the data of some peers; none where no totals leave, or the data have no account."""
    if not _shows_totals(plan):
        return []
    recorded = accounts(plan.experiment, peers)
    if plan.experiment.data.owned:
        return [RunLedger(plan, (peer,), account) for peer, account in recorded.items()]
    return [RunLedger(plan, tuple(peers), account) for account in dict.fromkeys(recorded.values())]


def find_objections(plan: Plan, peers: Sequence[str]) -> list[str]:
    """Return what the accounts of some peers have against a run, each in a sentence; nothing is written."""
    return [f"{ledger.account.path}: {reason}" for ledger in run_ledgers(plan, peers) for reason in ledger.objections()]


def check_runs(plan: Plan, peers: Sequence[str]) -> None:
    """Check a run against earlier ones; nothing is written.

    Raises
    ------
    InputError
        The run would show few people or one peer, and its owner has not accepted that; or an account was changed.
    """
    for ledger in run_ledgers(plan, peers):
        ledger.check()


def record_runs(plan: Plan, peers: Sequence[str], *, now: datetime, signer: Identity | None = None) -> None:
    """Write a run into the accounts of the data of some peers; it is on disk when this returns.

    Parameters
    ----------
    plan, peers
        Resolved experiment, and the local peers.
    now
        Time in UTC.
    signer
        Identity of the owner, if it outlives the run.

    Raises
    ------
    InputError
        As :func:`check_runs`; then nothing may be sent.
    StorageError
        An account cannot be written, so nothing may be sent.
    """
    ledgers = run_ledgers(plan, peers)
    for ledger in ledgers if len(ledgers) > 1 else ():  # before any of them is written
        ledger.check()
    for ledger in ledgers:
        ledger.record(now, signer)


def _shows_totals(plan: Plan) -> bool:
    return bool(plan.protection.totals) or plan.experiment.data.scale


@dataclass(frozen=True, eq=False)
class RunLedger:
    """Account of one data file, and a run that wants to use it.

    Parameters
    ----------
    plan
        Resolved experiment.
    members
        Peers whose data are in the file.
    account
        Where it is.
    given
        People whose samples the run uses; by default those of the plan.
    among
        Names of all peers; by default those of the plan.
    """

    plan: Plan
    members: tuple[str, ...]
    account: PrivacyAccount
    given: People | None = None
    among: tuple[str, ...] = ()
    file: AccountFile = field(init=False)
    runs: list[RunEntry] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        object.__setattr__(self, "file", AccountFile(self.account.path))

    @property
    def peers(self) -> tuple[str, ...]:
        """Names of all peers."""
        return self.among or self.plan.topology.peers

    @property
    def own(self) -> bool:
        """True if the data are those of one peer, and others add theirs."""
        return self.plan.experiment.data.owned

    def objections(self) -> tuple[str, ...]:
        """Return the reasons against the run, each in a clause with a remedy."""
        self._catch_up()
        return tuple(dict.fromkeys(self._reasons()))

    def check(self) -> None:
        """Raise :class:`InputError` unless the run may start."""
        self._catch_up()
        self._admit()

    def record(self, now: datetime, signer: Identity | None = None) -> None:
        """Append the run, unless it may not start."""

        def made() -> list[RunEntry]:
            self._catch_up()
            return [self._entry(now, accepted=self._admit(), signer=signer)]

        self.file.append(made, signer=signer)

    def _catch_up(self) -> None:
        self.runs.extend(entry for entry in self.file.read() if isinstance(entry, RunEntry))

    @cached_property
    def people(self) -> People:
        """People whose samples the run uses."""
        if self.given is not None:
            return self.given
        learner = self.plan.learner.bare
        whole = isinstance(learner, ExactLearner) and learner.model.scored == "nothing"
        return people_of(self.plan.experiment, self.plan.federation, self.members, whole=whole)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Columns that the run uses."""
        experiment, description = self.plan.experiment, self.plan.federation.dataset.description
        declared = experiment.data.options.get("columns")
        named = declared if isinstance(declared, Mapping) else [each.name for each in description.columns or ()]
        target = [] if description.target is None else [description.target]
        return tuple(sorted({*named, *target}))

    @cached_property
    def table(self) -> str:
        """Name of the data file; empty if the data are in none."""
        files = data_files(self.plan.experiment, self.members)
        return next((file.name for file in files.values()), "")

    @property
    def exact(self) -> bool:
        """True if no private noise hides single samples in the totals."""
        return not (self.plan.protection.claimed and self.plan.protection.secret)

    @property
    def least(self) -> int:
        """Least number of people that totals may show."""
        learner = self.plan.learner.bare
        model = learner.model.least if isinstance(learner, ExactLearner) else 0
        return max(LEAST, model, 0 if self.policy is None else read_policy(self.policy).least)

    @property
    def _peer(self) -> str:
        """Peers that own the data; empty for the data of all."""
        return self.members[0] if self.own or len(self.members) < len(self.peers) else ""

    @property
    def _split(self) -> str:
        experiment, test = self.plan.experiment, self.plan.asked.test_share
        return f"test {test:g}, validation {experiment.data.validation:g}, seed {experiment.seed}"

    @cached_property
    def digest(self) -> str:
        """Digest of the experiment, which its approval names."""
        return experiment_digest(self.plan.experiment)

    @cached_property
    def policy(self) -> Path | None:
        """Policy of the site, if the data have one."""
        return next(iter(policy_paths(self.plan.experiment, self.members).values()), None)

    def _entry(self, now: datetime, *, accepted: tuple[str, ...], signer: Identity | None) -> RunEntry:
        plan, protection = self.plan, self.plan.protection
        approval = None if self.policy is None else approval_of(plan.experiment, self.policy)
        parts, rows = self._packed() if self.exact else ({}, "")
        return RunEntry(
            run=plan.experiment.name,
            date=now.isoformat(timespec="seconds"),
            experiment=self.digest,
            table=self.table,
            header=self.people.columns,
            peer=self._peer,
            peers=self.peers,
            model=plan.experiment.model.name,
            columns=self.columns,
            samples=self.people.samples,
            exact=self.exact,
            parts=parts,
            rows=rows,
            split=self._split,
            epsilon=None if self.exact else protection.total(protection.planned),
            purpose=None if approval is None else approval.purpose,
            approver=None if approval is None else approval.officer,
            accepted=accepted,
            signer=None if signer is None else signer.public.hex(),
        )

    def _packed(self) -> tuple[dict[str, str], str]:
        """Return the rows of each part, and the digests of new rows, as an entry has them."""
        known = KnownRows(self.runs)
        digests = self.people.digests(self.file.key(), self.people.columns)
        used = np.unique(np.concatenate([*self.people.parts.values(), np.empty(0, np.int64)])).tolist()
        new = known.new(digests[row] for row in used)
        known.number(new)
        numbers = {
            name: np.array([known.numbers[digests[row]] for row in rows.tolist()], np.int64)
            for name, rows in self.people.parts.items()
        }
        return {name: packed(each, size=len(known)) for name, each in numbers.items()}, new

    def _admit(self) -> tuple[str, ...]:
        """Return the reasons against the run that its owner overrules; none if there are none.

        Raises
        ------
        InputError
            There are reasons, and the owner does not overrule them.
        """
        most = None if self.policy is None else read_policy(self.policy).runs
        if most is not None and sum(self.account.owned or run.peer == self._peer for run in self.runs) >= most:
            raise InputError(f"{self.policy} allows {most} runs, which {self.account.path} lists; ask for more")
        reasons = tuple(dict.fromkeys(self._reasons()))
        if reasons and not self.plan.unaccounted:
            raise InputError(f"{self.account.path}: {reasons[0]}, {ACCEPTANCE}")
        return reasons if self.plan.accounted else ("no cost of this run is counted", *reasons)

    def _reasons(self) -> Iterator[str]:
        """Yield why the run must not start, each in a clause with a remedy."""
        if self.runs and self.account.owned and (former := self.runs[-1].table) != self.table:
            yield f"this is the account of {former}, not of {self.table}; put the account of each table beside it"
        earlier = [(run, number) for number, run in enumerate(self.runs, 1) if self._compares(run)]
        if not earlier or not self.exact:
            return
        sums, comparable = Comparison(self.people, self.file.key(), self.runs), list[tuple[RunEntry, int, KnownSum]]()
        new = [
            KnownSum(sums.own(rows), self._others(self.peers, self._peer, name, self._split))
            for name, rows in self.people.parts.items()
        ]
        for run, number in earlier:
            known = [
                KnownSum(people, self._others(run.peers, run.peer, name, run.split)) for name, people in sums.known(run)
            ]
            if run.experiment == self.digest and _alike(known, new):
                return
            comparable += [(run, number, each) for each in known]
            few = abs(run.samples - self.people.samples)
            if 0 < few < self.least and not any(sums.remains(each) for each in known):
                lost = sums.lost(run)
                change = f"the table has lost the column {lost} since" if lost else "no row is written as it was at"
                yield (
                    f"{change} {_named(run, number)}, whose number of people differs by {few}, so nobody can tell "
                    "whether the difference shows them; restore how the table was"
                )
        exposures = find_exposures(
            [each for *_, each in comparable], new, least=self.least, colluders=self.plan.experiment.privacy.colluders
        )
        for exposure in exposures:
            run_number = None if exposure.run is None else comparable[exposure.run][:2]
            yield self._sentence(exposure, run_number)

    def _compares(self, run: RunEntry) -> bool:
        """Return whether the totals of a run can be subtracted from those of this one."""
        peers = self.peers
        alike = self.account.owned or (run.peer == self._peer and (self.own or not run.peer or run.peers == peers))
        shared = not {*run.columns}.isdisjoint(self.columns) or run.columns == self.columns
        return run.exact and alike and shared

    def _others(self, peers: Sequence[str], peer: str, part: str, split: str) -> frozenset[tuple[str, str]]:
        if not self.own:
            return frozenset()
        return frozenset((other, part if part == WHOLE else f"{part}, {split}") for other in peers if other != peer)

    def _sentence(self, exposure: Exposure, earlier: tuple[RunEntry, int] | None) -> str:
        """Return what a run would show, and how to avoid that."""
        people = "one person" if exposure.people == 1 else f"{exposure.people} people"
        to = f" to {exposure.observer}, which knows its own part," if exposure.observer else ""
        that = "earlier ones" if earlier is None else _named(*earlier)
        remedy = f"have the same people in both, or at least {self.least} others"
        if exposure.peer:
            remedy = "have the same peers in both"
        if earlier is None:
            shown = f"what {exposure.peer} alone adds" if exposure.peer else people
            return f"the totals of this run and of {that} together show{to} {shown}; {remedy}"
        if exposure.peer:
            cause = f"{exposure.peer} takes part in only one of this run and {that}"
            return f"{cause}, so their difference shows what it alone adds; {remedy}"
        them = "that person" if exposure.people == 1 else "them"
        return f"this run and {that} differ in {people}, so their difference shows{to} {them}; {remedy}"


class Comparison:
    """Rows of a table now and in earlier runs, in one numbering.

    Parameters
    ----------
    people
        Rows of the table now.
    key
        Key of the account.
    runs
        All runs of the account.
    """

    def __init__(self, people: People, key: bytes, runs: Sequence[RunEntry]) -> None:
        self.people, self.key = people, key
        self._gone = [*KnownRows(runs).numbers]
        self._places: dict[tuple[str, ...], Ints] = {}

    def own(self, rows: Ints) -> np.ndarray:
        """Return the people of a part of this run, ``[K]``: the rows of the table, then those that have gone."""
        chosen = np.zeros(self._count, bool)
        chosen[rows] = True
        return chosen

    def known(self, run: RunEntry) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the people of each part of an earlier run; nothing if the table has lost a column that it had."""
        if self.lost(run):
            return
        if run.header not in self._places:
            now = {each: row for row, each in enumerate(self.people.digests(self.key, run.header))}
            positions = [now.get(each, len(now) + number) for number, each in enumerate(self._gone)]
            self._places[run.header] = np.array(positions, np.int64)
        for name, text in run.parts.items():
            chosen = np.zeros(self._count, bool)
            chosen[self._places[run.header][unpacked(text)]] = True
            yield name, chosen

    def remains(self, known: KnownSum) -> bool:
        """Return whether the table still has any person of an earlier sum."""
        return bool(known.people[: len(self.people.cells)].any())

    @property
    def _count(self) -> int:
        return len(self.people.cells) + len(self._gone)

    def lost(self, run: RunEntry) -> str:
        """Return a column that the table had at an earlier run and has no more; empty if there is none."""
        return min({*run.header} - {*self.people.columns}, default="")


def _named(run: RunEntry, number: int) -> str:
    """Return how a sentence names an earlier run."""
    return f"run {number} ({run.model}, {run.date[:10]})"


def _alike(known: Sequence[KnownSum], new: Sequence[KnownSum]) -> bool:
    return len(known) == len(new) and all(one.same(other) for one, other in zip(known, new, strict=True))
