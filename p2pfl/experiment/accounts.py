"""Privacy accounts of data: where they are, what they hold, and the one door through which data reach a plan.

An account is a file with one line per run whose totals leave, and one per peer and release. It belongs to a data file,
by its real path: the account of ``cells.csv`` is ``cells.csv.budget.jsonl`` beside it, however an experiment spells the
path. Every plan passes :func:`admitted`, so every command and every Python call does.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from p2pfl.core.errors import InputError
from p2pfl.experiment.account_entries import Entry, RunEntry, SampleEntry, contents, entries, whole_lines
from p2pfl.experiment.catalogue import mode_traits
from p2pfl.experiment.former_settings import former_runs
from p2pfl.experiment.schema import Experiment

ENDING = ".budget.jsonl"
"""Ending of the account beside a data file."""

PEER = "{peer}"
"""Part of a path that stands for the name of a peer."""

NOT_ACCOUNTED = (
    "not accounted: no file adds up what runs spend of these data, so each further run spends as if it were the "
    "first; name a file in privacy.budget"
)
"""Statement of a claim that no account counts."""


@dataclass(frozen=True)
class PrivacyAccount:
    """Account of the data of some peers.

    Attributes
    ----------
    path
        Path of the file, which need not exist.
    owned
        True if the data are those of one peer, so that all entries count; else those of the same peers, and in runs of
        others the most of any peer.
    site
        True for the ledger of a site, which lists the runs on all of its data, whatever the files are called.
    """

    path: Path
    owned: bool = False
    site: bool = False


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
    return dict.fromkeys(peers, PrivacyAccount(path))


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
        if reason is None and (of_peers or of_samples):
            reason = uncounted_start(experiment)
    if reason is not None and not unaccounted:
        raise InputError(reason)
    return reason is None


def uncounted_start(experiment: Experiment) -> str | None:
    """Return why epsilon would lack the cost of the model with which a run begins; ``None`` if it does not.

    What earlier runs learned of the same data shows in all that follows, so each must have a guarantee, in one account.

    Raises
    ------
    InputError
        The settings of an earlier run cannot be read.
    """
    alone = "take --unaccounted to state that of this run alone"
    later, wanted = None, beside(experiment)
    for former in former_runs(experiment):
        before = former.experiment
        if before is None and later is None:
            return None  # a model from elsewhere, in a folder of that name
        if before is None:
            return f"{former.folder} is gone, from which {later} went on, so nobody knows its epsilon; {alone}"
        later = former.folder
        if not _have_same_data(before, experiment):
            continue
        if not _claims(before, experiment):
            return (
                f"{former.folder}, from which this run goes on, used the same data without a guarantee, so no epsilon "
                f"bounds what both show; begin with another model, or {alone}"
            )
        if (kept := beside(before)) is None:
            return (
                f"{former.folder} spent epsilon of the same data without an account (privacy.budget), so nothing adds "
                f"up what both runs spend; {alone}"
            )
        if kept != wanted:
            return (
                f"privacy.budget is {wanted or 'not set'}, and what {former.folder} spent of the same data is in "
                f"{kept}; name that one, or {alone}"
            )
    return None


def _have_same_data(one: Experiment, other: Experiment) -> bool:
    """Return whether two experiments may use the same data: not if they name other sets, or other files."""
    paths = [each.data.options.get("path") for each in (one, other)]
    first, second = (_real(_located(path)) if isinstance(path, str) else None for path in paths)
    return one.data.name == other.data.name and (first is None or second is None or first == second)


def _claims(former: Experiment, experiment: Experiment) -> bool:
    """Return whether an earlier run had a guarantee; a mode that is code of its own is not asked."""
    privacy = former.privacy
    known = ":" not in privacy.mode or privacy.mode == experiment.privacy.mode
    noisy = known and mode_traits(privacy.mode).hides and (privacy.noise > 0 or privacy.epsilon is not None)
    return noisy or former.learning.example_noise > 0


def counting(experiment: Experiment, peers: Sequence[str]) -> Path | None:
    """Return the first file that counts what was spent of the data of some peers; ``None`` if nothing was."""
    recorded = [*accounts(experiment, peers).values(), *_beside_data(experiment, peers).values()]
    return next((path for path, _ in _kinds(recorded)), None)


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
    """Admit an exact use of a table, such as the scores of a model on it, unless its account has costs.

    Raises
    ------
    InputError
        The table has an account, and the use may not stay outside.
    """
    account = beside_file(path)
    counted = account.exists() and not _has_runs_alone(account)
    if counted and not unaccounted:
        raise InputError(_no_cost(account, "this table"))
    return not counted


def _has_runs_alone(path: Path) -> bool:
    """Return whether an account has runs, and no costs."""
    return {type(entry) for entry in entries(path, whole_lines(contents(path)))} == {RunEntry}


def _no_cost(account: Path, what: str) -> str:
    return (
        f"{account} counts what is spent of {what}, and exact results have no cost that it could count; add "
        "--unaccounted to leave them out of the account"
    )


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
    named = {account.path for account in chosen.values()}
    for path in dict.fromkeys(account.path for account in _beside_data(experiment, peers).values()):
        alone = (of_peers or of_samples) and _has_runs_alone(path)
        if path.exists() and path not in named and not alone:
            return (
                f"{path} counts the cost of runs on this data, and privacy.budget names another account; "
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


def _kinds(recorded: Iterable[PrivacyAccount]) -> Iterator[tuple[Path, set[type]]]:
    """Yield each file of some accounts that has costs, with the kinds of these entries."""
    for path in dict.fromkeys(account.path for account in recorded):
        if kinds := {type(entry) for entry in entries(path, whole_lines(contents(path)))} - {RunEntry}:
            yield path, kinds


def _beside_data(experiment: Experiment, peers: Iterable[str]) -> dict[str, PrivacyAccount]:
    """Return the account beside the data of each peer."""
    stated = str(experiment.data.options.get("path"))
    owned = _is_owned(experiment)
    recorded = dict[str, PrivacyAccount]()
    for peer, file in _stated_files(experiment, peers).items():
        path = _account(_real(file))
        for named in (_common(stated), file):
            former = _account(named)
            if former != path and former.is_file() and (named == file or not named.exists()):
                raise InputError(
                    f"{former} counts what release 0.1 spent of these data, whose account is {path} now; move the "
                    "lines of the former to the end of the latter"
                )
        recorded[peer] = PrivacyAccount(path, owned)
    return recorded


def data_files(experiment: Experiment, peers: Iterable[str]) -> dict[str, Path]:
    """Return the real path of the data file of each peer, which need not exist; empty if the data are in no file."""
    return {peer: _real(file) for peer, file in _stated_files(experiment, peers).items()}


def file_states(experiment: Experiment, peers: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Return size and time of the last change of each peer's data file; nothing where there is none.

    A SQLite database counts with the log beside it, to which it writes first.
    """
    states = dict[str, tuple[int, int]]()
    for peer, path in data_files(experiment, peers).items():
        stats = list[os.stat_result]()
        for each in (path, path.with_name(f"{path.name}-wal")):
            with suppress(OSError):  # SQLite deletes its log, and a file may be replaced at this moment
                stats.append(each.stat())
        if stats:
            states[peer] = sum(each.st_size for each in stats), max(each.st_mtime_ns for each in stats)
    return states


def _stated_files(experiment: Experiment, peers: Iterable[str]) -> dict[str, Path]:
    """Return the data file of each peer as the experiment spells it."""
    stated = experiment.data.options.get("path")
    if not isinstance(stated, str):
        return {}
    owned = _is_owned(experiment)
    return {peer: _located(stated.replace(PEER, peer) if owned else stated) for peer in peers}


def _is_owned(experiment: Experiment) -> bool:
    """Return whether a data file holds the data of one peer."""
    return PEER in str(experiment.data.options.get("path")) or experiment.data.name == "table"


def _common(stated: str) -> Path:
    """Return one path for the data files of all peers, by which release 0.1 named their account.

    Examples
    --------
    >>> str(_common("own/{peer}/table.csv")), str(_common("cells.csv"))
    ('own/peers-table.csv', 'cells.csv')
    """
    parts = Path(stated).parts
    first = next((position for position, part in enumerate(parts) if PEER in part), len(parts) - 1)
    return Path(*parts[:first], "-".join(parts[first:]).replace(PEER, "peers"))


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
    except FileNotFoundError:  # the working directory is gone, and a relative path names nothing
        return path
