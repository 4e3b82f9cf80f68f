"""A peer that comes late takes the average of the others, whatever moments its algorithm keeps."""

import pytest
import torch

from p2pfl.algorithms import Averaging, DiLoCo, FedAdam, FedAvgM, Idle, State
from p2pfl.core.neighbourhood import Public, Released, run_without_loop
from p2pfl.network.peer.joining.late_arrival import ForgetMoments, LateArrival

ROUND, P = 50, 6
OTHERS = torch.full((1, P), 10.0)


class Settled:
    """Others that all stay at one model."""

    peers = ("ada",)
    begins = True

    async def receive_first(self, rows):
        return OTHERS[:, : rows.shape[-1]]

    async def release(self, rows, *, since, masses=None):
        del since
        return Released(rows, masses)

    async def mix(self, released):
        return Released((released.rows + OTHERS[:, : released.rows.shape[-1]]) / 2)


@pytest.mark.parametrize("returns", [False, True])
@pytest.mark.parametrize(
    "algorithm",
    [
        *(DiLoCo(overlap=overlap) for overlap in ("none", "start", "late")),
        *(DiLoCo(fragments=3, overlap=overlap) for overlap in ("none", "late")),
        FedAvgM(Averaging(weighted=False)),
        FedAdam(Averaging(weighted=False)),
    ],
    ids=str,
)
def test_a_late_peer_arrives_at_the_average_and_stays_there(algorithm, returns):
    span, start = getattr(algorithm, "fragments", 1), torch.zeros(1, P)
    late = range(ROUND, ROUND + span)
    moving = {name: torch.ones(1, P) for name in algorithm.traits.moments} if returns else {}
    state, played = (
        State(start, Public(start), extra=moving),
        ForgetMoments(algorithm, algorithm.traits.moments, rounds=late),
    )
    for round in range(ROUND, ROUND + span + 5):
        net = Settled()
        state = run_without_loop(
            played.round(state, Idle(None), LateArrival(net, net, masked=False) if round in late else net, round)
        )
        if round >= late[-1]:
            assert torch.equal(state.rows, OTHERS), round
            assert torch.equal(state.public.rows, OTHERS), round


def test_others_keep_their_moments():
    state = State(OTHERS, Public(OTHERS), extra={"momentum": torch.ones(1, P)})
    played = ForgetMoments(DiLoCo(), ("momentum",), rounds=range(0))
    after = run_without_loop(played.round(state, Idle(None), Settled(), ROUND))
    assert torch.allclose(after.extra["momentum"], torch.full((1, P), 0.9))
