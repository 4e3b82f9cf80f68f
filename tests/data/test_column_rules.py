"""Rules of columns for cells that are missing, out of range or dates, and keys of persons."""

import numpy as np
import pytest

from p2pfl.core.errors import DataError
from p2pfl.data import Table, federate, gather
from p2pfl.data.tables import read
from p2pfl.data.tables.encoding import code_cells

ROWS = """\
patid,age,chol,stage,ill
a,31,230,1,1
b,-9,180,2,0
a,44,-9,9,0
c,52,700,1,1
"""


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "north.csv"
    path.write_text(ROWS)
    return path


def declared(**columns):
    return {"age": {"type": "integer", "missing_codes": [-9], "missing": 40}, "ill": [0, 1]} | columns


def features(table, name, rule):
    """Return the features of a column under a rule."""
    return Table({name: rule, "ill": [0, 1]}, target="ill").read(table)[0]


def test_a_code_of_a_column_is_a_missing_cell(table):
    assert features(table, "age", {"type": "integer", "missing_codes": [-9], "missing": 40}).tolist() == [
        [31],
        [40],
        [44],
        [52],
    ]
    stage = features(table, "stage", {"levels": [1, 2], "missing_codes": [9], "missing": 2})
    assert stage.argmax(1).tolist() == [0, 1, 1, 0]


def test_a_code_with_a_decimal_point_is_the_code(table):
    table.write_text(ROWS.replace("-9,180", "-9.0,180"))
    assert features(table, "age", {"type": "number", "missing_codes": [-9.0], "missing": 40})[1] == 40


def test_without_a_rule_a_code_is_an_error_that_names_the_cell(table):
    with pytest.raises(DataError, match=r'line 3: "-9" in column "age" is missing; fill the cell, or have all peers'):
        features(table, "age", {"type": "number", "missing_codes": ["-9"]})


def test_a_number_out_of_range_is_an_error_or_missing(table):
    rule = {"type": "number", "missing_codes": [-9], "missing": float("nan"), "range": [0, 600]}
    with pytest.raises(DataError, match=r'line 5: "700" in column "chol" is not from 0 to 600; correct the cell, or'):
        features(table, "chol", rule)
    chol = features(table, "chol", rule | {"outside": "missing"})
    assert np.array_equal(chol.ravel(), [230, 180, np.nan, np.nan], equal_nan=True)


def test_what_replaces_a_missing_cell_may_be_out_of_range(table):
    rule = {"type": "number", "missing_codes": [-9], "missing": -1, "range": [0, 700]}
    assert features(table, "chol", rule).ravel().tolist() == [230, 180, -1, 700]


def test_incomplete_rows_are_left_out_and_counted_for_their_owner(table):
    number = {"type": "number", "missing_codes": [-9], "missing": "drop"}
    columns = declared(age=number, chol=number | {"range": [0, 600], "outside": "missing"})
    samples = Table(columns, target="ill").load(table)
    assert (samples.features.tolist(), samples.targets.tolist()) == ([[31, 230]], [1])
    assert samples.notes == ('3 of 4 rows are left out, because cells are missing: "age" in 1, "chol" in 2',)


def test_levels_and_targets_leave_rows_out_too(table):
    columns = {"stage": {"levels": [1, 2], "missing_codes": [9], "missing": "drop"}, "age": "integer"}
    columns["chol"] = {"type": "number", "range": [0, 600], "outside": "missing", "missing": "drop"}
    features, targets = Table(columns, target="chol").read(table)
    assert (features[:, 0].tolist(), targets.tolist()) == ([31, -9], [230, 180])


def test_an_error_in_a_row_that_stays_names_its_own_line(table):
    number = {"type": "number", "missing_codes": [-9], "missing": "drop"}
    with pytest.raises(DataError, match=r'line 5: "700" in column "chol" is not from 0 to 600'):
        Table(declared(age=number, chol=number | {"range": [0, 600]}), target="ill").read(table)


def test_a_table_without_a_complete_row_is_refused(table):
    rule = {"type": "number", "range": [90, 99], "outside": "missing", "missing": "drop"}
    with pytest.raises(DataError, match=r"north\.csv has no complete row; replace missing cells of a"):
        features(table, "age", rule)


def test_a_model_that_takes_complete_rows_predicts_no_other(table):
    table_ = Table(declared(age={"type": "number", "missing_codes": [-9], "missing": "drop"}), target="ill")
    with pytest.raises(DataError, match=r'line 3: "-9" in column "age" is missing; fill the cell, or remove the row'):
        code_cells(read(table), table_.fields)


def test_a_date_is_the_number_of_days_since_another(tmp_path):
    (tmp_path / "p.csv").write_text("visit,ill\n2020-03-01,0\n2019-12-31,1\n2020-01-01 12:00:00,1\n")
    days = features(tmp_path / "p.csv", "visit", {"type": "date", "since": "2020-01-01"})
    assert days.ravel().tolist() == [60, -1, 0.5]


def test_dates_of_a_data_frame_are_those_of_its_file():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"visit": pandas.to_datetime(["2020-03-01", "2019-12-31"]), "ill": [0, 1]})
    rule = {"type": "date", "since": "2020-01-01"}
    assert features(frame, "visit", rule).ravel().tolist() == [60, -1]


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        (
            {"type": "number", "missing_codes": -9},
            r"has the missing_codes -9; write a list of numbers or",
        ),
        ({"type": "number", "range": [600, 0]}, r"has the range \[600, 0\]; write the lowest and the highest number"),
        (
            {"type": "number", "outside": "missing"},
            r"has outside = 'missing'; write outside = \"missing\" with",
        ),
        ({"type": "number", "range": [0, 1], "outside": "drop"}, r"has outside = 'drop'; write outside = \"missing\""),
        ("date", r'needs both the type "date" and `since`; write \{ type = "date", since = "2000-01-01" \}'),
        ({"type": "number", "since": "2000-01-01"}, r'needs both the type "date" and `since`'),
        ({"type": "date", "since": "1.1.2000"}, r"has since = '1\.1\.2000'; write a date such as \"2000-01-01\""),
        ({"levels": ["a", "b"], "range": [0, 1]}, r"has levels and a range; leave it out"),
        (
            {"levels": ["a", "drop"], "missing": "drop"},
            r'has the level "drop", which is a rule for missing cells;',
        ),
    ],
)
def test_a_rule_that_contradicts_itself_is_one_sentence(rule, sentence):
    with pytest.raises(DataError, match=sentence):
        Table(declared(age=rule), target="ill")


def test_rows_that_repeat_a_key_are_counted_for_their_owner(table):
    options = {"path": str(table.with_name("{peer}.csv")), "target": "ill", "columns": declared(), "key": "patid"}
    table.with_name("south.csv").write_text(ROWS.replace("\na,44", "\n,44"))
    data = federate("table", peers=["north", "south"], seed=0, options=options)
    assert data.notes == {
        "north": ('1 of 4 rows repeats a value of the key "patid"; keep one row of each person',),
        "south": ('"patid" is missing in 1 of 4 rows',),
    }
    alone = federate("table", peers=["north", "south"], seed=0, options=options, only=["south"])
    assert {*alone.notes} == {"south"}


def test_keys_are_kept_for_a_comparison_only_where_all_ask_for_it(table):
    declaration = {"columns": declared(), "target": "ill", "key": "patid"}
    assert Table(**declaration).load(table).keys is None
    assert Table(**declaration, key_across=True).load(table).keys == ("a", "b", "a", "c")
    with pytest.raises(DataError, match=r'the option "key_across" is True; set it to true beside a `key`'):
        Table(declared(), target="ill", key_across=True)


def test_a_key_is_no_feature(table):
    with pytest.raises(DataError, match=r"the option \"key\" is 'age'; name a column that is not declared"):
        Table(declared(), target="ill", key="age")
    with pytest.raises(DataError, match=r'north\.csv has no column "patient"; did you mean "patid"'):
        gather({"north": table}, seed=0, table=Table(declared(), target="ill", key="patient"))
