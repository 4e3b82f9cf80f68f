"""Settings of the run whose models another run begins with, and of the runs before it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from p2pfl.core.errors import InputError
from p2pfl.experiment.file.reading import KEPT, read_kept
from p2pfl.experiment.schema import Experiment

MODEL_FOLDER = "peers"
"""Folder of a run directory in which the models of its peers are."""


@dataclass(frozen=True)
class FormerSettings:
    """Settings of a run from which another one went on.

    Parameters
    ----------
    folder
        Directory of the run.
    experiment
        The settings; ``None`` if they are not here.
    apart
        True if each peer of it and of all later runs began with a model of its own.
    """

    folder: Path
    experiment: Experiment | None
    apart: bool


def former_runs(experiment: Experiment) -> Iterator[FormerSettings]:
    """Yield the run whose models an experiment begins with, the one before it, and so on, as far as they are here.

    Nothing that their settings name is imported.

    Raises
    ------
    InputError
        A run begins with its own models, or its settings cannot be read.
    """
    seen, apart, wanted = set[Path](), True, experiment.model.pretrained
    while wanted is not None:
        models, apart = Path(wanted).resolve(), apart and "{peer}" in wanted
        if models.parent.name != MODEL_FOLDER and "{peer}" not in wanted:
            return  # a model from elsewhere
        folder = models.parent.parent
        if folder in seen:
            raise InputError(f"{folder} begins with its own models; correct model.pretrained in its {KEPT}")
        seen.add(folder)
        path = folder / KEPT
        former = read_kept(path, whole=False) if path.is_file() else None
        yield FormerSettings(folder, former, apart)
        wanted = None if former is None else former.model.pretrained


def check_former_runs(experiment: Experiment, *, live: bool) -> None:
    """Refuse a run whose peers begin apart, and would find while they start that an earlier run is not here.

    Live peers compare the digests of their settings, which cover those of all runs from which they go on.

    Raises
    ------
    InputError
        An earlier run is not here, or begins with its own models.
    """
    if "{peer}" not in (experiment.model.pretrained or ""):
        return
    later = "this run"
    for former in former_runs(experiment):
        if former.experiment is None and former.apart and live:
            raise InputError(
                f"{former.folder / KEPT} is gone, from which {later} went on, and its digest counts; bring it "
                "back, or name one model for all peers as model.pretrained"
            )
        later = str(former.folder)
