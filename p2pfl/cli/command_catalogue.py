"""Commands by name, their parsers, and what ``p2pfl --help`` and ``p2pfl help`` print."""

from __future__ import annotations

import argparse
import difflib
import shlex
import sys
import textwrap
from collections.abc import Sequence
from typing import Any, NoReturn

import p2pfl
from p2pfl.cli.command import GROUPS, Command, Options, add_arguments
from p2pfl.cli.core_commands import COMMANDS, HelpOptions
from p2pfl.core.errors import InputError
from p2pfl.core.registry import find_entry_points, load

PLUGINS = "p2pfl.commands"
"""Group of entry points."""

COLUMNS = 80
"""Width of a terminal."""

BROKEN = "broken"
"""Group of the commands of plug-ins that cannot be imported."""


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, without the usage."""

    def error(self, message: str) -> NoReturn:  # noqa: D102 (documented by argparse)
        sys.stderr.write(f"p2pfl: {message}; see {self.prog} --help\n")
        raise SystemExit(2)


class _Overview(argparse.Action):
    """Print groups and commands."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        print(overview())
        parser.exit()


def parse(line: Sequence[str]) -> Options:
    """Return the options of a command.

    Raises
    ------
    InputError
        There is no such command, or it is of a plug-in that cannot be imported.
    """
    top = Parser(prog="p2pfl", add_help=False)
    top.add_argument("-h", "--help", action=_Overview, nargs=0)
    top.add_argument("--version", action="version", version=f"p2pfl {p2pfl.__version__}")
    top.add_argument("line", nargs=argparse.PARSER, metavar="COMMAND")
    name, *rest = top.parse_args(line).line
    if name not in names():
        raise _unknown_error("command", name, names())
    options = parser(name).parse_args(rest, find(name).options())
    options.command, options.line = name, shlex.join(["p2pfl", *line])
    return options


def names() -> list[str]:
    """Return the names of all commands: those of the core, then those of plug-ins."""
    return [*COMMANDS, *(name for name in find_entry_points(PLUGINS) if name not in COMMANDS)]


def find(name: str) -> Command:
    """Return a command.

    Raises
    ------
    InputError
        It is of a plug-in that cannot be imported.
    """
    if name in COMMANDS:
        return COMMANDS[name]
    command = load(PLUGINS, name)
    if not isinstance(command, Command):
        value, kind = find_entry_points(PLUGINS)[name].value, type(command).__name__
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
    parser = Parser(prog=f"p2pfl {name}", description=f"{command.summary}.")
    add_arguments(parser, command.options)
    return parser


def overview() -> str:
    """Return what ``p2pfl --help`` prints."""
    lines = ["usage: p2pfl COMMAND ...", ""]
    lines += ["Fully decentralised learning: peers gossip masked models over MQTT, no server.", ""]
    groups = commands_by_group()
    indent = max(map(len, groups)) + 2
    for group, listed in groups.items():
        first, *others = (*_wrap(_summary(group), indent), *_wrap(", ".join(listed), indent))
        lines += [f"{group:{indent}}{first}", *(" " * indent + line for line in others)]
    lines += ["", "p2pfl help GROUP or p2pfl help COMMAND shows more; p2pfl --version the version."]
    return "\n".join(lines)


def explain(options: HelpOptions) -> int:
    """Run ``p2pfl help``.

    Raises
    ------
    InputError
        There is no such command or group, or its plug-in cannot be imported.
    """
    groups, name = commands_by_group(), options.name
    if name is None:
        print(overview())
    elif name in names():
        print(parser(name).format_help(), end="")
    elif name in groups:
        print(_explain_group(name, groups[name]))
    else:
        raise _unknown_error("command or group", name, [*names(), *groups])
    return 0


def _unknown_error(kind: str, name: str, known: Sequence[str]) -> InputError:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f'did you mean "{near[0]}"?' if near else "see p2pfl --help"
    return InputError(f'there is no {kind} "{name}"; {hint}')


def commands_by_group() -> dict[str, list[str]]:
    """Return the names of commands: the groups of the core first, then those of plug-ins, then what cannot be used."""
    groups = dict[str, list[str]]()
    for name in names():
        try:
            group = find(name).group
        except InputError:
            group = BROKEN
        groups.setdefault(group, []).append(name)
    groups.pop("", None)  # help itself
    order = [*GROUPS, *sorted({*groups} - {*GROUPS, BROKEN}), BROKEN]
    return {group: groups[group] for group in order if group in groups}


def _summary(group: str) -> str:
    return "plug-ins that cannot be imported" if group == BROKEN else GROUPS.get(group, "commands of plug-ins")


def _explain_group(group: str, listed: Sequence[str]) -> str:
    """Return a line or two for each command of a group."""
    indent = max(map(len, listed)) + 4
    lines = [f"{group}: {_summary(group)}", ""]
    for name in listed:
        summary = f"p2pfl {name} says why" if group == BROKEN else find(name).summary
        first, *others = _wrap(summary, indent)
        lines += [f"  {name:{indent - 2}}{first}", *(" " * indent + line for line in others)]
    return "\n".join([*lines, "", "p2pfl help COMMAND shows the arguments of a command."])


def _wrap(text: str, indent: int) -> list[str]:
    return textwrap.wrap(text, COLUMNS - indent)
