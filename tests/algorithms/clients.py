"""What a paper's server sees of its clients: plain autograd, one client after the other."""

import torch
from stacks import RATE, SEED

from p2pfl.data import batches


class Clients:
    """The peers of a federation, each with the losses of a module at any row."""

    def __init__(self, federation, model, *, batch):
        self.federation, self.model, self.batch = federation, model, batch
        self.peers = federation.peers
        self.features, self.targets = federation.dataset.features.double(), federation.dataset.targets

    def loss(self, peer, row, chosen):
        """Mean cross-entropy over some of a peer's training samples."""
        torch.nn.utils.vector_to_parameters(row, self.model.parameters())
        own = self.federation.train[peer][chosen]
        return torch.nn.functional.cross_entropy(self.model(self.features[own]), self.targets[own])

    def slope(self, peer, row, *, round, step=None):
        """The gradient on the batch of a step, or on all samples."""
        count = len(self.federation.train[peer])
        key = {"seed": SEED, "peer": peer, "round": round, "batch": self.batch, "epochs": 1}
        chosen = slice(None) if step is None else batches(count, **key, steps=step + 1)[step]
        slopes = torch.autograd.grad(self.loss(peer, row.detach(), chosen), self.model.parameters())
        return torch.cat([slope.flatten() for slope in slopes])

    def epoch(self, peer):
        """Steps of one."""
        return -(-len(self.federation.train[peer]) // self.batch)

    def fit(self, peer, row, *, round, pull=0.0, towards=None):
        """One epoch of gradient descent, pulled towards a row."""
        for step in range(self.epoch(peer)):
            slope = self.slope(peer, row, round=round, step=step)
            if pull:
                slope = slope + pull * (row - towards)
            row = row - RATE * slope
        return row

    def average(self, rows):
        """The server's: by sizes."""
        sizes = self.federation.samples(self.peers).double()
        return (sizes[:, None] * torch.stack(rows)).sum(0) / sizes.sum()
