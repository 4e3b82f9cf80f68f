"""A package that is installed beside p2pfl adds names, in the way that p2pfl's own plug-ins do."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from p2pfl.cli import main
from p2pfl.core import registry

PACKAGE = Path(__file__).parent / "third_party"

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("third party")]  # one installation for all of them

WHEEL = ["--set", "topology.kind=wheel", "--set", "topology.peers=6", "--set", "data.name=wine", "--set", "rounds=3"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder in which the example package is installed."""
    folder = tmp_path_factory.mktemp("third_party")
    source, target = folder / "source", folder / "installed"
    shutil.copytree(PACKAGE, source)
    pip = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--no-build-isolation", "--quiet"]
    subprocess.run([*pip, "--target", str(target), str(source)], check=True)
    return target


@pytest.fixture
def example(installed, monkeypatch):
    """The example package is on Python's path."""
    monkeypatch.syspath_prepend(installed)
    registry._entries.cache_clear()
    yield
    registry._entries.cache_clear()


def simulated(capsys, runs, *changes):
    """The summary of a simulation of the shipped experiment with changes."""
    assert main(["simulate", "digits", "--json", "--runs", str(runs), *changes]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("example")
def test_a_topology_and_an_algorithm_work_by_their_names(tmp_path, capsys):
    simulated(capsys, tmp_path / "half", *WHEEL, "--set", "learning.algorithm=halfway")
    options = ["--set", "learning.algorithm_options={share = 1.0}"]
    simulated(capsys, tmp_path / "full", *WHEEL, "--set", "learning.algorithm=halfway", *options)
    simulated(capsys, tmp_path / "usual", *WHEEL)
    half, full, usual = (next((tmp_path / name).iterdir()) for name in ("half", "full", "usual"))
    models = [load_file(run / "peers" / "0.safetensors") for run in (half, full, usual)]
    for name, tensor in models[2].items():
        assert torch.allclose(models[1][name], tensor, atol=1e-5)
        assert not torch.allclose(models[0][name], tensor, atol=1e-5)
    written = (half / "experiment.toml").read_text("utf-8")
    assert 'algorithm = "halfway"' in written
    assert 'kind = "wheel"' in written


@pytest.mark.usefixtures("example")
def test_an_exact_model_works_by_its_name(tmp_path, capsys):
    changes = ["--set", "model.name=centroids", "--set", "privacy.mode=pairwise"]
    summary = simulated(capsys, tmp_path, *WHEEL, *changes)
    assert summary["lossless"]
    assert summary["together"] == pytest.approx(summary["pooled"], abs=1e-12)
    assert summary["pooled"] > 0.6
    assert (
        "the model follows: how many samples each class has, and the sums of their features"
        in summary["privacy"]["statement"]
    )


@pytest.mark.usefixtures("example")
def test_an_attack_works_by_its_name(tmp_path, capsys):
    plain = [*WHEEL, "--set", "privacy.mode=none", "--set", "learning.weighted=false"]
    stale = [*plain, "--set", "attack.name=stale", "--set", 'attack.peers=["2"]']
    simulated(capsys, tmp_path / "stale", *stale)
    simulated(capsys, tmp_path / "honest", *stale, "--set", "attack.scale=1.0")
    simulated(capsys, tmp_path / "usual", *plain)
    stale, honest, usual = (next((tmp_path / name).iterdir()) for name in ("stale", "honest", "usual"))
    models = [load_file(run / "peers" / "0.safetensors") for run in (stale, honest, usual)]
    for name, tensor in models[2].items():
        assert torch.allclose(models[1][name], tensor, atol=1e-5)
        assert not torch.allclose(models[0][name], tensor, atol=1e-5)
    assert main(["explain", "digits", "--set", "attack.name=stal"]) == 2
    assert 'did you mean "stale"?' in capsys.readouterr().err


@pytest.mark.usefixtures("example")
def test_a_sink_works_by_its_name(tmp_path, capsys, monkeypatch):
    simulated(capsys, tmp_path / "runs", *WHEEL)
    monkeypatch.chdir(tmp_path)
    (run,) = (tmp_path / "runs").iterdir()
    assert main(["watch", str(run), "--once", "--sink", "scores"]) == 0
    lines = (tmp_path / "scores.txt").read_text("utf-8").splitlines()
    assert len(lines) == 6 * 3
    assert all("accuracy" in line for line in lines)


@pytest.mark.usefixtures("example")
def test_commands_of_p2pfl_know_the_names(capsys):
    assert main(["topology", "wheel", "--peers", "7", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["degree"] == [3, 6]
    assert main(["explain", "digits", "--set", "topology.kind=wheel", "--set", "learning.algorithm=halfway"]) == 0
    capsys.readouterr()
    assert main(["topology", "weel"]) == 2
    assert 'use "wheel" or another of' in capsys.readouterr().err
    assert main(["explain", "digits", "--set", "learning.algorithm=halfwy"]) == 2
    assert 'did you mean "halfway"?' in capsys.readouterr().err


@pytest.mark.usefixtures("example")
def test_a_command_is_listed_and_runs(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert not ended.value.code
    assert "degrees" in capsys.readouterr().out
    assert main(["degrees", "digits"]) == 0
    assert capsys.readouterr().out.splitlines()[0].startswith("peer0 ")


def test_without_the_package_there_are_no_such_names(capsys):
    assert main(["topology", "wheel"]) == 2
    assert '"wheel" is not a kind of topology' in capsys.readouterr().err
