"""What of the folder of an experiment goes into bundles: code, graphs, weights and models, and nothing else."""

import json
import re
import sys
import typing
from pathlib import Path

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file

from fleets import NOW
from p2pfl.cli import main
from p2pfl.core.errors import ExperimentError, InputError
from p2pfl.experiment import read
from p2pfl.experiment.file.reading import PATHS
from p2pfl.experiment.schema import Experiment
from p2pfl.plugins.operate.bundles.bundle_files import (
    CODE_KEYS,
    MODEL_KEYS,
    OPTION_KEYS,
    NeighbouringFiles,
    refuse_others,
)
from p2pfl.plugins.operate.bundles.fleet import Fleet

WHEEL = "p2pfl_mqtt-0.3.0-py3-none-any.whl"

EXPERIMENT = """
name = "ward"
rounds = 2
[topology]
kind = "graph.edges"
[data]
name = "ward_code:load"
[data.options]
path = "ada.csv"
table = "patients.csv"
parts = ["ward-a.csv", "more/ward-b.csv"]
folder = "wards"
pattern = "wards/*.csv"
nested = { deep = ["deep.csv"] }
[model]
name = "models.net:Net"
pretrained = "start.safetensors"
[model.options]
vocabulary = "words.txt"
[learning]
algorithm = "ward_code:Algorithm"
loss = "losses:mine"
[learning.metrics]
recall = "scores:recall"
[privacy]
mode = "ward_code:Mode"
[telemetry]
share = "health"
observers = "seen.toml"
"""

OWN = """
from p2pfl.experiment.modes import NoPrivacy
def load(peer):
    return open("secret.csv")
class Mode(NoPrivacy):
    pass
"""

PRIVATE = (
    *("ada.csv", "patients.csv", "ward-a.csv", "more/ward-b.csv", "wards/1.csv", "wards/2.csv", "deep.csv"),
    *("secret.csv", "words.txt", "seen.toml", "ada.csv.budget.jsonl", "unused.py", "keys/ada.pem"),
)
MODULES = ("ward_code.py", "models/__init__.py", "models/net.py", "losses.py", "scores.py")


@pytest.fixture
def ward(place, monkeypatch):
    """A folder with an experiment that names many files, each with its name as its content."""
    for name in (*PRIVATE, *MODULES):
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text(f"# {name}\n")
    (place / "ward_code.py").write_text(OWN)
    save_file({"weight": torch.arange(6.0)}, place / "start.safetensors", {"model": '{"missing": 12.99}'})
    monkeypatch.syspath_prepend(str(place))
    (place / "graph.edges").write_text("ada bob\nbob cy\ncy ada")
    (place / "plant.toml").write_text(EXPERIMENT)
    return place


def written(*added, observers=(), machines=()):
    fleet = Fleet.open("plant.toml", out=Path("fleet"), trust_code=True)
    how = {"brokers": ["mqtts://127.0.0.1:8883"], "machines": machines, "wheel": Path(WHEEL), "now": NOW}
    return fleet, fleet.write(**how, observers=observers, added=[Path(each) for each in added])


def files_in(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.usefixtures("ward")
def test_bundles_have_code_graphs_and_models_and_no_file_that_may_be_data():
    fleet, made = written(observers=["ops"])
    fixed = {"ward.toml", "broker.pem"}
    ours = {
        "requirements.txt",
        "torch.txt",
        WHEEL,
        "Containerfile",
        "install.sh",
        "p2pfl-peer.service",
        "README.txt",
        "SHA256SUMS",
    }
    carried = {*MODULES, "graph.edges", "start.safetensors"}
    for peer in ("ada", "bob", "cy"):
        assert files_in(fleet.out / peer) == fixed | ours | carried | {"observers.toml"}
        assert {*made.contents[fleet.out / peer]} == (fixed | ours | carried) - {"SHA256SUMS"}
    assert files_in(fleet.out / "observers" / "ops") == fixed | {"README.txt", "graph.edges"}
    assert made.left == {
        **dict.fromkeys(["ada.csv", "patients.csv", "ward-a.csv", "more/ward-b.csv", "deep.csv"], "data.options"),
        **dict.fromkeys(["wards", "wards/1.csv", "wards/2.csv"], "data.options"),
        "words.txt": "model.options",
    }


def test_a_model_in_a_bundle_has_its_tensors_and_no_statistics_of_its_training_data(ward):
    fleet, _ = written()
    carried = fleet.out / "ada" / "start.safetensors"
    assert b"12.99" in (ward / "start.safetensors").read_bytes()
    assert b"12.99" not in carried.read_bytes()
    assert torch.equal(load_file(carried)["weight"], torch.arange(6.0))
    (ward / "start.safetensors").write_bytes(b"no model")
    with pytest.raises(InputError, match=r"is no file of safetensors; correct model\.pretrained"):
        written()


@pytest.mark.usefixtures("ward")
def test_a_call_without_packages_for_a_device_writes_nothing():
    with pytest.raises(InputError, match=r"lock of x86_64 has no torch for Python 3\.14; add --wheels"):
        written(observers=["ops"], machines=["x86_64:3.14"])
    assert not Path("fleet").exists()


@pytest.mark.usefixtures("ward")
def test_an_observer_can_read_their_experiment_without_the_code_of_the_peers(monkeypatch, place):
    fleet, _ = written(observers=["ops"])
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each != str(place)])
    monkeypatch.delitem(sys.modules, "ward_code")
    with pytest.raises(ExperimentError, match="No module named 'ward_code'"):
        read(fleet.out / "ada" / "ward.toml", trust_code=True)
    found = read(fleet.out / "observers" / "ops" / "ward.toml")
    assert found.data == Experiment().data
    assert found.model == Experiment().model
    assert Path(found.topology.kind).name == "graph.edges"
    assert found.trust.roster == "roster.toml"


@pytest.mark.usefixtures("ward")
def test_a_file_is_added_by_name_and_a_folder_or_a_stranger_is_not(tmp_path_factory):
    fleet, made = written("words.txt")
    assert "words.txt" in files_in(fleet.out / "ada")
    assert "words.txt" in made.contents[fleet.out / "ada"]
    assert "words.txt" not in made.left
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "other.csv"
    elsewhere.write_text("x")
    for name in ("wards", str(elsewhere), f"wards/../../{elsewhere.parent.name}/other.csv", "missing.csv"):
        with pytest.raises(InputError, match="is no file below"):
            written(name)
    Path("link.csv").symlink_to(elsewhere)
    with pytest.raises(InputError, match="is a symbolic link"):
        written("link.csv")
    with pytest.raises(InputError, match="has the name of another file"):
        written("keys/ada.pem")


@pytest.mark.slow
@pytest.mark.usefixtures("ward")
def test_what_a_bundle_no_longer_has_is_removed_and_what_nobody_wrote_is_refused():
    fleet, _ = written("words.txt", observers=["ops"])
    written(observers=["ops"])
    assert "words.txt" not in files_in(fleet.out / "ada")
    for folder in ("ada", "observers/ops"):
        stray = fleet.out / folder / "patients.csv"
        stray.write_text("a copy that an earlier version has made")
        with pytest.raises(InputError, match=r"patients\.csv does not belong into this folder"):
            written(observers=["ops"])
        stray.unlink()


@pytest.mark.parametrize(
    "stray", ["runs/ward/peers/ada.safetensors", "keys/ada.pem", "cache/cells.npz", "roster.toml/a"]
)
def test_models_keys_and_data_of_a_device_are_refused_in_a_bundle(tmp_path, stray):
    for name in ("ward.toml", "roster.toml", "certificate.pem", "request.toml", "SHA256SUMS", "observers.toml"):
        (tmp_path / name).write_text("")
    refuse_others(tmp_path, {"ward.toml"})
    (tmp_path / "roster.toml").unlink()
    (tmp_path / stray).parent.mkdir(parents=True)
    (tmp_path / stray).write_text("private")
    with pytest.raises(InputError, match="does not belong into this folder"):
        refuse_others(tmp_path, {"ward.toml"})


@pytest.mark.slow
@pytest.mark.usefixtures("ward")
def test_the_command_prints_what_each_folder_has_and_what_stays(capsys):
    command = [
        "deploy",
        "plant.toml",
        "--trust-code",
        "--out",
        "fleet",
        "--broker",
        "mqtts://127.0.0.1:8883",
        "--wheel",
        WHEEL,
    ]
    assert main([*command, "--with", "words.txt", "--observer", "ops"]) == 0
    printed = capsys.readouterr()
    lines = dict(line.split(": ") for line in printed.out.splitlines())
    assert lines["fleet/observers/ops"] == "README.txt, broker.pem, graph.edges, ward.toml"
    assert "words.txt" in lines["fleet/ada"].split(", ")
    assert "patients.csv (data.options) stays here" in printed.err
    assert main([*command, "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["left"]["patients.csv"] == "data.options"
    assert "ward_code.py" in made["contents"]["fleet/ada"]


@pytest.mark.parametrize("text", ["/etc/passwd", "../other.csv", "a" * 300, "nul\0byte", "", "**", "[", "~"])
def test_no_text_of_an_experiment_leads_out_of_its_folder(tmp_path, text):
    (tmp_path.parent / "other.csv").write_text("x")
    table = {key.split(".")[0]: {} for key in (*CODE_KEYS, *MODEL_KEYS, *OPTION_KEYS)}
    for key in (*CODE_KEYS, *MODEL_KEYS, *OPTION_KEYS):
        section, name = key.split(".")
        table[section][name] = {"any": [text]} if key in OPTION_KEYS else text
    found = NeighbouringFiles(tmp_path, table)
    assert found.carried_files() == []
    assert set(found.find_left([])) <= {"/etc/passwd", "../other.csv"}


def test_every_key_that_names_code_or_a_file_is_known_here():
    sections = {field.name: field.type for field in msgspec.structs.fields(Experiment)}
    named = {
        f"{section}.{key}"
        for section, kind in sections.items()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
        for key, text in re.findall(r"^    (\w+)\n((?:        .*\n?)+)", typing.cast("str", kind.__doc__), re.MULTILINE)
        if re.search(r"``(package\.)?module:\w+``", " ".join(text.split()))
    }
    assert named <= {*CODE_KEYS}
    local = {"privacy.budget", "data.options.path", "telemetry.observers"}  # of each device, or written by deploy
    local |= {"simulation.devices.trace"}  # no live peer reads it
    files = {key for key in PATHS if not key.startswith(("trust.", "transport."))} - local
    assert files == {"topology.kind", *MODEL_KEYS}
