"""Folders of a new run, and of an interrupted one."""

from __future__ import annotations

import itertools
import re
import time
from pathlib import Path

from p2pfl.core.errors import InputError
from p2pfl.experiment import Experiment
from p2pfl.experiment.file.own_code import accept
from p2pfl.experiment.file.own_modules import search
from p2pfl.experiment.file.reading import flat_without_folders, read_kept
from p2pfl.results.lock import PEER_LOCK, RUN_LOCK, alive


def accept_references(*references: str) -> None:
    """Let each ``package.module:name`` be imported from the working directory, because the user names it in a command.

    A module there never replaces an installed one.
    """
    search(Path.cwd())
    accept([reference.partition(":")[0] for reference in references if ":" in reference])


def new(runs: str, name: str, *, suffix: str = "") -> Path:
    """Create a run directory for this process alone: ``NAME-DATE-TIME``, ``-SUFFIX``; of one second, ``.2`` and so on.

    A dot precedes the number because ``NAME-DATE-TIME-ada-2`` would be a directory of a peer called ``ada-2``.

    Raises
    ------
    InputError
        If it cannot be created.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as runs:
    ...     new(runs, "clinic", suffix="ada").name[-4:]
    '-ada'
    """
    stem = "-".join([name, time.strftime("%Y%m%d-%H%M%S"), *([suffix] if suffix else [])])
    parent = Path(runs)
    free = (parent / (stem if number == 1 else f"{stem}.{number}") for number in itertools.count(1))
    try:
        parent.mkdir(parents=True, exist_ok=True)
        return next(folder for folder in free if _create(folder))
    except OSError as error:
        raise InputError(
            f"cannot create a run directory in {runs}: {error.strerror}; choose another with --runs"
        ) from None


def _create(folder: Path) -> bool:
    """Create a directory; return False where the name is taken, be it since a moment ago."""
    try:
        folder.mkdir()
    except FileExistsError:
        return False
    return True


def last(runs: str, experiment: Experiment, *, peer: str) -> Path | None:
    """Return the newest run directory of an experiment and a peer; ``None`` if there is none.

    Raises
    ------
    InputError
        It holds another experiment.
    """
    folder = newest_of(runs, experiment.name, peer=peer)
    if folder is not None:
        check_same(experiment, folder, read_experiment(folder))
    return folder


def newest_of(runs: str, name: str, *, peer: str) -> Path | None:
    """Return the newest run directory of experiments of a name and a peer; ``None`` if there is none."""
    named = re.compile(rf"{re.escape(name)}-(\d{{8}}-\d{{6}})-{re.escape(peer)}(?:\.\d+)?")
    matches = [(match[1], each) for each in Path(runs).glob("*/") if (match := named.fullmatch(each.name))]
    candidates = [(when, (each / "experiment.toml").stat().st_mtime_ns, each) for when, each in matches if begun(each)]
    return max(candidates)[2] if candidates else None


def newest(runs: str) -> Path | None:
    """Return the run directory that began last; ``None`` if there is none."""
    folders = [each for each in Path(runs).glob("*/") if begun(each)]
    return max(folders, key=lambda each: (each / "experiment.toml").stat().st_mtime_ns, default=None)


def begun(folder: Path) -> bool:
    """Return whether a run has written its experiment there."""
    return (folder / "experiment.toml").is_file()


def has_ended(folder: Path) -> bool:
    """Return whether the run in a directory has ended, so that there is nothing to resume."""
    return (folder / "summary.json").exists()


def read_experiment(folder: Path) -> Experiment:
    """Return the experiment of a run directory.

    Raises
    ------
    InputError
        If there is none, or it was cut.
    """
    if not begun(folder):
        raise InputError(f"{folder} is no run directory, because it has no experiment.toml; check the path")
    return read_kept(folder / "experiment.toml", whole=True)


def peer_started(folder: Path) -> int | None:
    """Return when the process of a peer took its directory, in nanoseconds since 1970; ``None`` if none runs."""
    lock = folder / PEER_LOCK
    return lock.stat().st_mtime_ns if alive(lock) else None


def check_played(folder: Path) -> None:
    """Refuse to go on with all peers of a directory in which they were never played together.

    Raises
    ------
    InputError
        It is a simulation's, or one peer's.
    """
    if (folder / RUN_LOCK).exists():
        return
    what = f"holds a simulation; resume it with p2pfl simulate --resume {folder}"
    if (folder / PEER_LOCK).exists():
        what = "belongs to one peer; resume it with p2pfl peer EXPERIMENT --name NAME --resume"
    raise InputError(f"{folder} {what}")


def check_simulated(folder: Path) -> None:
    """Refuse to resume as a simulation what is none, or has no checkpoint.

    Raises
    ------
    InputError
        It is a directory of live peers, or the simulation was interrupted in its first round.
    """
    if (folder / RUN_LOCK).exists():
        raise InputError(f"{folder} belongs to a live run; resume it with p2pfl run --resume {folder}")
    if (folder / PEER_LOCK).exists():
        raise InputError(f"{folder} belongs to one peer; resume it with p2pfl peer EXPERIMENT --name NAME --resume")
    if not has_ended(folder) and not (folder / "simulation.state").exists():
        raise InputError(
            f"{folder} has no checkpoint of a simulation; start it again with p2pfl simulate "
            f"{folder / 'experiment.toml'}"
        )


def check_same(experiment: Experiment, folder: Path, kept: Experiment) -> None:
    """Check that the experiment is that of the run; the section transport and the folders of files may differ.

    Raises
    ------
    InputError
        It is another one, or the account of its budget did not move with it.
    """
    mine, theirs = flat_without_folders(experiment), flat_without_folders(kept)
    keys = {*mine, *theirs}  # a path that nobody names is in neither
    other = sorted(key for key in keys if mine.get(key) != theirs.get(key) and not key.startswith("transport."))
    if other:
        raise InputError(
            f"{', '.join(other)} differs from {folder / 'experiment.toml'}, which the run began with; leave it out, or "
            "begin a new run"
        )
    account, before = experiment.privacy.budget, kept.privacy.budget
    if (
        account is not None and account != before and not Path(account).exists()
    ):  # an empty one would let the run spend the budget twice
        raise InputError(
            f"{account} does not exist, and the run counts what it spends in {before}; move that file, too, or begin a "
            "new run"
        )
