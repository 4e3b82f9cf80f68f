"""p2pfl: the participants of a round on a complete graph, one process, all cores or one GPU.

On the CPU it loads the samples of clients where they train; on a GPU, the samples of all clients lie there.
"""

from itertools import pairwise

import numpy as np
import torch
from task import DEVICE, TASK, accuracy, build, client, now, report, sizes, stored, test

import p2pfl
from p2pfl.algorithms import Averaging
from p2pfl.data import Dataset, Federation, LazyFederation


def held(peers: tuple[str, ...]) -> Federation:
    """Return a federation whose samples are all in memory."""
    samples = [*stored(), test()]
    ends = np.cumsum([0, *(len(targets) for _, targets in samples)])
    parts = [np.arange(low, high) for low, high in pairwise(ends.tolist())]
    dataset = Dataset(torch.cat([x for x, _ in samples]), torch.cat([y for _, y in samples]), classes=TASK.classes)
    nothing = dict.fromkeys(peers, np.arange(0))
    return Federation(dataset, dict(zip(peers, parts, strict=False)), nothing, dict.fromkeys(peers, parts[-1]))


test()
client(0)
topology = p2pfl.topology.complete(TASK.clients)
begun = now()
if DEVICE == "cpu":
    clients = LazyFederation.over(topology.peers, client, sizes=sizes(), classes=TASK.classes, test=test())
else:
    clients = held(topology.peers)
learner = p2pfl.TorchLearner(build(), clients, rate=TASK.rate, batch=TASK.batch, device=DEVICE)
algorithm = p2pfl.FedAvg(epochs=1, average=Averaging(fraction=TASK.cohort / TASK.clients))
settings = {"evaluation": {"every": TASK.every}}
run = p2pfl.simulate(algorithm, learner, topology, rounds=TASK.rounds, settings=settings, baselines=False)
ended = now()
model = build()
model.load_state_dict(next(iter(run.models.values())))
report(accuracy(model.to(DEVICE)), begun=begun, ended=ended, version=f"{p2pfl.__version__}, torch {torch.__version__}")
