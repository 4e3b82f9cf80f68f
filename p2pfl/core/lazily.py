"""When modules are imported: names of a package when they are first used, and many modules without pauses."""

import contextlib
import gc
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping


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


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Import modules without collections of cycles, and exempt from later ones what they have made.

    Torch makes many objects that stay, and looking through them again and again takes an eighth of the time. Nothing
    here may start a thread, so that processes can be forked afterwards.

    Examples
    --------
    >>> with uncollected():
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
