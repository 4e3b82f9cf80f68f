"""Import of modules from a folder of the user's, and of those alone that the user has accepted.

The folder is not on Python's path, where its other modules, compiled files and package metadata would count as well.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

Sources = Mapping[str, bytes]
"""Content of files by their path below a folder, with ``/``."""


class OwnModules(MetaPathFinder):
    """Finder of the accepted modules of a folder.

    It keeps what it has read, so that Python runs the bytes whose SHA-256 the user has seen. Another process that
    unpickles it finds the same modules from then on.

    Parameters
    ----------
    folder
        The folder, resolved.
    preferred
        Whether its modules come before others of the user's own; modules of installed packages always do.
    """

    def __init__(self, folder: Path, *, preferred: bool = False) -> None:
        self.folder, self.preferred = folder, preferred
        self.accepted: dict[str, bytes] = {}
        self._seen: dict[str, Sources] = {}

    def __reduce__(self) -> tuple[Callable[..., OwnModules], tuple[Any, ...]]:
        """Return what makes this finder in another process."""
        return _restore, (self.folder, self.preferred, self.accepted, self._seen)

    def sources(self, module: str, read: Callable[[str, Path], Sources]) -> Sources:
        """Return the files that Python runs to import a module, as they were when they were first asked for."""
        if module not in self._seen:
            self._seen[module] = read(module, self.folder)
        return self._seen[module]

    def holds(self, top: str) -> bool:
        """Return whether a module or package without a dot in its name is accepted."""
        return any(path == f"{top}.py" or path.startswith(f"{top}/") for path in self.accepted)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the specification of an accepted module; ``None`` for all others, also of the same package."""
        del path, target
        inner = fullname.replace(".", "/")
        for name in (f"{inner}/__init__.py", f"{inner}.py"):
            if name in self.accepted:
                loader = AcceptedLoader(fullname, str(self.folder / name), self.accepted[name])
                spec = spec_from_file_location(fullname, loader.path, loader=loader)
                if spec is not None and spec.submodule_search_locations is not None:
                    spec.submodule_search_locations = []  # no other finder looks for modules in it
                return spec
        is_package = any(name.startswith(f"{inner}/") for name in self.accepted)
        return ModuleSpec(fullname, None, is_package=True) if is_package else None


class AcceptedLoader(SourceFileLoader):
    """Loader of a module from bytes, which neither reads nor writes compiled files."""

    def __init__(self, fullname: str, path: str, source: bytes) -> None:
        super().__init__(fullname, path)
        self._source = source

    def path_stats(self, path: str) -> Mapping[str, Any]:
        """Refuse to compare the module with a compiled file."""
        raise OSError(f"no compiled file of {path} counts")

    def get_data(self, path: str) -> bytes:
        """Return the module, or a data file of its package."""
        return self._source if path == self.path else super().get_data(path)


def finders() -> list[OwnModules]:
    """Return the finders of this process."""
    return [each for each in sys.meta_path if isinstance(each, OwnModules)]


def search(folder: Path, *, preferred: bool = False) -> None:
    """Look for own modules in a folder, of which none can be imported before it is accepted."""
    if folder.resolve() not in {each.folder for each in finders()}:
        sys.meta_path.insert(0, OwnModules(folder.resolve(), preferred=preferred))
    if not any(isinstance(each, _Carrier) for each in sys.path):
        sys.path.append(_carry())


class _Carrier(str):
    """Entry of Python's path below which nothing is found, and which takes the finders to other processes.

    A process that `multiprocessing` spawns receives the path before it unpickles anything else, such as arguments whose
    classes are in own modules. So do those that libraries start, like the workers of a `DataLoader`.
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[Callable[..., _Carrier], tuple[list[OwnModules]]]:
        """Return what makes this entry in another process, which unpickles the finders for it."""
        return _carry, (finders(),)


def _carry(found: Sequence[OwnModules] = ()) -> _Carrier:
    del found  # unpickling them was enough
    return _Carrier(f"{os.devnull}/modules of the user")


def _restore(folder: Path, preferred: bool, accepted: dict[str, bytes], seen: dict[str, Sources]) -> OwnModules:  # noqa: FBT001
    """Return a finder of another process, which replaces one of the same folder."""
    sys.meta_path[:] = [each for each in sys.meta_path if not (isinstance(each, OwnModules) and each.folder == folder)]
    finder = OwnModules(folder, preferred=preferred)
    finder.accepted, finder._seen = accepted, seen  # noqa: SLF001 (its own)
    sys.meta_path.insert(0, finder)
    return finder
