"""``run``: real processes over a real broker end where ``simulate`` ends, by their checkpoints."""

import pytest
from safetensors.torch import load_file
from swarms import SMALL

from p2pfl.experiment import read
from p2pfl.peer.swarm import run
from p2pfl.simulation import simulate


@pytest.mark.parametrize("algorithm", ["fedavg", "dpsgd", "robust_sgp"])
def test_the_checkpoints_of_run_and_of_simulate_agree(algorithm, tmp_path):
    experiment = read(SMALL, changes=[f"learning.algorithm={algorithm}", "topology.peers=4", "topology.kind=ring"])
    spawned = run(experiment, folder=tmp_path / "run")
    simulated = simulate(experiment, folder=tmp_path / "simulate")
    for name in ("peer0", "peer1", "peer2", "peer3"):
        live, stacked = (load_file(tmp_path / kind / "peers" / f"{name}.safetensors") for kind in ("run", "simulate"))
        assert live.keys() == stacked.keys()
        # Double precision; sums are taken in another order, see test_agreement.py.
        assert all((live[key] - stacked[key]).abs().max() < 1e-10 for key in live)
    assert spawned.summary["together"] == pytest.approx(simulated.summary["together"])
    assert spawned.summary["alone"] == pytest.approx(simulated.summary["alone"])
    assert spawned.summary.keys() == simulated.summary.keys()
    assert spawned.summary["masses"] == simulated.summary["masses"]
