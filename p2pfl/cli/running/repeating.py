"""``p2pfl repeat``: run a simulation again from its directory, and compare the two to the bit."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from p2pfl.cli import folders, terminal
from p2pfl.cli.core_commands import RepeatOptions
from p2pfl.cli.experiments import note_tables, warn_unaccounted
from p2pfl.core.errors import InputError
from p2pfl.experiment import read
from p2pfl.experiment.file.own_code import FOLDER, named_modules
from p2pfl.experiment.file.own_modules import search
from p2pfl.experiment.file.reading import PATHS
from p2pfl.experiment.schema import graph_files
from p2pfl.results.formats import count_of
from p2pfl.results.lock import PEER_LOCK, RUN_LOCK
from p2pfl.results.run_files import table_of

if TYPE_CHECKING:  # they import torch
    from p2pfl.experiment import Plan
    from p2pfl.results.repetitions.repetition import Repetition, RunDifference

MAX_SHOWN = 5
"""Differences of a part that are printed."""


def run(options: RepeatOptions) -> int:
    """Repeat a run and print the comparison; return the exit status, with ``--check`` 1 if the two differ."""
    folder = Path(options.run)
    check_repeatable(folder)
    _check_changes(options.changes)
    check_trust(folder, trust=options.trust_code, command="repeat")

    from p2pfl.results import Run  # noqa: PLC0415 (reading an experiment imports the modules that it names)
    from p2pfl.results.repetitions.repetition import repetition  # noqa: PLC0415
    from p2pfl.simulation import simulate  # noqa: PLC0415

    before = Run.load(folder)
    experiment = read(folder / "experiment.toml", changes=options.changes, trust_code=True)  # as checked above

    def begin(resolved: Plan) -> Path:
        """Return the new run directory, once the run is known to be one that repeats."""
        _check_draws(folder, resolved)
        warn_unaccounted(resolved)
        note_tables(resolved)
        return folders.new(options.runs, experiment.name)

    summary = before.summary
    again = simulate(
        experiment,
        folder=begin,
        baselines=summary["alone"] is not None or summary["pooled"] is not None,
        workers=max(1, len(summary.get("workers", ()))),
        unaccounted=options.unaccounted,
    )
    comparison = repetition(before, Run.load(str(again.folder)))
    if options.json:
        print(json.dumps(comparison.table, allow_nan=False))
    else:
        for sentence in sentences(comparison):
            terminal.note(sentence)
    return 0 if comparison.same or not options.check else 1


def check_repeatable(folder: Path, *, live: bool = False) -> None:
    """Refuse what is not the directory of a simulation that has ended, or of live peers where they are asked for.

    Raises
    ------
    InputError
        The directory holds none, or a run that does not follow from its directory.
    """
    if not folders.begun(folder):
        raise InputError(f"{folder} is no run directory, because it has no experiment.toml; check the path")
    if not live and ((folder / RUN_LOCK).exists() or (folder / PEER_LOCK).exists()):
        raise InputError(
            f"{folder} holds live peers, whose masks and messages no second run repeats; simulate the experiment with "
            f"p2pfl simulate {folder / 'experiment.toml'}"
        )
    summary = table_of(folder / "summary.json", what="a summary")
    if "together" not in summary and not (live and "peer" in summary):
        raise InputError(
            f"{folder} holds a run that has not ended; go on with p2pfl simulate --resume {folder}, then repeat it"
        )
    if summary.get("predicted"):
        raise InputError(f"{folder} holds a forecast, whose network is not in the directory; forecast it again")


def _check_changes(changes: Sequence[str]) -> None:
    """Refuse a change of what the run is; only where its files are may differ."""
    for change in changes:
        key, _, value = change.partition("=")
        key = key.strip()
        if key not in PATHS or (key == "topology.kind" and not graph_files(value)):
            raise InputError(f"--set {key} would make another run; repeat sets paths alone, such as data.options.path")


def check_trust(folder: Path, *, trust: bool, command: str) -> None:
    """Let own modules be imported from the run directory, which whoever made it has written; nothing was imported yet.

    Raises
    ------
    InputError
        The user has not agreed to run them.
    """
    names = _own_modules(folder)
    if not names:
        return
    kept = folder / FOLDER
    files = sorted(path.relative_to(kept).as_posix() for path in kept.rglob("*") if path.is_symlink() or path.is_file())
    if links := [name for name in files if (kept / name).is_symlink()]:
        raise InputError(f"{kept / links[0]} is a link, which no run directory has; remove it")
    source = f"{', '.join(files)} of {kept}" if files else ", ".join(names)
    if not trust:
        raise InputError(
            f"{folder} names code of its own, and {command} would run it with your rights: {source}; read it, and "
            "agree with --trust-code"
        )
    terminal.note(f"p2pfl: runs {source}, as --trust-code agrees")
    search(kept if files else Path.cwd(), preferred=bool(files))


def _own_modules(folder: Path) -> tuple[str, ...]:
    """Return the modules that the experiment of a run names, without importing them."""
    path = folder / "experiment.toml"
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path} cannot be read ({error}); restore it from a copy") from None
    if table.get("topology", {}).get("kind") == "own":
        raise InputError(
            f"{folder} was put together in Python from parts that its file does not name; repeat it with the "
            "program that made it"
        )
    return tuple(named_modules(table))


def _check_draws(folder: Path, resolved: Plan) -> None:
    """Refuse a run whose secret draws no second run draws again.

    Raises
    ------
    InputError
        A guarantee of the run rests on secret draws.
    """
    if resolved.claims:
        raise InputError(
            f"the privacy guarantee of {folder} rests on random numbers of the operating system, which nobody can "
            "compute again, and so no second run repeats it; compare the scores of several with p2pfl report"
        )


def sentences(comparison: Repetition) -> Iterator[str]:
    """Yield the comparison in sentences, the verdict last."""
    yield f"{comparison.run} was repeated in {comparison.repeated}"
    yield _part("models", comparison.models, f"all {comparison.files} are equal")
    yield _part("records", comparison.records, f"all {comparison.compared} are equal, durations apart")
    yield _part("results", comparison.results, "scores and costs are equal")
    for name, (old, new) in comparison.versions.items():
        yield f"{name}: {old or 'unknown'} in the run, {new or 'unknown'} here"
    words = {None: "the run recorded no digest", True: "equal", False: "DIFFER"}
    yield f"data: {words[comparison.data]}"
    if comparison.code is not None:
        yield f"own modules: {words[comparison.code]}"
    yield "the run repeats to the bit" if comparison.same else "THE RUN DOES NOT REPEAT TO THE BIT"


def _part(what: str, differences: Sequence[RunDifference], equal: str) -> str:
    shown = [
        f"{each.what}{'' if each.largest is None else f' by up to {each.largest:.3g}'} "
        f"({count_of(each.count, 'value')})"
        for each in differences[:MAX_SHOWN]
    ]
    more = f", and {len(differences) - MAX_SHOWN} more" if len(differences) > MAX_SHOWN else ""
    return f"{what}: {'DIFFER: ' + ', '.join(shown) + more if differences else equal}"
