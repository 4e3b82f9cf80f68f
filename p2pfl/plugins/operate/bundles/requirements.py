"""Hashed requirements of a bundle, from locks that are part of the package (``scripts/locks.py``)."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Literal

from p2pfl.core.errors import InputError
from p2pfl.experiment import Experiment

LOCKS = Path(__file__).with_name("locks")

Machine = Literal["aarch64", "x86_64"]

MACHINES: tuple[Machine, ...] = ("aarch64", "x86_64")
"""Architectures of which there are locks."""

SCIKIT = {"digits", "breast_cancer", "wine", "diabetes"}
"""Data sets that scikit-learn ships."""


def extras(experiment: Experiment) -> list[str]:
    """Return the extras that an experiment needs on a device.

    Examples
    --------
    >>> from p2pfl.experiment import read
    >>> extras(read({"data": {"name": "wine"}, "compression": {"zstd": True}}))
    ['local', 'zstd']
    """
    path = str(experiment.data.options.get("path", ""))
    wanted = {
        "local": experiment.data.name in SCIKIT,
        "privacy": experiment.privacy.epsilon is not None or bool(experiment.learning.example_noise),
        "table": path.endswith((".parquet", ".pq")),
        "zstd": bool(experiment.compression.zstd),
    }
    return [extra for extra, needed in wanted.items() if needed]


def pythons(machine: Machine) -> tuple[str, str]:
    """Return the oldest and the newest version of Python for which the locks of an architecture have packages.

    Examples
    --------
    >>> pythons("aarch64")
    ('3.11', '3.14')
    """
    [(oldest, newest)] = re.findall(r"\A# Python (3\.\d+) to (3\.\d+)\n", (LOCKS / f"{machine}.txt").read_text("utf-8"))
    return oldest, newest


def torch_requirement(machine: Machine) -> str:
    """Return the text of ``torch.txt``: a file of its own, because it may name an index, which is for torch alone."""
    return (LOCKS / f"{machine}-torch.txt").read_text("utf-8")


def requirements(experiment: Experiment, *, machine: Machine, wheel: Path) -> str:
    """Return the text of ``requirements.txt`` for ``pip install --require-hashes --no-deps``: all packages but torch.

    Parameters
    ----------
    experiment
        Experiment that the device runs.
    machine
        Its architecture.
    wheel
        The wheel of p2pfl, which lies beside ``requirements.txt``.

    Raises
    ------
    InputError
        The wheel cannot be read, or is not one of p2pfl.
    """
    if not wheel.name.startswith("p2pfl_mqtt-") or wheel.suffix != ".whl":
        raise InputError(f"{wheel} is not a wheel of p2pfl; build one with pip wheel --no-deps --wheel-dir dist .")
    try:
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"{wheel} cannot be read ({error.strerror}); name the wheel with --wheel") from None
    names = [machine, *(f"{machine}-{extra}" for extra in extras(experiment))]
    locked = "".join((LOCKS / f"{name}.txt").read_text("utf-8") for name in names)
    return f"{locked}./{wheel.name} --hash=sha256:{digest}\n"
