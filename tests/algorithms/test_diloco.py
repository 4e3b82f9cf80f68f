"""Each update against a dense loop written from its paper."""

import asyncio
import threading

import numpy as np
import pytest
import torch
from servers import Clients
from stacks import classifier, play, wine

from p2pfl import topology
from p2pfl.algorithms import DPSGD, Averaging, DiLoCo, FedAvg, Gossip, State, train_while
from p2pfl.core.errors import ExperimentError
from p2pfl.core.neighbourhood import Public, run_without_loop
from p2pfl.learning import ExternalLearner, Fitted, Report
from p2pfl.network.peer.masking.round_attempts import AgainError, RetryAttempt
from p2pfl.network.peer.threads import Threaded
from p2pfl.topology import metropolis

N, P, ROUNDS, ETA, BETA = 8, 5, 12, 0.7, 0.5
STEPS, INNER = 3, 0.1
PAIRS = topology.base(N)
RING = topology.ring(N)
GOALS = np.random.default_rng(7).normal(size=(N, P))
SCALES = np.random.default_rng(8).uniform(0.5, 1.5, size=(N, P))


def descend(row, own):
    """H steps of gradient descent on a quadratic of one peer."""
    for _ in range(STEPS):
        row = row - INNER * SCALES[own] * (row - GOALS[own])
    return row


def bowls():
    def fit(row: torch.Tensor, *, peer: str, round: int) -> torch.Tensor:
        del round
        return torch.from_numpy(descend(row.numpy(), int(peer.removeprefix("peer"))))

    return ExternalLearner(
        fit, start=torch.zeros(P, dtype=torch.float64), samples={f"peer{number}": 1 for number in range(N)}
    )


def fitted(theta):
    return np.stack([descend(theta[own], own) for own in range(N)])


def mixing(graph, round):
    return metropolis(graph.at(round)).matrix.toarray()


def close(algorithm, graph, expected):
    states = play(algorithm, bowls(), graph, rounds=ROUNDS)
    assert np.abs(states[-1].rows.numpy() - expected).max() < 1e-12
    assert np.abs(expected).max() > 0.1


def test_on_the_complete_graph_it_is_algorithm_1_of_diloco_with_torchs_nesterov():
    x = torch.zeros(P, dtype=torch.float64, requires_grad=True)
    outer = torch.optim.SGD([x], lr=ETA, momentum=BETA, nesterov=True)
    for _ in range(ROUNDS):
        theta = fitted(np.tile(x.detach().numpy(), (N, 1)))
        x.grad = x.detach() - torch.from_numpy(theta.mean(0))
        outer.step()
    close(DiLoCo(global_rate=ETA, momentum=BETA), topology.complete(N), np.tile(x.detach().numpy(), (N, 1)))


def test_by_pairs_and_without_nesterov_it_is_the_update_of_noloco():
    phi, m = np.zeros((N, P)), np.zeros((N, P))
    for t in range(ROUNDS):
        change, W = fitted(phi) - phi, mixing(PAIRS, t)
        m = BETA * m + ETA * W @ change - ETA * (phi - W @ phi)  # gamma is eta
        phi = phi + m
    close(DiLoCo(global_rate=ETA, momentum=BETA, nesterov=False), PAIRS, phi)
    assert np.ptp(phi, axis=0).max() > 1e-3  # peers do not agree, so the term of gamma matters


def nesterov(change, m):
    m = BETA * m + change
    return ETA * (change + BETA * m), m


def test_mixing_from_the_start_adds_ones_own_step_to_the_mixed_parameters():
    phi, m = np.zeros((N, P)), np.zeros((N, P))
    for t in range(ROUNDS):
        step, m = nesterov(fitted(phi) - phi, m)
        phi = mixing(PAIRS, t) @ phi + step
    close(DiLoCo(global_rate=ETA, momentum=BETA, overlap="start"), PAIRS, phi)


@pytest.mark.parametrize("overlap", ["none", "late"])
@pytest.mark.parametrize("fragments", [1, 2, 3])
def test_fragments_take_turns_and_late_ones_are_merged_as_in_streaming_diloco(fragments, overlap):
    keep = 0.25 if overlap == "late" else None
    theta, slow, m = np.zeros((N, P)), np.zeros((N, P)), np.zeros((N, P))
    for t in range(ROUNDS):
        part = np.arange(P)[(t % fragments) * P // fragments : (t % fragments + 1) * P // fragments]
        sent = theta.copy()
        theta = fitted(theta)
        change = (mixing(RING, t) @ (sent if overlap == "late" else theta) - slow)[:, part]
        step, m[:, part] = nesterov(change, m[:, part])
        slow[:, part] += step
        if overlap == "none":
            theta[:, part] = slow[:, part]
        elif t > 0:
            theta[:, part] = keep * theta[:, part] + (1 - keep) * slow[:, part]
    close(DiLoCo(global_rate=ETA, momentum=BETA, fragments=fragments, overlap=overlap, keep=keep), RING, theta)


def test_the_state_of_adamw_goes_on_from_round_to_round_as_at_a_worker_of_diloco():
    graph = topology.complete(4)
    federation = wine(graph.peers)
    learner, model = classifier(federation, batch=8, rate=0.01, optimizer="adamw")
    last = play(DiLoCo(global_rate=ETA, momentum=BETA), learner, graph, rounds=4)[-1].rows
    clients = Clients(model, federation)
    shared = clients.start.clone().requires_grad_()
    outer = torch.optim.SGD([shared], lr=ETA, momentum=BETA, nesterov=True)
    rows = {peer: clients.start.clone().requires_grad_() for peer in graph.peers}
    inner = {peer: torch.optim.AdamW([row], lr=0.01) for peer, row in rows.items()}
    for round in range(4):
        for peer, row in rows.items():
            with torch.no_grad():
                row.copy_(shared)
            for positions in clients.batches(peer, round=round):
                row.grad = clients.gradient(peer, row.detach(), positions)
                inner[peer].step()
        mean = torch.stack([row.detach() for row in rows.values()]).mean(0)
        shared.grad = shared.detach() - mean
        outer.step()
    assert float((last - shared.detach()).abs().max()) < 1e-10


@pytest.mark.parametrize("graph", [RING, PAIRS], ids=["ring", "pairs"])
def test_with_rate_one_and_no_momentum_it_is_fedavg_by_gossip_bit_for_bit(graph):
    learner, _ = classifier(wine(graph.peers), batch=8, epochs=2)
    gossip = Gossip(2)
    plain = play(FedAvg(Averaging(graph.peers, gossip=gossip, weighted=False)), learner, graph, rounds=5)
    ours = play(DiLoCo(gossip=gossip, global_rate=1.0, momentum=0.0), learner, graph, rounds=5)
    assert torch.equal(ours[-1].rows, plain[-1].rows)
    assert not torch.equal(ours[-1].rows, ours[0].rows)


def test_mixing_from_the_start_with_rate_one_and_no_momentum_is_dpsgd_bit_for_bit():
    learner, _ = classifier(wine(RING.peers), batch=8, epochs=2)
    plain = play(DPSGD(), learner, RING, rounds=5)
    ours = play(DiLoCo(global_rate=1.0, momentum=0.0, overlap="start"), learner, RING, rounds=5)
    assert torch.equal(ours[-1].rows, plain[-1].rows)


def test_a_late_step_that_keeps_all_of_the_local_model_is_training_alone():
    alone = np.zeros((N, P))
    for _ in range(ROUNDS):
        alone = fitted(alone)
    close(DiLoCo(overlap="late", keep=1.0), RING, alone)


def test_a_share_for_late_steps_needs_late_steps():
    for overlap in ("none", "start"):
        with pytest.raises(ExperimentError, match=r'^keep = 0.2 is the share .* or set overlap to "late"$'):
            DiLoCo(keep=0.2, overlap=overlap)


def test_whole_models_and_fragments_do_not_go_together():
    with pytest.raises(ExperimentError, match='set fragments to 1, or overlap to "late"'):
        DiLoCo(fragments=2, overlap="start")


class Slow:
    """A learner whose training waits until an exchange has begun, which training before the exchange never would."""

    def __init__(self, begun):
        self.begun = begun

    def fit(self, rows, **options):
        del options
        assert self.begun.wait(timeout=30)
        return type("Fitted", (), {"rows": rows + 1})


async def test_a_live_learner_trains_while_models_are_exchanged():
    begun = threading.Event()
    learner = Threaded(Slow(begun))

    async def exchange():
        begun.set()
        return "mixed"

    fitted, exchanged = await train_while(learner, learner.fit(torch.zeros(1, 2)), exchange())
    assert exchanged == "mixed"
    assert fitted.rows.tolist() == [[1.0, 1.0]]


async def test_an_exchange_that_fails_ends_with_the_training():
    done = threading.Event()

    class Training:
        def fit(self, rows, **options):
            del options
            done.set()
            return type("Fitted", (), {"rows": rows})

    async def exchange():
        raise ExperimentError("the attempt has failed")

    learner = Threaded(Training())
    with pytest.raises(ExperimentError, match="attempt"):
        await train_while(learner, learner.fit(torch.zeros(1, 2)), exchange())
    assert done.is_set()


async def test_training_that_fails_ends_the_exchange():
    class Training:
        def fit(self, rows, **options):
            del rows, options
            raise ExperimentError("diverged")

    ended = []

    async def exchange():
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append(True)

    learner = Threaded(Training())
    with pytest.raises(ExperimentError, match="diverged"):
        await train_while(learner, learner.fit(torch.zeros(1, 2)), exchange())
    assert ended == [True]


def test_without_a_loop_the_exchange_comes_first_and_its_error_ends_the_training():
    async def exchange():
        raise ExperimentError("lost")

    async def training():
        raise AssertionError("it must not begin")

    with pytest.raises(ExperimentError, match="lost"):
        run_without_loop(train_while(object(), training(), exchange()))


async def test_an_attempt_that_failed_during_training_is_played_again_with_the_same_update():
    trained, exchanged = [], []

    class Training:
        def fit(self, rows, **options):
            del options
            trained.append(rows)
            return Fitted(rows + 1, {}, Report(torch.zeros(1), torch.ones(1)))

    class Round:
        async def round(self, state, learner, net, round):
            del net, round

            async def exchange():
                exchanged.append(True)
                if len(exchanged) == 1:
                    raise AgainError("attempt 0 at round 0 has failed")

            fitted, _ = await train_while(learner, learner.fit(state.rows, round=0), exchange())
            return State(fitted.rows, state.public)

    class Attempts:
        stop = None

        def begin(self, round):
            assert round == 0

        async def stops(self, *_, **__):
            return False

        async def report(self, *, complete):
            assert complete

    rows = torch.zeros(1, 2)
    playing = RetryAttempt(Round(), Attempts())
    after = await playing.round(State(rows, Public(rows)), Threaded(Training()), None, 0)
    assert len(trained) == 1
    assert len(exchanged) == 2
    assert after.rows.tolist() == [[1.0, 1.0]]
