"""Effects of a peer's own: its own file predicts with them, and the file that others may have does not."""

import csv
import stat

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from p2pfl.cli import main
from p2pfl.experiment import read
from p2pfl.network.peer.launch import swarm
from p2pfl.network.transport import MemoryTransport
from p2pfl.privacy.keys import SeededSource
from p2pfl.results.models import Predictor
from p2pfl.results.models.exporters import export
from p2pfl.results.run import Run
from p2pfl.simulation import simulate
from swarms import live

pytestmark = pytest.mark.plugin("exact")

RNG = np.random.default_rng(0)
SHIFTS = (-2.0, 0.0, 1.0, 3.0)


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    """Return an experiment of four hospitals, each of which treats for longer or shorter than the others."""
    folder = tmp_path_factory.mktemp("hospitals")
    for number, shift in enumerate(SHIFTS):
        age, ward = RNG.uniform(20, 90, 80), RNG.choice(["east", "west"], 80)
        days = 0.1 * age + (ward == "west") + shift + RNG.normal(0, 0.3, 80)
        with (folder / f"peer{number}.csv").open("w", newline="") as file:
            rows = zip(age.round(2), ward, days.round(3), strict=True)
            csv.writer(file).writerows([["age", "ward", "days"], *rows])
    columns = {"age": "number", "ward": ["east", "west"], "days": "number"}
    return {
        "name": "stay",
        "rounds": 4,
        "topology": {"kind": "path", "peers": 4},
        "data": {
            "name": "table",
            "options": {"path": str(folder / "{peer}.csv"), "target": "days", "columns": columns},
        },
        "model": {"name": "componentwise", "options": {"every": 40, "site_df": 3.0, "knots": 6, "df": 3.0}},
        "privacy": {"mode": "pairwise", "mask_graph": "complete"},
    }


@pytest.fixture(scope="module")
def folder(experiment, tmp_path_factory):
    """Return the directory of a simulated run."""
    found = tmp_path_factory.mktemp("run") / "stay"
    simulate(experiment, folder=found, baselines=False)
    return found


def predicted(path, table):
    return Predictor.load(path).predict(table).values


def test_a_peer_predicts_with_its_own_effects_from_its_own_file(folder, tmp_path, capsys):
    table = tmp_path / "new.csv"
    table.write_text("age,ward\n50,east\n50,west\n")
    shared = [predicted(folder / "peers" / f"peer{each}.safetensors", table) for each in range(4)]
    assert all(np.array_equal(each, shared[0]) for each in shared)
    own = [predicted(folder / "peers" / f"peer{each}.own.safetensors", table) for each in range(4)]
    for shift, each in zip(SHIFTS, own, strict=True):
        assert each == pytest.approx([5 + shift, 6 + shift], abs=0.4)
    assert main(["predict", str(folder / "peers" / "peer3.own.safetensors"), str(table)]) == 0
    assert [float(cell) for cell in capsys.readouterr().out.split()[1:]] == own[3].tolist()


def test_the_own_file_is_readable_by_its_owner_alone_and_lists_no_further_peer(folder):
    mode = stat.S_IMODE((folder / "peers" / "peer0.own.safetensors").stat().st_mode)
    assert mode == 0o600
    assert sorted(Run.load(folder).models) == ["peer0", "peer1", "peer2", "peer3"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["peer3.own", "peer3"])
def test_exports_predict_what_their_file_predicts(folder, tmp_path, name):
    predictor = Predictor.load(folder / "peers" / f"{name}.safetensors")
    program = torch.export.load(export(predictor, tmp_path / "own.pt2", to="torch")).module()
    columns = torch.tensor([[50.0, 0.0], [33.0, 1.0]], dtype=torch.float64)
    assert torch.allclose(program(columns), predictor.module(columns), rtol=1e-12)


def test_a_resumed_run_has_the_own_effects_of_one_without_interruption(experiment, folder, tmp_path):
    half, seen = tmp_path / "half", []

    def observe(records):
        seen.append(records)
        if len(seen) > 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(experiment, folder=half, observe=observe, baselines=False)
    assert not (half / "peers" / "peer0.own.safetensors").exists()
    simulate(experiment, folder=half, resume=True, baselines=False)
    for name in ("peer0", "peer3"):
        file = f"{name}.own.safetensors"
        found, whole = (load_file(each / "peers" / file) for each in (half, folder))
        assert all(torch.equal(found[key], value) for key, value in whole.items())


@pytest.mark.slow
async def test_live_peers_write_the_own_effects_of_the_simulation(experiment, folder):
    ends = await live(read(experiment), MemoryTransport(), source=SeededSource(3))
    for name, end in ends.items():
        found = end.peer.plan.owned(end.state.rows[0], peer=name)
        kept = Predictor.load(folder / "peers" / f"{name}.own.safetensors").saved.module.state_dict()
        assert found.keys() == kept.keys()
        assert torch.equal(found["own"], kept["own"])


@pytest.mark.slow
def test_processes_of_peers_keep_files_with_the_own_effects_of_the_simulation(experiment, folder, tmp_path):
    swarm.run(read(experiment), folder=tmp_path / "run")
    for name in ("peer0", "peer3"):
        path = tmp_path / "run" / "peers" / f"{name}.own.safetensors"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        kept = Predictor.load(folder / "peers" / path.name).saved.module.state_dict()
        found = Predictor.load(path).saved.module.state_dict()
        assert all(torch.equal(found[key], value) for key, value in kept.items())


def test_without_effects_of_sites_there_is_no_own_file(experiment, tmp_path):
    options = {"every": 5, "knots": 6, "df": 3.0}
    simulate(experiment | {"model": {"name": "componentwise", "options": options}}, folder=tmp_path, baselines=False)
    assert not list((tmp_path / "peers").glob("*.own.*"))
