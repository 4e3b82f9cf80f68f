"""The account of an experiment's data, for the user: a warning where it lacks what a command does."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from p2pfl.experiment import Plan


def warn(resolved: Plan) -> None:
    """Print a warning if the account of its data lacks a plan."""
    from p2pfl.experiment.accounts import beside  # noqa: PLC0415 (each command imports what it needs)

    if not resolved.accounted:
        _warn(beside(resolved.experiment))


def warn_of_exact(resolved: Plan) -> None:
    """Print a warning if an account counts the data of a plan, of which a command shows exact results."""
    from p2pfl.experiment.accounts import counting  # noqa: PLC0415

    if (account := counting(resolved.experiment, resolved.federation.peers)) is not None:
        _warn(account)


def warn_of_table(path: str, *, unaccounted: bool) -> None:
    """Refuse an exact use of a table that has an account, or print a warning.

    Raises
    ------
    InputError
        The table has an account, and ``--unaccounted`` is not given.
    """
    from p2pfl.experiment.accounts import admitted_table, beside_file  # noqa: PLC0415

    if not admitted_table(path, unaccounted=unaccounted):
        _warn(beside_file(path))


def _warn(path: Path | None) -> None:
    print(f"UNACCOUNTED: {path} does not count this run; do not rely on that account any more", file=sys.stderr)
