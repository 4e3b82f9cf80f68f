"""Live peers and the simulation differ by rounding alone, which AdamW can magnify in single precision."""

import asyncio

import pytest
import torch

import p2pfl


def difference(dtype, *, rounds):
    """Return the largest difference of a parameter between live peers and the simulation after 20 steps a round."""
    x = torch.randn(800, 20, generator=torch.Generator().manual_seed(7))
    y = (x[:, :3].sum(1) > 0).long()
    data = {f"peer{i}": (x[i::8], y[i::8]) for i in range(8)}
    graph = p2pfl.topology.ring(8)
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    how = {"rate": 0.01, "optimizer": "adamw", "steps": 20, "options": {"weight_decay": 0.1}, "dtype": dtype}
    learner = p2pfl.TorchLearner(net, data, **how)
    run = p2pfl.simulate(p2pfl.DPSGD(), learner, graph, rounds=rounds, seed=7, baselines=False)
    transport = p2pfl.MemoryTransport()

    async def live(name):
        how = {"transport": transport, "notice": lambda _: None, "parts": {"rounds": rounds, "seed": 7}}
        async with p2pfl.Peer(name, p2pfl.DPSGD(), learner, graph, **how) as peer:
            return await peer.run()

    async def everybody():
        return await asyncio.gather(*map(live, graph.peers))

    states = asyncio.run(everybody())
    simulated = [torch.cat([each.flatten() for each in run.models[peer].values()]) for peer in graph.peers]
    return max(float((row - state.rows[0]).abs().max()) for row, state in zip(simulated, states, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "most"), [(torch.float64, 1e-14), (torch.float32, 1e-5)], ids=["double", "single"])
def test_peers_that_train_with_adamw_end_as_the_simulation_to_rounding(dtype, most):
    assert difference(dtype, rounds=5) < most
