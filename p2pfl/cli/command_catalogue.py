"""Commands by name, and their parsers."""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

from p2pfl.cli.command import Command
from p2pfl.cli.planning import planning_arguments as planning
from p2pfl.cli.results import results_arguments as results
from p2pfl.cli.running import running_arguments as running
from p2pfl.cli.setup import setup_arguments as setup
from p2pfl.core.errors import InputError
from p2pfl.core.registry import load, registered

PLUGINS = "p2pfl.commands"
"""Group of entry points."""

CORE = {**running.COMMANDS, **planning.COMMANDS, **results.COMMANDS, **setup.COMMANDS}
"""Commands that need no plug-in."""


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, without the usage."""

    def error(self, message: str) -> NoReturn:  # noqa: D102 (documented by argparse)
        sys.stderr.write(f"p2pfl: {message}; see {self.prog} --help\n")
        raise SystemExit(2)


def names() -> list[str]:
    """Return the names of all commands: those of the core, then those of plug-ins."""
    return [*CORE, *(name for name in registered(PLUGINS) if name not in CORE)]


def find(name: str) -> Command:
    """Return a command.

    Raises
    ------
    InputError
        It is of a plug-in that cannot be imported.
    """
    if name in CORE:
        return CORE[name]
    command = load(PLUGINS, name)
    if not isinstance(command, Command):
        value, kind = registered(PLUGINS)[name].value, type(command).__name__
        raise InputError(f'the plug-in "{value}" is of the type {kind}; register a p2pfl.cli.command.Command')
    return command


def parser(name: str) -> Parser:
    """Return the parser of a command.

    Raises
    ------
    InputError
        The command is of a plug-in that cannot be imported.
    """
    command = find(name)
    parser = Parser(prog=f"p2pfl {name}", description=f"{command.summary[:1].upper()}{command.summary[1:]}.")
    command.add_arguments(parser)
    return parser
