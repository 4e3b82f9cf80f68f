"""Tests of the record of a round after attempts that failed."""

from types import SimpleNamespace

import pytest
import torch

from p2pfl.core.neighbourhood import Released
from p2pfl.network.peer.masking.round_attempts import AgainError
from p2pfl.network.peer.neighbourhoods.factory import AttemptedNeighbourhood
from p2pfl.network.protocol.wire.wire_rows import Delivery, Head


class Failing:
    """Attempts at a round of which the first fails once a model is missing."""

    attempt, flooding = 0, False

    @property
    def step(self):
        return 2 * self.attempt

    def row(self, phase):
        del phase
        return {"peer0": 0.5, "peer1": 0.25, "peer2": 0.25}

    async def fail(self):
        raise AgainError("a model is missing")


class Scripted(AttemptedNeighbourhood):
    """A neighbourhood of three peers, whose models arrive or not as written."""

    def __init__(self, *arrivals, attempts):
        shared = SimpleNamespace(me=SimpleNamespace(peer="peer0"))
        ledgers, edges = SimpleNamespace(conserving=False), SimpleNamespace(peers=3, period=1)
        session = SimpleNamespace(shared=shared, ledgers=ledgers, edges=edges)
        super().__init__(attempts, SimpleNamespace(session=session), round=3, zstd=None, totalling=object())
        self.arrivals = [*arrivals]

    async def _publish(self, *_):
        return ["peer1", "peer2"]

    async def _expect(self, *_, **__):
        return Delivery(Head(3, 0, "float32", 2), torch.ones(2)) if self.arrivals.pop(0) else None

    def _close(self):
        self.step += 1


async def test_a_record_has_what_arrived_in_the_attempt_that_counts():
    attempts = Failing()
    net = Scripted(True, False, True, True, attempts=attempts)
    with pytest.raises(AgainError):
        await net.mix(Released(torch.zeros(1, 2)))
    assert (net.received, net.missed) == (1, ["peer2"])
    attempts.attempt = 1
    mixed = await net.mix(Released(torch.zeros(1, 2)))
    assert (net.received, net.missed) == (2, [])
    assert (mixed.rows.tolist(), net.step) == ([[0.5, 0.5]], 3)
