"""Alignments of small tables in one process, with a record of all that each peer receives."""

from dataclasses import dataclass, field

import numpy as np

from p2pfl.data.parties import Parties, Party
from p2pfl.learning.additive import add_up, answer_questions
from p2pfl.plugins.vertical.alignment import align
from p2pfl.privacy.keys import SeededSource

OUTSIDER = "zed"
"""A peer of the run that is neither a party nor the helper."""


def parties(keys, *, label=None, helper="helper", least=1, rows="common", names=None, sizes=None):
    """Parties by name, whose rows have these values of each key."""
    own = {peer: Party(np.zeros((len(values[0]), 1)), tuple(map(tuple, values))) for peer, values in keys.items()}
    count = len(next(iter(keys.values())))
    label = min(keys) if label is None else label
    names = tuple(f"key {number}" for number in range(count)) if names is None else names
    return Parties(tuple(sorted(keys)), label, helper, names, own, least, rows, sizes=sizes or {})


@dataclass
class Recorder:
    """The network of a test: it answers questions for all peers, and notes what each of them receives."""

    peers: list
    received: dict = field(default_factory=dict)
    public: list = field(default_factory=list)

    def total(self, question):
        result = add_up(question, self.peers) if question.to is None else None
        if question.to is None:
            self.public.append(result)
            return result
        take = question.to.take

        def taken(values):
            self.received.setdefault(question.to.peer, []).append(values)
            take(values)

        to = type(question.to)(question.to.peer, taken, question.to.among)
        return add_up(type(question)(question.answer, question.size, to=to), self.peers)


def aligned(given, *, seed=0, source=None, run=b"run", recorder=None):
    """The alignment of parties, and the record."""
    recorder = recorder or Recorder([*given.names, *([given.helper] if given.helper else []), OUTSIDER])
    made = align(given, source or SeededSource(seed), run=run)
    return answer_questions(made, recorder.total), recorder


def people(given, result, peer, key=0):
    """The values of a key in the common order, as a party sees them."""
    values = given.party(peer).keys[key]
    return [None if row < 0 else values[row] for row in result.positions(peer).tolist()]
