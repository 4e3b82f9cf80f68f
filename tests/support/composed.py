"""A small run put together in Python, and the same as an experiment file."""

import asyncio

import numpy as np
import torch

import p2pfl

PEERS, FEATURES, CLASSES = 4, 5, 3
RING = p2pfl.topology.ring(PEERS)


def sample(*, peer, peers, seed):
    """Return a peer's own data; no two peers have the same."""
    del seed
    random = np.random.default_rng(peers.index(peer))
    y = random.integers(0, CLASSES, 40)
    y[:CLASSES] = range(CLASSES)
    x = random.normal(size=(40, FEATURES)) + np.eye(FEATURES)[y] * 2
    return x.astype("float32"), y


DATA = {peer: sample(peer=peer, peers=RING.peers, seed=0) for peer in RING.peers}


class Linear(torch.nn.Linear):
    """Starts at the same values wherever it is made."""

    def __init__(self):
        super().__init__(FEATURES, CLASSES)
        torch.nn.init.zeros_(self.weight)
        torch.nn.init.zeros_(self.bias)


def learner(**how):
    return p2pfl.TorchLearner(Linear(), DATA, rate=0.5, device="cpu", **how)


TABLE = {
    "name": "run",
    "rounds": 4,
    "seed": 7,
    "topology": {"kind": "ring", "peers": PEERS},
    "data": {"name": f"{__name__}:sample", "options": {"classes": CLASSES}},
    "model": {"name": f"{__name__}:Linear"},
    "learning": {"rate": 0.5, "device": "cpu"},
}


def equal(one, other):
    for peer, tensors in one.items():
        for name, tensor in tensors.items():
            assert torch.equal(tensor, other[peer][name]), (peer, name)


def gathered(**only):
    return p2pfl.data.gather(only or DATA, seed=7, classes=CLASSES)


async def swarm(algorithm, topology, make, *, transport, parts):
    """Return the last state of each peer, all in one process."""

    async def one(name):
        async with p2pfl.Peer(name, algorithm, make(name), topology, transport=transport, parts=parts) as peer:
            return await peer.run()

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        running = {name: tasks.create_task(one(name)) for name in topology.peers}
    return {name: task.result() for name, task in running.items()}


def alone(name):
    """Return the learner of one peer, which has nobody else's data."""
    federation = p2pfl.data.gather({name: DATA[name]}, seed=7, classes=CLASSES)
    model = Linear()
    return p2pfl.TorchLearner(model, federation, rate=0.5, device="cpu")
