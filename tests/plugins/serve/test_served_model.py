"""A served model answers as ``p2pfl predict`` writes."""

import csv
import json
import tracemalloc
from datetime import UTC, datetime

import msgspec
import numpy as np
import pytest
import safetensors

from p2pfl.core.errors import InputError
from p2pfl.experiment import read
from p2pfl.plugins.serve.served_model import MAX_ROWS, RequestError, ServedModel
from p2pfl.results.models import ArrayPredictor, Predictor
from p2pfl.results.saved_models import model_file as model_file_of
from p2pfl.simulation import simulate

NOW = datetime(2026, 11, 27, tzinfo=UTC)
ROW = {"age": 63, "sex": "f", "weight": 70_000.5, "ward": "east"}


def rows_of(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_rows_of_json_have_the_predictions_that_the_table_has(trained, served, model_file):
    expected = Predictor.load(model_file).predict(trained / "peer1.csv")
    answer = served.answer(json.dumps(rows_of(trained / "peer1.csv")).encode())
    assert answer["predictions"] == expected.labels
    assert answer["classes"] == ["well", "ill"]
    np.testing.assert_array_equal(answer["probabilities"], expected.values)


def test_numbers_and_nulls_of_json_are_the_cells_of_a_table(served):
    as_text = {"age": "63", "sex": "f", "weight": "", "ward": "east"}
    as_values = {"age": 63.0, "sex": "f", "weight": None, "ward": "east"}
    assert served.answer(json.dumps([as_values]).encode()) == served.answer(json.dumps([as_text]).encode())


def test_a_description_names_round_columns_and_classes_and_no_path(served, trained):
    about = served.describe()
    assert (about["run"], about["peer"], about["round"]) == ("run", "peer0", 3)
    assert about["since"] == "2026-11-27T00:00:00+00:00"
    assert [column["name"] for column in about["columns"]] == ["age", "sex", "ward", "weight"]
    assert about["columns"][1]["levels"] == ["f", "m"]
    assert (about["target"], about["classes"]) == ("outcome", ["well", "ill"])
    assert str(trained) not in json.dumps(about)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"{", "the request is not JSON; send a list of rows"),
        (b"[" * 100_000, "the request is not JSON; send a list of rows"),
        (b'"\xff"', "the request is not JSON; send a list of rows"),
        (b"[]", "the request is not a list of rows; send at least one row"),
        (b"{}", "the request is not a list of rows; send at least one row"),
        (b"[1]", "the request, row 1 is not an object; send a list of objects with a value by column"),
        ([ROW, {"age": 1}], "the request, row 2 has other columns than row 1; send null for a missing cell"),
        ([ROW | {"age": [1]}], 'the request, row 1, column "age" holds several values; send one'),
        ([{"age": 3}], 'the request has no column "sex"'),
        ([ROW | {"sex": "x"}], 'the request, row 1: "x" in column "sex" is none of the levels'),
        ([ROW | {"age": "old"}], 'the request, row 1: "old" in column "age" is no whole number'),
        ([ROW | {"age": None}], 'the request, row 1: "" in column "age" is missing'),
    ],
)
def test_a_row_that_does_not_fit_is_refused_in_one_sentence_without_a_path(served, trained, body, sentence):
    with pytest.raises(RequestError) as refused:
        served.answer(body if isinstance(body, bytes) else json.dumps(body).encode())
    assert sentence in str(refused.value)
    assert refused.value.code == 400
    assert "\n" not in str(refused.value)
    assert str(trained) not in str(refused.value)


def test_more_rows_than_the_limit_are_refused(served):
    with pytest.raises(RequestError, match="more than 10000; send several requests"):
        served.answer(msgspec.json.encode([ROW] * (MAX_ROWS + 1)))


def test_a_model_from_totals_answers_as_predict_does(tmp_path, trained):
    table = {"path": str(trained / "{peer}.csv"), "target": "outcome"}
    columns = {
        "age": "integer",
        "sex": ["f", "m"],
        "weight": {"type": "number", "missing": 80_000},
        "outcome": ["well", "ill"],
    }
    simulate(
        read(
            {
                "name": "totals",
                "topology": {"kind": "complete", "peers": 3},
                "data": {"name": "table", "options": table | {"columns": columns}},
                "model": {"name": "glm"},
                "privacy": {"mode": "none"},
            }
        ),
        folder=tmp_path / "run",
        baselines=False,
    )
    path = tmp_path / "run" / "peers" / "peer0.safetensors"
    served = ServedModel.read(path, path.read_bytes(), now=NOW)
    expected = Predictor.load(path).predict(trained / "peer2.csv")
    rows = json.dumps(rows_of(trained / "peer2.csv")).encode()
    answer = served.answer(rows)
    np.testing.assert_array_equal(answer["probabilities"], expected.values)
    with safetensors.safe_open(path, "pt") as file:
        about, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    tensors["dispersion"].fill_(float("nan"))
    assert ServedModel.read(path, model_file_of(tensors, about), now=NOW).answer(rows) == answer


def test_a_model_of_arrays_takes_nested_lists(tmp_path):
    experiment = {
        "name": "digits",
        "rounds": 1,
        "topology": {"kind": "ring", "peers": 3},
        "data": {"name": "digits"},
        "model": {"name": "linear"},
        "learning": {"device": "cpu"},
    }
    simulate(read(experiment), folder=tmp_path / "run", baselines=False)
    path = tmp_path / "run" / "peers" / "peer1.safetensors"
    served = ServedModel.read(path, path.read_bytes(), now=NOW)
    shape = served.describe()["shape"]
    samples = np.random.default_rng(1).integers(0, 17, (5, *shape))
    expected = ArrayPredictor.load(path).predict(samples)
    assert served.answer(json.dumps(samples.tolist()).encode())["predictions"] == expected.labels
    zeros = np.zeros(shape, int).tolist()
    first = zeros
    while isinstance(first[0], list):
        first = first[0]
    first[0] = True
    assert len(served.answer(json.dumps([zeros]).encode())["predictions"]) == 1
    with pytest.raises(RequestError, match="more than 10000"):
        served.answer(json.dumps([zeros] * (MAX_ROWS + 1), separators=(",", ":")).encode())
    for value in ("a", None, [1]):
        first[0] = value
        with pytest.raises(RequestError, match=r"Expected `bool \| float`, got"):
            served.answer(json.dumps([zeros]).encode())
    for wrong in ([[1], [1, 2]], [[1, 2]], [[]], [[zeros]]):
        with pytest.raises(RequestError, match=r"other samples than the model takes \(Expected .* at `\$"):
            served.answer(json.dumps(wrong).encode())
    for wrong, sentence in ((b"{}", "Expected `array`"), (b"[]", "at least one row"), (b"[", "is not JSON")):
        with pytest.raises(RequestError, match=sentence):
            served.answer(wrong)
    bomb = json.dumps(["x" * 30_000, *[""] * 2_000]).encode()
    tracemalloc.start()
    try:
        with pytest.raises(RequestError, match="got `str`"):
            served.answer(bomb)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("cut", [0, 4, 200, -1])
def test_a_torn_file_is_no_model(model_file, cut):
    with pytest.raises(InputError, match=r"peer0.safetensors is not a safetensors file"):
        ServedModel.read(model_file, model_file.read_bytes()[:cut], now=NOW)


def test_a_file_that_names_a_class_of_others_imports_nothing(model_file):
    data = model_file.read_bytes()
    assert data.count(rb"\"name\": \"linear\"") == 1
    forged = data.replace(rb"\"name\": \"linear\"", rb"\"name\": \"os:abc\"")
    with pytest.raises(InputError, match="whose import runs its code"):
        ServedModel.read(model_file, forged, now=NOW)
