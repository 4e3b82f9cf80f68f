"""Arguments that several commands share, and the types of their values."""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager
from pathlib import Path


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


def model(command: argparse.ArgumentParser, *, table: bool = False, arrays: bool = False) -> None:
    """Add a saved model, and perhaps a table."""
    command.add_argument("model", metavar="MODEL", help="peers/NAME.safetensors of a run directory")
    if table:
        more = ", or a .npy file of pictures or tokens" if arrays else ""
        command.add_argument(
            "table", metavar="TABLE", help=f"a CSV or Parquet file with the columns of the training{more}"
        )
    command.add_argument(
        "--trust-model", metavar="MODULE:CLASS", help="import this class of your own, if the file names it as its model"
    )


def count(text: str) -> int:
    """Read a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 1; give one, for example 4")
    return int(text)


def forking(options: argparse.Namespace, module: str) -> AbstractContextManager[None]:
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
    return fork_server.running(module, *(["p2pfl.network.peer.launch.preload_optimisers"] if trains else []))
