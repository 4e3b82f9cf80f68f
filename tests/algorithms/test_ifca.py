import pytest
import torch
from clients import Clients
from stacks import SEED, classifier, play, wine

from p2pfl import topology
from p2pfl.algorithms import IFCA, Averaging, FedAvg, Gossip
from p2pfl.core.rows import Layout

COMPLETE = topology.complete(6)
RING = topology.ring(6)
LAYOUT = Layout(("1.weight", "1.bias"), ((3, 13), (3,)))


def ifca(graph, clusters, **settings):
    return IFCA(Averaging(graph.peers, SEED, Gossip(), mean_samples=142 / 6, **settings), LAYOUT, SEED, clusters)


def two_kinds(peers):
    """Wine, dealt evenly; half of the peers call its classes by other names."""
    federation = wine(peers, split="iid")
    targets = federation.dataset.targets
    for peer in peers[len(peers) // 2 :]:
        targets[federation.train[peer]] = (targets[federation.train[peer]] + 1) % 3
    return federation


def test_algorithm_1_of_the_paper_with_a_server():
    federation = two_kinds(COMPLETE.peers)
    learner, model = classifier(federation, batch=8)
    clients = Clients(federation, model, batch=8)
    algorithm = ifca(COMPLETE, 3)
    models = list(algorithm.starts(learner.start(COMPLETE.peers))[0])
    for round, state in enumerate(play(algorithm, learner, COMPLETE, rounds=5)[1:]):
        fitted = {number: [] for number in range(3)}
        scored = []
        for peer in clients.peers:
            losses = [float(clients.loss(peer, row, slice(None)).detach()) for row in models]
            chosen = losses.index(min(losses))
            scored.append(chosen)
            fitted[chosen].append((len(federation.train[peer]), clients.fit(peer, models[chosen], round=round)))
        for number, own in fitted.items():
            if own:
                models[number] = sum(size * row for size, row in own) / sum(size for size, _ in own)
        assert state.extra["choice"].tolist() == scored
        assert (state.known["models"].rows - torch.stack(models)).abs().max() < 1e-10
        assert (state.rows - torch.stack([models[chosen] for chosen in scored])).abs().max() < 1e-10


@pytest.mark.sampled(fast=2)
@pytest.mark.parametrize("fraction", [1.0, 0.5])
@pytest.mark.parametrize("weighted", [True, False])
def test_with_one_model_it_is_fedavg_bit_for_bit(fraction, weighted):
    learner, _ = classifier(wine(RING.peers), batch=8)
    algorithm = ifca(RING, 1, fraction=fraction, weighted=weighted)
    ours = play(algorithm, learner, RING, rounds=4)[-1].rows
    assert torch.equal(ours, play(FedAvg(algorithm.average), learner, RING, rounds=4)[-1].rows)


def test_peers_of_two_kinds_part():
    learner, _ = classifier(two_kinds(COMPLETE.peers), batch=8)
    last = play(ifca(COMPLETE, 2), learner, COMPLETE, rounds=8)[-1]
    first, second = last.extra["choice"][:3].tolist(), last.extra["choice"][3:].tolist()
    assert len({*first}) == len({*second}) == 1
    assert first != second
    together = play(ifca(COMPLETE, 1), learner, COMPLETE, rounds=8)[-1]
    losses = [learner.evaluate(state.rows, peers=COMPLETE.peers, part="train")["loss"] for state in (last, together)]
    assert (losses[0] < 0.5 * losses[1]).all()


def test_every_start_holds_the_same_numbers_in_each_tensor():
    learner, _ = classifier(wine(RING.peers))
    start = learner.start(RING.peers)
    models = ifca(RING, 3).starts(start)
    assert torch.equal(models[:, 0], start)
    for number in (1, 2):
        assert not torch.equal(models[:, number], start)
        for name, part in LAYOUT.split(models[:, number]).items():
            assert torch.equal(part.flatten(1).sort().values, LAYOUT.split(start)[name].flatten(1).sort().values)
