"""Privacy accounts of data: where they are, what they hold, and the one door through which data reach a plan.

An account is a file with one line per peer and release. It belongs to a data file, by its real path: the account of
``cells.csv`` is ``cells.csv.budget.jsonl`` beside it, however an experiment spells the path. Every plan passes
:func:`admitted`, so every command and every Python call does.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from p2pfl.core.errors import InputError
from p2pfl.experiment.schema import Experiment

ENDING = ".budget.jsonl"
"""Ending of the account beside a data file."""

PEER = "{peer}"
"""Part of a path that stands for the name of a peer."""

PEERS = "peers"
"""Word in place of the name of a peer in the names of accounts that earlier versions kept for all peers."""

NOT_ACCOUNTED = (
    "not accounted: no file adds up what runs spend of these data, so each further run spends as if it were the "
    "first; name a file in privacy.budget"
)
"""Statement of a claim that no account counts."""


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


class SampleEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Cost of one peer in one round for each of its samples: steps of DP-SGD, or a total with private noise.

    Attributes
    ----------
    run, peer, round, swarm
        Fields as in :class:`Entry`.
    noise, rate, steps
        Cost for each sample, see :class:`p2pfl.privacy.accounting.examples.SampledSteps`. A total of cost mu is one
        step of noise 1 / mu with all samples.
    adjacency, colluders
        Conditions of the cost of a total; ``None`` for DP-SGD, which has none.
    """

    run: str
    peer: str
    round: int
    noise: float
    rate: float
    steps: int
    swarm: str
    adjacency: Literal["zero-out", "replace"] | None = None
    colluders: int | None = None


Counts = Literal["own", "most", "all"]
"""Entries of a file that count for a peer: its own in runs of the same peers and the most of any peer in others, the
most of any peer in each, or all."""


@dataclass(frozen=True)
class Ledger:
    """File with entries on some data.

    Attributes
    ----------
    path
        Path of the file, which need not exist.
    counts
        Entries that count.
    """

    path: Path
    counts: Counts = "own"


@dataclass(frozen=True)
class PrivacyAccount:
    """Account of the data of some peers.

    Attributes
    ----------
    path
        Path of the file that takes new entries.
    ledgers
        All files whose entries count: this one, and those that earlier versions kept under other names.
    """

    path: Path
    ledgers: tuple[Ledger, ...]

    @property
    def exists(self) -> bool:
        """True if anything was spent so far."""
        return any(ledger.path.exists() for ledger in self.ledgers)


def data_folder() -> Path | None:
    """Return the folder of the user's data sets, from the environment variable ``P2PFL_DATA``; ``None`` if not set."""
    folder = os.environ.get("P2PFL_DATA")
    return Path(folder) if folder else None


def beside(experiment: Experiment) -> Path | None:
    """Return the account that an experiment names, or the one beside its data; ``None`` if it has neither.

    Data files of single peers have an account each; then the path has ``{peer}`` in place of the name.
    """
    if experiment.privacy.budget is not None:
        return _real(Path(experiment.privacy.budget))
    path = experiment.data.options.get("path")
    return _account(_real(_located(path))) if isinstance(path, str) else None


def beside_file(path: str | Path) -> Path:
    """Return the account of a data file."""
    return _account(_real(Path(path)))


def accounts(experiment: Experiment, peers: Iterable[str]) -> dict[str, PrivacyAccount]:
    """Return the account of the data of each peer; empty if the data have none.

    Parameters
    ----------
    experiment
        Experiment, whose ``privacy.budget`` names one account for all peers, in place of those beside the data.
    peers
        Names of the local peers.
    """
    if experiment.privacy.budget is None:
        return _beside_data(experiment, peers)
    path = _real(Path(experiment.privacy.budget))
    return dict.fromkeys(peers, PrivacyAccount(path, (Ledger(path),)))


def admitted(
    experiment: Experiment,
    peers: Sequence[str],
    *,
    of_peers: bool,
    of_samples: bool,
    recomputable: bool = False,
    unaccounted: bool = False,
) -> bool:
    """Admit a use of the data of some peers, unless their accounts cannot count it.

    An account counts the cost of releases for a peer as a whole, or for single samples. A use without such a cost
    would spend from the account without a trace.

    Parameters
    ----------
    experiment
        Experiment that names the data.
    peers
        Names of the local peers.
    of_peers, of_samples
        Whether the use has a finite cost for peers, and for single samples.
    recomputable
        Whether whoever knows the seed can compute its private noise, which then has no cost at all.
    unaccounted
        True if the use may stay outside of the accounts.

    Returns
    -------
    bool
        True if no account lacks the use, which ``summary.json`` states as ``accounted``.

    Raises
    ------
    InputError
        The use has no cost that the accounts count and may not stay outside, or an account cannot be read.
    """
    if recomputable:
        reason = _recomputed(experiment, peers)
    else:
        reason = _uncounted(experiment, peers, of_peers=of_peers, of_samples=of_samples)
    if reason is not None and not unaccounted:
        raise InputError(reason)
    return reason is None


def counting(experiment: Experiment, peers: Sequence[str]) -> Path | None:
    """Return the first file that counts what was spent of the data of some peers; ``None`` if nothing was."""
    found = [*accounts(experiment, peers).values(), *_beside_data(experiment, peers).values()]
    return next((path for path, _ in _kinds(found)), None)


def admitted_exactly(experiment: Experiment, peers: Sequence[str], *, unaccounted: bool) -> None:
    """Admit an exact use of the data of some peers, such as their values, unless they have an account.

    Raises
    ------
    InputError
        The data have an account, and the use may not stay outside.
    """
    account = counting(experiment, peers)
    if account is not None and not unaccounted:
        raise InputError(_no_cost(account, "these data"))


def admitted_table(path: str | Path, *, unaccounted: bool) -> bool:
    """Admit an exact use of a table, such as the scores of a model on it, unless it has an account.

    Raises
    ------
    InputError
        The table has an account, and the use may not stay outside.
    """
    account = beside_file(path)
    if account.exists() and not unaccounted:
        raise InputError(_no_cost(account, "this table"))
    return not account.exists()


def _no_cost(account: Path, what: str) -> str:
    return (
        f"{account} counts what is spent of {what}, and exact results have no cost that it could count; add "
        "--unaccounted to leave them out of the account"
    )


def entries(path: Path, lines: Sequence[bytes], *, after: int = 0) -> Iterator[Entry | SampleEntry]:
    """Parse lines of an account, of which ``after`` others precede the first.

    Raises
    ------
    InputError
        A line is no entry.
    """
    for number, line in enumerate(lines, after + 1):
        try:
            table = msgspec.json.decode(line, type=dict[str, Any])
            yield msgspec.convert(table, SampleEntry) if "steps" in table else msgspec.convert(table, Entry)
        except msgspec.MsgspecError as error:
            raise InputError(
                f"{path}, line {number}: the line is not the cost of a release ({error}); correct it, as "
                "uncounted costs are spent twice"
            ) from None


def contents(path: Path, *, start: int = 0) -> bytes:
    """Return the bytes of an account from a place on; none if there is no such file.

    Raises
    ------
    InputError
        The file cannot be read.
    """
    try:
        with path.open("rb") as file:
            file.seek(start)
            return file.read()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise InputError(f"{path}: the privacy budget cannot be read ({error.strerror}); check the file") from None


def _uncounted(experiment: Experiment, peers: Sequence[str], *, of_peers: bool, of_samples: bool) -> str | None:
    """Return why the accounts of some peers cannot count a use, in a sentence; ``None`` if they can."""
    outside = "or add --unaccounted (which a sweep does not take) to run it outside of the budget"
    chosen = accounts(experiment, peers)
    for path, kinds in _kinds(chosen.values()):
        counted = f"{path} counts the cost of runs on this data for each"
        if Entry in kinds and not of_peers:
            return f"{counted} peer, and this run has no such cost; set privacy.epsilon, {outside}"
        if SampleEntry in kinds and not of_samples:
            return f"{counted} sample, and this run has no such cost; set learning.example_noise, {outside}"
    if experiment.privacy.budget is None:
        return None
    named = {ledger.path for account in chosen.values() for ledger in account.ledgers}
    for account in {*_beside_data(experiment, peers).values()}:
        for ledger in account.ledgers:
            if ledger.path.exists() and ledger.path not in named:
                return (
                    f"{ledger.path} counts the cost of runs on this data, and privacy.budget names another account; "
                    f"leave privacy.budget out, {outside}"
                )
    return None


def _recomputed(experiment: Experiment, peers: Sequence[str]) -> str | None:
    """Return why the accounts of some peers cannot count noise of a seed; ``None`` if nothing was spent so far."""
    path = counting(experiment, peers)
    if path is None:
        return None
    return (
        f"{path} counts the cost of runs on this data, and no cost bounds this run, whose noise can be recomputed from "
        "the seed; give it no source, or run it outside of the budget with unaccounted"
    )


def _kinds(found: Iterable[PrivacyAccount]) -> Iterator[tuple[Path, set[type]]]:
    """Yield each file of some accounts, with the kinds of its entries."""
    for path in dict.fromkeys(ledger.path for account in found for ledger in account.ledgers):
        if kinds := {type(entry) for entry in entries(path, contents(path).splitlines())}:
            yield path, kinds


def _beside_data(experiment: Experiment, peers: Iterable[str]) -> dict[str, PrivacyAccount]:
    """Return the account beside the data of each peer."""
    stated = experiment.data.options.get("path")
    if not isinstance(stated, str):
        return {}
    owned = PEER in stated or experiment.data.name == "table"  # a file is the data of one peer
    search = _Search()
    if not owned:
        return dict.fromkeys(peers, search.account(stated, _located(stated), owned=False))
    return {peer: search.account(stated, _located(stated.replace(PEER, peer)), owned=True) for peer in peers}


@dataclass(frozen=True)
class _Search:
    """Search for accounts that earlier versions named by the spelling of a path; it lists each folder once."""

    listed: dict[Path, tuple[str, ...]] = field(default_factory=dict)

    def account(self, stated: str, file: Path, *, owned: bool) -> PrivacyAccount:
        """Return the account of a data file, which an experiment spells in some way."""
        real = _real(file)
        path = _account(real)
        ledgers = {path: Ledger(path, "all" if owned else "own")}
        for former in (_real(Path(f"{_common(stated)}{ENDING}")), _account(file)):
            if former.exists():
                ledgers.setdefault(former, Ledger(former))
        for former in self._of_all_peers({real, _spelled(file)}):
            ledgers.setdefault(former, Ledger(former, "most"))
        return PrivacyAccount(path, tuple(ledgers.values()))

    def _of_all_peers(self, spelled: Iterable[Path]) -> Iterator[Path]:
        """Yield the accounts above a data file whose names stand for the files of all peers, this one among them."""
        for file in sorted(spelled):
            for folder in file.parents:
                rest = file.relative_to(folder).as_posix()
                for name in self._names(folder):
                    if _stands_for(name.removesuffix(ENDING), rest):
                        yield _real(folder / name)

    def _names(self, folder: Path) -> tuple[str, ...]:
        """Return the names of accounts of all peers in a folder."""
        if folder not in self.listed:
            found = sorted(each.name for each in folder.glob(f"*{PEERS}*{ENDING}") if each.is_file())
            mine = (name for name in found if not (folder / name.removesuffix(ENDING)).exists())
            self.listed[folder] = tuple(mine)  # where a file has that name, the account is that of this file
        return self.listed[folder]


def _stands_for(name: str, path: str) -> bool:
    """Return whether the name of an account can stand for a path below its folder.

    Examples
    --------
    >>> _stands_for("peers-table.csv", "ada/table.csv"), _stands_for("peers.csv", "ada/table.csv")
    (True, False)
    """
    parts = (re.escape(part).replace(r"\-", "[-/]") for part in name.split(PEERS))
    return re.fullmatch("[^/]+".join(parts), path) is not None


def _common(stated: str) -> Path:
    """Return one path for the data files of all peers, by which earlier versions named their account.

    Examples
    --------
    >>> str(_common("own/{peer}/table.csv")), str(_common("{peer}.csv")), str(_common("cells.csv"))
    ('own/peers-table.csv', 'peers.csv', 'cells.csv')
    """
    parts = Path(stated).parts
    first = next((place for place, part in enumerate(parts) if PEER in part), len(parts) - 1)
    return Path(*parts[:first], "-".join(parts[first:]).replace(PEER, PEERS))


def _located(path: str) -> Path:
    """Return the path of a data file as it stands, or in the data folder."""
    folder = data_folder()
    candidates = [Path(path), *([folder / path] if folder else [])]
    return next((each for each in candidates if each.is_file()), candidates[0])


def _account(file: Path) -> Path:
    """Return the path of the account beside a file, which may itself be a link."""
    return _real(Path(f"{file}{ENDING}"))


def _real(path: Path) -> Path:
    """Return the absolute path without symbolic links, of a file that need not exist."""
    try:
        return path.resolve()
    except FileNotFoundError:  # the current folder is gone, and a relative path names nothing
        return path


def _spelled(path: Path) -> Path:
    """Return the absolute path with its symbolic links."""
    try:
        return path.absolute()
    except FileNotFoundError:  # likewise
        return path
