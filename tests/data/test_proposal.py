"""Proposals of `p2pfl columns`: codes as levels, and columns that are no features by name."""

import pytest

from p2pfl.core.errors import DataError
from p2pfl.data import Table
from p2pfl.data.tables import propose, read

ROWS = 120
COLUMNS = {
    "patid": lambda row: f"H{row:04}",
    "number": lambda row: 4000 + row,
    "visit": lambda row: f"{1 + row % 28:02}.{1 + row % 12:02}.2020",
    "note": lambda row: f"came in at {row} with pain in the left arm",
    "ward": lambda row: ["east", "west"][row % 2],
    "unit": lambda row: "mmol" if row >= 0 else "",
    "cp": lambda row: 1 + row % 4,
    "sex": lambda row: row % 2,
    "age": lambda row: 30 + row % 40,
    "chol": lambda row: -9 if row % 10 == 0 else 180 + row % 60,
    "thal": lambda row: [-9, 3, 6, 7][row % 4],
    "ill": lambda row: row % 3 == 0,
}


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "north.csv"
    lines = [",".join(COLUMNS)] + [",".join(str(cell(row)) for cell in COLUMNS.values()) for row in range(ROWS)]
    path.write_text("\n".join(lines))
    return path


def remarks_of(remarks, name):
    return [remark for remark in remarks if remark.startswith(f'"{name}"')]


def test_whole_numbers_of_few_values_are_levels_and_two_stay_a_number(table):
    columns, remarks = propose(read(table), target="ill")
    assert (columns["cp"], columns["sex"], columns["age"]) == (["1", "2", "3", "4"], "integer", "integer")
    [remark] = remarks_of(remarks, "cp")
    assert remark == (
        '"cp" has 4 different whole numbers, which are declared as levels; declare "integer" if they are amounts'
    )


def test_a_number_that_stands_for_a_missing_value_is_declared_so(table):
    columns, remarks = propose(read(table), target="ill")
    assert columns["chol"] == {"type": "integer", "missing_codes": [-9]}
    assert columns["thal"] == {"levels": ["3", "6", "7"], "missing_codes": [-9]}
    assert remarks_of(remarks, "chol") == [
        (
            '"chol" is -9 in 12 of 120 rows, which usually stands for a missing value; leave `missing_codes` out if it '
            "is a number"
        ),
        '"chol" is missing in 12 of 120 rows; declare `missing`, such as "drop", or fill these cells',
    ]
    used = {"chol": columns["chol"] | {"missing": "drop"}, "ill": columns["ill"]}
    assert Table(used, target="ill").read(table)[0].min() == 181


def test_dates_free_text_constants_and_identifiers_are_named_and_left_out(table):
    columns, remarks = propose(read(table), target="ill")
    assert not {"patid", "number", "visit", "note", "unit"} & {*columns}
    assert columns["ward"] == ["east", "west"]
    left_out = {name: remarks_of(remarks, name)[0] for name in ("patid", "number", "visit", "note", "unit")}
    assert left_out == {
        "patid": '"patid" looks like an identifier and is left out; name it as `key` if it identifies persons',
        "number": '"number" looks like an identifier and is left out; name it as `key` if it identifies persons',
        "visit": (
            '"visit" has dates and is left out; if it is a feature, declare it as '
            '{ type = "date", since = "2000-01-01" }, and write dates = "%d.%m.%Y" to north.csv.toml beside it'
        ),
        "note": '"note" has free text and is left out; do not declare it',
        "unit": '"unit" has the same value in all rows and is left out; declare it if others have another',
    }


def test_an_identifier_that_a_few_rows_repeat_is_one(tmp_path):
    rows = "\n".join(f"P{max(row, 2):04},{row},{row % 2}" for row in range(60))
    (tmp_path / "p.csv").write_text(f"patid,age,ill\n{rows}")
    columns, remarks = propose(read(tmp_path / "p.csv"), target="ill")
    assert "patid" not in columns
    assert remarks_of(remarks, "patid")[0].endswith("name it as `key` if it identifies persons")


def test_dates_in_iso_8601_need_no_file(tmp_path):
    days = "\n".join(f"2020-01-{1 + row % 28:02},{row % 2}" for row in range(60))
    (tmp_path / "p.csv").write_text(f"visit,ill\n{days}")
    [remark] = propose(read(tmp_path / "p.csv"), target="ill")[1]
    assert remark.endswith('declare it as { type = "date", since = "2000-01-01" }')


def test_no_remark_shows_the_value_of_a_person(table):
    text = " ".join(propose(read(table), target="ill")[1])
    assert not [value for value in ("H0001", "4001", "pain", "01.01.2020", "mmol") if value in text]


def test_hospitals_with_semicolons_and_codes_are_recognised(data_dir):
    cases = data_dir.parent / "cases" / "hospital"
    if not cases.is_dir():
        pytest.skip("no folder with cases beside the data sets")
    with pytest.raises(
        DataError, match=r'is separated by semicolons; write separator = ";" and decimal = "," to hungarian.*\.toml'
    ):
        read(cases / "semicolon" / "hungarian-utf8-bom-semicolon.csv")
    columns, _ = propose(read(cases / "minus9" / "hungarian.csv"), target="num")
    assert columns["chol"] == {"type": "integer", "missing_codes": [-9]}
