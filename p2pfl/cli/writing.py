"""Results of a command as CSV, HTML, JSON or text, as its options ask."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from typing import Any

from p2pfl.cli import terminal
from p2pfl.core.texts import write_csv


def write(
    options: argparse.Namespace,
    results: dict[str, Any],
    *,
    rows: Iterable[Iterable[object]],
    page: Callable[[], str],
    show: Callable[[dict[str, Any]], None],
) -> int:
    """Write results to the files that the options name, print them, and return the exit status.

    Parameters
    ----------
    options
        Arguments of the command; ``csv`` and ``html`` are paths or ``None``, and ``json`` is true for JSON.
    results
        Results as JSON values.
    rows
        Rows of the CSV file, its head first.
    page
        Function that returns the HTML file.
    show
        Function that prints the results as text.

    Raises
    ------
    InputError
        A file cannot be written.
    """
    if options.csv:
        with terminal.output(options.csv) as file:
            write_csv(file, rows)
    if options.html:
        with terminal.output(options.html) as file:
            file.write(page())
    if options.json:
        print(json.dumps(results, allow_nan=False))
    else:
        show(results)
    return 0
