"""nvflare: decentralised gradient descent on a ring, in its simulator, with a gossip step before each batch.

Its executor has no local epochs, so ten rounds of five epochs are as many iterations as batches. It also computes the
loss on the training data after each epoch.
"""

import os
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import torch
from nvflare.app_opt.p2p.controllers.dist_opt_controller import DistOptController
from nvflare.app_opt.p2p.types import Config, Neighbor, Network, Node
from nvflare.job_config.api import FedJob
from nvflare_executor import DigitsExecutor
from task import BATCH, EPOCHS, RATE, ROUNDS, build, load, report

task = load()
count = len(task.shards)
sites = [f"site-{i + 1}" for i in range(count)]
network = Network(
    [
        Node(site, [Neighbor(sites[i - 1], 1 / 3), Neighbor(sites[(i + 1) % count], 1 / 3)])
        for i, site in enumerate(sites)
    ]
)
batches = -(-len(task.shards[0][1]) // BATCH)
with tempfile.TemporaryDirectory() as folder:
    os.environ |= {"P2PFL_TASK": str(Path(sys.argv[1]).resolve()), "P2PFL_FOUND": folder}
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    job = FedJob(name="digits")
    extra = {"iterations": ROUNDS * EPOCHS * batches, "stepsize": RATE}
    job.to_server(DistOptController(config=Config(network=network, extra=extra)))
    for site in sites:
        job.to(DigitsExecutor(), site)
    job.simulator_run(f"{folder}/work", threads=count)
    found = [torch.load(f"{folder}/{site}.pt") for site in sites]
models = []
for each in found:
    model = build()
    model.load_state_dict(each["model"])
    models.append(model)
begun, ended = min(each["begun"] for each in found), max(each["ended"] for each in found)
report(task, models, begun=begun, ended=ended, version=version("nvflare"))
