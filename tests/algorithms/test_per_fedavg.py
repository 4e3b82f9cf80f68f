import pytest
import torch
from clients import Clients
from stacks import RATE, SEED, classifier, play, wine

from p2pfl import topology
from p2pfl.algorithms import Averaging, FedAvg, Gossip, PerFedAvg
from p2pfl.data import batches

COMPLETE = topology.complete(5)
RING = topology.ring(5)
ALPHA = 0.3


def average(graph, **settings):
    return Averaging(graph.peers, SEED, Gossip(), mean_samples=142 / 5, **settings)


def product(clients, peer, row, vector, *, round, step):
    """Hessian of the loss times a vector, by differentiating twice."""
    row = row.detach().requires_grad_()

    def loss(numbers):
        parts, start = {}, 0
        for name, parameter in clients.model.named_parameters():
            parts[name] = numbers[start : start + parameter.numel()].view_as(parameter)
            start += parameter.numel()
        own = clients.federation.train[peer]
        [*_, chosen] = batches(len(own), seed=SEED, peer=peer, round=round, batch=8, epochs=1, steps=step + 1)
        outputs = torch.func.functional_call(clients.model, parts, clients.features[own[chosen]])
        return torch.nn.functional.cross_entropy(outputs, clients.targets[own[chosen]])

    return torch.autograd.functional.hvp(loss, row, vector)[1]


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("variant", ["fo", "hf"])
def test_algorithm_1_of_the_paper_with_a_server(variant):
    federation = wine(COMPLETE.peers)
    learner, model = classifier(federation, batch=8)
    clients = Clients(federation, model, batch=8)
    algorithm = PerFedAvg(average(COMPLETE), inner=ALPHA, steps=3, variant=variant, delta=1e-4)
    w = learner.start(COMPLETE.peers)[0]
    for round, state in enumerate(play(algorithm, learner, COMPLETE, rounds=3)[1:]):
        local = []
        for peer in clients.peers:
            w_i = w
            for t in range(3):
                ahead = w_i - ALPHA * clients.slope(peer, w_i, round=round, step=3 * t)
                slope = clients.slope(peer, ahead, round=round, step=3 * t + 1)
                if variant == "hf":
                    slope = slope - ALPHA * product(clients, peer, w_i, slope, round=round, step=3 * t + 2)
                w_i = w_i - RATE * slope
            local.append(w_i)
        w = clients.average(local)
        # the difference of gradients differs from their derivative by delta squared, and rounding over delta
        assert (state.public.rows - w).abs().max() < (1e-10 if variant == "fo" else 1e-8)
        personal = [w - ALPHA * clients.slope(peer, w, round=round) for peer in clients.peers]
        assert (state.rows - torch.stack(personal)).abs().max() < (1e-10 if variant == "fo" else 1e-8)


@pytest.mark.sampled(fast=2)
@pytest.mark.parametrize("variant", ["fo", "hf"])
@pytest.mark.parametrize("fraction", [1.0, 0.4])
def test_without_a_step_of_ones_own_it_is_fedavg_bit_for_bit(variant, fraction):
    learner, _ = classifier(wine(RING.peers), batch=None, epochs=3)
    algorithm = PerFedAvg(average(RING, fraction=fraction), inner=0.0, steps=3, variant=variant)
    ours = play(algorithm, learner, RING, rounds=4)[-1]
    plain = play(FedAvg(algorithm.average), learner, RING, rounds=4)[-1]
    assert torch.equal(ours.public.rows, plain.rows)
    assert torch.equal(ours.rows, plain.rows)
