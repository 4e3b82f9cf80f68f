"""Tables as files for a paper."""

import io
import sys

import docx
import pytest
from docx.oxml.ns import qn

from p2pfl.core.errors import InputError
from p2pfl.results.facts import FactTable, pairs
from p2pfl.results.table_files import Paper

TABLE = FactTable("Coefficients", ("feature", "estimate", "p"), [("a_b & c", "0.5", "< 0.0001"), ("rest", "", "")])
PAPER = Paper("Births", [TABLE, pairs("Fit", {"samples": "n = 20"})], ["One in five lacks a value."])


def rules(row):
    """Return the sides of a row's first cell that have a rule."""
    borders = row.cells[0]._tc.tcPr.find(qn("w:tcBorders"))
    return [] if borders is None else [side.tag.rpartition("}")[2] for side in borders]


def test_a_document_of_word_has_title_captions_cells_and_notes():
    document = docx.Document(io.BytesIO(PAPER.docx()))
    texts = [paragraph.text for paragraph in document.paragraphs]
    assert texts == ["Births", "Coefficients", "Fit", "One in five lacks a value."]
    first, second = document.tables
    assert [[cell.text for cell in row.cells] for row in first.rows] == [[*TABLE.heads], *map(list, TABLE.rows)]
    assert [[cell.text for cell in row.cells] for row in second.rows] == [["samples", "n = 20"]]
    assert document.core_properties.title == "Births"


def test_a_table_of_word_has_three_rules_and_numbers_to_the_right():
    table = docx.Document(io.BytesIO(PAPER.docx())).tables[0]
    assert [rules(row) for row in table.rows] == [["top", "bottom"], [], ["bottom"]]
    name, *numbers = (cell.paragraphs[0] for cell in table.rows[1].cells)
    assert name.alignment is None
    assert {each.alignment for each in numbers} == {docx.enum.text.WD_ALIGN_PARAGRAPH.RIGHT}
    assert [cell.paragraphs[0].runs[0].bold for cell in table.rows[0].cells] == [True] * 3


def test_characters_that_no_document_takes_are_escaped():
    document = docx.Document(io.BytesIO(Paper("a\x07b", [TABLE]).docx()))
    assert document.paragraphs[0].text == "a\\x07b"


def test_latex_has_no_head_where_the_table_has_none():
    text = PAPER.tex()
    assert text.startswith("% Births\n% One in five lacks a value.\n\n% Coefficients\n\\begin{tabular}{lrr}\n")
    assert r"a\_b \& c & $0.5$ & $< 0.0001$ \\" in text
    assert "\\begin{tabular}{ll}\n\\toprule\nsamples & n = 20 \\\\\n\\bottomrule" in text


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "docx", None)
    with pytest.raises(InputError, match=r"p2pfl-mqtt\[docx\]"):
        PAPER.docx()
