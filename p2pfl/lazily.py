"""Names of a package that are imported when they are first used, so that what needs no torch need not wait for it."""

import importlib
import sys
from collections.abc import Callable, Mapping


def lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Return a package's ``__getattr__`` (PEP 562).

    Parameters
    ----------
    package
        Its ``__name__``.
    homes
        The module below it in which each name lives; the empty one for a module of that name. No name may
        also be that of a module below that holds something else: whoever imports that module hides the name.

    Examples
    --------
    >>> lazily("p2pfl", {"InputError": "errors"})("InputError").__name__
    'InputError'
    """

    def find(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(f"{package}.{homes[name] or name}")
        found = getattr(module, name) if homes[name] else module
        setattr(sys.modules[package], name, found)  # the next use finds it there
        return found

    return find
