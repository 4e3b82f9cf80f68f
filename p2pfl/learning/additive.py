"""The interface of models that are public functions of exact totals over all peers."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np

from p2pfl.core.encodings import Ints, wrap
from p2pfl.core.neighbourhood import Recipient
from p2pfl.core.rows import Rows
from p2pfl.core.tensors import torch
from p2pfl.learning.learner import Learner


@dataclass(frozen=True)
class Question:
    """One total that a model asks for.

    Everything in a question is public except what ``answer`` returns and what the recipient takes, which are the only
    places where data are read.

    Parameters
    ----------
    answer
        ``answer(peer)`` returns what a peer adds to the total, ``[size]``.
    size
        Number of integers.
    bits
        The total is taken modulo two to this power, 32 or 64.
    change
        L2 norm by which one sample can change an answer; ``None`` if nobody knows.
    to
        Peer that alone receives the total, which may then wrap around: its summands are integers of the ring, such as
        shares. ``None`` if all peers do, as the result of the question; it is empty otherwise.
    """

    answer: Callable[[str], Ints]
    size: int
    bits: int = 64
    change: float | None = None
    to: Recipient | None = None


Result = TypeVar("Result")
Questions = Generator[Question, Ints, Result]
"""Part of a round: it yields questions, receives their totals, and returns a result."""


@dataclass(frozen=True)
class Step:
    """Public result of a round.

    Parameters
    ----------
    row
        The public model after the round, ``[P]``.
    loss
        Mean training loss that the totals of the round showed; ``None`` if they show none.
    over
        True if further rounds would change nothing.
    own
        Function that returns the private model of a local peer, ``[P]``, which stays there; ``None`` if every peer has
        the public one.
    """

    row: torch.Tensor
    loss: float | None = None
    over: bool = False
    own: Callable[[str], torch.Tensor] | None = None


Asking = Generator[Question, Ints, Step]
"""A round: it yields questions, receives their totals and returns its result.

All peers run it on the same model and receive the same totals, so all of them end with the same model to the last bit.
"""


@runtime_checkable
class Additive(Protocol):
    """A learner whose model follows from totals alone."""

    def asking(self, row: torch.Tensor, *, round: int) -> Asking:
        """Return the questions of a round that starts from the model ``[P]``."""
        ...


@runtime_checkable
class ContinuesPrivately(Protocol):
    """An additive learner whose rounds start from what each peer keeps to itself, as well as from what is public."""

    def asking_from(self, rows: Rows, *, peers: Sequence[str], round: int) -> Asking:
        """Return the questions of a round that starts from the private models ``[R, P]`` of local peers.

        An ``answer``, a recipient and :attr:`Step.own` alone may read what is private in them.
        """
        ...


def answer_questions(asking: Questions[Result], total: Callable[[Question], Ints]) -> Result:
    """Return the result of questions whose totals a function computes."""
    answer: Ints | None = None
    while True:
        try:
            question = next(asking) if answer is None else asking.send(answer)
        except StopIteration as stop:
            result: Result = stop.value
            return result
        answer = total(question)


def add_up(question: Question, peers: Iterable[str]) -> Ints:
    """Return the total of what peers of this process answer; a recipient takes it, and nothing is returned.

    Examples
    --------
    >>> add_up(Question(lambda peer: np.array([len(peer)]), size=1), ["ada", "bob"])
    array([6])
    """
    to = question.to
    among = [peer for peer in peers if to is None or to.among is None or peer in to.among]
    total = sum((question.answer(peer) for peer in among), np.zeros(question.size, np.int64))  # [K], modulo 2^64
    signed = wrap(total, question.bits)
    if to is None:
        return signed
    to.take(signed)
    return np.zeros(0, np.int64)


def additive(learner: Learner) -> Additive | None:
    """Return a learner beneath what wraps it, if its model follows from totals alone; else ``None``."""
    bare = learner.bare
    return bare if isinstance(bare, Additive) else None
