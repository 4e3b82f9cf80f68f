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

from p2pfl.core.errors import InputError
from p2pfl.experiment import Plan
from p2pfl.experiment.account_entries import RunEntry
from p2pfl.experiment.accounts import PrivacyAccount, accounts, data_files
from p2pfl.experiment.approval import approval_of, check_consent, experiment_digest
from p2pfl.experiment.site_policy import policy_paths, read_policy
from p2pfl.learning.exact_learner import ExactLearner
from p2pfl.learning.learner import ShowsPredictors
from p2pfl.privacy.accounting.differencing import Exposure, KnownSum, find_exposures
from p2pfl.privacy.keys import Identity
from p2pfl.results.spending.account_file import AccountFile
from p2pfl.results.spending.people import KnownRows, People, counted, packed, people_of, row_texts
from p2pfl.results.spending.row_comparison import Bools, KnownPart, RowComparison

LEAST = 5
"""Least number of people that two runs may differ in; a model that asks for more has more."""

WHOLE = "all"
"""Name of all parts of the data together, which statistics count."""

ALONE = "takes part in only one of this run and"
"""Words of a reason against a run that lacks a peer of another one."""

ACCEPTANCE = "or add --unaccounted to accept it, which the account records"
"""Sentence about overruling the refusal of a run, for its owner."""


def run_ledgers(plan: Plan, peers: Sequence[str]) -> list[RunLedger]:
    """Return the ledgers of the data of some peers, and of their sites; none where no totals leave."""
    if not _shows_totals(plan):
        return []
    ledgers = list[RunLedger]()
    if plan.federation.parties is not None:  # a helper has no data
        peers = [peer for peer in peers if peer in plan.federation.parties.own]
    for recorded in (accounts(plan.experiment, peers), _site_accounts(plan, peers)):
        if plan.experiment.data.owned:
            ledgers += [RunLedger(plan, (peer,), account) for peer, account in recorded.items()]
        else:
            ledgers += [RunLedger(plan, tuple(peers), account) for account in dict.fromkeys(recorded.values())]
    return ledgers


def _site_accounts(plan: Plan, peers: Sequence[str]) -> dict[str, PrivacyAccount]:
    """Return the ledger that the policy of each peer's data names."""
    recorded = dict[str, PrivacyAccount]()
    for peer, path in policy_paths(plan.experiment, peers).items():
        if (ledger := read_policy(path).ledger) is not None:
            recorded[peer] = PrivacyAccount((path.parent / ledger).resolve(), site=True)
    return recorded


def find_objections(plan: Plan, peers: Sequence[str]) -> list[str]:
    """Return what the accounts of some peers have against a run, each in a sentence; nothing is written."""
    return [f"{ledger.account.path}: {reason}" for ledger in run_ledgers(plan, peers) for reason in ledger.objections()]


def check_runs(plan: Plan, peers: Sequence[str], *, now: datetime) -> None:
    """Check a run against the policies of the data and against earlier runs; nothing is written.

    Raises
    ------
    InputError
        A policy refuses the run, which nobody can accept; the run would show few people or one peer, and its owner has
        not accepted that; or an account was changed.
    """
    check_consent(plan.written, peers, today=now.date())
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
    check_consent(plan.written, peers, today=now.date())
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
        if (parties := self.plan.federation.parties) is not None:
            return tuple(sorted(name for peer in self.members for name in parties.party(peer).used))
        declared = experiment.data.options.get("columns")
        named = declared if isinstance(declared, Mapping) else [each.name for each in description.columns or ()]
        target = [] if description.target is None else [description.target]
        return tuple(sorted({*named, *target}))

    @property
    def key_column(self) -> str:
        """Column that names people; empty if none is declared."""
        key = self.plan.experiment.data.options.get("key")
        return key if isinstance(key, str) else ""

    @cached_property
    def header(self) -> tuple[str, ...]:
        """Columns by which rows are told apart: those that the run uses, and the key."""
        used = {*self.columns, self.key_column}
        return tuple(name for name in self.people.columns if name in used) or self.people.columns

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
        return experiment_digest(self.plan.written)

    @cached_property
    def policy(self) -> Path | None:
        """Policy of the site, if the data have one."""
        return next(iter(policy_paths(self.plan.experiment, self.members).values()), None)

    def _entry(self, now: datetime, *, accepted: tuple[str, ...], signer: Identity | None) -> RunEntry:
        plan, protection = self.plan, self.plan.protection
        approval = None if self.policy is None else approval_of(plan.written, self.policy)
        parts, rows = self._packed() if self.exact else ({}, "")
        return RunEntry(
            run=plan.experiment.name,
            date=now.isoformat(timespec="seconds"),
            experiment=self.digest,
            table=self.table,
            header=self.header,
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
            predictors=self.predictors,
        )

    def _packed(self) -> tuple[dict[str, str], str]:
        """Return the rows of each part, and the digests of new rows, as an entry has them."""
        known = KnownRows(self.runs, self.file.reveal)
        rows = counted(row_texts(self.people.digests(self.file.key(), self.header)))
        new = known.hidden(self.header, [rows[row] for row in self.people.used.tolist()], self.file.hide)
        numbers = known.numbers(self.header)
        parts = {
            name: packed(np.array([numbers[rows[row]] for row in part.tolist()], np.int64), size=len(numbers))
            for name, part in self.people.parts.items()
        }
        return parts, new

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

    @property
    def predictors(self) -> int:
        """Most linear predictors of a row that the run shows another peer, over the owners of the account."""
        learner = self.plan.learner.bare
        return max(map(learner.predictors, self.members)) if isinstance(learner, ShowsPredictors) else 0

    def _shown_predictors(self) -> Iterator[str]:
        """Yield why the run would show too many linear predictors; one that was interrupted once may begin again."""
        learner = self.plan.learner.bare
        if not isinstance(learner, ShowsPredictors):
            return
        earlier = {run.experiment: run.predictors for run in self.runs if run.experiment != self.digest}
        seen, most = sum(earlier.values()), learner.max_predictors
        if self.predictors and seen + self.predictors > most:
            yield (
                f"earlier runs have shown {seen} linear predictors of each row, and the {self.predictors} of this run "
                f"exceed {most}, beyond which the columns follow; fit no other model to these rows"
            )
        begun = sum(run.experiment == self.digest for run in self.runs)
        if self.predictors and begun > 1:
            yield f"this run has begun {begun} times, and shows its linear predictors anew each time; keep its result"

    def _reasons(self) -> Iterator[str]:
        """Yield why the run must not start, each in a clause with a remedy."""
        yield from self._shown_predictors()
        if self.runs and self.account.owned and (former := self.runs[-1].table) != self.table:
            yield f"this is the account of {former}, not of {self.table}; put the account of each table beside it"
        earlier = [(run, number) for number, run in enumerate(self.runs, 1) if self._compares(run)]
        if not earlier or not self.exact:
            return
        rows = RowComparison(
            self.people,
            self.header,
            self.file.key(),
            KnownRows(self.runs, self.file.reveal),
            key_column=self.key_column,
            least=self.least,
            one_table=not self.account.site,
        )
        new = [
            KnownSum(rows.own(part), self._others(self.peers, self._peer, name, self._split))
            for name, part in self.people.parts.items()
        ]
        known = list[tuple[RunEntry, int, KnownPart]]()
        accepted = set[str]()  # of a run of the same model: of the same people, or the part of a peer that has left
        for (run, number), parts in zip(earlier, rows.known([run for run, _ in earlier]), strict=True):
            known += [(run, number, part) for part in parts]
            alike = _alike([self._sum(run, each.name, each.same) for each in parts], new)
            if alike and run.experiment == self.digest:
                return
            if run.model == self.plan.experiment.model.name and {*self.columns} <= {*run.columns}:
                accepted.update(_cause(each) for each in run.accepted if alike or _concerns_peer(each))
        shown = self._shown(known, new, linked=False) or self._shown(known, new, linked=True)
        yield from (each for each in shown if _cause(each) not in accepted)

    def _shown(
        self, known: Sequence[tuple[RunEntry, int, KnownPart]], new: Sequence[KnownSum], *, linked: bool
    ) -> list[str]:
        """Return what the totals of this run and of earlier ones show, by the same cells or by linked rows."""
        sums = [self._sum(run, part.name, part.linked if linked else part.same) for run, _, part in known]
        colluders = self.plan.experiment.privacy.colluders
        return [
            self._sentence(each, None if each.run is None else known[each.run][:2], linked=linked)
            for each in find_exposures(sums, new, least=self.least, colluders=colluders)
        ]

    def _sum(self, run: RunEntry, part: str, people: Bools) -> KnownSum:
        return KnownSum(people, self._others(run.peers, run.peer, part, run.split))

    def _compares(self, run: RunEntry) -> bool:
        """Return whether the totals of a run can be subtracted from those of this one."""
        peers = self.peers
        alike = (
            self.account.owned
            or self.account.site
            or (run.peer == self._peer and (self.own or not run.peer or run.peers == peers))
        )
        shared = not {*run.columns}.isdisjoint(self.columns) or run.columns == self.columns
        return run.exact and alike and shared

    def _others(self, peers: Sequence[str], peer: str, part: str, split: str) -> frozenset[tuple[str, str]]:
        if not self.own:
            return frozenset()
        return frozenset((other, part if part == WHOLE else f"{part}, {split}") for other in peers if other != peer)

    def _sentence(self, exposure: Exposure, earlier: tuple[RunEntry, int] | None, *, linked: bool) -> str:
        """Return what a run would show, and how to avoid that."""
        people = "one person" if exposure.people == 1 else f"{exposure.people} people"
        people += ", apart from rewritten cells" if linked else ""
        to = f" to {exposure.observer}, which knows its own part," if exposure.observer else ""
        that = "earlier ones" if earlier is None else _named(*earlier)
        remedy = f"have the same people in both, or at least {self.least} others"
        if exposure.peer:
            remedy = "have the same peers in both"
        if earlier is None:
            shown = f"what {exposure.peer} alone adds" if exposure.peer else people
            return f"the totals of this run and of {that} together show{to} {shown}; {remedy}"
        if exposure.peer:
            cause = f"{exposure.peer} {ALONE} {that}"
            return f"{cause}, so their difference shows what it alone adds; {remedy}"
        them = "that person" if exposure.people == 1 else "them"
        return f"this run and {that} differ in {people}, so their difference shows{to} {them}; {remedy}"


def _named(run: RunEntry, number: int) -> str:
    """Return how a sentence names an earlier run."""
    return f"run {number} ({run.model}, {run.date[:10]})"


def _cause(reason: str) -> str:
    """Return a reason against a run without its remedy."""
    return reason.partition(";")[0]


def _concerns_peer(reason: str) -> bool:
    """Return whether a reason against a run is that it lacks a peer of another one, or has one more."""
    return f" {ALONE} run " in reason


def _alike(known: Sequence[KnownSum], new: Sequence[KnownSum]) -> bool:
    return len(known) == len(new) and all(one.same(other) for one, other in zip(known, new, strict=True))
