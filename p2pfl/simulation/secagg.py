"""Simulated exact sums: each peer receives the sum of its neighbours' rows and no single row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import scipy.sparse
import torch

from p2pfl.core.errors import PrivacyError
from p2pfl.core.neighbourhood import ReceivedModels, Released
from p2pfl.experiment import Plan
from p2pfl.experiment.neighbourhood_sums import least
from p2pfl.privacy.device_masks import weighted_sums
from p2pfl.privacy.normal_stream import POINT_LIMIT, Floats, Ints
from p2pfl.privacy.secagg.in_process import grid_points, refuse_rows, senders
from p2pfl.privacy.secagg.weighted_sums import portions
from p2pfl.privacy.total_masks import TotalMasks
from p2pfl.simulation.sharding import Near, Shard
from p2pfl.simulation.stacked import Faults, StackedNeighbourhood, total_arguments
from p2pfl.topology import Schedule, Topology, Weights


def sum_neighbourhoods(plan: Plan, *, faults: Faults) -> Callable[[int, Shard], SummedNeighbourhood]:
    """Return a function that makes the neighbourhood of each round, of some peers, with ``privacy.mode = "secagg"``.

    Parameters
    ----------
    plan
        Resolved experiment.
    faults
        Argument of :class:`SummedNeighbourhood`.
    """
    settings, experiment, totals = plan.protection.settings, plan.experiment, total_arguments(plan)

    def neighbourhood(round: int, shard: Shard) -> SummedNeighbourhood:
        return SummedNeighbourhood(
            plan.weights,
            round=round,
            seed=experiment.seed,
            faults=faults,
            bits=settings.bits,
            width=plan.ring,
            colluders=experiment.privacy.colluders,
            shard=shard,
            **totals,
        )

    return neighbourhood


class SummedNeighbourhood(StackedNeighbourhood):
    r"""One round of all peers, who receive sums: :math:`\sum_j \mathrm{rint}(W_{rj} x_j 2^f)`, their own included.

    The integers equal those of the protocol, where masks cancel, so none is drawn.
    A receiver with too few contributions keeps its row.

    Parameters
    ----------
    weights, round, seed, faults, graph, masks, shard
        Arguments of :class:`StackedNeighbourhood`.
    bits
        Fraction bits of the grid.
    width
        Bits of the ring.
    colluders
        Number of peers that may combine their sums, which sets the smallest number of contributions.
    """

    def __init__(
        self,
        weights: Sequence[Weights],
        *,
        round: int,
        seed: int,
        faults: Faults | None = None,
        bits: int = 20,
        width: int = 64,
        colluders: int = 1,
        graph: Topology | Schedule | None = None,
        masks: TotalMasks | None = None,
        shard: Shard | None = None,
    ) -> None:
        super().__init__(weights, round=round, seed=seed, faults=faults, graph=graph, masks=masks, shard=shard)
        self.bits = bits
        self.width = width
        self.colluders = colluders

    async def mix(self, released: Released) -> Released:
        """Replace every row by the sum of the weighted rows that its peer receives.

        Raises
        ------
        PrivacyError
            A number is outside of the range in which sums are exact.
        """
        phase = self.weights[0]
        received = self.faults.senders(phase.matrix, seed=self.seed, round=self.round, step=self.step)
        matrix, values = _enough(received, least(phase, colluders=self.colluders)), released.values
        near = self.shard.near(matrix, grid_points(released, bits=self.bits))
        largest = torch.maximum(near.rows.amax(-1), -near.rows.amin(-1))  # [S]
        check = partial(self._check, near.matrix, largest, self.shard.own(senders(phase)))
        (check if largest.device.type == "cpu" else partial(self.check_later, check))()
        sums = self._sums(near)  # [R, P]
        self._count(phase, matrix, size=values.shape[-1])
        masses = self.mix_masses(matrix, released.masses)  # [R, 1]
        mixed = Released(sums, masses, grid=self.bits, dtype=values.dtype)
        self.record_step(released, mixed)
        return mixed

    async def receive(self, released: Released) -> ReceivedModels:
        """Return public numbers, one per peer, without masks.

        Raises
        ------
        PrivacyError
            The caller requests rows.
        """
        refuse_rows(released)
        return await super().receive(released)

    def _sums(self, near: Near) -> torch.Tensor:
        """Return what the local peers receive, ``[R, P]`` int64."""
        if near.rows.device.type != "cpu":
            return weighted_sums(near.matrix, near.rows)
        return torch.from_numpy(portions(near.matrix, near.rows.numpy()))

    def _check(self, matrix: scipy.sparse.csr_array, magnitudes: torch.Tensor, terms: Ints) -> None:
        """Raise :class:`PrivacyError` where a contribution or a sum could leave the ring, which waits for the device.

        ``magnitudes`` are the largest of each row, ``[S]`` in steps of the grid.
        """
        largest: Floats = magnitudes.cpu().numpy()  # [S]
        listener = np.repeat(np.arange(len(terms)), np.diff(matrix.indptr))  # [E]
        limits = np.minimum(POINT_LIMIT, 2.0 ** (self.width - 1) / np.maximum(terms, 1))  # [R]
        fits = np.rint(matrix.data * largest[matrix.indices]) < limits[listener]  # [E]
        if not (fits.all() and (largest < POINT_LIMIT).all()):
            raise PrivacyError(
                f"rows of up to {largest.max():.3g} grid points do not fit into a ring of {self.width} bits, "
                f"where sums of {int(terms.max())} must be exact; clip, lower the learning rate or use fewer "
                "bits"
            )

    def _count(self, phase: Weights, matrix: scipy.sparse.csr_array, *, size: int) -> None:
        """Count the bytes of the gossip step: one row for each receiver."""
        self.step += 1
        whole, count = phase.matrix, len(self.everyone)
        listener = np.repeat(np.arange(count), np.diff(whole.indptr))  # [E]
        receivers = np.bincount(whole.indices[listener != whole.indices], minlength=count)  # [N]
        self.count_bytes(torch.from_numpy(self.shard.own(receivers) * (size * self.width // 8)))
        self.received += torch.from_numpy(self.shard.own(senders(Weights(self.everyone, matrix))))


def _enough(received: scipy.sparse.csr_array, fewest: Ints) -> scipy.sparse.csr_array:
    """Return the weights of peers that receive a sum; the others keep their own row."""
    count = received.shape[0]
    listener = np.repeat(np.arange(count), np.diff(received.indptr))  # [E]
    others = np.bincount(listener[listener != received.indices], minlength=count)  # [N]
    alone = np.flatnonzero((others < fewest) & (others > 0))
    if not len(alone):
        return received
    keeps = np.ones(count)
    keeps[alone] = 0.0
    matrix = scipy.sparse.csr_array(scipy.sparse.diags_array(keeps) @ received + scipy.sparse.diags_array(1.0 - keeps))
    matrix.eliminate_zeros()
    matrix.sort_indices()
    return matrix
