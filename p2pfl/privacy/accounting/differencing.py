r"""People and peers that exact totals of several runs show together, although no single run shows them.

A run shows, for each of its parts, the sum over its own people and over what each other peer adds. One row of a matrix
M stands for it: ones where a person, or a peer, is part of the sum. Whoever knows the totals of all runs knows every
combination of the rows, so a person, or a peer, is shown if its unit vector is in the row space of M:

.. math:: e_j \in \text{rows}(M) \iff P_{jj} = 1, \qquad P = M^+ M

People who are in the same runs are never distinguished, so the j are groups of such people. The difference of two runs
also shows the few people in which they differ, of however many groups (Denning, Denning and Schwartz, The tracker,
ACM TODS 1979; Dwork and Roth, 2014, section 1.1, on differencing).

A peer that took part subtracts what it added itself. That is the same matrix without its column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]

MAX_COMBINED = 256
"""Newest sums that are combined; all earlier ones are compared one by one."""

WHOLE = 1e-9
"""Distance from one within which an element of the projector counts as one."""


@dataclass(frozen=True, eq=False)
class KnownSum:
    """Sum that a run shows of one of its parts.

    Parameters
    ----------
    people
        Whether each of the owner's people is in the sum, ``[K]``.
    others
        What other peers add to it: the name of each, and of the part of its data.
    """

    people: Bools
    others: frozenset[tuple[str, str]]

    def same(self, other: KnownSum) -> bool:
        """Return whether two sums are over the same people and peers."""
        return self.others == other.others and bool((self.people == other.people).all())


@dataclass(frozen=True)
class Exposure:
    """A combination of the sums of several runs, and the people that it shows.

    Parameters
    ----------
    people
        Number of the owner's people, at least one; zero if it is a peer.
    peer
        Name of the peer whose part is shown; empty if it is some people.
    run
        Number of the earlier sum whose difference shows it; ``None`` if it takes several.
    observer
        Peer that has to subtract what it added itself; empty if anybody can do so who knows the totals.
    """

    people: int = 0
    peer: str = ""
    run: int | None = None
    observer: str = ""


def find_exposures(
    earlier: Sequence[KnownSum], new: Sequence[KnownSum], *, least: int, colluders: int
) -> Iterator[Exposure]:
    """Yield what the sums of a run show together with those of earlier runs, and did not show before.

    Parameters
    ----------
    earlier, new
        Sums that are known already, and those of the run.
    least
        Least number of people that may be shown together.
    colluders
        Whether peers that take part may look, too: none of them at 0, else each of them alone.

    Examples
    --------
    Ten people, and then nine of them:

    >>> ten, nine = (KnownSum(np.arange(10) >= few, frozenset({("bob", "all")})) for few in (0, 1))
    >>> [*find_exposures([ten], [nine], least=5, colluders=0)]
    [Exposure(people=1, peer='', run=0, observer='')]
    >>> [*find_exposures([ten], [ten], least=5, colluders=1)]
    []
    """
    observers = ["", *(sorted({peer for each in [*earlier, *new] for peer, _ in each.others}) if colluders else ())]
    pairs = [
        each
        for number, one in enumerate(earlier)
        for other in new
        for each in _differences(one, other, number, least=least, observers=observers)
    ]
    yield from pairs or _combined(_distinct(earlier)[-MAX_COMBINED:], _distinct(new), least=least, observers=observers)


def _differences(
    one: KnownSum, other: KnownSum, number: int, *, least: int, observers: Sequence[str]
) -> Iterator[Exposure]:
    """Yield the few people, or the one peer, in which two sums differ.

    Parts of the same peers count as equal, since nobody knows in how few of their people they differ.
    """
    people = int((one.people != other.people).sum())
    rest = {peer for peer, _ in one.others} ^ {peer for peer, _ in other.others}
    if not people and len(rest) == 1:
        yield Exposure(peer=rest.pop(), run=number)
    elif 0 < people < least and (not rest or (len(rest) == 1 and rest <= {*observers})):
        yield Exposure(people=people, run=number, observer=next(iter(rest), ""))


def _distinct(sums: Sequence[KnownSum]) -> list[KnownSum]:
    return [*{(each.others, each.people.tobytes()): each for each in sums}.values()]


def _combined(
    earlier: Sequence[KnownSum], new: Sequence[KnownSum], *, least: int, observers: Sequence[str]
) -> Iterator[Exposure]:
    """Yield the groups of people and the peers that combinations of all sums show, and those of either do not."""
    sums = [*earlier, *new]
    if not earlier or not new:
        return
    others = sorted({name for each in sums for name in each.others})
    groups, sizes = np.unique(np.stack([each.people for each in sums]), axis=1, return_counts=True)  # [V, C], [C]
    shared = np.array([[name in each.others for name in others] for each in sums], bool).reshape(len(sums), -1)
    matrix = np.concatenate([groups, shared], axis=1).astype(np.float64)  # [V, C + S]
    peers = np.array([*([""] * len(sizes)), *(peer for peer, _ in others)])
    counts = np.concatenate([sizes, np.zeros(len(others), np.int64)])
    wanted = (counts < least) & matrix.any(axis=0)  # peers, and groups of few people
    for observer in observers:
        left = (peers != observer) | (peers == "")
        before = _shown(matrix[: len(earlier)] * left) | _shown(matrix[len(earlier) :] * left)
        shown = _shown(matrix * left) & ~before & wanted & left
        if people := int(counts[shown].sum()):
            yield Exposure(people=people, observer=observer)
        for peer in dict.fromkeys(peers[shown & (counts == 0)].tolist()):
            yield Exposure(peer=peer, observer=observer)


def _shown(matrix: npt.NDArray[np.float64]) -> Bools:
    """Return the columns whose unit vectors are in the row space, ``[C]``."""
    if not matrix.any():
        return np.zeros(matrix.shape[1], bool)
    _, values, rows = np.linalg.svd(matrix, full_matrices=False)
    space = rows[values > values.max() * max(matrix.shape) * np.finfo(np.float64).eps]  # [rank, C]
    return np.asarray(np.square(space).sum(axis=0) >= 1 - WHOLE)
