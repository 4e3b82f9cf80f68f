"""The command line: its arguments, and what ``p2pfl --help`` and ``p2pfl help`` print."""

from __future__ import annotations

import argparse
import difflib
import textwrap
from collections.abc import Sequence
from typing import Any, NoReturn

import p2pfl
from p2pfl.cli import command_catalogue
from p2pfl.cli.command import GROUPS
from p2pfl.core.errors import InputError

COLUMNS = 80
"""Width of a terminal."""

BROKEN = "broken"
"""Group of the commands of plug-ins that cannot be imported."""


class _Overview(argparse.Action):
    """Print groups and commands."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        print(overview())
        parser.exit()


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the arguments of a command, and its name as ``command``.

    Raises
    ------
    InputError
        The command is of a plug-in that cannot be imported.
    """
    top = command_catalogue.Parser(prog="p2pfl", add_help=False)
    top.add_argument("-h", "--help", action=_Overview, nargs=0)
    top.add_argument("--version", action="version", version=f"p2pfl {p2pfl.__version__}")
    top.add_argument("line", nargs=argparse.PARSER, metavar="COMMAND", choices=command_catalogue.names())
    command, *rest = top.parse_args(arguments).line
    return command_catalogue.parser(command).parse_args(rest, argparse.Namespace(command=command))


def overview() -> str:
    """Return what ``p2pfl --help`` prints."""
    lines = ["usage: p2pfl COMMAND ...", ""]
    lines += ["Fully decentralised learning: peers gossip masked models over MQTT, no server.", ""]
    groups = commands_by_group()
    indent = max(map(len, groups)) + 2
    for group, names in groups.items():
        first, *others = (*_wrapped(_summary(group), indent), *_wrapped(", ".join(names), indent))
        lines += [f"{group:{indent}}{first}", *(" " * indent + line for line in others)]
    lines += ["", "p2pfl help GROUP or p2pfl help COMMAND shows more; p2pfl --version the version."]
    return "\n".join(lines)


def explain(options: argparse.Namespace) -> int:
    """Run ``p2pfl help``.

    Raises
    ------
    InputError
        There is no such command or group, or its plug-in cannot be imported.
    """
    groups, name = commands_by_group(), options.name
    if name is None:
        print(overview())
    elif name in command_catalogue.names():
        print(command_catalogue.parser(name).format_help(), end="")
    elif name in groups:
        print(_explained(name, groups[name]))
    else:
        near = difflib.get_close_matches(name, [*command_catalogue.names(), *groups], n=1)
        hint = f'did you mean "{near[0]}"?' if near else "see p2pfl --help"
        raise InputError(f'there is no command or group "{name}"; {hint}')
    return 0


def commands_by_group() -> dict[str, list[str]]:
    """Return the names of commands: the groups of the core first, then those of plug-ins, then what cannot be used."""
    groups = dict[str, list[str]]()
    for name in command_catalogue.names():
        groups.setdefault(_group(name), []).append(name)
    groups.pop("", None)  # help itself
    order = [*GROUPS, *sorted({*groups} - {*GROUPS, BROKEN}), BROKEN]
    return {group: groups[group] for group in order if group in groups}


def _group(name: str) -> str:
    try:
        return command_catalogue.find(name).group
    except InputError:
        return BROKEN


def _summary(group: str) -> str:
    return "plug-ins that cannot be imported" if group == BROKEN else GROUPS.get(group, "commands of plug-ins")


def _explained(group: str, names: Sequence[str]) -> str:
    """Return a line or two for each command of a group."""
    indent = max(map(len, names)) + 4
    lines = [f"{group}: {_summary(group)}", ""]
    for name in names:
        summary = f"p2pfl {name} says why" if group == BROKEN else command_catalogue.find(name).summary
        first, *others = _wrapped(summary, indent)
        lines += [f"  {name:{indent - 2}}{first}", *(" " * indent + line for line in others)]
    return "\n".join([*lines, "", "p2pfl help COMMAND shows the arguments of a command."])


def _wrapped(text: str, indent: int) -> list[str]:
    return textwrap.wrap(text, COLUMNS - indent)
