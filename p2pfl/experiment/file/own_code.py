"""Modules of the user's own that an experiment names, and what these import from the same folder.

Files of run directories are read here without importing anything.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from modulefinder import ModuleFinder
from pathlib import Path
from typing import Any

import p2pfl
from p2pfl.core.errors import InputError
from p2pfl.core.imports import REFERENCE
from p2pfl.experiment.file.own_modules import finders

FOLDER = "modules"
"""Folder of the modules in a run directory."""

MAX_FILES = 200
"""Files of own modules that a run directory holds."""

MAX_BYTES = 4 * 2**20
"""Bytes of all of them."""

PACKAGE = 5
"""Type by which :mod:`modulefinder` marks a package."""

LIBRARIES = frozenset({"torchvision", "timm", "transformers"})
"""Libraries whose models have names of the form ``library:name``, which import nothing else."""

INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Names of folders that hold installed packages, which a run directory does not copy."""


@dataclass(frozen=True)
class OwnCode:
    """Source of the user's own modules.

    Attributes
    ----------
    folder
        Folder from which the first of the named modules is imported.
    files
        Content by path below the folder from which a module is imported, with ``/``, sorted.
    whole
        False if there was more than :data:`MAX_FILES` or :data:`MAX_BYTES`: the rest is missing.
    """

    folder: Path
    files: Mapping[str, bytes]
    whole: bool = True

    @property
    def digest(self) -> str:
        """SHA-256 of all paths and contents."""
        whole = hashlib.sha256()
        for path, content in self.files.items():
            whole.update(f"{path}\0{len(content)}\0".encode() + content)
        return whole.hexdigest()


def own_code(names: Sequence[str]) -> OwnCode | None:
    """Return own modules, with all that they import from the same folder.

    Imports are read from the source, and no module is executed. Installed packages, p2pfl and the standard library are
    left out, and so are data files and what a module imports by a computed name.

    Parameters
    ----------
    names
        Names of modules, such as those of :func:`named_modules`.

    Returns
    -------
    OwnCode or None
        The modules; ``None`` if none of them lies in a folder of the user's.
    """
    roots = {name: root for name in names if (root := _root(name)) is not None}
    files: dict[str, bytes] = {}
    size = 0
    for name, root in roots.items():
        for inner, content in _sources(name, root).items():
            if inner in files:
                continue
            size += len(content)
            if len(files) == MAX_FILES or size > MAX_BYTES:
                return OwnCode(next(iter(roots.values())), dict(sorted(files.items())), whole=False)
            files[inner] = content
    return OwnCode(next(iter(roots.values())), dict(sorted(files.items()))) if files else None


def accept(names: Sequence[str]) -> None:
    """Let own modules of searched folders be imported, with what they import from there by a statement.

    A module with the name of one of Python is left out, and so are compiled modules and links out of the folder.

    Parameters
    ----------
    names
        Names of modules, such as those of :func:`named_modules`.

    Raises
    ------
    InputError
        A module has the name of another one that is installed, which Python would import.
    """
    for finder in finders():
        for name in {*names} - LIBRARIES:
            base = name.replace(".", "/")
            for inner in (f"{base}.py", f"{base}/__init__.py"):
                _check_name(inner, finder.folder)
        files = dict[str, bytes]()
        for name in names:
            if _root(name) == finder.folder:
                files |= finder.sources(name, _read)
        own = {top for top in map(_top, files) if _root(top) == finder.folder}
        for path in files:
            if _top(path) not in own:
                _check_name(path, finder.folder)
        finder.accepted |= {path: content for path, content in files.items() if _top(path) in own}


def _check_name(path: str, folder: Path) -> None:
    """Refuse a module of a searched folder if Python would import an installed one of its name, unless it is a copy."""
    top, own = _top(path), folder / path
    if top in sys.stdlib_module_names or _root(top) is not None or not own.is_file():
        return
    spec = None
    with contextlib.suppress(ImportError, ValueError):  # as _root, which did not find it either
        spec = importlib.util.find_spec(top)
    if spec is None or not (places := [*(spec.submodule_search_locations or ()), spec.origin or ""]):
        return
    other = Path(places[0]).parent / path
    if not other.is_file():
        other = Path(places[-1])
    elif other.read_bytes() == own.read_bytes():
        return
    raise InputError(
        f"{own} has the name of the installed {other}, which Python would import; rename it, or the folder that it is "
        "in"
    )


def named_modules(table: Mapping[str, Any]) -> list[str]:
    """Return the modules of each ``package.module:name`` in the table of an experiment, sorted.

    Nothing is imported.

    Examples
    --------
    >>> named_modules({"learning": {"loss": "clinic.losses:focal"}, "model": {"name": "mlp"}})
    ['clinic.losses']
    """
    return sorted({each.partition(":")[0] for each in references(table)})


def code_digests(table: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the SHA-256 of the code that each ``package.module:name`` in the table of an experiment runs, sorted.

    Nothing is imported. The digest is that of the module and of what it imports from its folder; ``None`` for a module
    that is installed, missing or too large. Names of models of libraries are left out.
    """
    digests = dict[str, str | None]()
    for reference in references(table):
        module = reference.partition(":")[0]
        code = own_code([module])
        if code is not None or module not in LIBRARIES:
            digests[reference] = code.digest if code is not None and code.whole else None
    return digests


def unlisted_code(table: Mapping[str, Any], listed: Mapping[str, str] | None = None) -> list[str]:
    """Return each ``package.module:name`` in the table of an experiment that is not listed with its SHA-256.

    Parameters
    ----------
    table
        Table of the experiment, which may come from anybody: nothing is imported.
    listed
        SHA-256 of the code that may run, by its name.

    Returns
    -------
    list
        The names, each with the SHA-256 of the user's own files in parentheses, or with what has none.
    """
    return [
        f"{name} ({f'SHA-256 {digest}' if digest else _origin(name)})"
        for name, digest in code_digests(table).items()
        if digest is None or (listed or {}).get(name) != digest
    ]


def _origin(name: str) -> str:
    """Return whether code without a digest is installed, too large, or missing."""
    module = name.partition(":")[0]
    if _root(module) is not None:
        return "too large or missing"
    try:
        return "missing" if importlib.util.find_spec(module.partition(".")[0]) is None else "installed"
    except ValueError:  # it is imported already, and has no spec
        return "installed"


def references(table: Mapping[str, Any]) -> list[str]:
    """Return each ``package.module:name`` in the table of an experiment that a run would import, sorted.

    Options of p2pfl's own data sets, such as levels of columns, name none.
    """
    data = table.get("data")
    if isinstance(data, Mapping) and ":" not in str(data.get("name")):
        table = {**table, "data": {key: value for key, value in data.items() if key != "options"}}
    return sorted({*_named(table)})


def _named(value: Any) -> Iterator[str]:
    if isinstance(value, str) and REFERENCE.fullmatch(value):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _named(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _named(each)


def _root(module: str) -> Path | None:
    """Return the folder of the user's from which a module is imported; ``None`` if it is not their own."""
    top = module.partition(".")[0]  # to find what is in it would import it
    searched = finders()
    if holder := next((each.folder for each in searched if each.holds(top)), None):
        return holder
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    root = None if spec is None else _folder(spec)
    for finder in searched if spec is None or root is not None else ():
        if spec is None or finder.preferred:
            found = PathFinder.find_spec(top, [str(finder.folder)])
            if found is not None and _folder(found) is not None:
                return finder.folder
    return root


def _folder(spec: ModuleSpec) -> Path | None:
    """Return the folder of the user's in which a module or package is; ``None`` if it is not their own."""
    if spec.submodule_search_locations:  # a package
        folder = Path(next(iter(spec.submodule_search_locations))).parent
    elif spec.origin is not None and spec.has_location:
        folder = Path(spec.origin).parent
    else:
        return None
    return folder.resolve() if _is_own(folder.resolve()) else None


def _is_own(folder: Path) -> bool:
    """Return whether a folder is neither one of installed packages nor of Python nor of p2pfl."""
    paths = sysconfig.get_paths()
    others = [Path(paths[key]).resolve() for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    others.append(Path(p2pfl.__file__).resolve().parent)
    return not INSTALLED & {*folder.parts} and not any(folder.is_relative_to(other) for other in others)


class _Finder(ModuleFinder):
    """Finder that knows packages without ``__init__.py`` as well, and also notes files that are no valid Python."""

    def __init__(self, folder: Path) -> None:
        super().__init__(path=[str(folder)], excludes=[p2pfl.__name__])
        self.files: list[Path] = []

    def load_module(self, fqname: str, fp: Any, pathname: str, file_info: tuple[str, str, str]) -> Any:
        """Return a module that is read, not executed."""
        if pathname:  # built-in modules have none
            self.files.append(Path(pathname))
        return super().load_module(fqname, fp, pathname, file_info)

    def find_module(self, name: str, path: Any, parent: Any = None) -> Any:
        """Return where a module is; the last number says that it is a package."""
        spec = PathFinder.find_spec(name, self.path if path is None else path)
        if spec is not None and spec.loader is None and spec.submodule_search_locations:
            return None, next(iter(spec.submodule_search_locations)), ("", "", PACKAGE)
        return super().find_module(name, path, parent)

    def load_package(self, fqname: str, pathname: str) -> Any:
        """Return a package, whose modules are loaded when they are imported."""
        if (Path(pathname) / "__init__.py").is_file():
            return super().load_package(fqname, pathname)
        package = self.add_module(fqname)
        package.__path__ = [pathname]  # type: ignore[attr-defined]
        return package


def _sources(module: str, root: Path) -> Mapping[str, bytes]:
    """Return the files that Python runs to import a module from a folder, as a finder of this folder has read them."""
    finder = next((each for each in finders() if each.folder == root), None)
    return _read(module, root) if finder is None else finder.sources(module, _read)


def _read(module: str, root: Path) -> dict[str, bytes]:
    """Read the files that Python runs to import a module from a folder, with those that they import from it."""
    finder = _Finder(root)
    with contextlib.suppress(ImportError, SyntaxError):  # whoever imports it reports that
        finder.import_hook(module)
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(finder.files)
        if path.suffix == ".py" and path.resolve().is_relative_to(root) and _is_own(path.resolve().parent)
    }


def _top(path: str) -> str:
    """Return the module or package without a dot in its name to which a file belongs."""
    return path.partition("/")[0].removesuffix(".py")
