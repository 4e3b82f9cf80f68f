"""Tables of results as files for a paper: LaTeX with booktabs, and Word."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from p2pfl.core.errors import InputError
from p2pfl.core.texts import printable
from p2pfl.results.facts import FactTable, Styled
from p2pfl.results.pages.rendering import portable

if TYPE_CHECKING:
    from docx.document import Document
    from docx.table import Table

RULE, THIN_RULE = 12, 6
"""Widths of the rules above and below a table of Word, and of the one below its heads, in eighths of a point."""


@dataclass(frozen=True)
class Paper:
    """Tables of one result, with a title and notes below the last one.

    Parameters
    ----------
    title
        Title.
    tables
        The tables.
    notes
        Sentences on how to read them.
    """

    title: str
    tables: Sequence[FactTable]
    notes: Sequence[str] = ()

    def tex(self) -> str:
        r"""Return the tables for LaTeX with the package booktabs; title, captions and notes are comments.

        Examples
        --------
        >>> paper = Paper("Births", [FactTable("Coefficients", ("feature", "estimate"), [("age", "0.5")])])
        >>> print(paper.tex().splitlines()[3])
        \begin{tabular}{lr}
        """
        texts = [tabular(table, notes=[table.caption]) for table in self.tables]
        return "\n".join([comments([self.title, *self.notes]), *texts])

    def docx(self) -> bytes:
        """Return the tables as a document of Word, with rules above, below and under the heads alone.

        Raises
        ------
        InputError
            python-docx is not installed.
        """
        try:
            import docx  # noqa: PLC0415 (an extra)
        except ImportError:
            raise InputError(
                'documents of Word need python-docx, which is not installed; run `pip install "p2pfl-mqtt[docx]"`, or '
                "use --html, which Word opens"
            ) from None
        document = docx.Document()
        document.core_properties.author, document.core_properties.title = "p2pfl", _text(self.title)
        document.add_heading(_text(self.title), level=1)
        for table in self.tables:
            _add_table(document, table)
        for note in self.notes:
            _add_note(document, note)
        file = io.BytesIO()
        document.save(file)
        return file.getvalue()


def _text(value: object) -> str:
    return str(portable(value))


def _add_note(document: Document, note: str) -> None:
    from docx.shared import Pt  # noqa: PLC0415 (an extra)

    document.add_paragraph().add_run(_text(note)).font.size = Pt(9)


def _add_table(document: Document, facts: FactTable) -> None:
    """Add a table with its caption above it."""
    from docx.enum.text import WD_ALIGN_PARAGRAPH  # noqa: PLC0415 (an extra)

    caption = document.add_paragraph()
    caption.add_run(_text(facts.caption)).bold = True
    caption.paragraph_format.keep_with_next = True
    rows = [*([facts.heads] if facts.heads else []), *facts.rows]
    table = document.add_table(rows=len(rows), cols=len(rows[0]) if rows else 0)
    for number, row in enumerate(rows):
        for place, value in enumerate(row):
            paragraph = table.cell(number, place).paragraphs[0]
            run = paragraph.add_run(_text(value))
            run.bold = (number == 0 and bool(facts.heads)) or number - bool(facts.heads) in facts.bold
            if place >= facts.text:
                paragraph.alignment = WD_ALIGN_PARAGRAPH.RIGHT
    if rows:
        _rule(table, 0, "top", RULE)
        _rule(table, len(rows) - 1, "bottom", RULE)
        if facts.heads:
            _rule(table, 0, "bottom", THIN_RULE)


def _rule(table: Table, row: int, side: str, width: int) -> None:
    """Draw a rule along a row."""
    from docx.oxml import OxmlElement  # noqa: PLC0415 (an extra)
    from docx.oxml.ns import qn  # noqa: PLC0415 (an extra)

    for cell in table.rows[row].cells:
        properties = cell._tc.get_or_add_tcPr()  # noqa: SLF001 (python-docx has no method for borders)
        borders = properties.find(qn("w:tcBorders"))
        if borders is None:
            borders = OxmlElement("w:tcBorders")
            properties.append(borders)
        border: Any = OxmlElement(f"w:{side}")
        for key, value in (("val", "single"), ("sz", str(width)), ("space", "0"), ("color", "000000")):
            border.set(qn(f"w:{key}"), value)
        borders.append(border)


def tabular(table: FactTable, *, notes: Iterable[str]) -> str:
    """Return a table with comments above it and a rule above its totals."""
    named = " & ".join("$p$" if name == "p" else _tex(name) for name in table.heads) + r" \\"
    heads = [named, r"\midrule"] if table.heads else []
    lines = []
    for number, row in enumerate(table.rows):
        if number == min(table.bold, default=None):
            lines.append(r"\midrule")
        cells = [_tex(str(cell)) if column < table.text else _formula(cell) for column, cell in enumerate(row)]
        lines.append(" & ".join(cells) + r" \\")
    columns = len(table.heads or table.rows[0])
    form = "l" * table.text + "r" * (columns - table.text)
    body = [rf"\begin{{tabular}}{{{form}}}", r"\toprule", *heads, *lines, r"\bottomrule", r"\end{tabular}"]
    return comments(notes) + "\n".join(body) + "\n"


def comments(notes: Iterable[str]) -> str:
    """Return sentences as comments of LaTeX."""
    return "".join(f"% {printable(sentence)}\n" for sentence in notes)


def _formula(cell: object) -> str:
    """Return a number for LaTeX, in bold if it is the best."""
    text = _tex(str(cell)).replace("±", r"\pm")
    bold = isinstance(cell, Styled) and cell.style == "best"
    if not text or any(map(str.isalpha, str(cell))):  # a number of bytes, or an interval
        return text
    return rf"$\mathbf{{{text}}}$" if bold else f"${text}$"


SPECIAL_CHARACTERS = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}
"""Characters that mean something else in LaTeX."""


def _tex(text: str) -> str:
    r"""Return a text for LaTeX.

    Examples
    --------
    >>> print(_tex("gradient_tracking 5%"))
    gradient\_tracking 5\%
    """
    return "".join(SPECIAL_CHARACTERS.get(character, character) for character in printable(text))
