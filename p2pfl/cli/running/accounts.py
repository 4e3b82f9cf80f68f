"""The account of an experiment's data: a run that it cannot count is refused, or runs with a warning."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from p2pfl.experiment import Plan


def check(options: argparse.Namespace, resolved: Plan) -> bool:
    """Refuse a run that the account of its data cannot count, or warn; return whether no account lacks the run.

    Raises
    ------
    InputError
        If the account cannot count the run and ``--unaccounted`` is not given.
    """
    from p2pfl.report.spending.budget import beside, check_accounted  # noqa: PLC0415 (it imports torch)

    accounted = check_accounted(resolved, unaccounted=options.unaccounted)
    if not accounted:
        path = beside(resolved.experiment)
        print(f"UNACCOUNTED: {path} does not count this run; do not rely on that account any more", file=sys.stderr)
    return accounted
