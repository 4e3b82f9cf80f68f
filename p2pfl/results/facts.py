"""Facts of a report, apart from how a page, a terminal or a paper shows them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self


class Styled(str):
    """Text of a cell with a style: ``good``, ``bad``, ``best`` or ``code``, or that of a shaded cell."""

    __slots__ = ("style",)
    style: str

    def __new__(cls, text: str, style: str) -> Self:
        """Return the text with its style."""
        made = super().__new__(cls, text)
        made.style = style
        return made


@dataclass(frozen=True)
class FactTable:
    """A table.

    Attributes
    ----------
    caption
        What it shows.
    heads
        Names of the columns; none where each row is a name and a value.
    rows
        Cells; the first of a row names it.
    text
        Number of the first columns that are text; the others are numbers.
    bold
        Places of the rows that are printed in bold.
    """

    kind: ClassVar = "table"
    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[object]]
    text: int = 1
    bold: Collection[int] = ()

    def dense(self) -> FactTable:
        """Return the table without columns that are empty."""
        return self._select(
            column for column in range(len(self.heads)) if any(row[column] not in {"", None} for row in self.rows)
        )

    def without(self, *heads: str) -> FactTable:
        """Return the table without some columns of numbers."""
        return self._select(column for column, head in enumerate(self.heads) if head not in heads)

    def _select(self, columns: Iterable[int]) -> FactTable:
        kept = [*columns]
        rows = [[row[column] for column in kept] for row in self.rows]
        return replace(self, heads=[self.heads[column] for column in kept], rows=rows)

    def lines(self) -> Iterator[str]:
        """Yield the table as text whose numbers are aligned to the right; a column without a head is text."""
        rows = [*([[*self.heads]] if self.heads else []), *([str(cell) for cell in row] for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        words = [column < self.text or not head for column, head in enumerate(self.heads or rows[0])]
        for row in rows:
            cells = zip(row, widths, words, strict=True)
            yield "  ".join(cell.ljust(width) if word else cell.rjust(width) for cell, width, word in cells).rstrip()


def pairs(caption: str, facts: Mapping[str, object]) -> FactTable:
    """Return facts by name as a table without heads."""
    return FactTable(caption, (), [*facts.items()], text=2)


def shorten(rows: Iterable[Sequence[object]], most: int, *, rest: str = "") -> list[Sequence[object]]:
    """Return the first rows, and one that counts the others.

    Examples
    --------
    >>> shorten([["ada", 1], ["bob", 2], ["cy", 3]], 1, rest=", in summary.json")
    [['ada', 1], ['and 2 more, in summary.json', '']]
    """
    table = [*rows]
    more = [[f"and {len(table) - most} more{rest}", *[""] * (len(table[0]) - 1)]] if len(table) > most else []
    return [*table[:most], *more]


@dataclass(frozen=True)
class Note:
    """A paragraph in a box, which may begin with a word in bold, or one of another style.

    Attributes
    ----------
    text
        Its text.
    style
        ``small``, ``code``, ``strong``, ``verdict``, ``alarm``, ``warning`` or, for lines to sign, ``signature``.
    lead
        First words, in bold.
    """

    kind: ClassVar = "note"
    text: str
    style: str = ""
    lead: str = ""


@dataclass(frozen=True)
class Happening:
    """A line of a list of events.

    Attributes
    ----------
    text
        The event in words.
    peer
        Peer that it concerns.
    time
        Time of the event, for people and in ISO 8601.
    style
        ``good``, ``warn`` or ``bad``.
    """

    text: str
    peer: str = ""
    time: tuple[str, str] | None = None
    style: str = ""


@dataclass(frozen=True)
class Bullets:
    """A list of sentences or events."""

    kind: ClassVar = "bullets"
    items: Sequence[Happening]


@dataclass(frozen=True)
class Figure:
    """A figure, which is drawn where matplotlib is installed.

    Attributes
    ----------
    title, description
        Title, and description of what can be seen, for readers who do not see it.
    draw
        Function that returns a figure of matplotlib.
    style
        ``wide`` for a figure that takes the width of the page.
    note
        Sentence below it.
    """

    kind: ClassVar = "figure"
    title: str
    description: str
    draw: Callable[[], Any]
    style: str = ""
    note: str = ""


@dataclass(frozen=True)
class BlockGroup:
    """Blocks that belong together.

    Attributes
    ----------
    blocks
        The blocks; ``None`` is nothing.
    style
        ``beside`` and ``figures`` stand side by side where there is room; ``details`` are shown on demand.
    heading
        Heading of details.
    """

    kind: ClassVar = "group"
    blocks: Sequence[Block | None]
    style: str
    heading: str = ""


Block = str | FactTable | Note | Bullets | Figure | BlockGroup
"""Part of a report; a text is a paragraph."""

Section = tuple[str, str, Sequence[Block | None]]
"""Name, heading and blocks of a section of a page; ``None`` is nothing."""
