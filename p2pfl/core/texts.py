"""Text from others, such as names in a table or a message of a broker, made safe to show."""

import csv
import unicodedata
from collections.abc import Iterable
from typing import TextIO

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Beginnings of a cell that programs for spreadsheets take for a formula; the last four are full-width forms."""

BREAK_CATEGORIES = {"Cc", "Zl", "Zp"}
"""Categories of the characters that control a terminal or end a line."""


def printable(text: str, *, keep: str = "") -> str:
    r"""Return a text with an escape in place of every character that is invisible or controls how text is shown.

    Parameters
    ----------
    text
        The text.
    keep
        Characters that stay as they are, such as a newline.

    Examples
    --------
    >>> printable("ada" + chr(27) + "[2J"), printable("Zoë\n"), printable("a\nb", keep="\n")
    ('ada\\x1b[2J', 'Zoë\\n', 'a\nb')
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in keep else ascii(each)[1:-1] for each in text)


def breaks(text: str) -> bool:
    """Return whether a text contains a control character or ends a line.

    Examples
    --------
    >>> breaks("blood pressure"), breaks("blood" + chr(10) + "pressure")
    (False, True)
    """
    return not text.isprintable() and any(unicodedata.category(each) in BREAK_CATEGORIES for each in text)


def write_csv(file: TextIO, rows: Iterable[Iterable[object]]) -> None:
    r"""Write rows as CSV in which no text is a formula: one that could be has an apostrophe before it.

    Names of columns, levels and classes come from other owners. Numbers stay numbers, also as texts.

    Parameters
    ----------
    file
        Text file, opened without translation of line ends.
    rows
        The rows, the head first.

    Examples
    --------
    >>> import sys
    >>> write_csv(sys.stdout, [["dose", "=1+1", "-2"], [-1.5, "@a", None]])
    dose,'=1+1,-2
    -1.5,'@a,
    """
    csv.writer(file, lineterminator="\n").writerows(map(_cell, row) for row in rows)


def _cell(value: object) -> object:
    if not isinstance(value, str):
        return value
    value = printable(value, keep="\t\n")  # the csv module leaves a carriage return, which ends a line, unquoted
    if not value.startswith(FORMULA_STARTS):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value
