"""CHOCO as its paper writes it, with a copy of every neighbour at every peer, and what compression leaves alone."""

from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stacks import RATE, SEED, circulant, classifier, play, push, quadratics, stack, wine
from test_dpsgd import gradients

from effort import FEW
from p2pfl import topology
from p2pfl.algorithms import (
    DPSGD,
    SGP,
    Averaging,
    Choco,
    Compressed,
    DiLoCo,
    FedAvg,
    FedNova,
    FedPer,
    Gossip,
    Idle,
    PartialSharing,
    State,
    start,
)
from p2pfl.core.codecs import QSGD, At, Half, Quantise, encode_rows
from p2pfl.core.errors import RunError
from p2pfl.core.neighbourhood import Public, Released, derived, run_without_loop
from p2pfl.core.sparse_codecs import RandomK, TopK
from p2pfl.simulation import Faults
from p2pfl.simulation.inline import Inline
from p2pfl.simulation.playing import AttendanceAlgorithm
from p2pfl.topology import Topology

ROUNDS = 6
GRAPH = topology.small_world(8, degree=4, rewire=0.3, seed=1)
W = topology.metropolis(GRAPH).matrix.toarray()
CODECS = {
    "top 20 %": TopK(0.2),
    "top 20 % in 2 bits": TopK(0.2, bits=2),
    "random 20 %": RandomK(0.2, seed=SEED),
    "QSGD": QSGD(16, seed=SEED),
    "4 bits": Quantise(4),
}
TRACKED = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)


def everybody(_round):
    return torch.ones(8, dtype=torch.bool)


def averaging(steps=1, graph=GRAPH, **settings):
    return FedAvg(Averaging(graph.peers, SEED, Gossip(steps), **({"weighted": False} | settings)))


@pytest.mark.slow
@TRACKED
def test_choco_sgd_is_algorithm_2_of_the_paper(codec):
    federation = wine(GRAPH.peers)
    learner, model = classifier(federation, batch=8, steps=1)
    gamma = 0.3
    states = play(Compressed(Choco(), codec, gamma), learner, GRAPH, rounds=ROUNDS)
    x = learner.start(GRAPH.peers)
    copies = [[x[j].clone() for j in range(8)] for _ in range(8)]  # copies[i][j]: what i has of j
    for round in range(ROUNDS):
        x = x - RATE * gradients(model, federation, x, round=round)
        q = []
        for i, peer in enumerate(GRAPH.peers):
            q.append(encode_rows(codec, (x[i] - copies[i][i])[None], at=At((peer,), round, 0))[0][0])
        for i in range(8):
            for j in range(8):
                copies[i][j] = copies[i][j] + q[j]
        x = torch.stack(
            [x[i] + gamma * sum(W[i, j] * (copies[i][j] - copies[i][i]) for j in range(8)) for i in range(8)]
        )
        assert (states[round + 1].rows - x).abs().max() < 1e-10


def test_dpsgd_is_mixed_by_choco_gossip_before_its_step():
    federation = wine(GRAPH.peers)
    learner, model = classifier(federation, batch=8, steps=1)
    codec, gamma = TopK(0.2), 0.5
    states = play(Compressed(DPSGD(), codec, gamma), learner, GRAPH, rounds=ROUNDS)
    x = learner.start(GRAPH.peers)
    copies = x.clone()
    for round in range(ROUNDS):
        slopes = gradients(model, federation, x, round=round)
        copies = copies + encode_rows(codec, x - copies, at=At(GRAPH.peers, round, 0))[0]
        x = x + gamma * (torch.from_numpy(W) @ copies - copies) - RATE * slopes
        assert (states[round + 1].rows - x).abs().max() < 1e-10


def test_several_exchanges_a_round_are_as_many_of_choco_gossip():
    rows = torch.randn(8, 30, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    learner = Gossiping(rows)
    after = run_without_loop(Compressed(averaging(3), TopK(0.2), 0.3).round(learner.state, learner, stack(GRAPH), 0))
    x, copies = rows, torch.zeros_like(rows)
    for step in range(3):
        copies = copies + encode_rows(TopK(0.2), x - copies, at=At(GRAPH.peers, 0, step))[0]
        x = x + 0.3 * (torch.from_numpy(W) @ copies - copies)
    assert (after.rows - x).abs().max() < 1e-12
    assert (after.extra["sums"] - torch.from_numpy(W) @ after.extra["copies"]).abs().max() < 1e-12


class Gossiping(Inline):
    """Trains nothing: the rows are given, and nobody knows them."""

    def __init__(self, rows):
        learner = quadratics([0.0] * 8, [0.0] * 8, rate=0.0, steps=0)
        super().__init__(learner, present=lambda _: torch.ones(len(rows), dtype=torch.bool), clock=lambda: 0.0)
        self.state = State(rows, Public(torch.zeros_like(rows)))

    async def fit(self, rows, **settings):
        return replace(await super().fit(rows[:, :1], **settings), rows=rows)


@pytest.mark.parametrize("codec", [*CODECS.values(), Half("bfloat16")], ids=[*CODECS, "bfloat16"])
@settings(FEW)
@given(seed=st.integers(0, 10**6), gamma=st.floats(0.01, 1.0))
def test_the_mean_of_the_rows_is_kept_whatever_is_lost(codec, seed, gamma):
    rows = torch.randn(8, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    learner = Gossiping(rows)
    after = run_without_loop(Compressed(averaging(4), codec, gamma).round(learner.state, learner, stack(GRAPH), 0)).rows
    assert (after.mean(0) - rows.mean(0)).abs().max() < 1e-13 * max(1.0, float(after.abs().max()))


@pytest.mark.sampled(fast=0, all=1)
@TRACKED
def test_gossip_under_compression_ends_at_the_mean_exactly(codec):
    rows = torch.randn(8, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    learner = Gossiping(rows)
    state, algorithm = learner.state, Compressed(averaging(), codec)
    for round in range(1500):
        state = run_without_loop(algorithm.round(state, learner, stack(GRAPH, round=round), round))
    assert (state.rows - rows.mean(0)).abs().max() < 1e-9


@pytest.mark.parametrize("algorithm", [averaging(), DPSGD(), averaging(weighted=True, mean_samples=17.0)], ids=repr)
def test_whole_rows_in_every_round_are_the_plain_algorithm_to_the_last_bit(algorithm):
    learner, _ = classifier(wine(GRAPH.peers), batch=8, steps=1)
    plain = play(algorithm, learner, GRAPH, rounds=3)[-1].rows
    assert torch.equal(play(Compressed(algorithm, TopK(0.1), refresh=1), learner, GRAPH, rounds=3)[-1].rows, plain)


def test_dpsgd_that_adapts_first_is_fedavg_of_one_step_and_one_exchange_to_the_last_bit():
    learner, _ = classifier(wine(GRAPH.peers), batch=8, steps=1)
    plain = play(averaging(), learner, GRAPH, rounds=4)[-1].rows
    assert torch.equal(play(DPSGD(order="adapt_then_combine"), learner, GRAPH, rounds=4)[-1].rows, plain)


def test_a_codec_that_loses_nothing_is_the_plain_algorithm():
    learner, _ = classifier(wine(GRAPH.peers), batch=8)
    weighted = averaging(2, weighted=True, mean_samples=17.0)
    plain = play(weighted, learner, GRAPH, rounds=4)[-1].rows
    lossless = play(Compressed(weighted, TopK(1.0), 1.0), learner, GRAPH, rounds=4)[-1].rows
    assert (lossless - plain).abs().max() < 1e-13


def test_on_weighted_rows_the_masses_move_with_the_rows():
    learner = quadratics([1.0] * 8, [0.5] * 8, rate=0.1, steps=2, sizes=[1, 2, 3, 4, 5, 6, 7, 8])
    codec = Quantise(8)
    states = play(Compressed(averaging(4, weighted=True, mean_samples=4.5), codec, 0.5), learner, GRAPH, rounds=5)
    for state in states:  # all start and descend alike, so their weighted mean is what each has
        assert (state.rows - state.rows[0]).abs().max() < 1e-6


def test_a_state_saved_and_restored_goes_on_as_if_nothing_had_been():
    learner, _ = classifier(wine(GRAPH.peers), batch=8)
    algorithm = Compressed(averaging(2), TopK(0.1))
    run = Inline(learner, present=everybody, clock=lambda: 0.0)

    def advance(state, rounds):
        for round in rounds:
            state = run_without_loop(algorithm.round(state, run, stack(GRAPH, round=round), round))
        return state

    half = advance(start(learner, GRAPH.peers), range(3))
    tensors = {name: tensor.clone() for name, tensor in half.tensors().items()}
    restored = State.restore(half.rows.clone(), tensors)
    assert torch.equal(advance(restored, range(3, 6)).rows, advance(half, range(3, 6)).rows)


@pytest.mark.slow
def test_missed_differences_leave_an_error_that_a_refresh_repairs():
    rows = torch.randn(8, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    learner = Gossiping(rows)
    lossy = Faults(loss=0.3)

    def apart(refresh):
        state, algorithm = learner.state, Compressed(averaging(), Quantise(8), 0.5, refresh)
        for round in range(400):
            faults = lossy if round < 100 else None
            state = run_without_loop(algorithm.round(state, learner, stack(GRAPH, round=round, faults=faults), round))
        return float((state.rows - state.rows.mean(0)).abs().max())

    assert apart(None) > 1e-3
    assert apart(50) < 1e-9


@pytest.mark.parametrize("algorithm", [Choco(), averaging(2)], ids=["CHOCO-SGD", "FedAvg"])
def test_nothing_of_an_absent_peer_moves_its_copy_and_sum_included(algorithm):
    learner, _ = classifier(wine(GRAPH.peers), batch=8)
    faults = Faults(absence=0.4)
    attending = AttendanceAlgorithm(Compressed(algorithm, TopK(0.2)), present=lambda round: there(faults, round))
    states = play(attending, learner, GRAPH, rounds=5, faults=faults)
    for round, (before, after) in enumerate(pairwise(states)):
        away = ~there(faults, round)
        assert torch.equal(after.rows[away], before.rows[away])
        for name, tensor in before.extra.items():
            assert torch.equal(after.extra[name][away], tensor[away])


def there(faults, round):
    return faults.present(GRAPH.peers, seed=SEED, round=round)


@TRACKED
def test_faults_that_never_happen_change_nothing(codec):
    learner, _ = classifier(wine(GRAPH.peers), batch=8)
    algorithm = Compressed(averaging(2), codec)
    plain = play(algorithm, learner, GRAPH, rounds=3)[-1].rows
    rare = play(algorithm, learner, GRAPH, rounds=3, faults=Faults(1e-12, 1e-12))[-1].rows
    assert torch.allclose(rare, plain, rtol=0, atol=1e-12)


def test_rows_in_halves_lose_only_what_their_owner_keeps():
    rows = torch.randn(8, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    learner = Gossiping(rows)
    after = run_without_loop(Compressed(averaging(), Half("float16")).round(learner.state, learner, stack(GRAPH), 0))
    left = rows.to(torch.float16).double()
    assert (after.rows - (rows - left + torch.from_numpy(W) @ left)).abs().max() < 1e-14
    assert after.extra == {}


@pytest.mark.parametrize("codec", [*CODECS.values(), Half()], ids=[*CODECS, "float16"])
def test_a_simulated_peer_is_charged_what_its_row_takes(codec):
    rows = torch.randn(8, 1000, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    learner, net = Gossiping(rows), stack(GRAPH)
    run_without_loop(Compressed(averaging(3), codec).round(learner.state, learner, net, 0))
    size = encode_rows(codec, rows, at=At(GRAPH.peers, 0, 0))[1].size
    assert net.bytes_out.tolist() == [3 * size] * 8
    assert size < 8000


def test_the_distance_to_the_neighbours_is_told_of_rows_not_of_differences():
    rows = torch.randn(8, 50, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    state, told = Gossiping(rows).state, []
    for round in range(2):
        told.append(stack(GRAPH, round=round))
        state = run_without_loop(Compressed(averaging(), Quantise(8)).round(state, Gossiping(rows), told[-1], round))
        copies = state.extra["copies"]
        apart = (torch.from_numpy(W) @ copies - copies).norm(dim=-1)
        assert torch.allclose(told[-1].distance, apart)


def test_what_is_heard_travels_whole():
    class Hearing:
        async def round(self, state, learner, net, round):
            del learner, round
            heard = await net.receive(Released(state.rows))
            assert torch.equal(heard.rows, state.rows)
            return state

    rows = torch.arange(8.0).unsqueeze(-1)
    net = stack(GRAPH)
    run_without_loop(Compressed(Hearing(), TopK(0.1)).round(State(rows, Public(rows)), None, net, 0))
    assert net.bytes_out.tolist() == [4] * 8


def test_an_algorithm_that_mixes_something_else_than_its_rows_is_told_so():
    partial = PartialSharing(averaging().average, SEED, share=0.5)
    learner, _ = classifier(wine(GRAPH.peers), batch=8)
    with pytest.raises(RunError, match=r"releases 21 numbers and mixes 42, .*; set compression.name"):
        play(Compressed(Twice(partial.average), TopK(0.1)), learner, GRAPH, rounds=1)


class Twice:
    """Releases half a row, and mixes a whole one, too."""

    def __init__(self, average):
        self.average = average

    async def round(self, state, learner, net, round):
        del learner, round
        half = state.rows[:, :21]
        await self.average(net, half, since=derived(lambda rows: rows[:, :21], state.public), masses=None)
        return State((await net.mix(Released(state.rows))).values, state.public)


@pytest.mark.parametrize("overlap", ["none", "late"])
def test_fragments_are_mixed_by_choco_gossip_of_their_places(overlap):
    learner, _ = classifier(wine(GRAPH.peers), batch=8)
    codec, gamma, size, ones = TopK(0.2, bits=2), 0.3, learner.layout.size, torch.ones(8, dtype=torch.bool)
    keep = 0.0 if overlap == "late" else None
    algorithm = DiLoCo(fragments=2, overlap=overlap, global_rate=1.0, momentum=0.0, keep=keep)
    states = play(Compressed(algorithm, codec, gamma), learner, GRAPH, rounds=ROUNDS)
    x, run = learner.start(GRAPH.peers), Inline(learner, present=lambda _: ones, clock=lambda: 0.0)
    copies = x.clone()
    for round in range(ROUNDS):
        part = slice(size // 2) if round % 2 == 0 else slice(size // 2, size)
        fitted = run_without_loop(run.fit(x, peers=GRAPH.peers, round=round)).rows
        sent = (fitted if overlap == "none" else x)[:, part]
        copies[:, part] += encode_rows(codec, sent - copies[:, part], at=At(GRAPH.peers, round, 0))[0]
        x = fitted.clone()
        if overlap == "none" or round:
            x[:, part] = sent + gamma * ((torch.from_numpy(W) @ copies - copies)[:, part])
        assert (states[round + 1].rows - x).abs().max() < 1e-10
        assert (states[round + 1].extra["copies"] - copies).abs().max() < 1e-10


def test_the_shared_part_of_rows_is_mixed_by_choco_gossip_as_whole_rows_are():
    learner, _ = classifier(wine(GRAPH.peers), batch=8)
    codec, layout = Quantise(4), learner.layout
    whole = play(Compressed(averaging(2), codec), learner, GRAPH, rounds=ROUNDS)
    none = FedPer(averaging(2).average, layout, ())
    assert torch.equal(play(Compressed(none, codec), learner, GRAPH, rounds=ROUNDS)[-1].rows, whole[-1].rows)
    part = FedPer(averaging(2).average, layout, ("1.bias",))
    states = play(Compressed(part, codec), learner, GRAPH, rounds=ROUNDS)
    copies, sums = states[-1].extra["copies"], states[-1].extra["sums"]
    assert copies.shape == (8, 39)
    assert (sums - torch.from_numpy(W) @ copies).abs().max() < 1e-12
    assert not torch.equal(states[-1].rows[0, part.common == 0], states[-1].rows[1, part.common == 0])


def test_what_is_mixed_before_anything_is_released_travels_whole():
    learner, _ = classifier(wine(GRAPH.peers), batch=8)
    nova = FedNova(Averaging(GRAPH.peers, SEED, Gossip(), weighted=False))
    rows = play(Compressed(nova, TopK(1.0), 1.0), learner, GRAPH, rounds=ROUNDS)[-1].rows
    assert torch.allclose(rows, play(nova, learner, GRAPH, rounds=ROUNDS)[-1].rows, atol=1e-12)


@pytest.mark.slow
def test_on_one_way_edges_compressed_pushes_come_to_the_mean_of_all():
    graph, rows = circulant(8, (1, 3)), torch.randn(8, 30, dtype=torch.float64)
    graph = Topology(graph.peers, graph.edges[:-1], directed=True)  # some are heard by fewer
    weights = push(graph).matrix.toarray()
    assert abs(weights.sum(1) - 1).max() > 0.1
    start = torch.ones(8, 30, dtype=torch.float64)
    state, sgp = State(rows, Public(start)), Compressed(SGP(), QSGD(16, seed=SEED), 0.2, even=False)
    for round in range(400):
        state = run_without_loop(sgp.round(state, Idle(Gossiping(rows)), stack(graph, round=round, weigh=push), round))
    assert (state.rows - rows.mean(0)).abs().max() < 1e-6


@pytest.mark.slow
def test_peers_learn_over_a_tenth_of_the_numbers():
    learner, _ = classifier(wine(GRAPH.peers), batch=8, rate=0.05)
    before = learner.evaluate(learner.start(GRAPH.peers), peers=GRAPH.peers)["loss"].mean()
    states = play(Compressed(averaging(), TopK(0.1)), learner, GRAPH, rounds=60)
    losses = [learner.evaluate(state.rows, peers=GRAPH.peers)["loss"].mean() for state in states[::20]]
    assert all(later < earlier for earlier, later in pairwise(losses))
    assert losses[-1] < 0.5 * before


# ---------------------------------------------------------------------- graphs that take turns

PAIRS = topology.base(8)
SCHEDULES = {
    "pairs": PAIRS,
    "random pairs": topology.epidemic_oracle(8, degree=1, period=3, seed=1),
    "random neighbours": topology.epidemic_oracle(8, degree=3, period=2, seed=1),
    "one-way": topology.one_peer_exponential(8),
    "trees": topology.double_binary_tree(8),
}


def weights(schedule, gossip_step):
    return torch.from_numpy(topology.metropolis(schedule.at(gossip_step)).matrix.toarray())


@pytest.mark.sampled(fast=2, all=25)
@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
@TRACKED
def test_each_graph_of_a_schedule_has_a_choco_of_its_own(schedule, codec):
    federation = wine(PAIRS.peers)
    learner, model = classifier(federation, batch=8, steps=1)
    gamma, rounds = 0.3, 2 * schedule.period + 1
    states = play(Compressed(Choco(Gossip(2)), codec, gamma, period=schedule.period), learner, schedule, rounds=rounds)
    x = learner.start(PAIRS.peers)
    copies = [[[x[j].clone() for j in range(8)] for _ in range(8)] for _ in range(schedule.period)]  # what i has of j
    for round in range(rounds):
        x = x - RATE * gradients(model, federation, x, round=round)
        for step in range(2):
            here, w = copies[(round + step) % schedule.period], weights(schedule, round + step)
            for j, peer in enumerate(PAIRS.peers):
                q = encode_rows(codec, (x[j] - here[j][j])[None], at=At((peer,), round, step))[0][0]
                for i in range(8):
                    here[i][j] = here[i][j] + q
            moved = [sum(w[i, j] * (here[i][j] - here[i][i]) for j in range(8)) for i in range(8)]
            x = x + gamma * torch.stack(moved)
        assert (states[round + 1].rows - x).abs().max() < 1e-10


def test_a_first_meeting_of_two_is_the_step_of_sparseloco():
    pair, start = topology.complete(2), torch.tensor([[1.0, 1.0, 1.0, 1.0]] * 2, dtype=torch.float64)
    changes = torch.tensor([[0.5, -4.0, 0.25, 2.0], [8.0, -2.0, 1.0, 0.125]], dtype=torch.float64)
    sent = torch.tensor([[0.0, -4.0, 0.0, 2.0], [8.0, -2.0, 0.0, 0.0]], dtype=torch.float64)  # the two largest
    left = torch.tensor([[0.5, 0.0, 0.25, 0.0], [0.0, 0.0, 1.0, 0.125]], dtype=torch.float64)  # accumulators
    step = torch.tensor([4.0, -3.0, 0.0, 1.0], dtype=torch.float64)  # the mean of what was sent, at outer rate 1
    before, learner = State(start + changes, Public(start)), Gossiping(start)
    algorithm = Compressed(averaging(graph=pair), TopK(0.5), 1.0, period=2)
    after = run_without_loop(algorithm.round(before, learner, stack(pair), 0))
    assert torch.equal(after.rows, start + step + left)
    assert torch.equal(after.extra["copies"], start + sent)
    assert torch.equal(after.extra["sums"], start + step)
    assert torch.equal(after.extra["copies 1"], start)


@dataclass(frozen=True)
class Noted:
    """A codec that notes what it leaves of each row."""

    codec: TopK
    left: list = field(default_factory=list)

    def __getattr__(self, name):
        return getattr(self.codec, name)

    def decode(self, *args, **settings):
        self.left.append(self.codec.decode(*args, **settings))
        return self.left[-1]


@pytest.mark.parametrize("bits", [None, 2])
@settings(FEW)
@given(seed=st.integers(0, 10**6))
def test_what_was_sent_to_a_partner_and_what_was_left_out_are_all_of_the_way_from_the_start(bits, seed):
    rows = torch.randn(8, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    codec, learner = Noted(TopK(0.1, bits=bits)), Gossiping(rows)
    algorithm, state = Compressed(averaging(), codec, period=3), learner.state
    for round in range(7):
        before = state.rows
        state = run_without_loop(algorithm.round(state, learner, stack(PAIRS, round=round), round))
        assert (state.rows.mean(0) - rows.mean(0)).abs().max() < 1e-13
        graph = round % 3
        told = sum(codec.left[graph::3])
        accumulator = before - state.extra[f"copies {graph}" if graph else "copies"]
        assert (told + accumulator - before).abs().max() < 1e-12  # they start at zero


def test_a_codec_that_loses_nothing_is_the_plain_schedule():
    learner, _ = classifier(wine(PAIRS.peers), batch=8)
    for schedule in SCHEDULES.values():
        weighted = averaging(2, weighted=True, mean_samples=17.0)
        plain = play(weighted, learner, schedule, rounds=5)[-1].rows
        lossless = Compressed(weighted, TopK(1.0), 1.0, period=schedule.period)
        assert (play(lossless, learner, schedule, rounds=5)[-1].rows - plain).abs().max() < 1e-12


@pytest.mark.slow
@TRACKED
def test_gossip_by_pairs_under_compression_ends_at_the_mean_exactly(codec):
    rows = torch.randn(8, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    learner = Gossiping(rows)
    state, algorithm = learner.state, Compressed(averaging(), codec, period=3)
    for round in range(2500):
        state = run_without_loop(algorithm.round(state, learner, stack(PAIRS, round=round), round))
    assert (state.rows - rows.mean(0)).abs().max() < 1e-9


@pytest.mark.slow
def test_a_refresh_repairs_what_is_missing_from_the_sums_of_all_graphs():
    rows = torch.randn(8, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def apart(refresh):
        learner, lossy = Gossiping(rows), Faults(loss=0.3)
        state, algorithm = learner.state, Compressed(averaging(), Quantise(8), 0.5, refresh, period=3)
        for round in range(400):
            faults = lossy if round < 90 else None
            state = run_without_loop(algorithm.round(state, learner, stack(PAIRS, round=round, faults=faults), round))
        return float((state.rows - state.rows.mean(0)).abs().max())

    assert apart(None) > 1e-3
    assert apart(60) < 1e-9


@pytest.mark.parametrize("codec", [Quantise(4), TopK(0.2, bits=2)], ids=["4 bits", "top 20 % in 2 bits"])
def test_rare_exchanges_by_pairs_learn_as_much_from_few_bits(codec):
    learner, _ = classifier(wine(PAIRS.peers), batch=8, rate=0.05)

    def loss(algorithm):
        rows = play(algorithm, learner, PAIRS, rounds=30)[-1].rows
        return float(learner.evaluate(rows, peers=PAIRS.peers)["loss"].mean())

    plain = DiLoCo(global_rate=0.7, momentum=0.5)
    begun = float(learner.evaluate(learner.start(PAIRS.peers), peers=PAIRS.peers)["loss"].mean())
    reached = loss(plain)
    assert reached < 0.5 * begun
    assert loss(Compressed(plain, codec, period=3)) < reached + 0.05 * (begun - reached)
