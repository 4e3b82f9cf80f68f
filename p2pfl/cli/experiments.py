"""The experiment that a command names."""

from __future__ import annotations

import json
from collections.abc import Sequence

from p2pfl.cli import folders
from p2pfl.cli.options import ExperimentOptions
from p2pfl.core.errors import InputError
from p2pfl.experiment import Experiment, read


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
