"""The command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import p2pfl
from p2pfl.cli.planning import arguments as planning
from p2pfl.cli.results import arguments as results
from p2pfl.cli.running import arguments as running
from p2pfl.cli.setup import arguments as setup

COMMANDS: tuple[Callable[[Any], None], ...] = (
    *(running.run, running.simulate, running.peer, running.repeat),
    *(setup.identity, results.schema, setup.broker),
    *(planning.topology, planning.explain, planning.privacy, planning.audit, planning.value),
    *(results.describe, results.using, results.sweep, results.report, results.watch),
    *(setup.deploy, setup.doctor),
)
"""Functions that add a command or several to the parser."""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, without the usage."""

    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"p2pfl: {message}; see {self.prog} --help\n")
        raise SystemExit(2)

    def parse_known_args(  # type: ignore[override] # its overloads differ in the type of the namespace alone
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Refuse arguments that are unknown, which the parser of a command would leave to the one above."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands, in the order of ``p2pfl --help``."""
    top = _Parser(
        prog="p2pfl", description="Fully decentralised learning: peers gossip masked models over MQTT, no server."
    )
    top.add_argument("--version", action="version", version=f"p2pfl {p2pfl.__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for add in COMMANDS:
        add(commands)
    return top
