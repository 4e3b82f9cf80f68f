"""The interface of a command, whether the core, a plug-in or a third party provides it."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import dataclass

GROUPS = {
    "learn": "train models together, with live peers or simulated ones",
    "plan": "what an experiment needs, costs and protects, before it runs",
    "statistics": "exact results over the data of all peers, which stay where they are",
    "models": "use a saved model",
    "study": "one experiment under many settings; the worth of each peer's data",
    "results": "tables, pages and files of a run",
    "operate": "keys, brokers and devices",
}
"""Groups of ``p2pfl --help``, in its order; a plug-in may add others."""


@dataclass(frozen=True)
class Command:
    """A command of ``p2pfl``. A package registers it as an entry point of the group ``p2pfl.commands``, by its name.

    ``p2pfl --help`` imports the module that holds it, which should therefore import little.

    Attributes
    ----------
    group
        What people do with it: one of :data:`GROUPS`, or another word.
    summary
        A line for ``p2pfl help``.
    add_arguments
        Adds its arguments to its parser; :mod:`p2pfl.cli.options` has those that commands share.
    function
        A function as ``package.module:name``, which takes the parsed arguments and returns the exit status. It is
        imported when the command runs.
    """

    group: str
    summary: str
    add_arguments: Callable[[ArgumentParser], None]
    function: str
