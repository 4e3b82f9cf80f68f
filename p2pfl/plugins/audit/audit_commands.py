"""The command ``p2pfl audit``."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError

from p2pfl.cli import options
from p2pfl.cli.command import Command

FEWEST_TRIALS = 1000
"""Smallest number of trials of an audit, whose standard error is then 0.06."""


def _audit(command: ArgumentParser) -> None:
    options.experiment(command)
    command.add_argument(
        "--peers", type=options.count, metavar="N", help="instead of topology.peers (default: as many, but at most 128)"
    )
    command.add_argument(
        "--trials", type=_trials, default=20_000, metavar="N", help="games of each player (default: %(default)s)"
    )
    command.add_argument("--out", metavar="DIR", help="where the page goes (default: a new directory under --runs)")
    options.accounting(command)
    options.output(command)


def _trials(text: str) -> int:
    """Read a number of trials of an audit."""
    if options.count(text) < FEWEST_TRIALS:
        raise ArgumentTypeError(f"{text} is too few trials to measure anything; take at least {FEWEST_TRIALS}")
    return int(text)


AUDIT = Command(
    "plan", "attack what peers release, and compare with the guarantee", _audit, "p2pfl.plugins.audit.audit_command:run"
)
