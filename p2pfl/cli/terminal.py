"""Output for people: text from others is shown without the characters that control a terminal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from p2pfl.cli.options import JsonOptions, PageOptions
from p2pfl.core.errors import InputError
from p2pfl.core.files import OWNER_ONLY
from p2pfl.core.texts import printable, write_csv

if TYPE_CHECKING:
    from p2pfl.results.table_files import Paper


class _Console(Console):
    """Console that escapes control characters, whatever they come from: a file, a peer or a broker."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text = segment.text
            yield segment if segment.control or text.isprintable() else segment._replace(text=_printable(text))


def _printable(text: str) -> str:
    return printable(text, keep="\n\u00a0")


WIDE = 200
"""Columns of a wide table where the output is no terminal and the environment names no width."""


def console(*, stderr: bool = False, quiet: bool = False, wide: bool = False) -> Console:
    """Return a console that shows text as it is; in a file or a pipe one for wide tables has 200 columns."""
    made = _Console(highlight=False, markup=False, emoji=False, stderr=stderr, quiet=quiet)
    if wide and not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = WIDE
    return made


@contextmanager
def output(path: str | None) -> Iterator[TextIO]:
    """Open a file that the user has named, or standard output where none is named; only its owner reads a new file.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    if path is None:
        yield sys.stdout
        return
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, OWNER_ONLY)
        with os.fdopen(descriptor, "w", newline="", encoding="utf-8") as file:
            yield file
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}); choose another place") from None


def note(text: str) -> None:
    """Print a line to standard error."""
    print(printable(text), file=sys.stderr)


def write(
    options: PageOptions,
    results: dict[str, Any],
    *,
    rows: Iterable[Iterable[object]],
    page: Callable[[], str],
    paper: Callable[[], Paper],
    show: Callable[[dict[str, Any]], None],
) -> int:
    """Write results to the files that the options name, print them, and return the exit status.

    Parameters
    ----------
    options
        Arguments of the command; ``csv``, ``html``, ``tex`` and ``docx`` are paths or ``None``, and ``json`` is true
        for JSON.
    results
        Results as JSON values.
    rows
        Rows of the CSV file, its head first.
    page
        Function that returns the HTML file.
    paper
        Function that returns the tables of a paper.
    show
        Function that prints the results as text.

    Raises
    ------
    InputError
        A file cannot be written, or python-docx is not installed.
    """
    if options.csv:
        with output(options.csv) as file:
            write_csv(file, rows)
    if options.html:
        with output(options.html) as file:
            file.write(page())
    write_paper(options, paper)
    return answer(options, results, show)


def write_paper(options: PageOptions, paper: Callable[[], Paper]) -> None:
    """Write the tables of a paper to the files that the options name.

    Parameters
    ----------
    options
        Arguments of the command; ``tex`` and ``docx`` are paths or ``None``.
    paper
        Function that returns the tables.

    Raises
    ------
    InputError
        A file cannot be written, or python-docx is not installed.
    """
    if options.tex:
        with output(options.tex) as file:
            file.write(paper().tex())
    if options.docx:
        document = paper().docx()
        with output(options.docx) as file:
            file.buffer.write(document)


def answer(options: JsonOptions, results: dict[str, Any], show: Callable[[dict[str, Any]], None]) -> int:
    """Print results as JSON or as text, as the options say, and return the exit status."""
    if options.json:
        print(json.dumps(results, allow_nan=False))
    else:
        show(results)
    return 0
