"""Provenance of a run, for comparing and repeating its results."""

from __future__ import annotations

import os
import platform
import re
from datetime import datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import msgspec

import p2pfl
from p2pfl.experiment import Experiment
from p2pfl.experiment.file.own_code import OwnCode
from p2pfl.results.notices.kinds import SCHEMA

OWN_CODE = ("commit", "code")
"""Fields of a provenance on the user's own code, which stand in ``provenance.json`` alone."""


class Versions(msgspec.Struct, frozen=True):
    """Software and machine of a run.

    Attributes
    ----------
    p2pfl, python, torch, numpy
    platform
    cpus
        Logical.
    commit
        First digits of the commit of p2pfl, in a checkout.
    cpu
    kernels
        Instructions of torch's kernels, such as ``AVX2``; others round differently.
    gpu
    threads
        Of an operation of torch.
    """

    p2pfl: str
    python: str
    torch: str
    numpy: str
    platform: str
    cpus: int | None
    commit: str | None = None
    cpu: str | None = None
    kernels: str | None = None
    gpu: str | None = None
    threads: int | None = None


class RecordedCode(msgspec.Struct, frozen=True):
    """The user's own modules, and what they import from their folder.

    Attributes
    ----------
    digest
        SHA-256 of paths and contents.
    files
        Paths in ``modules`` of the run directory.
    whole
        False if there were too many to copy.
    """

    digest: str
    files: list[str]
    whole: bool


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """Experiment, time and platform of a run.

    Attributes
    ----------
    schema, seed, algorithm, split, versions
    began
        Start, in UTC.
    commit
        First digits of the commit of the folder of the user's own modules, or of the working directory.
    code
    """

    schema: Literal[1] = SCHEMA
    seed: int
    algorithm: str
    split: str
    versions: Versions
    began: str | None
    commit: str | None = None
    code: RecordedCode | None = None


def provenance(
    experiment: Experiment, *, began: datetime | None, code: OwnCode | None = None, folder: Path | None = None
) -> dict[str, Any]:
    """Return the part of ``summary.json`` that states which experiment ran, when, and on what.

    Parameters
    ----------
    experiment
        Resolved experiment.
    began
        Start of the run in UTC; ``None`` if it was not recorded.
    code
        The user's own modules; ``None`` if there are none.
    folder
        Folder whose commit is recorded; ``None`` to record none.

    Returns
    -------
    dict
        JSON values.

    Examples
    --------
    >>> from datetime import UTC
    >>> origin = provenance(Experiment(), began=datetime(2026, 11, 22, 13, 7, tzinfo=UTC))
    >>> origin["seed"], origin["algorithm"], origin["split"], origin["began"]
    (0, 'fedavg', 'iid', '2026-11-22T13:07:00+00:00')
    """
    record = Provenance(
        seed=experiment.seed,
        algorithm=experiment.learning.algorithm,
        split=experiment.data.split,
        versions=versions(experiment.learning.device),
        began=None if began is None else began.isoformat(timespec="seconds"),
        commit=None if folder is None else commit_of(folder),
        code=None if code is None else RecordedCode(code.digest, [*code.files], code.whole),
    )
    return dict(msgspec.to_builtins(record))


def versions(device: str = "cpu") -> Versions:
    """Return the versions of p2pfl and its numerical libraries, the platform, its processors, and how torch uses them.

    Parameters
    ----------
    device
        Device on which models are trained, as the experiment file names it.
    """
    from p2pfl.core.tensors import torch  # noqa: PLC0415 (reading a run needs no torch)

    return Versions(
        p2pfl=p2pfl.__version__,
        python=platform.python_version(),
        torch=str(torch.__version__),
        numpy=version("numpy"),
        platform=platform.platform(),
        cpus=os.cpu_count(),
        commit=_own_commit(),
        cpu=_processor(),
        kernels=torch.backends.cpu.get_cpu_capability(),
        gpu=_gpu(device),
        threads=torch.get_num_threads(),
    )


def commit_of(folder: Path) -> str | None:
    """Return the first digits of the commit that is checked out in a folder; ``None`` without a repository.

    Only files of the repository are read. Git itself would run programs that the repository names, such as filters.
    """
    start = folder.resolve()
    repository = next((each / ".git" for each in (start, *start.parents) if (each / ".git").exists()), None)
    try:
        return None if repository is None else _commit(repository)
    except (OSError, UnicodeDecodeError):
        return None


def _commit(repository: Path) -> str | None:
    """Return the commit of a folder ``.git``, or of the folder that such a file names for a worktree."""
    if repository.is_file():
        repository = repository.parent / repository.read_text("utf-8").removeprefix("gitdir:").strip()
    if not (repository / "HEAD").is_file():
        return None
    head = (repository / "HEAD").read_text("utf-8").strip()
    if not head.startswith("ref:"):
        return _digits(head)
    name = head.removeprefix("ref:").strip()
    common = repository / "commondir"
    roots = [repository, *([repository / common.read_text("utf-8").strip()] if common.is_file() else [])]
    for root in roots:
        if ".." not in name and (root / name).is_file():
            return _digits((root / name).read_text("utf-8").strip())
        if (root / "packed-refs").is_file():
            for line in (root / "packed-refs").read_text("utf-8").splitlines():
                if line.endswith(f" {name}"):
                    return _digits(line.partition(" ")[0])
    return None


def _digits(text: str) -> str | None:
    """Return the first digits of the name of a commit; ``None`` for any other text."""
    return text[:12] if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", text) else None


@cache
def _own_commit() -> str | None:
    """Return the commit of p2pfl, which does not change while it runs; ``None`` where it is installed as a package."""
    package = Path(p2pfl.__file__).resolve().parent
    return commit_of(package) if (package.parent / ".git").exists() else None


def _gpu(device: str) -> str | None:
    """Return the name of the GPU that a device of the experiment file stands for; ``None`` if it is none."""
    from p2pfl.core.tensors import torch  # noqa: PLC0415

    if not device.startswith(("auto", "cuda")) or not torch.cuda.is_available():
        return None
    return torch.cuda.get_device_name(None if device == "auto" else device)


@cache
def _processor() -> str | None:
    """Return the name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return platform.processor() or None
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, None) or platform.processor() or None
