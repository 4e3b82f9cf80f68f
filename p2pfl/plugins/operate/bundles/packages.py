"""Packages that a device needs: which kind of device each peer has, and the locked requirements for it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from p2pfl.core.errors import InputError
from p2pfl.experiment import Experiment
from p2pfl.experiment.file.own_code import references
from p2pfl.experiment.file.reading import plain
from p2pfl.experiment.parts.learner_parts import find_torch_key

LOCKS = Path(__file__).with_name("locks")

Machine = Literal["aarch64", "x86_64"]

MACHINES: tuple[Machine, ...] = get_args(Machine)
"""Architectures of which there are locks."""

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
"""Versions of Python on which p2pfl runs."""

TORCH_NEEDS = {"filelock", "fsspec", "setuptools", "sympy"}
"""Locked packages that torch alone needs."""

SCIKIT_DATA = {"digits", "breast_cancer", "wine", "diabetes"}
"""Data sets that scikit-learn ships."""

_KIND = re.compile(r"(?:(?P<peer>[^=]*)=)?(?P<machine>[^=:]*)(?::(?P<python>[^=:]*))?")


@dataclass(frozen=True)
class DeviceKind:
    """Kind of a device.

    Parameters
    ----------
    machine
        Architecture.
    python
        Version of Python; ``None`` for each that the locks of the architecture have.
    """

    machine: Machine = "aarch64"
    python: str | None = None

    @property
    def pythons(self) -> tuple[str, ...]:
        """Versions of Python that a bundle for this kind is for."""
        return locked_pythons(self.machine) if self.python is None else (self.python,)

    def __str__(self) -> str:
        return self.machine if self.python is None else f"{self.machine}:{self.python}"


def device_kinds(named: Sequence[str], *, peers: Collection[str]) -> dict[str, DeviceKind]:
    """Return the kind of each device.

    Parameters
    ----------
    named
        ``MACHINE``, ``MACHINE:PYTHON`` for all devices, or one of them after ``PEER=`` for one device.
    peers
        Names of all devices.

    Raises
    ------
    InputError
        A text names no peer, architecture or Python, or two are for the same devices.

    Examples
    --------
    >>> kinds = device_kinds(["x86_64", "pi=aarch64:3.13"], peers=["pi", "pc"])
    >>> {peer: str(kind) for peer, kind in kinds.items()}
    {'pi': 'aarch64:3.13', 'pc': 'x86_64'}
    """
    given = named_kinds(named, peers=peers)
    return {peer: given.get(peer, given.get(None, DeviceKind())) for peer in peers}


def named_kinds(named: Sequence[str], *, peers: Collection[str]) -> dict[str | None, DeviceKind]:
    """Return the kinds that texts name, by device; ``None`` stands for all others. See :func:`device_kinds`."""
    given = dict[str | None, DeviceKind]()
    for text in named:
        match = _KIND.fullmatch(text)
        peer, machine, python = match.group("peer", "machine", "python") if match else (None, None, None)
        if machine not in MACHINES or (python is not None and python not in PYTHONS):
            raise InputError(
                f'"{text}" is not a kind of device; give {" or ".join(MACHINES)}, after it :VERSION with one of '
                f"{', '.join(PYTHONS)} if you know its Python, and PEER= before it for one device"
            )
        if peer is not None and peer not in peers:
            raise InputError(f'--machine {text}: "{peer}" is not a peer of the experiment; correct the name')
        if peer in given:
            raise InputError(f"--machine is given twice for {peer or 'all devices'}; leave one out")
        given[peer] = DeviceKind(machine, python)
    return given


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
        "local": experiment.data.name in SCIKIT_DATA,
        "privacy": experiment.privacy.epsilon is not None or bool(experiment.learning.example_noise),
        "table": path.endswith((".parquet", ".pq")),
        "zstd": bool(experiment.compression.zstd),
    }
    return [extra for extra, needed in wanted.items() if needed]


def locked_pythons(machine: Machine) -> tuple[str, ...]:
    """Return the versions of Python for which the lock of an architecture has all packages.

    Examples
    --------
    >>> locked_pythons("aarch64")
    ('3.11', '3.12', '3.13', '3.14')
    """
    text = (LOCKS / f"{machine}.txt").read_text("utf-8")
    [(oldest, newest)] = re.findall(r"\A# Python (3\.\d+) to (3\.\d+)\n", text)
    return PYTHONS[PYTHONS.index(oldest) : PYTHONS.index(newest) + 1]


def needs_torch(experiment: Experiment) -> bool:
    """Return whether a device may need torch: code of the user's own counts as such.

    Examples
    --------
    >>> from p2pfl.experiment import read
    >>> needs_torch(read({"model": {"name": "linear"}})), needs_torch(read({"model": {"name": "cnn"}}))
    (False, True)
    """
    return bool(references(plain(experiment))) or find_torch_key(experiment) is not None


def torch_requirement(experiment: Experiment, *, machine: Machine) -> str:
    """Return the text of ``torch.txt``, which is a file of its own because it may name an index, for torch alone.

    It is empty where devices need no torch.
    """
    return (LOCKS / f"{machine}-torch.txt").read_text("utf-8") if needs_torch(experiment) else ""


def locked_requirements(experiment: Experiment, *, machine: Machine) -> str:
    """Return the locked requirements of an experiment on an architecture: all packages but torch and p2pfl."""
    names = [machine, *(f"{machine}-{extra}" for extra in extras(experiment))]
    text = "".join((LOCKS / f"{name}.txt").read_text("utf-8") for name in names)
    if needs_torch(experiment):
        return text
    return "".join(each for each in re.split(r"(?m)^(?=\S)", text) if each.partition("==")[0] not in TORCH_NEEDS)


def wheel_requirement(wheel: Path) -> str:
    """Return the requirement of p2pfl itself, whose wheel lies beside ``requirements.txt``.

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
    return f"./{wheel.name} --hash=sha256:{digest}\n"
