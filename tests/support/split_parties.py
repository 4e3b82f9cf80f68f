"""Split networks of parties in one process, and the torch model of all columns with which they are compared."""

import numpy as np
import torch
from torch import nn

from p2pfl.data.data_description import Description
from p2pfl.data.parties import Parties, Party
from p2pfl.learning.additive import add_up, answer_questions
from p2pfl.learning.steps.optimisers import Recipe
from p2pfl.plugins.vertical.party_network import SplitSteps
from p2pfl.plugins.vertical.split_learner import SplitLearner
from p2pfl.privacy.keys import SeededSource


def dealt(tables, target, *, classes=("no", "yes")):
    """Return parties that hold the same people, each in an order of its own, of whom bob has a target."""
    own = {}
    for peer, table in tables.items():
        order = np.arange(len(table)) if peer == "bob" else np.random.default_rng(5).permutation(len(table))
        meaning = Description(classes=classes) if peer == "bob" else Description()
        own[peer] = Party(table[order], (tuple(map(str, order)),), meaning, target[order] if peer == "bob" else None)
    return Parties(tuple(sorted(tables)), "bob", "cleo", ("row:exact",), own, 10)


def learner(parties, model, *, test=0.0, rounds=1, source=7, **steps):
    """Return the learner of all parties and of cleo."""
    peers = sorted([*parties.names, "cleo"])
    steps = SplitSteps(**{"recipe": Recipe("sgd", 0.1), "absent": model.absent, **steps})
    made = SplitLearner(parties, model, peers=peers, run="run", seed=3, test=test, steps=steps, rounds=rounds)
    return made.drawing(SeededSource(source))


def play(learning, *, rounds=1, rows=None, start=0, heard=None):
    """Return the rows of all peers after some rounds; ``heard`` receives each question and its total."""
    rows = learning.start(learning.peers) if rows is None else rows

    def total(question):
        if heard is not None and question.to is not None:
            taken = question.to.take
            object.__setattr__(question.to, "take", lambda values: (heard(question.to.peer, values), taken(values)))
        return add_up(question, learning.peers)

    for round in range(start, start + rounds):
        asking = learning.asking_from(rows, peers=learning.peers, round=round)
        step = answer_questions(asking, total)
        rows = torch.stack([step.own(peer) for peer in learning.peers])
    return rows


class Joined(nn.Module):
    """The networks of all parties as one module of the columns of all."""

    def __init__(self, networks):
        super().__init__()
        self.networks = nn.ModuleDict(networks)

    def forward(self, columns):
        embedding = sum(network.embed(columns[peer]) for peer, network in self.networks.items())
        return self.networks["bob"].output(embedding)
