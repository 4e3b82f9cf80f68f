"""The experiment that a command names, and warnings where the account of its data lacks what the command does."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from p2pfl.cli import folders
from p2pfl.cli.options import ExperimentOptions
from p2pfl.core.errors import InputError
from p2pfl.core.texts import printable
from p2pfl.experiment import Experiment, read
from p2pfl.experiment.accounts import admitted_table, beside, beside_file, counting

if TYPE_CHECKING:  # it imports torch
    from p2pfl.experiment import Plan


def experiment_of(options: ExperimentOptions, *, broker: Sequence[str] = ()) -> Experiment:
    """Return the experiment of a command, with the changes of its options.

    Parameters
    ----------
    options
        Arguments of the command.
    broker
        Addresses of brokers, in place of those of the file; empty to keep them.

    Raises
    ------
    InputError
        The experiment or a change is wrong.
    """
    folders.add_present()
    changes = list(options.changes)
    if options.peers is not None:
        changes.append(f"topology.peers={options.peers}")
    if broker:
        changes.append(f"transport.broker={json.dumps(broker if broker[1:] else broker[0])}")
    experiment = read(options.experiment, changes=changes)
    if options.peers is not None and experiment.topology.files:
        files = ", ".join(experiment.topology.files)
        raise InputError(
            f"--peers does not work with topology.kind = {files}, because the file lists the peers; leave it out"
        )
    return experiment


def warn_unaccounted(resolved: Plan) -> None:
    """Print a warning if the account of its data lacks a plan."""
    if not resolved.accounted:
        _warn(beside(resolved.experiment))


def note_tables(resolved: Plan) -> None:
    """Print what the owner of a table should know of it; nothing of this leaves the computer."""
    for peer, sentences in sorted(resolved.federation.notes.items()):
        for sentence in sentences:
            print(printable(f"note: table of {peer}: {sentence}"), file=sys.stderr)


def warn_of_exact(resolved: Plan) -> None:
    """Print a warning if an account counts the data of a plan, of which a command shows exact results."""
    if (account := counting(resolved.experiment, resolved.federation.peers)) is not None:
        _warn(account)


def warn_of_table(path: str, *, unaccounted: bool) -> None:
    """Refuse an exact use of a table that has an account, or print a warning.

    Raises
    ------
    InputError
        The table has an account, and ``--unaccounted`` is not given.
    """
    if not admitted_table(path, unaccounted=unaccounted):
        _warn(beside_file(path))


def _warn(path: Path | None) -> None:
    print(f"UNACCOUNTED: {path} does not count this run; do not rely on that account any more", file=sys.stderr)
