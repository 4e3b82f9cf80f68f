"""p2pfl: the participants of a round on a complete graph, one process, all cores."""

import numpy as np
import torch
from task import BATCH, CLIENTS, COHORT, EVERY, RATE, ROUNDS, SAMPLES, accuracy, build, load, now, report

import p2pfl
from p2pfl.algorithms import Averaging
from p2pfl.data import Dataset, Federation

(x, y), test = load()
topology = p2pfl.topology.complete(CLIENTS)
train = {peer: np.arange(SAMPLES * i, SAMPLES * (i + 1)) for i, peer in enumerate(topology.peers)}
tests = dict.fromkeys(topology.peers, np.arange(len(y), len(y) + len(test[1])))
dataset = Dataset(torch.cat([x, test[0]]), torch.cat([y, test[1]]), 10)
begun = now()
federation = Federation(dataset, train, dict.fromkeys(topology.peers, np.arange(0)), tests)
learner = p2pfl.TorchLearner(build(), federation, rate=RATE, batch=BATCH)
algorithm = p2pfl.FedAvg(epochs=1, average=Averaging(fraction=COHORT / CLIENTS))
settings = {"evaluation": {"every": EVERY}}
run = p2pfl.simulate(algorithm, learner, topology, rounds=ROUNDS, settings=settings, baselines=False)
ended = now()
model = build()
model.load_state_dict(run.models[topology.peers[0]])
report(accuracy(model, test), begun=begun, ended=ended, version=p2pfl.__version__)
