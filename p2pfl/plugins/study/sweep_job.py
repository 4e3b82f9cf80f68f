"""One run of a sweep: what decides its result, what refuses it, and how it is made."""

from __future__ import annotations

import glob
import hashlib
import json
import sys
import tomllib
import traceback
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import p2pfl
from p2pfl.core.errors import InputError, P2PFLError
from p2pfl.experiment import Experiment, check, flat, plain, plan
from p2pfl.experiment.file.own_code import named_modules, own_code
from p2pfl.experiment.file.reading import PATHS
from p2pfl.plugins.study.study import CostBudget

DIGEST_LENGTH = 20
"""Hexadecimal digits of a digest."""

ACCOUNT_KEY = "privacy.budget"
"""Key of the privacy account: each run adds charges to the file, and none of them changes what another run gives."""

PEER_MARK = "{peer}"
"""Part of a path that stands for the name of a peer."""


@dataclass(frozen=True)
class Job:
    """A run to make.

    Attributes
    ----------
    digest
        Name of its directory.
    experiment
        Resolved experiment in TOML.
    folder
        Folder to write it to.
    baselines
        True to train each peer alone, and one model on all data, for comparison.
    budget
        Cost at which it ends; ``None`` without one.
    """

    digest: str
    experiment: str
    folder: Path
    baselines: bool
    budget: CostBudget | None


def run_job(job: Job) -> None:
    """Simulate an experiment and write its run directory."""
    from p2pfl.simulation import simulate  # noqa: PLC0415

    experiment = check(tomllib.loads(job.experiment))
    if job.budget is not None:
        experiment = _with_rounds(experiment, affordable(experiment, job.budget))
    simulate(experiment, folder=job.folder, baselines=job.baselines)


def check_job(job: Job) -> None:
    """Plan an experiment, and check what would refuse it before its first round; nothing is trained."""
    from p2pfl.simulation.memory_estimate import check_memory  # noqa: PLC0415

    experiment = check(tomllib.loads(job.experiment))
    if job.budget is not None:
        _check_free(experiment)
    check_memory(plan(experiment), baselines=job.baselines)


def explain(error: Exception) -> str:
    """Return why a run failed; the traceback of an exception that p2pfl does not know goes to standard error."""
    if isinstance(error, P2PFLError):
        return str(error)
    traceback.print_exception(error, file=sys.stderr)
    return f"{type(error).__name__}: {error}"


def affordable(experiment: Experiment, budget: CostBudget) -> int:
    """Return the number of rounds that a budget pays for, by the cost of the first two rounds.

    Raises
    ------
    InputError
        It does not pay for one round, or trying two rounds would spend from a privacy budget.
    """
    _check_free(experiment)
    one, two = (_cost(_with_rounds(experiment, rounds), budget) for rounds in (1, 2))
    each = two - one
    rounds = (budget.amount - one) // each + 1 if each > 0 else 0
    if rounds < 1:
        raise InputError(f"the budget {budget.what}={budget.amount} does not pay for one round, which takes {one}")
    return rounds


def _check_free(experiment: Experiment) -> None:
    """Refuse a cost budget where the rounds that find out the cost of a round would themselves cost privacy."""
    from p2pfl.results.spending.budget import beside  # noqa: PLC0415 (it imports torch)

    if beside(experiment) is not None:
        raise InputError(
            "trying two rounds to find out their cost would spend from the privacy budget of the data; set rounds "
            "instead of a budget"
        )


def _cost(experiment: Experiment, budget: CostBudget) -> int:
    from p2pfl.simulation import simulate  # noqa: PLC0415

    summary = simulate(experiment, baselines=False).summary
    return int(summary["bytes_sent"] if budget.what == "bytes" else summary["gradients"])


def _with_rounds(experiment: Experiment, rounds: int) -> Experiment:
    return check(plain(experiment) | {"rounds": rounds})


def digest(experiment: Experiment, *, baselines: bool = False, budget: CostBudget | None = None) -> str:
    """Return the digest of all that decides what a run gives, which names its directory.

    Files that the experiment names count by their content, and so do the modules of ``package.module:name`` with what
    these import from the same folder.

    Parameters
    ----------
    experiment
        The resolved experiment.
    baselines
        True if the run also has its baselines.
    budget
        Cost that decides the number of rounds.

    Examples
    --------
    >>> from p2pfl.experiment import read
    >>> digest(read({"seed": 1})) == digest(read({"seed": 1})), digest(read({"seed": 1})) == digest(read({"seed": 2}))
    (True, False)
    """
    table = flat(experiment)
    table.pop(ACCOUNT_KEY, None)
    for key in PATHS:
        section, _, rest = key.partition(".options.")
        if rest and isinstance(options := table.get(f"{section}.options"), dict) and rest in options:
            table[f"{section}.options"] = options | {rest: _content(options[rest])}
        elif table.get(key) is not None:
            table[key] = _content(table[key])
    code = own_code(named_modules(table))
    own = {"modules": None if code is None else code.digest, "p2pfl": p2pfl.__version__}
    whole = {"experiment": table, **own, "baselines": baselines, "budget": budget}
    text = json.dumps(whole, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]


def _content(value: Any) -> Any:
    """Return the digest of a file in place of its path; what is no file stays."""
    if isinstance(value, list | tuple):
        return [_content(each) for each in value]
    if isinstance(value, str) and PEER_MARK in value:
        pattern = "*".join(glob.escape(part) for part in value.split(PEER_MARK))
        return {path: _content(path) for path in sorted(glob.glob(pattern))}  # noqa: PTH207 (may be absolute)
    if isinstance(value, str) and Path(value).is_file():
        path = Path(value)
        status = path.stat()
        return _hash_file(path, status.st_mtime_ns, status.st_size)
    return value


@lru_cache
def _hash_file(path: Path, changed: int, size: int) -> str:
    """Return the digest of a file; a file is read again if it has changed since."""
    del changed, size  # they are a part of the key of the cache
    return hashlib.sha256(path.read_bytes()).hexdigest()
