"""An exported model takes raw columns and predicts what ``predict`` predicts."""

import json

import numpy as np
import pytest
import torch

import hospitals
from p2pfl.core.errors import InputError, StorageError
from p2pfl.experiment import read
from p2pfl.results.models import Predictor, export
from p2pfl.results.models.exporters import description
from p2pfl.simulation import simulate

pytestmark = pytest.mark.slow

EXACT = 1e-6


@pytest.fixture(scope="module")
def regression(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scores")
    hospitals.write(folder, target="score")
    table = hospitals.experiment(folder, learning={"device": "cpu", "weighted": False, "rate": 0.1})
    del (columns := dict(hospitals.COLUMNS))["outcome"]
    table["data"]["options"] |= {"target": "score", "columns": columns | {"score": "number"}}
    simulate(read(table), folder=folder / "run", baselines=False)
    return Predictor.load(folder / "run" / "peers" / "peer0.safetensors"), folder


def run_torch(path):
    extra = {"p2pfl.json": ""}
    program = torch.export.load(path, extra_files=extra).module()
    return lambda columns: program(torch.from_numpy(columns)).numpy(), json.loads(extra["p2pfl.json"])


def run_onnx(path):
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(path)
    about = json.loads(session.get_modelmeta().custom_metadata_map["p2pfl"])
    return lambda columns: session.run(["predictions"], {"columns": columns})[0], about


def exported(predictor, folder, to):
    """The function that software without p2pfl makes of an exported file, and the description in it."""
    if to == "onnx":
        pytest.importorskip("onnxscript")
        return run_onnx(export(predictor, folder / "model.onnx", to=to))
    return run_torch(export(predictor, folder / "model.pt2", to=to))


def eight_bits(path):
    """The function of a graph with weights of eight bits, by the recipe of docs/serve.md."""
    quantization = pytest.importorskip("onnxruntime.quantization")
    quantization.quantize_dynamic(path, path.with_name("small.onnx"))
    return run_onnx(path.with_name("small.onnx"))


def raw(path, fields):
    """The columns of a file as the description of an export asks for them, without p2pfl; no cell may be unknown."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(path)
    columns = []
    for field in fields:
        cells = frame[field["name"]]
        if field["levels"] is not None:
            places = {level: float(place) for place, level in enumerate(field["levels"])}
            cells = cells.replace("south", "elsewhere").map(places)
        columns.append(cells.to_numpy(dtype=np.float64))
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("to", ["torch", "onnx"])
def test_an_export_predicts_from_raw_columns_what_predict_predicts(trained, predictor, tmp_path, to):
    predict, about = exported(predictor, tmp_path, to)
    assert about == description(predictor)
    assert (about["classes"], about["target"]) == (["well", "ill"], "outcome")
    for peer in hospitals.PEERS:
        path = trained[0] / f"{peer}.csv"
        columns = raw(path, about["columns"])
        assert np.isnan(columns).any()
        expected = predictor.predict(path).values
        assert predict(columns) == pytest.approx(expected, abs=EXACT)
        assert predict(columns[:1]) == pytest.approx(expected[:1], abs=EXACT)
    if to == "onnx":  # an export takes seconds
        small, said = eight_bits(tmp_path / "model.onnx")
        assert said == about
        assert 0 < np.abs(small(columns) - expected).max() < 0.02


@pytest.mark.parametrize("to", ["torch", "onnx"])
def test_an_exported_regression_predicts_in_the_unit_of_the_target(regression, tmp_path, to):
    if to == "onnx":
        pytest.importorskip("onnxscript")
    predictor, folder = regression
    predict, about = exported(predictor, tmp_path, to)
    assert about["classes"] is None
    expected = predictor.predict(folder / "peer2.csv").values
    largest = np.abs(expected).max()  # the model adds in single precision, in another order
    assert predict(raw(folder / "peer2.csv", about["columns"])) / largest == pytest.approx(
        expected / largest, abs=EXACT
    )


def test_a_cell_that_no_rule_covers_gives_no_prediction(predictor):
    columns = torch.tensor([[61.0, 0, 1, 70_000], [61, 0, 1, torch.nan], [torch.nan, 0, 1, 70_000]]).double()
    columns = torch.cat([columns, torch.tensor([[61.0, 2, 1, 70_000], [61, 0.5, 1, 70_000], [61, 0, 9, 70_000]])])
    found = predictor.module(columns)
    assert found.isfinite().all(1).tolist() == [True, True, False, False, False, True]


def test_a_wrong_format_name_or_place_is_one_sentence(predictor, tmp_path, monkeypatch):
    with pytest.raises(InputError, match='"pickle" is not a format of models; choose from torch, onnx'):
        export(predictor, tmp_path / "model.pkl", to="pickle")
    with pytest.raises(InputError, match=r"model\.onnx is no name for the format torch; end it with \.pt2"):
        export(predictor, tmp_path / "model.onnx", to="torch")
    with pytest.raises(StorageError, match="cannot be written"):
        export(predictor, tmp_path / "none" / "model.pt2", to="torch")
    monkeypatch.setitem(__import__("sys").modules, "onnxscript", None)
    with pytest.raises(InputError, match=r'needs onnx and onnxscript, .* run `pip install "p2pfl-mqtt\[onnx\]"`'):
        export(predictor, tmp_path / "model.onnx", to="onnx")
