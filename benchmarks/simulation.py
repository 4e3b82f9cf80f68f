"""Eight peers on a ring, digits IID, ten rounds of five epochs: simulated, live, and a plain loop.

    python -m benchmarks.simulation [--repeats 5]

The task of the survey in which gossipy took 1.5 s, decentralizepy 18 s and hivemind 6.5 s. The
plain loop trains eight torch models one after the other and averages them, with no transport.
Times are net of imports and data; the live time runs from the first round to the last.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

import torch
from torch.nn import functional

from benchmarks.timing import seconds
from p2pfl.data import batches
from p2pfl.experiment import plan, read
from p2pfl.network.peer.launch.swarm import run
from p2pfl.simulation import simulate

TABLE = {
    "name": "survey",
    "rounds": 10,
    "topology": {"kind": "ring", "peers": 8},
    "data": {"name": "digits"},
    "model": {"name": "mlp", "hidden": [32]},
    "learning": {"rate": 0.1, "batch": 32, "epochs": 5, "weighted": False},
    "gossip": {"steps": 1},
}


def loop() -> None:
    """What the simulation does, one torch model at a time."""
    resolved = plan(read(TABLE))
    names, federation = resolved.topology.peers, resolved.federation
    weights = torch.from_numpy(resolved.weights[0].matrix.toarray()).float()
    rows = resolved.learner.start(names)
    features, targets = federation.dataset.features.flatten(1), federation.dataset.targets
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for round in range(10):
        for index, name in enumerate(names):
            torch.nn.utils.vector_to_parameters(rows[index], model.parameters())
            part = federation.train[name]
            for batch in batches(len(part), seed=0, peer=name, round=round, batch=32, epochs=5, steps=None):
                optimizer.zero_grad()
                functional.cross_entropy(model(features[part[batch]]), targets[part[batch]]).backward()
                optimizer.step()
            rows[index] = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
        rows = weights @ rows
        for index, name in enumerate(names):
            torch.nn.utils.vector_to_parameters(rows[index], model.parameters())
            with torch.no_grad():
                held = federation.test[name]
                (model(features[held]).argmax(1) == targets[held]).float().mean()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    experiment = read(TABLE)
    resolved = plan(experiment)
    loop()
    base, simulated, live, overhead = [], [], [], []
    for _ in range(repeats):
        base.append(seconds(loop))
        simulated.append(simulate(experiment).summary["wall_s"])
        with tempfile.TemporaryDirectory() as folder:
            summary = run(experiment, folder=Path(folder) / "run", resolved=resolved).summary
        live.append(summary["wall_s"])
        messages = 8 * 10
        overhead.append((summary["bytes_sent"] - messages * 4 * resolved.learner.layout.size) / messages)
    for name, values in (("plain loop", base), ("simulate", simulated), ("run, 8 processes", live)):
        print(f"{name:<18} {statistics.median(values):.2f} s ({min(values):.2f}-{max(values):.2f})")
    print(f"{'overhead':<18} {statistics.median(overhead):.0f} bytes a message above the raw row")


if __name__ == "__main__":
    main()
