"""``p2pfl repeat``: run a simulation again from its directory, and compare the two to the bit."""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from p2pfl.cli import folders, terminal
from p2pfl.errors import InputError
from p2pfl.experiment import read
from p2pfl.experiment.file.reading import PATHS
from p2pfl.report.comparing.wording import counted
from p2pfl.report.lock import PEER, RUN
from p2pfl.report.reading import table_of
from p2pfl.report.repeating.own_code import FOLDER, named_modules, own_code

if TYPE_CHECKING:  # they import torch
    from p2pfl.experiment import Plan
    from p2pfl.report.repeating.repetition import Difference, Repetition

MAX_LISTED = 20
"""Files that are listed before they are run."""

MAX_SHOWN = 5
"""Differences of a part that are printed."""


def run(options: argparse.Namespace) -> int:
    """Repeat a run and print the comparison; return the exit status, with ``--check`` 1 if the two differ."""
    folder = Path(options.run)
    _check_repeatable(folder)
    _check_changes(options.changes)
    _trusted(folder, trust=options.trust_code)

    from p2pfl.report import Run  # noqa: PLC0415 (reading an experiment imports the modules that it names)
    from p2pfl.report.repeating.repetition import repetition  # noqa: PLC0415
    from p2pfl.simulation import simulate  # noqa: PLC0415

    before = Run.load(folder)
    experiment = read(folder / "experiment.toml", changes=options.changes)

    def begin(resolved: Plan) -> Path:
        """Return the new run directory, once the run is known to be one that repeats."""
        _check_draws(folder, resolved)
        return folders.new(options.runs, experiment.name)

    summary = before.summary
    again = simulate(
        experiment,
        folder=begin,
        baselines=summary["alone"] is not None or summary["pooled"] is not None,
        workers=max(1, len(summary.get("workers", ()))),
        unaccounted=not summary.get("accounted", True),
    )
    found = repetition(before, Run.load(str(again.folder)))
    if options.json:
        print(json.dumps(found.table, allow_nan=False))
    else:
        for sentence in sentences(found):
            terminal.note(sentence)
    return 0 if found.same or not options.check else 1


def _check_repeatable(folder: Path) -> None:
    """Refuse what is not the directory of a simulation that has ended.

    Raises
    ------
    InputError
        The directory holds none, or a run that does not follow from its directory.
    """
    if not folders.begun(folder):
        raise InputError(f"{folder} is no run directory, because it has no experiment.toml; check the path")
    if (folder / RUN).exists() or (folder / PEER).exists():
        raise InputError(
            f"{folder} holds live peers, whose masks and messages no second run repeats; simulate the experiment with "
            f"p2pfl simulate {folder / 'experiment.toml'}"
        )
    summary = table_of(folder / "summary.json", what="a summary")
    if "together" not in summary:
        raise InputError(
            f"{folder} holds a run that has not ended; go on with p2pfl simulate --resume {folder}, then repeat it"
        )
    if summary.get("predicted"):
        raise InputError(f"{folder} holds a forecast, whose network is not in the directory; forecast it again")


def _check_changes(changes: Sequence[str]) -> None:
    """Refuse a change of what the run is; only where its files are may differ."""
    for change in changes:
        key = change.partition("=")[0].strip()
        if key not in PATHS:
            raise InputError(f"--set {key} would make another run; repeat sets paths alone, such as data.options.path")


@dataclass(frozen=True)
class _Named:
    """Modules that the experiment of a run names.

    Attributes
    ----------
    names
        Their names.
    files
        Files in the run directory beside which they are imported.
    recorded
        Digest of the own modules of the run; ``None`` if it recorded none.
    """

    names: tuple[str, ...]
    files: tuple[str, ...]
    recorded: str | None


def _trusted(folder: Path, *, trust: bool) -> None:
    """Decide from where own modules are imported; nothing of the run has been imported before.

    The current folder is used where it has the very modules of the run. All else that the run names is code of whoever
    made the directory.

    Raises
    ------
    InputError
        The user has not agreed to run it.
    """
    named = _named(folder)
    if not named.names:
        return
    sys.path.insert(0, str(Path.cwd()))  # where the user's own package.module:function is
    mine = own_code(named.names)
    same = mine is not None and mine.digest == named.recorded
    if same and all(_within(name, mine.files if mine is not None else {}) for name in named.names):
        return
    source = f"{_listed(named.files)} of {folder / FOLDER}" if named.files else _listed(named.names)
    if not trust:
        raise InputError(
            f"{folder} names code of its own, and repeat would run it with your rights: {source}; read it, and agree "
            "with --trust-code"
        )
    terminal.note(f"p2pfl: runs {source}, as --trust-code agrees")
    if named.files:
        sys.dont_write_bytecode = True  # the directory stays as it was received
        sys.path[0] = str((folder / FOLDER).resolve())


def _named(folder: Path) -> _Named:
    """Return what the experiment of a run names, without importing it."""
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
    code = table_of(folder / "provenance.json", what="the provenance of a run").get("code")
    recorded = code.get("digest") if isinstance(code, Mapping) else None
    kept = folder / FOLDER
    files = tuple(sorted(path.relative_to(kept).as_posix() for path in kept.rglob("*") if not path.is_dir()))
    return _Named(tuple(named_modules(table)), files, recorded)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return f"{', '.join(names[:MAX_LISTED])}{more}"


def _within(module: str, files: Mapping[str, bytes]) -> bool:
    """Return whether a module is one of some files."""
    path = module.replace(".", "/")
    return f"{path}.py" in files or f"{path}/__init__.py" in files


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


def sentences(found: Repetition) -> Iterator[str]:
    """Yield the comparison in sentences, the verdict last."""
    yield f"{found.run} was repeated in {found.repeated}"
    yield _part("models", found.models, f"all {found.files} are equal")
    yield _part("records", found.records, f"all {found.compared} are equal, durations apart")
    yield _part("results", found.results, "scores and costs are equal")
    for name, (old, new) in found.versions.items():
        yield f"{name}: {old} in the run, {new} here"
    known: tuple[tuple[str, bool | None, str], ...] = (
        ("data", found.data, "the run recorded no digest"),
        ("own modules", found.code, ""),
    )
    for what, same, unknown in known:
        said = unknown if same is None else "equal" if same else "DIFFER"
        if said:
            yield f"{what}: {said}"
    yield "the run repeats to the bit" if found.same else "THE RUN DOES NOT REPEAT TO THE BIT"


def _part(what: str, differences: Sequence[Difference], equal: str) -> str:
    shown = [
        f"{each.what}{'' if each.largest is None else f' by up to {each.largest:.3g}'} ({counted(each.count, 'value')})"
        for each in differences[:MAX_SHOWN]
    ]
    more = f", and {len(differences) - MAX_SHOWN} more" if len(differences) > MAX_SHOWN else ""
    return f"{what}: {'DIFFER: ' + ', '.join(shown) + more if differences else equal}"
