"""Provenance of a run, for comparing and repeating its results."""

from __future__ import annotations

import os
import platform
from datetime import datetime
from importlib.metadata import version
from typing import Any, Literal

import msgspec

import p2pfl
from p2pfl.experiment import Experiment
from p2pfl.report.notices.kinds import SCHEMA


class Versions(msgspec.Struct, frozen=True):
    """Software and machine of a run.

    Attributes
    ----------
    p2pfl
        Version of p2pfl.
    python
        Version of Python.
    torch
        Version of torch.
    numpy
        Version of numpy.
    platform
        Operating system and architecture.
    cpus
        Number of logical CPUs; null if unknown.
    """

    p2pfl: str
    python: str
    torch: str
    numpy: str
    platform: str
    cpus: int | None


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """Experiment, time and platform of a run.

    Attributes
    ----------
    schema
        Version of the format.
    seed
        Seed, as in the experiment file.
    algorithm
        Algorithm, as in the experiment file.
    split
        Split of the data, as in the experiment file.
    versions
        Software and machine.
    began
        Start of the run in UTC, ISO 8601; null if it was not recorded.
    """

    schema: Literal[1] = SCHEMA
    seed: int
    algorithm: str
    split: str
    versions: Versions
    began: str | None


def provenance(experiment: Experiment, *, began: datetime | None) -> dict[str, Any]:
    """Return the part of ``summary.json`` that states which experiment ran, when, and on what.

    Parameters
    ----------
    experiment
        Resolved experiment.
    began
        Start of the run in UTC; ``None`` if it was not recorded.

    Returns
    -------
    dict
        JSON values.

    Examples
    --------
    >>> from datetime import UTC
    >>> found = provenance(Experiment(), began=datetime(2026, 11, 22, 13, 7, tzinfo=UTC))
    >>> found["seed"], found["algorithm"], found["split"], found["began"]
    (0, 'fedavg', 'iid', '2026-11-22T13:07:00+00:00')
    """
    found = Provenance(
        seed=experiment.seed,
        algorithm=experiment.learning.algorithm,
        split=experiment.data.split,
        versions=versions(),
        began=None if began is None else began.isoformat(timespec="seconds"),
    )
    return dict(msgspec.to_builtins(found))


def versions() -> Versions:
    """Return the versions of p2pfl and its numerical libraries, the platform, and its number of logical CPUs."""
    import torch  # noqa: PLC0415 (builds without metadata know their own version only)

    return Versions(
        p2pfl=p2pfl.__version__,
        python=platform.python_version(),
        torch=str(torch.__version__),
        numpy=version("numpy"),
        platform=platform.platform(),
        cpus=os.cpu_count(),
    )
