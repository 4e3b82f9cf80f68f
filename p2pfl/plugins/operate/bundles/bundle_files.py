"""Files of bundles: those beside an experiment that bundles carry, and names that scripts and units can have."""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from p2pfl.core.errors import InputError
from p2pfl.experiment.schema import graph_files
from p2pfl.network.protocol.wire.message_codec import OPERATOR
from p2pfl.topology.graph import NAME

CODE_KEYS = (
    "data.name",
    "data.split",
    "model.name",
    "topology.kind",
    "learning.algorithm",
    "learning.learner",
    "learning.loss",
    "learning.metrics",
    "learning.augment",
    "learning.schedule",
    "compression.name",
    "privacy.mode",
    "robustness.rule",
    "attack.name",
)
"""Keys that may name a class or function of the user's own."""

MODEL_KEYS = ("gossip.weights", "model.pretrained")
"""Keys that name files with mixing weights, and with parameters to start from."""

OPTION_KEYS = (
    "data.options",
    "model.options",
    "learning.options",
    "learning.algorithm_options",
    "learning.learner",
)
"""Keys whose values may name files of which it is unknown whether they are private."""

_OWN = re.compile(r"([A-Za-z_]\w*(?:\.\w+)*):[A-Za-z_]\w*")
"""A ``module:function`` of the user's own."""


@dataclass(frozen=True)
class NeighbouringFiles:
    """Files beside an experiment.

    Parameters
    ----------
    folder
        Folder of the experiment.
    table
        Content of the experiment file.
    """

    folder: Path
    table: Mapping[str, Any]

    def carried_files(self, *, added: Sequence[Path] = ()) -> list[Path]:
        """Return the files that a bundle for a device has.

        Parameters
        ----------
        added
            Files that the operator adds, relative to the working directory.

        Raises
        ------
        InputError
            A file that the operator adds is no file below the folder of the experiment.
        """
        modules = [file for key in CODE_KEYS for text in self._texts(key) for file in modules_of(text)]
        named = [*self._graphs(), *(text for key in MODEL_KEYS for text in self._texts(key))]
        return [*dict.fromkeys([*self._there([*modules, *named]), *(self._resolve_added(path) for path in added)])]

    def graphs(self) -> list[Path]:
        """Return the files that an observer needs besides the experiment: those in ``topology.kind``."""
        return [*self._there(self._graphs())]

    def find_left(self, carried: Sequence[Path]) -> dict[str, str]:
        """Return files and folders that the experiment names and that no bundle has, each with its key.

        Parameters
        ----------
        carried
            Files that bundles have.
        """
        inside = {path.relative_to(self.folder) for path in carried}
        texts = {"topology.kind": self._graphs()} | {key: self._texts(key) for key in (*MODEL_KEYS, *OPTION_KEYS)}
        return {
            name: key
            for key, named in texts.items()
            for text in named
            for name in self._names_in(text)
            if Path(name) not in inside
        }

    def _names_in(self, text: str) -> list[str]:
        """Return the files that a text names, which may be a pattern or a function of the user's own."""
        if os.path.exists(self.folder / text):  # noqa: PTH110 (false, and no error, for what can be no path)
            return [text]
        modules = [file for file in modules_of(text) if (self.folder / file).is_file()]
        return modules or sorted(glob.glob(text, root_dir=self.folder))  # noqa: PTH207 (pathlib refuses some patterns)

    def _there(self, names: Sequence[str]) -> Iterator[Path]:
        for name in names:
            inside = not Path(name).is_absolute() and ".." not in Path(name).parts
            if inside and os.path.isfile(self.folder / name):  # noqa: PTH113 (false for what can be no path)
                yield self.folder / name

    def _resolve_added(self, path: Path) -> Path:
        root, whole = os.path.abspath(self.folder), os.path.abspath(path)  # noqa: PTH100 (links are refused later)
        if not Path(whole).is_relative_to(root) or not path.is_file():
            raise InputError(f"{path} is no file below {self.folder}; copy it beside the experiment, then name it")
        return self.folder / Path(whole).relative_to(root)

    def _texts(self, dotted: str) -> list[str]:
        """Return the texts of a key, also inside of tables and lists."""
        value: Any = self.table
        for part in dotted.split("."):
            value = value.get(part, {}) if isinstance(value, Mapping) else {}
        return [*_inside(value)]

    def _graphs(self) -> list[str]:
        """Return the files that ``topology.kind`` names."""
        return [text for text in self._texts("topology.kind") if graph_files(text)]


def _inside(value: Any) -> Iterator[str]:
    if isinstance(value, str) and value:
        yield value
    elif isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _inside(each)


def content(path: Path) -> bytes:
    """Return the content of a file in a bundle: a model without its metadata, which hold statistics of its data.

    Raises
    ------
    InputError
        A file that ends with ``.safetensors`` is none.
    """
    data = path.read_bytes()
    if path.suffix != ".safetensors":
        return data
    end = 8 + int.from_bytes(data[:8], "little")
    try:
        table = json.loads(data[8:end])
        header = json.dumps({name: entry for name, entry in table.items() if name != "__metadata__"}).encode()
    except (ValueError, AttributeError):
        raise InputError(f"{path} is no file of safetensors; correct model.pretrained") from None
    header += b" " * (-len(header) % 8)  # places of tensors count from the end of the header
    return len(header).to_bytes(8, "little") + header + data[end:]


def modules_of(text: str) -> list[str]:
    """Return the files that may have a function of the user's own; none for any other text.

    Examples
    --------
    >>> modules_of("models.own:build")
    ['models.py', 'models/__init__.py', 'models/own.py']
    >>> modules_of("patients.csv")
    []
    """
    own = _OWN.fullmatch(text)
    if own is None:
        return []
    parts = own[1].split(".")
    packages = ["/".join((*parts[:count], "__init__.py")) for count in range(1, len(parts))]
    return [f"{parts[0]}.py", *packages, *([f"{'/'.join(parts)}.py"] if packages else [])]


_PART = re.compile(r"(?!-|\.{1,2}\Z)[A-Za-z0-9._-]+")

AUTHORITY = "authority"
"""Folder of the fleet's authority, and the name by which the operator renews it."""

HASH_FILE = "SHA256SUMS"
"""File with the hashes of a bundle, as sha256sum reads it."""

SIGNED_FILES = frozenset({HASH_FILE, "roster.toml", "certificate.pem", "request.toml"})
"""Files of a bundle besides those that the operator writes first."""

DEVICE_FILES = SIGNED_FILES | {"keys", "runs", "cache"}
"""Files of a bundle or a peer's folder besides those that the operator writes first."""

MACHINES_FILE = "machines.toml"
"""File of a fleet with the machines of its devices."""

FLEET_FILES = frozenset({OPERATOR, AUTHORITY, "observers", "wheels", MACHINES_FILE, "roster.toml", "observers.toml"})
"""Files of the folder of a fleet besides bundles and the folders of brokers."""

BROKER_FOLDER = re.compile(r"broker\d*")
"""Name of the folder of a broker."""


def check_name(name: str, *, what: str) -> str:
    """Return a name or relative path that means the same to every shell and to systemd.

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
    >>> check_name("models/own.py", what="the file")
    'models/own.py'
    """
    if not is_plain(name):
        raise InputError(
            f'{what} {name!a} cannot be part of a script; rename it with letters, digits, ".", "_" or "-", '
            "without a hyphen at the beginning"
        )
    return name


def is_plain(name: str) -> bool:
    """Return whether :func:`check_name` accepts a name."""
    return all(_PART.fullmatch(part) for part in name.split("/"))


def check_experiment(name: str) -> None:
    """Check that the file of an experiment can have its name.

    Raises
    ------
    InputError
        It cannot.
    """
    check_name(name, what="the experiment")
    if f"{name}.toml" in DEVICE_FILES:
        raise InputError(f'the experiment "{name}" has the name of another file of a bundle, {name}.toml; rename it')


def check_peers(names: Collection[str]) -> None:
    """Check that each peer can have a bundle of its name.

    Raises
    ------
    InputError
        One cannot.
    """
    for name in names:
        check_name(name, what="the peer")
        if name in FLEET_FILES or BROKER_FOLDER.fullmatch(name):
            raise InputError(f'"{name}" has the name of another folder of the fleet; rename it')


def check_observers(names: Collection[str], *, peers: Collection[str]) -> None:
    """Check that each observer can have a folder of its name, and a certificate that is not that of a peer.

    Raises
    ------
    InputError
        One cannot.
    """
    for name in names:
        if NAME.fullmatch(check_name(name, what="the observer")) is None or name in {*peers, OPERATOR}:
            raise InputError(
                f'"{name}" cannot be an observer; use 1 to 22 letters, digits, _ and -, and no name of a peer'
            )


def name_files(folder: Path, paths: Collection[Path], *, taken: Collection[str]) -> Mapping[str, Path]:
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
    files = {}
    for path in paths:
        inner = path.relative_to(folder)
        name = check_name(inner.as_posix(), what="the file")
        if inner.parts[0] in DEVICE_FILES.union(taken):
            raise InputError(f"{path} has the name of another file of a bundle; rename it")
        if any((folder / part).is_symlink() for part in (inner, *inner.parents[:-1])):
            raise InputError(f"{path} is a symbolic link; put the file itself beside the experiment")
        files[name] = path
    return files


def refuse_others(folder: Path, names: Collection[str]) -> None:
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
        belongs = inner.as_posix() in {*names, *SIGNED_FILES, "observers.toml"}
        if not belongs and not (path.is_dir() and not path.is_symlink()):
            raise InputError(
                f"{path} does not belong into this folder, which is given away as it is; move it elsewhere"
            )
