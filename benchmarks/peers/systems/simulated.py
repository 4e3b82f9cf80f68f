"""p2pfl, simulated: D-PSGD with local epochs on a ring. No baselines are trained, as no other system trains any."""

import numpy as np
import torch
from task import BATCH, EPOCHS, RATE, ROUNDS, build, load, now, report

import p2pfl
from p2pfl.data import Dataset, Federation

SETTINGS = {"gossip": {"steps": 1}}  # by default, as many as the topology needs for an average

task = load()
topology = p2pfl.topology.ring(len(task.shards))
x, y = (torch.cat([*each, tests]) for each, tests in zip(zip(*task.shards, strict=True), task.test, strict=True))
ends = np.cumsum([0, *(len(shard[1]) for shard in task.shards)])
train = {peer: np.arange(ends[i], ends[i + 1]) for i, peer in enumerate(topology.peers)}
test = dict.fromkeys(topology.peers, np.arange(ends[-1], len(y)))
federation = Federation(Dataset(x, y, 10), train, dict.fromkeys(topology.peers, np.arange(0)), test)
learner = p2pfl.TorchLearner(build(), federation, rate=RATE, batch=BATCH)
begun = now()
run = p2pfl.simulate(p2pfl.FedAvg(epochs=EPOCHS), learner, topology, rounds=ROUNDS, settings=SETTINGS, baselines=False)
ended = now()
models = []
for peer in topology.peers:
    model = build()
    model.load_state_dict(run.models[peer])
    models.append(model)
report(task, models, begun=begun, ended=ended, version=p2pfl.__version__)
