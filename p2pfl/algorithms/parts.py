"""Optional parts of algorithms besides ``round``: an average, a shared part, extra numbers to send."""

from __future__ import annotations

from typing import Protocol, Self, runtime_checkable

from p2pfl.algorithms.algorithm import Algorithm
from p2pfl.algorithms.averaging import Averaging
from p2pfl.core.errors import ExperimentError


@runtime_checkable
class Averages(Protocol):
    """An algorithm that takes the mean over the participants of a round."""

    average: Averaging


@runtime_checkable
class SharesPart(Protocol):
    """An algorithm that releases a part of a model."""

    @property
    def shared(self) -> int:
        """Number of parameters that the algorithm releases."""
        ...

    def sharing(self, size: int) -> Self:
        """Return the algorithm on rows of ``size`` numbers, all of which it releases."""
        ...


@runtime_checkable
class SendsMore(Protocol):
    """An algorithm whose messages are longer than a model."""

    @property
    def beside(self) -> int:
        """Largest count of numbers sent beside a model, in the type of its parameters."""
        ...


def average_of(algorithm: Algorithm) -> Averaging | None:
    """Return the average that an algorithm takes; ``None`` if all peers have equal weights.

    Examples
    --------
    >>> from p2pfl.algorithms import DPSGD
    >>> average_of(DPSGD())
    """
    found = algorithm.average if isinstance(algorithm, Averages) else None
    return found if isinstance(found, Averaging) else None


def count_shared(algorithm: Algorithm, size: int) -> int:
    """Return how many of ``size`` parameters leave a peer."""
    return algorithm.shared if isinstance(algorithm, SharesPart) else size


def count_extra(algorithm: Algorithm) -> int:
    """Return how many numbers an algorithm sends beside a model at most.

    Raises
    ------
    ExperimentError
        The algorithm declares something else than a number.
    """
    found: object = algorithm.beside if isinstance(algorithm, SendsMore) else 0
    if not isinstance(found, int) or found < 0:
        raise ExperimentError(
            f"{type(algorithm).__name__}: beside is {found!r}; declare a property that returns a whole number >= 0"
        )
    return found


def share_all(algorithm: Algorithm, size: int) -> Algorithm:
    """Return an algorithm that releases all ``size`` numbers of a row, which are no parameters."""
    if not isinstance(algorithm, SharesPart):
        return algorithm
    whole: Algorithm = algorithm.sharing(size)
    return whole
