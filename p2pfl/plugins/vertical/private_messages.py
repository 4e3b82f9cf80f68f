"""Messages from one peer to another or to all, as questions.

All peers run the same generator. A :class:`PrivateMessage` is read in answers of its receiver alone: in a process of
another peer it stays empty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import PrivacyError, RunError
from p2pfl.core.neighbourhood import Recipient
from p2pfl.learning.additive import Question, Questions

WORDS_PER_FLOAT = 2
"""Integers of an ordinary total that carry a float64."""


class PrivateMessage:
    """Integers that one peer alone receives.

    Parameters
    ----------
    receiver
        Name of the peer.
    """

    def __init__(self, receiver: str) -> None:
        self.receiver = receiver
        self._received: Callable[[], Ints] | None = None

    def take(self, values: Ints) -> None:
        """Keep what has arrived."""
        self._received = lambda: values

    def keep(self, values: Callable[[], Ints]) -> None:
        """Keep what the receiver itself computes when it reads the message."""
        self._received = values

    def read(self, peer: str) -> Ints:
        """Return the integers to the answer of a peer.

        Raises
        ------
        RunError
            The peer is not the receiver, or nothing has arrived.
        """
        if peer != self.receiver or self._received is None:
            raise RunError(
                f"{peer} cannot read what {self.receiver} receives; ask for it in an answer of {self.receiver} alone, "
                "after it was sent"
            )
        return self._received()


def collect(answer: Callable[[str], Ints], *, size: int, to: str, among: Sequence[str]) -> Questions[PrivateMessage]:
    """Ask for a total of some peers modulo 2^64 that one peer alone receives.

    Parameters
    ----------
    answer
        Function that returns what each of them adds, ``[size]``; the same however often it is called.
    size
        Number of integers.
    to, among
        The receiver, and those who contribute.
    """
    message = PrivateMessage(to)
    if size and tuple(among) != (to,):
        yield Question(answer, size=size, to=Recipient(to, message.take, among=tuple(among)))
    else:
        message.keep(lambda: answer(to))
    return message


def send(values: Callable[[], Ints], *, size: int, sender: str, to: str) -> Questions[PrivateMessage]:
    """Send integers from one peer to another; nobody else can read them.

    Parameters
    ----------
    values
        Function that returns the integers ``[size]``, called at the sender alone.
    size, sender, to
        Number of integers, and both peers.

    Examples
    --------
    >>> from p2pfl.learning.additive import add_up, answer_questions
    >>> sending = send(lambda: np.arange(3), size=3, sender="ada", to="bob")
    >>> answer_questions(sending, lambda question: add_up(question, ["ada", "bob"])).read("bob").tolist()
    [0, 1, 2]
    """
    return (yield from collect(lambda _: values(), size=size, to=to, among=(sender,)))


def send_floats(values: Callable[[], Floats], *, size: int, sender: str, to: str) -> Questions[Callable[[], Floats]]:
    """Send floats from one peer to another to the last bit, and return the function by which the receiver reads them.

    Parameters
    ----------
    values, size, sender, to
        As of :func:`send`.
    """
    message = yield from send(
        lambda: np.asarray(values(), np.float64).ravel().view(np.int64), size=size, sender=sender, to=to
    )
    return lambda: message.read(to).view(np.float64)


def publish(values: Callable[[], Floats], *, size: int, sender: str) -> Questions[Floats]:
    """Ask for floats that one peer publishes to all, to the last bit.

    Parameters
    ----------
    values, size, sender
        As of :func:`send`.

    Raises
    ------
    PrivacyError
        The sender sees that another peer has altered them.
    """

    def words(peer: str) -> Ints:
        del peer
        return np.asarray(values(), "<f8").ravel().view("<u4").astype(np.int64)

    total = yield from state_several(words, size=WORDS_PER_FLOAT * size, peers=[sender])
    return total.astype("<u4").view("<f8").astype(np.float64)


def state(number: Callable[[str], int], *, peers: Sequence[str]) -> Questions[Ints]:
    """Ask for an integer that each of some peers publishes, ``[K]`` in their order.

    Parameters
    ----------
    number
        Function that returns the integer of a peer.
    peers
        Names of the K peers; others publish nothing.

    Raises
    ------
    PrivacyError
        A peer sees that another one has altered its integer.
    """
    return (yield from state_several(lambda peer: np.array([number(peer)]), size=1, peers=peers))


def state_several(numbers: Callable[[str], Ints], *, size: int, peers: Sequence[str]) -> Questions[Ints]:
    """Ask for some integers that each of some peers publishes, ``[K size]``, of which each checks its own.

    Parameters
    ----------
    numbers, size
        Function that returns the integers of a peer ``[size]``, and their number.
    peers
        As of :func:`state`.

    Raises
    ------
    PrivacyError
        A peer sees that another one has altered its integers.
    """
    own = dict[str, Ints]()

    def answer(peer: str) -> Ints:
        stated = np.zeros((len(peers), size), np.int64)
        if peer in peers:
            stated[peers.index(peer)] = own[peer] = numbers(peer)
        return stated.ravel()

    total = yield Question(answer, size=len(peers) * size)
    for peer, stated in own.items():
        if (total.reshape(len(peers), size)[peers.index(peer)] != stated).any():
            raise PrivacyError(
                f"all peers have received other numbers than {peer} has published, so one of them does not follow the "
                "protocol; compare versions, and end the run at all peers"
            )
    return total


def large_to_ints(numbers: Sequence[Any], size: int, *, signed: bool = False) -> Ints:
    """Return large whole numbers as the integers of one message, so many for each.

    Examples
    --------
    >>> ints_to_large(large_to_ints([2**100, -1], 2, signed=True), 2, signed=True) == [2**100, -1]
    True
    """
    data = b"".join(int(number).to_bytes(8 * size, "little", signed=signed) for number in numbers)
    return np.frombuffer(data, "<i8").astype(np.int64)


def ints_to_large(values: Ints, size: int, *, signed: bool = False) -> list[int]:
    """Return large whole numbers from the integers of one message."""
    data = values.astype("<i8").tobytes()
    pieces = (data[low : low + 8 * size] for low in range(0, len(data), 8 * size))
    return [int.from_bytes(piece, "little", signed=signed) for piece in pieces]
