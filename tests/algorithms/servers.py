"""What a server sees in a paper: clients one after the other, in plain loops; and losses with known optima."""

import numpy as np
import torch
from stacks import RATE, SEED
from torch import nn

from p2pfl.algorithms import Averaging, Gossip
from p2pfl.core.draws import draw
from p2pfl.data import Dataset, Federation, batches
from p2pfl.learning import TorchLearner
from p2pfl.learning.steps.training import straggler_work


def average(peers, *, exchanges=1, **settings):
    return Averaging(peers, SEED, Gossip(exchanges), **settings)


def chosen(peers, count, *, round):
    """Those who take part, as everybody draws them."""
    return [peers[index] for index in draw(SEED, "participants", round=round).permutation(len(peers))[:count]]


class Clients:
    """The losses of all peers, for vectors [P]."""

    def __init__(self, model, federation, *, batch=8, epochs=1, stragglers=0.0):
        self.model, self.federation = model, federation
        self.batch, self.epochs, self.stragglers = batch, epochs, stragglers
        self.start = torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone()

    def size(self, peer):
        return len(self.federation.train[peer])

    def gradient(self, peer, x, positions=None):
        """Of the mean loss at x, on all of a peer's samples by default."""
        own = self.federation.train[peer]
        own = own if positions is None else own[positions]
        torch.nn.utils.vector_to_parameters(x, self.model.parameters())
        outputs = self.model(self.federation.dataset.features[own].double())
        loss = torch.nn.functional.cross_entropy(outputs, self.federation.dataset.targets[own])
        return torch.cat([slope.flatten() for slope in torch.autograd.grad(loss, self.model.parameters())])

    def batches(self, peer, *, round):
        """The samples of each step of a round."""
        epochs = straggler_work(peer, seed=SEED, round=round, share=self.stragglers, most=self.epochs)
        keys = {"seed": SEED, "peer": peer, "round": round}
        return batches(self.size(peer), **keys, batch=self.batch, epochs=epochs, steps=None)

    def descend(self, peer, x, *, round, correction=lambda _: 0.0):
        """All steps of a round from x: where they end, and how many they were."""
        y, drawn = x.clone(), self.batches(peer, round=round)
        for positions in drawn:
            y = y - RATE * (self.gradient(peer, y, positions) + correction(y))
        return y, len(drawn)


def parabolas(a, b, *, rate, steps=None, copies=None, batch=None):
    """Gradient descent on a_i x^2 / 2 + b_i x, on so many copies of each peer's one sample.

    They are squared errors (z x - t)^2 but for a constant, which a linear layer has as any other model.
    """
    copies = copies or [1] * len(a)
    owner = np.repeat(np.arange(len(a)), copies)
    z = np.sqrt(np.asarray(a) / 2)[owner]
    targets = -np.asarray(b)[owner] / (2 * z)
    train = {f"peer{peer}": np.flatnonzero(owner == peer) for peer in range(len(a))}
    data = Dataset(torch.from_numpy(z).unsqueeze(-1), torch.from_numpy(targets), None)
    model = nn.Sequential(nn.Linear(1, 1, bias=False))
    nn.init.zeros_(model[0].weight)
    keys = {"seed": SEED, "rate": rate, "steps": steps, "batch": batch}
    return TorchLearner(model, Federation(data, train, train, train), dtype=torch.float64, device="cpu", **keys)
