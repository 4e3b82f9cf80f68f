"""The experiment that a command names."""

from __future__ import annotations

import argparse
import json

from p2pfl.cli import folders
from p2pfl.core.errors import InputError
from p2pfl.experiment import Experiment, read


def experiment_of(options: argparse.Namespace, *, broker: list[str] | None = None) -> Experiment:
    """Return the experiment of a command, with the changes of its options.

    Parameters
    ----------
    options
        Arguments of the command.
    broker
        Addresses of brokers, in place of those of the file.

    Raises
    ------
    InputError
        The experiment or a change is wrong.
    """
    folders.add_present()
    changes = list(options.changes)
    if getattr(options, "peers", None) is not None:
        changes.append(f"topology.peers={options.peers}")
    if broker is not None:
        changes.append(f"transport.broker={json.dumps(broker if broker[1:] else broker[0])}")
    experiment = read(options.experiment, changes=changes)
    if getattr(options, "peers", None) is not None and experiment.topology.files:
        files = ", ".join(experiment.topology.files)
        raise InputError(
            f"--peers does not work with topology.kind = {files}, because the file lists the peers; leave it out"
        )
    return experiment
