"""Text from others, made safe to show and to open in other programs."""

import csv
import io
import re
from pathlib import Path

import msgspec
import numpy as np
import pytest

from p2pfl.core.errors import ExperimentError
from p2pfl.core.texts import write_csv
from p2pfl.experiment import read
from p2pfl.network.protocol.wire.bounds import Name
from p2pfl.results.comparisons.exports import records_csv
from p2pfl.results.models.predictor import Predictions
from p2pfl.results.records import Record

SOURCES = sorted((Path(__file__).parents[2] / "p2pfl").rglob("*.py"))

FORMULAS = ["=1+1", "=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\n=1", "\uff1d1"]


RECORD = {
    "schema": 1,
    "peer": "ada",
    "round": 0,
    **dict.fromkeys(["training_loss", "distance", "update", "seconds_training", "seconds_waiting"], 0.5),
    **dict.fromkeys(["bytes_out", "bytes_in", "received"], 1),
    "missed": [],
}


def cells(text):
    return [*csv.reader(io.StringIO(text, newline=""))]


@pytest.mark.parametrize("formula", FORMULAS)
def test_no_text_in_a_csv_file_is_a_formula(formula):
    file = io.StringIO(newline="")
    write_csv(file, [["name", formula], [formula, 2]])
    assert cells(file.getvalue()) == [["name", f"'{formula}"], [f"'{formula}", "2"]]


def test_a_carriage_return_in_a_name_begins_no_line():
    file = io.StringIO(newline="")
    write_csv(file, [["a\r=1+1", "b"]])
    assert cells(file.getvalue()) == [[r"a\r=1+1", "b"]]


def test_numbers_and_other_texts_stay_as_they_are():
    file = io.StringIO(newline="")
    write_csv(file, [["a=b", "-1.5", "+2", "-inf", "", "ada@home"], [-1.5, 2, None, True, float("-inf"), "x"]])
    assert cells(file.getvalue()) == [
        ["a=b", "-1.5", "+2", "-inf", "", "ada@home"],
        ["-1.5", "2", "", "True", "-inf", "x"],
    ]


def test_predictions_and_records_with_names_of_others_are_no_formulas():
    file = io.StringIO(newline="")
    Predictions(np.array([[0.25, 0.75]]), ("no", "=1+1")).write(file)
    assert cells(file.getvalue())[1:] == [["'=1+1", "0.25", "0.75"]]
    record = msgspec.convert({**RECORD, "scores": {"=1+1": 0.5}}, Record)
    assert "'=1+1" in cells(records_csv([record]))[0]


def test_every_csv_file_is_written_by_one_function():
    assert [path.name for path in SOURCES if re.search(r"csv\.(Dict)?[wW]riter|to_csv", path.read_text("utf-8"))] == [
        "texts.py"
    ]


def test_no_pattern_that_validates_lets_a_line_end_pass():
    """In Python, ``$`` matches before a newline at the end, too."""
    ends = [
        (path.name, each)
        for path in SOURCES
        for each in re.findall(r"pattern=r?\"([^\"]*)\"", path.read_text("utf-8"))
        if not each.endswith(r"\Z")
    ]
    assert ends == []


def test_a_name_with_a_line_end_is_refused_on_the_wire_and_in_a_file():
    assert msgspec.convert("ada", Name) == "ada"
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert("ada\n", Name)
    with pytest.raises(ExperimentError, match="set it to text that matches"):
        read({"name": "ward\n"})
