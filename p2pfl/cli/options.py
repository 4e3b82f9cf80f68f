"""Arguments that several commands share, and the types of their values."""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, ClassVar

from p2pfl.cli.command import Argument, Option, Options

EXPERIMENT = Argument("a TOML file, or the name of a shipped experiment", "EXPERIMENT")
"""Positional argument that names an experiment."""


def count(text: str) -> int:
    """Read a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 1; give one, for example 4")
    return int(text)


class JsonOptions(Options):
    """Option of commands with machine-readable results."""

    json: Annotated[bool, Option("machine-readable results on standard output")] = False


class OutputOptions(JsonOptions):
    """Options that name the folder of results."""

    runs: Annotated[str, Option("where run directories go", "DIR")] = "runs"


class PageOptions(JsonOptions):
    """Files of results besides their text."""

    html: Annotated[str | None, Option("write a page that needs no other file", "FILE")] = None
    csv: Annotated[str | None, Option("write the table", "FILE")] = None
    tex: Annotated[str | None, Option("write the tables for LaTeX with booktabs", "FILE")] = None
    docx: Annotated[str | None, Option("write the tables for Word", "FILE")] = None


class AccountingOptions(Options):
    """Option of commands that may run outside of the account of the data."""

    unaccounted: Annotated[bool, Option("run although the account of the data refuses it; it is recorded")] = False


class TrustOptions(Options):
    """Option of commands that read what others have written, and run none of its code unasked."""

    trust_code: Annotated[bool, Option("run the code that the experiment or directory names")] = False


class ExperimentOptions(TrustOptions):
    """An experiment, and changes of its keys; nothing that it names is imported without consent."""

    experiment: Annotated[str, EXPERIMENT]
    changes: Annotated[list[str], Option("such as learning.rate=0.05", "KEY=VALUE", flag="--set")]
    peers: int | None = None


class PeersOptions(ExperimentOptions):
    """An experiment, changes of its keys, and its number of peers."""

    peers: Annotated[int | None, Option("instead of topology.peers", "N", count)] = None


class OwnTableOptions(ExperimentOptions):
    """An experiment, and perhaps the one peer whose table is here."""

    one_table: ClassVar[str] = "name the peer whose table is here with --name"

    name: Annotated[str | None, Option("the one peer whose data are here (default: those of all are)", "PEER")] = None

    @property
    def only(self) -> list[str] | None:
        """The one peer whose data are here, in a list; ``None`` if those of all are."""
        return None if self.name is None else [self.name]


class ReviewOptions(OwnTableOptions):
    """An experiment to review."""


class ModelOptions(Options):
    """A saved model."""

    model: Annotated[str, Argument("peers/NAME.safetensors of a run directory", "MODEL")]
    trust_model: Annotated[
        str | None, Option("import this class of your own, if the file names it as its model", "MODULE:CLASS")
    ] = None


def fork_server(options: ExperimentOptions, module: str) -> AbstractContextManager[None]:
    """Start the server that forks the processes of a command; it imports what they need while the command begins.

    Parameters
    ----------
    options
        Arguments of the command. A glance at its experiment shows whether the processes need optimisers.
    module
        Module that imports what every process needs.
    """
    from p2pfl.network.peer.launch import fork_server  # noqa: PLC0415 (most commands fork nothing)

    file = Path(options.experiment or "")
    texts = [*options.changes, file.read_text("utf-8", "replace") if file.is_file() else ""]
    trains = any("optimizer" in text for text in texts)
    return fork_server.run_server(module, *(["p2pfl.network.peer.launch.preload_optimisers"] if trains else []))
