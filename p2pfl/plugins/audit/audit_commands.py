"""The command ``p2pfl audit``."""

from __future__ import annotations

from argparse import ArgumentTypeError
from typing import Annotated

from p2pfl.cli.command import Command, Option
from p2pfl.cli.options import AccountingOptions, OutputOptions, OwnTableOptions, count

FEWEST_TRIALS = 1000
"""Smallest number of trials of an audit, whose standard error is then 0.06."""


def _trials(text: str) -> int:
    """Read a number of trials of an audit."""
    if count(text) < FEWEST_TRIALS:
        raise ArgumentTypeError(f"{text} is too few trials to measure anything; take at least {FEWEST_TRIALS}")
    return int(text)


class AuditOptions(OutputOptions, AccountingOptions, OwnTableOptions):
    """Attack what peers release, and compare with the guarantee."""

    peers: Annotated[int | None, Option("peers of the attacked swarm (default: all, but at most 128)", "N", count)] = (
        None
    )
    trials: Annotated[int, Option("games of each player", "N", _trials)] = 20_000
    forgotten: Annotated[bool, Option("EXPERIMENT is a replay's directory: do its models tell who left?")] = False
    out: Annotated[str | None, Option("where the page goes (default: a new directory under --runs)", "DIR")] = None


AUDIT = Command("plan", AuditOptions, "p2pfl.plugins.audit.audit_command:run")
