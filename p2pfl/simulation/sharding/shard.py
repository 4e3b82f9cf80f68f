""":class:`Shard`, the peers that one process simulates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import scipy.sparse
import torch

from p2pfl.core.encodings import Ints
from p2pfl.core.errors import P2PFLError
from p2pfl.core.rows import Rows, alike
from p2pfl.results.content import WorkerResult
from p2pfl.simulation.mixing import Mixer

T = TypeVar("T")
Values = TypeVar("Values", torch.Tensor, Ints)


@dataclass(frozen=True)
class Near:
    """Models that the R local peers receive in a gossip step, and their weights.

    Attributes
    ----------
    matrix
        Mixing weights ``[R, S]``.
    rows
        Models ``[S, P]`` of the local peers, then of neighbours elsewhere.
    peers
        Names of the S senders.
    """

    matrix: scipy.sparse.csr_array
    rows: torch.Tensor
    peers: tuple[str, ...]


class Shard:
    """Peers that this process simulates: all of them.

    Parameters
    ----------
    everyone
        Names of all peers of the run.

    Attributes
    ----------
    peers
        Names of the R local peers, in the order of ``everyone``.
    leads
        Whether this process writes the run directory and reports.
    workers, rank
        Number of processes, and number of this one.
    """

    leads = True
    workers = 1
    rank = 0

    def __init__(self, everyone: Sequence[str]) -> None:
        self.everyone = tuple(everyone)
        self.peers = self.everyone

    def own(self, values: Values) -> Values:
        """Return the values of the local peers, ``[R, ...]``, out of those of all peers, ``[N, ...]``."""
        return values

    def spread(self, values: torch.Tensor) -> torch.Tensor:
        """Return the values of all peers of this process, out of those of the peers that it computes, ``[R, ...]``."""
        return values

    def near(self, matrix: scipy.sparse.csr_array, rows: torch.Tensor) -> Near:
        """Return what local peers receive in a gossip step with weights ``[N, N]``, given the local rows ``[R, P]``."""
        return Near(matrix, rows, self.everyone)

    def mixed(self, mixer: Mixer, matrix: scipy.sparse.csr_array, rows: Rows) -> Rows:
        """Return the rows of the local peers after a gossip step, ``[R, P]``."""
        return mixer(matrix, rows)

    def total(self, integers: Ints, *, refused: P2PFLError | None = None) -> Ints:
        """Return the sum over all processes of integers ``[K]``; raise the error of the first that refuses."""
        if refused is not None:
            raise refused
        return integers

    def mean(self, mean: torch.Tensor) -> torch.Tensor:
        """Return the mean over all peers, ``[P]``, given that over the local ones."""
        return mean

    def sums(self, numbers: torch.Tensor) -> torch.Tensor:
        """Return sums over all processes of numbers ``[K]``."""
        return numbers

    def alike(self, rows: Rows) -> bool:
        """Return whether all models are the same."""
        return alike(rows)

    def collect(self, items: Sequence[T], kind: type[T]) -> list[T]:
        """Return what all peers have of a kind, in their order, where this process leads; nothing elsewhere."""
        del kind
        return list(items)

    def lead(self, function: Callable[[], None]) -> None:
        """Call a function in the process that leads; all processes raise its error."""
        function()

    def shared(self, number: float) -> float:
        """Return the number of the process that leads."""
        return number

    def handed(self, data: Callable[[], bytes]) -> bytes:
        """Return the bytes that a function returns in the process that leads, at all processes."""
        return data()

    def workers_done(self, training: float) -> list[WorkerResult]:
        """Return what the processes did, where this one leads; nothing of a single one.

        Parameters
        ----------
        training
            Seconds of training in this process.
        """
        del training
        return []

    def blocks(self, tensors: Mapping[str, torch.Tensor]) -> Iterator[tuple[Ints, dict[str, torch.Tensor]]]:
        """Yield the numbers of some peers and their tensors ``[K, ...]``, until all peers were there.

        Parameters
        ----------
        tensors
            Tensors of the local peers on the CPU, ``[R, ...]`` each, with the same names in all processes. Nothing is
            yielded where this process does not lead.
        """
        yield np.arange(len(self.peers)), dict(tensors)
