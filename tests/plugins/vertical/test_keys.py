"""Keys of people: untidy cells of several owners become equal values, and what cannot be a key is refused."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.core.errors import DataError
from p2pfl.data.tables.cells import TextCells
from p2pfl.data.tables.file_format import FileFormat
from p2pfl.plugins.vertical.keys import identify_rows, plain_text, read_keys


def table(*, dates="%Y-%m-%d", **columns):
    rows = len(next(iter(columns.values())))
    functions = {name: lambda cells=cells: list(cells) for name, cells in columns.items()}
    return TextCells("ada.csv", functions, rows=rows, format=FileFormat(dates=dates))


def values(cells, *keys):
    return identify_rows(cells, read_keys(keys))[0]


def test_each_rule_makes_the_spellings_of_one_value_equal():
    spellings = {
        "text": ["Müller-Lüdenscheidt", "MULLER LUDENSCHEIDT", "müller lüdenscheidt"],
        "digits": ["0485-777 3456", "485 777 3456", "4857773456"],
        "first:3": ["Östergård", "oste", "OSTERGARD"],
        "date": ["1970-01-31", "31.01.1970", "31/1/70"],
    }
    forms = "%Y-%m-%d | %d.%m.%Y|%d/%m/%y"
    for rule, cells in spellings.items():
        alike = [values(table(x=[cell, "0"], dates=forms), [f"x:{rule}"])[0][0] for cell in cells]
        assert len({*alike}) == 1, rule
        assert alike[0]
    assert values(table(x=["1970-01-31"]), ["x:date"]) == (("19700131",),)
    assert values(table(x=["00", "-", "7"]), ["x:digits"]) == (("0", None, "7"),)
    assert values(table(x=["Ab 1", "ab1"]), ["x:exact"]) == (("Ab 1", "ab1"),)


@given(st.text(max_size=12))
def test_accents_and_case_never_change_a_text(text):
    decomposed = unicodedata.normalize("NFD", text)
    assert plain_text(text) == plain_text(decomposed) == plain_text(plain_text(text))


def test_a_missing_part_or_a_repeated_value_drops_the_key_for_its_rows_and_no_other():
    cells = table(
        nhs=["1", "2", "2", "", "5", "NA"],
        name=["a", "b", "c", "d", "?", "f"],
        born=["1970-01-01"] * 5 + ["no date"],
    )
    by_id, by_name = values(cells, ["nhs:digits"], ["name:text", "born:date"])
    assert by_id == ("1", None, None, None, "5", None)
    assert by_name == (*(f"{each}\x1f19700101" for each in "abcd"), None, None)


def test_the_owner_reads_how_many_rows_a_key_misses():
    cells = table(nhs=["1", "2", "2", ""], name=["a", "b", "c", "d"])
    _, notes = identify_rows(cells, read_keys([["nhs:digits"], ["name:text"]]))
    assert len(notes) == 1
    assert notes[0].startswith('of 4 rows, 1 lack a part of the key "nhs:digits" and 2 share its value with another')


def test_parts_keep_apart_what_they_join():
    cells = table(one=["ab", "a"], other=["c", "bc"])
    assert len({*values(cells, ["one:text", "other:text"])[0]}) == 2


def test_one_repeated_row_in_a_hundred_is_dropped_and_more_end_with_a_sentence():
    ids = [str(number) for number in range(1, 201)]
    assert values(table(nhs=["2", *ids[1:]]), ["nhs:digits"])[0][:3] == (None, None, "3")
    with pytest.raises(DataError, match=r'^3 of 200 rows of ada.csv repeat a value of "nhs", the last key; aggregate'):
        values(table(nhs=["3", "3", *ids[2:]]), ["nhs:digits"])
    with pytest.raises(
        DataError, match=r'repeat a value of "nhs" and "sex", the last key; .* or add a part to the key$'
    ):
        values(table(nhs=["1"] * 200, sex=["f"] * 200), ["nhs:digits", "sex:text"])


@pytest.mark.parametrize(
    ("cells", "keys", "sentence"),
    [
        ({"nhs": ["4857773456.0", "17"]}, [["nhs:digits"]], r'line|row 1: "4857773456.0" in column "nhs" is a decimal'),
        (
            {"nhs": ["4.85777e+09", "1e3"]},
            [["nhs:exact"]],
            r"decimal number \(and in 1 more rows\), .* save the column",
        ),
        (
            {"nhs": ["1"]},
            [["nhs_no:digits"]],
            r'has no column "nhs_no", which the agreed keys name; did you mean "nhs"',
        ),
        ({"born": ["31.1.1970"]}, [["born:date"]], r'all other cells in column "born" of ada.csv are no dates'),
        ({"nhs": ["", "NA"]}, [["nhs:digits"]], r"has no row with a value of a key"),
    ],
)
def test_a_column_that_cannot_be_a_key_is_refused_in_a_sentence(cells, keys, sentence):
    with pytest.raises(DataError, match=sentence):
        values(table(**cells), *keys)


@pytest.mark.parametrize(
    "declared",
    [
        [],
        "nhs",
        [[]],
        ["nhs:digits"],
        [["nhs"]],
        [["nhs:number"]],
        [["x:first:0"]],
        [[7]],
        [["a:text"], ["a:text"]],
        [[f"x{number}:text"] for number in range(9)],
    ],
)
def test_a_declaration_that_is_none_is_refused(declared):
    with pytest.raises(DataError, match="`keys`"):
        read_keys(declared)


def test_a_column_may_have_a_colon_in_its_name():
    assert read_keys([["id:nhs:digits"]])[0].columns == ("id:nhs",)
