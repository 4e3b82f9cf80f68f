import pytest
import torch
from clients import Clients
from stacks import RATE, SEED, classifier, play, stack, wine

from norming import Normed
from p2pfl import topology
from p2pfl.algorithms import Averaging, FedAvg, FedBN, FedPer, FedRep, Gossip
from p2pfl.core.errors import ExperimentError
from p2pfl.core.neighbourhood import Public, run_without_loop
from p2pfl.core.rows import Layout
from p2pfl.learning import TorchLearner, build

COMPLETE = topology.complete(5)
RING = topology.ring(5)
LINEAR = Layout(("1.weight", "1.bias"), ((3, 13), (3,)))
MLP = Layout(("1.weight", "1.bias", "3.weight", "3.bias"), ((4, 13), (4,), (3, 4), (3,)))


def average(graph, **settings):
    return Averaging(graph.peers, SEED, Gossip(), mean_samples=142 / 5, **settings)


def test_fedper_by_a_server_that_knows_nothing_of_the_biases():
    federation = wine(COMPLETE.peers)
    learner, model = classifier(federation, batch=8)
    clients = Clients(federation, model, batch=8)
    rows = list(learner.start(COMPLETE.peers))
    for round, state in enumerate(
        play(FedPer(average(COMPLETE), LINEAR, ("1.bias",)), learner, COMPLETE, rounds=4)[1:]
    ):
        rows = [clients.fit(peer, row, round=round) for peer, row in zip(clients.peers, rows, strict=True)]
        mean = clients.average(rows)
        rows = [torch.cat([mean[:39], row[39:]]) for row in rows]
        assert (state.rows - torch.stack(rows)).abs().max() < 1e-10
        assert (state.public.rows[:, :39] - mean[:39]).abs().max() < 1e-10
        assert torch.equal(state.public.rows[:, 39:], learner.start(COMPLETE.peers)[:, 39:])


def test_fedrep_takes_the_steps_of_the_heads_first_and_then_that_of_the_body():
    federation = wine(COMPLETE.peers)
    learner, model = classifier(federation, batch=8)
    clients = Clients(federation, model, batch=8)
    algorithm = FedRep(average(COMPLETE), LINEAR, ("1.bias",), head_steps=4, body_steps=2)
    body = learner.start(COMPLETE.peers)[0][:39]
    heads = [learner.start(COMPLETE.peers)[0][39:]] * 5
    for round, state in enumerate(play(algorithm, learner, COMPLETE, rounds=3)[1:]):
        local, after = [], []
        for peer, head in zip(clients.peers, heads, strict=True):
            own = body
            for step in range(4):
                head = head - RATE * clients.slope(peer, torch.cat([own, head]), round=round, step=step)[39:]  # noqa: PLW2901
            for step in (4, 5):
                own = own - RATE * clients.slope(peer, torch.cat([own, head]), round=round, step=step)[:39]
            local.append(own)
            after.append(head)
        heads, body = after, clients.average(local)
        expected = torch.stack([torch.cat([body, head]) for head in heads])
        assert (state.rows - expected).abs().max() < 1e-10


@pytest.mark.parametrize("fraction", [1.0, 0.4])
def test_with_nothing_personal_fedper_is_fedavg_bit_for_bit(fraction):
    learner, _ = classifier(wine(RING.peers), batch=8)
    algorithm = FedPer(average(RING, fraction=fraction), LINEAR, ())
    ours = play(algorithm, learner, RING, rounds=4)[-1]
    plain = play(FedAvg(algorithm.average), learner, RING, rounds=4)[-1]
    assert torch.equal(ours.rows, plain.rows)
    assert torch.equal(ours.public.rows, plain.public.rows)


def test_with_nothing_personal_fedrep_is_fedavg_of_as_many_steps():
    learner, _ = classifier(wine(RING.peers), batch=8, steps=3)
    ours = play(FedRep(average(RING), LINEAR, (), head_steps=0, body_steps=3), learner, RING, rounds=4)[-1]
    assert torch.equal(ours.rows, play(FedAvg(average(RING)), learner, RING, rounds=4)[-1].rows)


@pytest.mark.parametrize("kind", [FedPer, FedRep])
def test_only_a_shorter_row_travels(kind):
    federation = wine(RING.peers)
    model = build("mlp", shape=(13,), classes=3, seed=SEED, options={"hidden": (4,)})
    learner = TorchLearner(model, federation, seed=SEED, dtype=torch.float64, device="cpu")
    assert learner.layout == MLP
    net, algorithm = stack(RING), kind(average(RING), MLP)
    rows = learner.start(RING.peers)
    run_without_loop(algorithm.exchange(net, rows, public=Public(rows), masses=None))
    assert (net.bytes_out == 8 * (13 * 4 + 4)).all()  # not the 15 numbers of the head


@pytest.mark.parametrize(
    ("layout", "personal", "sentence"),
    [
        (MLP, ("2",), 'contains "2", which names no tensor of the model; name some of 1.weight'),
        (MLP, ("*",), "covers all tensors .*; name fewer"),
        (LINEAR, None, "covers all tensors .*, or take a model of more than one layer"),
    ],
)
def test_what_cannot_be_personal_is_said_in_one_sentence(layout, personal, sentence):
    with pytest.raises(ExperimentError, match=sentence):
        FedPer(average(RING), layout, personal)


def test_fedbn_averages_all_but_batch_normalisation():
    federation = wine(COMPLETE.peers)
    learner = TorchLearner(Normed(), federation, seed=SEED, dtype=torch.float64, device="cpu", norm="local", batch=8)
    algorithm = FedBN(average(COMPLETE), learner.layout)
    start, local = learner.start(COMPLETE.peers), learner.layout.mask(learner.layout.local)
    assert algorithm.shared == learner.layout.size - 4 * 5
    state = play(algorithm, learner, COMPLETE, rounds=1)[1]
    alone = learner.fit(start, peers=COMPLETE.peers, round=0).rows
    assert torch.equal(state.rows[:, local], alone[:, local])
    assert torch.equal(state.public.rows[:, local], start[:, local])
    weights = learner.samples(COMPLETE.peers).double()
    mean = (weights @ alone[:, ~local]) / weights.sum()
    assert (state.rows[:, ~local] - mean).abs().max() < 1e-10


def test_without_a_choice_the_last_layer_is_personal_beside_local_ones():
    learner = TorchLearner(Normed(), wine(RING.peers), seed=SEED, device="cpu", norm="local")
    shared = FedPer(average(RING), learner.layout).common
    assert shared.sum() == learner.layout.mask({"body.weight", "body.bias"}).sum()
