"""Classes and functions that a user names as ``package.module:name``, libraries of extras, imports without pauses."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Any

from p2pfl.core.errors import InputError, P2PFLError

REFERENCE = re.compile(r"([^\W\d][\w.]*):[^\W\d]\w*")
"""A ``package.module:name``; nothing else is imported."""

SAFE_PATH = "PYTHONSAFEPATH"
"""Environment variable with which Python leaves the working directory, and the folder of a script, out of its path."""


def import_callable(
    reference: str, *, key: str = "", sought: str = "a function or a class", refused: type[P2PFLError] = InputError
) -> Callable[..., Any]:
    """Return the function or the class that ``package.module:name`` names.

    The import runs the code of the module. The named object itself is not called.

    Parameters
    ----------
    reference
        Module and name in it, with a colon between them.
    key
        Key of the experiment file or option of the command line that has the reference, for an error.
    sought
        Kind of object that the reference should name, for an error.
    refused
        Type of the error.

    Returns
    -------
    Callable
        The function or the class.

    Raises
    ------
    P2PFLError
        The reference has another form, the module cannot be imported, or it has no such name or something that cannot
        be called under it. The error has the type ``refused``.

    Examples
    --------
    >>> import_callable("math:floor")(2.5)
    2
    """
    subject = f'{key}: "{reference}"' if key else f'"{reference}"'
    module, _, name = reference.partition(":")
    if not REFERENCE.fullmatch(reference):
        raise refused(f'{subject} is not of the form "package.module:name"; name {sought} that way')
    try:
        holder = importlib.import_module(module)
    except Exception as error:
        if (clash := _find_clash(module, error)) is not None:
            raise refused(_describe_clash(subject, *clash)) from error
        raise refused(
            f"{subject} cannot be imported ({describe_error(error, module=module)}); {_remedy(error, module)}"
        ) from error
    standard = module in sys.stdlib_module_names
    if standard and (own := _namesake(module, holder)) is not None:
        raise refused(_describe_clash(subject, holder, own))
    try:
        value = getattr(holder, name)
    except Exception as error:
        if (own := _namesake(module, holder)) is not None:
            raise refused(_describe_clash(subject, holder, own)) from error
        reason = describe_error(error, module=module)
        raise refused(f"{subject} cannot be imported ({reason}); correct the name after the colon") from error
    if not callable(value):
        raise refused(f"{subject} is an object of the type {type(value).__name__}; name {sought}")
    function: Callable[..., Any] = value
    return function


HUB = "huggingface.co"
"""Host that ``from_pretrained`` asks for a name that is no folder, again and again without a connection."""

NO_FOLDER = "if it means a folder, that does not exist: correct it, and set HF_HUB_OFFLINE=1 to ask no hub"
"""Remedy for a path that ``from_pretrained`` takes for a name of the hub."""


@contextlib.contextmanager
def translate_errors(
    reference: str, *, key: str, module: str = "", refused: type[P2PFLError] = InputError
) -> Iterator[None]:
    """Turn an exception of a user's code into one sentence; errors of p2pfl stay as they are.

    Parameters
    ----------
    reference
        Name of the class or function, such as ``package.module:name``.
    key
        Key of the experiment file that names it.
    module
        Module of the code, if the reference does not contain it.
    refused
        Type of the error.

    Raises
    ------
    P2PFLError
        The code raised an exception. The error has the type ``refused``.
    """
    try:
        yield
    except P2PFLError:
        raise
    except Exception as error:
        reason = describe_error(error, module=module or reference.partition(":")[0])
        hub = isinstance(error, OSError) and HUB in str(error)
        raise refused(f"{key}: {reference} raised {reason}; {NO_FOLDER if hub else 'fix it'}") from error


def kind_of(value: object) -> str:
    """Return the type of a value with its article, for an error.

    Examples
    --------
    >>> kind_of(1), kind_of("text")
    ('an int', 'a str')
    """
    name = type(value).__name__
    return f"an {name}" if name[0] in "aeioAEIO" else f"a {name}"


def _namesake(module: str, holder: ModuleType) -> Path | None:
    """Return the file in the working directory that has the name of a module and is not the imported one."""
    used = holder.__spec__.origin if holder.__spec__ is not None else None
    base = Path(*module.split("."))
    for file in (Path(f"{base}.py"), base / "__init__.py"):
        if file.is_file() and not (used is not None and Path(used).is_file() and file.samefile(used)):
            return file.resolve()
    return None


def _find_clash(module: str, error: Exception) -> tuple[ModuleType, Path] | None:
    """Return the module that hides a folder of the working directory, and the file in this folder that it hides."""
    top = sys.modules.get(module.partition(".")[0])
    if top is None or top.__spec__ is None or not isinstance(error, ModuleNotFoundError) or error.name != module:
        return None
    origin = top.__spec__.origin
    if origin is None or Path(origin).resolve().is_relative_to(Path.cwd() / top.__name__):
        return None
    own = _namesake(module, top)
    return None if own is None else (top, own)


def _describe_clash(subject: str, holder: ModuleType, own: Path) -> str:
    used = holder.__spec__.origin if holder.__spec__ is not None else None
    inner = own.relative_to(Path.cwd().resolve()).parts
    wrong = own.name if len(inner) == 1 else f"the folder {inner[0]}"
    return f"{subject} is not {own}, because another module has this name: {used or 'one of Python'}; rename {wrong}"


def _remedy(error: Exception, module: str) -> str:
    """Return the remedy for a module that cannot be imported."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return f"fix {module}"
    if f"{module}.".startswith(f"{error.name}."):
        return "correct the name before the colon, or add the folder of the module to PYTHONPATH"
    if (hidden := _find_hidden(error, module)) is not None:
        return f"import {error.name} by a statement in {module}, or add {hidden[0]} to PYTHONPATH"
    return f"install {error.name}, or fix {module}"


def _find_hidden(error: BaseException, module: str) -> tuple[Path, Path] | None:
    """Return a searched folder of own modules, and what it has of the name of a missing module, or None.

    A finder of own modules has a ``folder``, and finds in it only what statements import.
    """
    if not isinstance(error, ModuleNotFoundError) or not error.name or f"{module}.".startswith(f"{error.name}."):
        return None
    folders = [getattr(each, "folder", None) for each in sys.meta_path]
    for folder in (each for each in folders if isinstance(each, Path)):
        base = folder.joinpath(*error.name.split("."))
        for own in (base.with_name(f"{base.name}.py"), base):
            if own.resolve().is_relative_to(folder) and (own.is_file() or any(own.rglob("*.py"))):
                return folder, own
    return None


def extra_library(name: str, *, extra: str, key: str, refused: type[P2PFLError] = InputError) -> ModuleType:
    """Return a library that an extra of p2pfl installs.

    Parameters
    ----------
    name
        Name of its module.
    extra
        Name of the extra.
    key
        Key of the experiment file that needs it, for an error.
    refused
        Type of the error.

    Raises
    ------
    P2PFLError
        The library is not installed. The error has the type ``refused``.

    Examples
    --------
    >>> extra_library("math", extra="plot", key="--plot").floor(2.5)
    2
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise refused(
            f'{key} needs {name}, which is not installed ({error}); run `pip install "p2pfl-mqtt[{extra}]"`'
        ) from None


def describe_error(error: BaseException, *, module: str) -> str:
    """Describe an exception of a user's function, with the line of their module that raised it.

    Parameters
    ----------
    error
        The exception.
    module
        Name of the module.

    Returns
    -------
    str
        Type and first line of the error, and the place in the module, if there is one.

    Examples
    --------
    >>> describe_error(ValueError("too cold"), module="clinic")
    'ValueError: too cold'
    """
    first = (str(error).splitlines() or [""])[0]
    if (hidden := _find_hidden(error, module)) is not None:
        first += f", because no statement imports {hidden[1]}"
    lines = [
        (frame.f_code, line)
        for frame, line in walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__") == module
    ]
    where = f" (in {lines[-1][0].co_qualname}, line {lines[-1][1]} of {module})" if lines else ""
    return f"{type(error).__name__}{': ' if first else ''}{first}{where}"


@contextlib.contextmanager
def pause_collection() -> Iterator[None]:
    """Import modules without collections of cycles, and exempt from later ones what they have made.

    Torch makes many objects that stay, and looking through them again and again takes an eighth of the time. Nothing
    here may start a thread, so that processes can be forked afterwards.

    Examples
    --------
    >>> with pause_collection():
    ...     import p2pfl.core.errors
    """
    on, before = gc.isenabled(), len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > before:
            gc.freeze()
        if on:
            gc.enable()


@contextlib.contextmanager
def without_working_directory() -> Iterator[None]:
    """Let Python processes that start meanwhile begin without the working directory on their path.

    multiprocessing starts them by ``python -c``, which searches that directory before the standard library. Then it
    hands them the path of this process.
    """
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SAFE_PATH]
        else:
            os.environ[SAFE_PATH] = before
