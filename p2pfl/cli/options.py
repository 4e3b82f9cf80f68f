"""Arguments that several commands share, and the types of their values."""

from __future__ import annotations

import argparse

FASTEST = 1000
"""Largest speed of a replay."""

FEWEST_TRIALS = 1000
"""Smallest number of trials of an audit, whose standard error is then 0.06."""


def experiment(command: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """Add the experiment and changes of its keys."""
    about = "a TOML file, or the name of a shipped experiment"
    command.add_argument("experiment", metavar="EXPERIMENT", nargs="?" if optional else None, help=about)
    command.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="changes", help="such as learning.rate=0.05"
    )


def output(command: argparse.ArgumentParser) -> None:
    """Add where results go."""
    command.add_argument(
        "--runs", default="runs", metavar="DIR", help="where run directories go (default: %(default)s)"
    )
    as_json(command)


def as_json(command: argparse.ArgumentParser) -> None:
    """Add ``--json``."""
    command.add_argument("--json", action="store_true", help="machine-readable results on standard output")


def peers(command: argparse.ArgumentParser) -> None:
    """Add ``--peers``."""
    command.add_argument("--peers", type=count, metavar="N", help="instead of topology.peers")


def accounting(command: argparse.ArgumentParser) -> None:
    """Add ``--unaccounted``."""
    about = "run although the privacy account of the data cannot count it"
    command.add_argument("--unaccounted", action="store_true", help=about)


def count(text: str) -> int:
    """Read a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 1; give one, for example 4")
    return int(text)


def trials(text: str) -> int:
    """Read a number of trials of an audit."""
    if count(text) < FEWEST_TRIALS:
        raise argparse.ArgumentTypeError(f"{text} is too few trials to measure anything; take at least {FEWEST_TRIALS}")
    return int(text)


def speed(text: str) -> float:
    """Read the speed of a replay."""
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed <= FASTEST:
        raise argparse.ArgumentTypeError(f"{text} is not a speed above 0 and up to {FASTEST}; give one, for example 10")
    return speed
