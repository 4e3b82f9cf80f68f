"""Names that go into the scripts, units and container files of bundles."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path

from p2pfl.core.errors import InputError
from p2pfl.topology.graph import NAME

_PART = re.compile(r"(?!-|\.{1,2}\Z)[A-Za-z0-9._-]+")

SIGNED = frozenset({"SHA256SUMS", "roster.toml", "certificate.pem", "request.toml"})
"""Files of a bundle besides those that the operator writes first."""

DEVICE = SIGNED | {"keys", "runs", "cache"}
"""Files of a bundle or a peer's folder besides those that the operator writes first."""

FLEET = frozenset({"broker", "authority", "observers", "roster.toml", "observers.toml"})
"""Files of the folder of a fleet besides bundles."""


def plain(name: str, *, what: str) -> str:
    """Return a name or relative path that means the same to every shell, to systemd and to podman.

    Parameters
    ----------
    name
        The name.
    what
        Kind of thing that it names, for the error.

    Raises
    ------
    InputError
        It has other characters, or a part that is empty, ``.`` or ``..``, or begins with a hyphen.

    Examples
    --------
    >>> plain("models/own.py", what="the file")
    'models/own.py'
    """
    if not is_plain(name):
        raise InputError(
            f'{what} {name!a} cannot be part of a script; rename it with letters, digits, ".", "_" or "-", '
            "without a hyphen at the beginning"
        )
    return name


def is_plain(name: str) -> bool:
    """Return whether :func:`plain` accepts a name."""
    return all(_PART.fullmatch(part) for part in name.split("/"))


def experiment(name: str) -> None:
    """Check that the file of an experiment can have its name.

    Raises
    ------
    InputError
        It cannot.
    """
    plain(name, what="the experiment")
    if f"{name}.toml" in DEVICE:
        raise InputError(f'the experiment "{name}" has the name of another file of a bundle, {name}.toml; rename it')


def peers(names: Collection[str]) -> None:
    """Check that each peer can have a bundle of its name.

    Raises
    ------
    InputError
        One cannot.
    """
    for name in names:
        plain(name, what="the peer")
        if name in FLEET:
            raise InputError(f'the peer "{name}" has the name of another folder of the fleet; rename it')


def observers(names: Collection[str], *, peers: Collection[str]) -> None:
    """Check that each observer can have a folder of its name, and a certificate that is not that of a peer.

    Raises
    ------
    InputError
        One cannot.
    """
    for name in names:
        if NAME.fullmatch(plain(name, what="the observer")) is None or name in peers:
            raise InputError(
                f'"{name}" cannot be an observer; use 1 to 22 letters, digits, _ and -, and no name of a peer'
            )


def beside(folder: Path, paths: Collection[Path], *, taken: Collection[str]) -> Mapping[str, Path]:
    """Return the files beside an experiment by their names in a bundle.

    Parameters
    ----------
    folder
        Folder of the experiment.
    paths
        The files.
    taken
        Names of the other files of a bundle.

    Raises
    ------
    InputError
        A name is that of another file or means something to a shell, or a file is a symbolic link.
    """
    found = {}
    for path in paths:
        inner = path.relative_to(folder)
        name = plain(inner.as_posix(), what="the file")
        if inner.parts[0] in DEVICE.union(taken):
            raise InputError(f"{path} has the name of another file of a bundle; rename it")
        if any((folder / part).is_symlink() for part in (inner, *inner.parents[:-1])):
            raise InputError(f"{path} is a symbolic link; put the file itself beside the experiment")
        found[name] = path
    return found


def unexpected(folder: Path, names: Collection[str]) -> None:
    """Refuse a folder of the fleet with files that nobody has put there on purpose, because it is given away as it is.

    Parameters
    ----------
    folder
        Bundle of a device, or folder of an observer.
    names
        Names of the files that belong into it besides those that devices and certificates add.

    Raises
    ------
    InputError
        There is another file.
    """
    for path in sorted(folder.rglob("*")):
        inner = path.relative_to(folder)
        known = inner.as_posix() in {*names, *SIGNED, "observers.toml"}
        if not known and not (path.is_dir() and not path.is_symlink()):
            raise InputError(
                f"{path} does not belong into this folder, which is given away as it is; move it elsewhere"
            )
