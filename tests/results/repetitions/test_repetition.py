"""A repetition is compared to the bit, and says what differs and by how much."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file

from p2pfl.results import Run
from p2pfl.results.repetitions.repetition import repetition
from p2pfl.results.saved_models import model_file
from p2pfl.simulation import simulate

TABLE = {"rounds": 2, "topology": {"peers": 3}, "data": {"name": "wine"}}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    for name in ("one", "other"):
        simulate(TABLE, folder=place / name, baselines=False)
    return place


def compared(folders, copy=None):
    return repetition(Run.load(folders / "one"), Run.load(copy or folders / "other"))


def test_two_runs_of_one_file_have_the_same_bytes_of_models_and_compare_as_equal(folders):
    for name in ("peer0", "peer1", "peer2"):
        one, other = ((folders / run / "peers" / f"{name}.safetensors").read_bytes() for run in ("one", "other"))
        assert one == other
    found = compared(folders)
    assert found.same
    assert (found.files, found.compared) == (3, 6)
    assert (found.models, found.records, found.results, found.versions) == ((), (), (), {})
    assert (found.data, found.code) == (True, None)


def test_one_bit_of_one_parameter_is_a_difference(folders, tmp_path):
    copy = shutil.copytree(folders / "other", tmp_path / "copy")
    path = copy / "peers" / "peer1.safetensors"
    tensors = load_file(path)
    name = next(iter(tensors))
    tensors[name] = tensors[name].clone()
    first = tensors[name].view(-1)[0]
    tensors[name].view(-1)[0] = torch.nextafter(first, torch.tensor(torch.inf))
    path.write_bytes(model_file(tensors, {"peer": "peer1"}))
    found = compared(folders, copy)
    assert not found.same
    [difference] = found.models
    assert (difference.what, difference.count) == ("peer1.safetensors", 1)
    assert 0 < difference.largest < 1e-6


def test_other_metadata_alone_are_no_difference(folders, tmp_path):
    copy = shutil.copytree(folders / "other", tmp_path / "copy")
    path = copy / "peers" / "peer1.safetensors"
    path.write_bytes(model_file(load_file(path), {"peer": "somebody"}))
    assert compared(folders, copy).same


def test_a_missing_model_and_a_changed_or_missing_record_are_differences(folders, tmp_path):
    copy = shutil.copytree(folders / "other", tmp_path / "copy")
    (copy / "peers" / "peer0.safetensors").unlink()
    lines = (copy / "metrics.jsonl").read_text().splitlines(keepends=True)
    record = json.loads(lines[0])
    record["scores"]["accuracy"] += 0.25
    record["seconds_training"] = 1e6
    (copy / "metrics.jsonl").write_text(json.dumps(record) + "\n" + "".join(lines[1:-1]))
    found = compared(folders, copy)
    assert [each.what for each in found.models] == ["peer0.safetensors"]
    differences = {each.what: each for each in found.records}
    assert differences["accuracy"].count == 2  # a changed one, and a missing one
    assert differences["loss"].count == 1


def test_results_versions_and_data_are_compared(folders, tmp_path):
    copy = shutil.copytree(folders / "other", tmp_path / "copy")
    for name, change in (
        ("summary.json", lambda table: table["per_peer"]["peer2"].update(together=0.0)),
        ("provenance.json", lambda table: table["versions"].update(torch="1.0")),
        ("data.json", lambda table: table["peers"]["peer0"].update(train="0")),
    ):
        table = json.loads((copy / name).read_text())
        change(table)
        (copy / name).write_text(json.dumps(table))
    found = compared(folders, copy)
    assert [each.what for each in found.results] == ["peer2 together"]
    assert found.versions["torch"] == (str(torch.__version__), "1.0")
    assert found.data is False
    (folders / "one" / "data.json").rename(tmp_path / "data.json")
    try:
        assert compared(folders).data is None
    finally:
        (tmp_path / "data.json").rename(folders / "one" / "data.json")
