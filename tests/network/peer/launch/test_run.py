"""``run``: real processes over a real broker end where ``simulate`` ends, by their checkpoints."""

import json

import pytest
from safetensors.torch import load_file
from sklearn.datasets import load_wine

from p2pfl.data import federate
from p2pfl.experiment import read
from p2pfl.network.peer.launch.swarm import run
from p2pfl.network.peer.storage.checkpoint import CheckpointStore
from p2pfl.simulation import simulate
from raw import Saved
from swarms import SMALL


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "workers"), [("fedavg", None), ("dpsgd", 2)])
def test_the_checkpoints_of_run_and_of_simulate_agree(algorithm, workers, tmp_path):
    experiment = read(SMALL, changes=[f"learning.algorithm={algorithm}", "topology.peers=4", "topology.kind=ring"])
    spawned = run(experiment, folder=tmp_path / "run", workers=workers)
    simulated = simulate(experiment, folder=tmp_path / "simulate")
    for name in ("peer0", "peer1", "peer2", "peer3"):
        live, stacked = (load_file(tmp_path / kind / "peers" / f"{name}.safetensors") for kind in ("run", "simulate"))
        assert live.keys() == stacked.keys()
        # Double precision; sums are taken in another order, see test_agreement.py.
        assert all((live[key] - stacked[key]).abs().max() < 1e-10 for key in live)
    assert spawned.summary["together"] == pytest.approx(simulated.summary["together"])
    assert spawned.summary["alone"] == pytest.approx(simulated.summary["alone"])
    assert spawned.summary.keys() == simulated.summary.keys()
    intervals = [[each["interval"] for each in run.summary["per_peer"].values()] for run in (spawned, simulated)]
    assert intervals[0] == intervals[1]
    assert all(intervals[0])
    journals = [
        CheckpointStore(tmp_path / "run" / "peers", name).journal() for name in ("peer0", "peer1", "peer2", "peer3")
    ]
    assert not any(journal.key for journal in journals)  # what was recorded of the run can be opened no more


@pytest.mark.slow
def test_what_a_run_saves_scores_on_raw_features_what_the_summary_says(tmp_path):
    changes = ["topology.peers=3", "topology.kind=ring", "data.scale=true", "model.name=linear"]
    experiment = read(SMALL, changes=[*changes, "privacy.mode=pairwise"])
    spawned = run(experiment, folder=tmp_path / "run")
    told = json.loads((tmp_path / "run" / "model.json").read_text())
    assert (tmp_path / "run" / "model.json").stat().st_mode & 0o777 == 0o600
    wine, names = load_wine(), ["peer0", "peer1", "peer2"]
    held = federate("wine", peers=names, seed=experiment.seed).test["peer0"]  # everybody's
    labels = [wine.target_names[label] for label in wine.target[held]]
    for name in names:
        saved = Saved(tmp_path / "run" / "peers" / f"{name}.safetensors")
        assert saved.about == told
        assert saved.accuracy(wine.data[held], labels) == spawned.summary["per_peer"][name]["together"] > 0.5
