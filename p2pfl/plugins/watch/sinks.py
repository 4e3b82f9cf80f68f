"""Functions of the user that take each event of a run, for trackers and databases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from p2pfl.core.importing import import_callable
from p2pfl.results.swarm.state import Entry

Sink = Callable[[Entry], Any]
"""Function that takes a record or a notice."""


class Sinks:
    """Calls functions of the user with each event.

    An error of one neither stops the others nor the page, and is reported once.

    Parameters
    ----------
    names
        Names of functions, ``package.module:function``.
    complain
        Called with a sentence about the first error of each function.

    Raises
    ------
    InputError
        A name has another form, or there is no such function.

    Examples
    --------
    >>> Sinks(["builtins:print"], complain=print).names
    ['builtins:print']
    """

    def __init__(self, names: Sequence[str], *, complain: Callable[[str], object]) -> None:
        self.names = list(names)
        self._sinks = {name: import_callable(name, key="--sink", sought="a function") for name in names}
        self._complain = complain
        self._failed: set[str] = set()

    def __call__(self, entry: Entry) -> None:
        """Call all functions with an event."""
        for name, sink in self._sinks.items():
            try:
                sink(entry)
            except Exception as error:  # noqa: BLE001 (whatever the user's code raises)
                if name not in self._failed:
                    self._failed.add(name)
                    self._complain(f"sink {name} failed with {type(error).__name__}: {error}; it is called again")
