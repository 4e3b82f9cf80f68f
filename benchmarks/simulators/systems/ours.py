"""p2pfl: the participants of a round on a complete graph, one process, all cores; it loads the samples of clients."""

import torch
from task import TASK, accuracy, build, client, now, report, sizes, test

import p2pfl
from p2pfl.algorithms import Averaging
from p2pfl.data import LazyFederation

test()
client(0)
topology = p2pfl.topology.complete(TASK.clients)
begun = now()
clients = LazyFederation.over(topology.peers, client, sizes=sizes(), classes=TASK.classes, test=test())
learner = p2pfl.TorchLearner(build(), clients, rate=TASK.rate, batch=TASK.batch, device="cpu")
algorithm = p2pfl.FedAvg(epochs=1, average=Averaging(fraction=TASK.cohort / TASK.clients))
settings = {"evaluation": {"every": TASK.every}}
run = p2pfl.simulate(algorithm, learner, topology, rounds=TASK.rounds, settings=settings, baselines=False)
ended = now()
model = build()
model.load_state_dict(next(iter(run.models.values())))
report(accuracy(model), begun=begun, ended=ended, version=f"{p2pfl.__version__}, torch {torch.__version__}")
