import numpy as np
import pytest
import torch
from convex import OPTIMUM, quadratics
from hypothesis import given
from hypothesis import strategies as st
from stacks import SEED, classifier, wine

from p2pfl import topology
from p2pfl.algorithms import GossipLearning, learn, start
from p2pfl.core.draws import draw
from p2pfl.core.errors import ExperimentError, RunError
from p2pfl.core.neighbourhood import Released, run_without_loop
from p2pfl.experiment import plan, read
from p2pfl.learning import ExternalLearner
from p2pfl.simulation import Faults, simulate
from p2pfl.simulation.asynchronous import AsynchronousStackedNeighbourhood, Flight
from p2pfl.simulation.inline import Inline
from p2pfl.simulation.playing import AttendanceAlgorithm
from p2pfl.topology import metropolis

GRAPH = topology.small_world(6, degree=4, rewire=0.5, seed=1)
TURNS = topology.one_peer_exponential(6)
faulty = st.builds(
    Faults,
    loss=st.floats(0, 0.8),
    absence=st.floats(0, 0.8),
    delay=st.floats(0, 5),
    slow=st.floats(0, 1),
    pace=st.integers(1, 4),
)


def flying(graph, faults):
    """What makes the neighbourhood of each cycle."""
    weights = [metropolis(graph.at(phase)) for phase in range(graph.period)]
    flight = Flight(weights, seed=SEED, faults=faults)
    return lambda round: AsynchronousStackedNeighbourhood(weights, round=round, seed=SEED, faults=faults, flight=flight)


def play(learner, graph, *, rounds, faults=None):
    """The states of all peers, cycle by cycle."""
    faults = faults or Faults()
    states = [start(learner, graph.peers)]

    def present(round):
        return faults.present(graph.peers, seed=SEED, round=round)

    async def observe(_round, state, _net):
        states.append(state)

    run_without_loop(
        learn(
            AttendanceAlgorithm(GossipLearning(), present=present),
            Inline(learner, present=present, clock=lambda: 0.0),
            states[0],
            rounds=range(rounds),
            neighbourhood=flying(graph, faults),
            private=lambda net, _: net,
            observe=observe,
        )
    )
    return states


def trained(row, peer, round):
    """Every peer adds a number of its own in a cycle."""
    return 0.9 * row + int(peer.removeprefix("peer")) + 0.1 * round


def drifting(graph):
    return ExternalLearner(
        lambda row, *, peer, round: trained(row, peer, round),
        start=torch.zeros(2, dtype=torch.float64),
        samples=dict.fromkeys(graph.peers, 1),
    )


class Told:
    """Gossip learning as a story of single messages."""

    def __init__(self, graph, faults):
        self.graph, self.faults, self.peers = graph, faults, graph.peers
        self.models = dict.fromkeys(graph.peers, (0.0, 0))  # rows and ages
        self.post = []  # (when it comes, when it was sent, listener, sender, model)
        self.boxes = {peer: {} for peer in graph.peers}  # by sender: when it was sent, and the model if it waits

    def cycle(self, now):
        there = [
            p for p, here in zip(self.peers, self.faults.present(self.peers, seed=SEED, round=now), strict=True) if here
        ]
        for peer in there:
            row, age = self.models[peer]
            self.models[peer] = trained(row, peer, now), age + 1
        self.send(now, there)
        for message in sorted(each for each in self.post if each[0] <= now):
            self.post.remove(message)
            _, when, listener, sender, model = message
            if when > self.boxes[listener].get(sender, (-1, None))[0]:
                self.boxes[listener][sender] = when, model
        self.models |= {peer: self.merge(peer) for peer in there}
        return self.models

    def send(self, now, there):
        edges = [(a, b) for a in self.peers for b in self.graph.at(now).senders(a)]
        lost = draw(SEED, "loss 0", round=now).random(len(edges)) < self.faults.loss
        took = draw(SEED, "delay 0", round=now).geometric(1 / (1 + self.faults.delay), len(edges)) - 1
        for (listener, sender), gone, delay in zip(edges, lost, took, strict=True):
            if sender in there and not gone:
                self.post.append((now + delay, now, listener, sender, self.models[sender]))

    def merge(self, peer):
        models = [self.models[peer], *(model for _, model in self.boxes[peer].values() if model is not None)]
        self.boxes[peer] = {sender: (when, None) for sender, (when, _) in self.boxes[peer].items()}
        ages = [age for _, age in models]
        return sum(row * age for row, age in models) / sum(ages), max(ages)


@pytest.mark.slow
@given(faulty, st.sampled_from([GRAPH, TURNS, topology.star(6)]))
def test_whatever_is_late_or_lost_it_is_the_story_of_single_messages(faults, graph):
    states, story = play(drifting(graph), graph, rounds=15, faults=faults), Told(graph, faults)
    for round, state in enumerate(states[1:]):
        rows, ages = zip(*story.cycle(round).values(), strict=True)
        assert state.rows[:, 0].tolist() == pytest.approx(rows, abs=1e-10)
        found = state.extra.get("age", torch.zeros(6, 1))
        assert torch.equal(found.squeeze(-1), torch.tensor(ages, dtype=torch.float64))


def test_without_delay_and_loss_it_is_the_mean_by_age_of_all_neighbours():
    learner, _ = classifier(wine(GRAPH.peers), batch=8)
    states = play(learner, GRAPH, rounds=4)
    rows, ages = states[0].rows, torch.zeros(6, 1, dtype=torch.float64)
    hears = torch.from_numpy(GRAPH.adjacency.toarray()).double() + torch.eye(6)
    for round, state in enumerate(states[1:]):
        fitted = learner.fit(rows, peers=GRAPH.peers, round=round)
        ages = ages + fitted.report.steps.unsqueeze(-1)
        rows = hears @ (ages * fitted.rows) / (hears @ ages)
        ages = (hears * ages.T).amax(1, keepdim=True)
        assert torch.allclose(state.rows, rows, rtol=0, atol=1e-12)
        assert torch.equal(state.extra["age"], ages)
    assert len({float(age) for age in ages}) > 1  # peers have differently many samples


def test_two_peers_merge_as_in_the_paper():
    """a = t' / (t + t'); w = (1 - a) w + a w'; t = max(t, t')."""
    pair = topology.path(2)
    learner, _ = classifier(wine(pair.peers), batch=8)
    fitted = learner.fit(learner.start(pair.peers), peers=pair.peers, round=0)
    t, other = fitted.report.steps.tolist()
    a = other / (t + other)
    after = play(learner, pair, rounds=1)[-1]
    assert torch.allclose(after.rows[0], (1 - a) * fitted.rows[0] + a * fitted.rows[1], rtol=0, atol=1e-14)
    assert after.extra["age"].flatten().tolist() == [max(t, other)] * 2


@given(faulty, st.sampled_from([GRAPH, TURNS]))
def test_no_row_is_heard_twice_nor_after_a_newer_one(faults, graph):
    net, heard = flying(graph, faults), set()
    newest = {}
    for round in range(25):
        said = torch.arange(6.0).unsqueeze(-1) + 10 * round  # who says it, and when
        got = run_without_loop(net(round).receive(Released(said)))
        assert torch.equal(got.listener, got.listener.sort().values)
        there = faults.present(graph.peers, seed=SEED, round=round).tolist()
        for to, by in zip(got.listener.tolist(), got.sender.tolist(), strict=True):
            when, who = divmod(int(got.rows[by, 0]), 10)
            assert got.peers[by] == graph.peers[who]
            if who == to:
                assert when == round
                continue
            assert there[to]
            assert graph.peers[who] in graph.at(when).senders(graph.peers[to])
            assert newest.get((to, who), -1) < when
            newest[to, who] = when
            heard.add((to, who, when))
    assert faults.loss or faults.absence or heard or faults.slow or faults.delay


@given(faulty)
def test_ages_never_decrease_and_nobody_is_older_than_all_training(faults):
    states = play(drifting(GRAPH), GRAPH, rounds=12, faults=faults)
    before = torch.zeros(6, 1)
    for round, state in enumerate(states[1:]):
        ages = state.extra.get("age", before)
        assert (ages >= before).all()
        assert ages.max() <= round + 1
        before = ages


def test_rows_under_way_are_forgotten_once_they_are_overtaken():
    weights = (metropolis(GRAPH),)
    flight = Flight(weights, seed=SEED, faults=Faults(delay=3.0, slow=0.5, pace=5))
    there = torch.ones(6, dtype=torch.bool)
    held = []
    for round in range(300):
        found = flight.receive(torch.zeros(6, 1), there, round=round, step=0)
        held.append(len(found.rows) - 6)
    assert max(held) < 6 * 30
    assert sum(held[200:]) < 1.5 * sum(held[100:200])


@pytest.mark.slow
def test_rows_take_as_many_cycles_on_average_as_was_asked_for():
    pair = topology.path(2)
    flight = Flight((metropolis(pair),), seed=SEED, faults=Faults(delay=2.0))
    there = torch.ones(2, dtype=torch.bool)
    late = []
    for round in range(2000):
        found = flight.receive(torch.full((2, 1), float(round)), there, round=round, step=0)
        late += [round - float(found.rows[by, 0]) for by in found.sender.tolist()]
    took = np.concatenate([draw(SEED, "delay 0", round=round).geometric(1 / 3, 2) - 1 for round in range(2000)])
    assert took.mean() == pytest.approx(2.0, abs=0.12)  # three deviations of the mean
    assert 0 < np.mean(late) < 2.0  # those that were overtaken are not heard


def test_slow_peers_act_where_their_cycles_end():
    faults = Faults(slow=0.5, pace=4)
    there = torch.stack([faults.present(GRAPH.peers, seed=SEED, round=round) for round in range(12)])
    slow = ~there[0]
    assert 0 < slow.sum() < 6
    assert there[:, ~slow].all()
    assert there[:, slow].sum(0).tolist() == [3] * int(slow.sum())
    assert there[3::4].all()


def test_everybody_ends_once_it_has_made_its_cycles():
    faults = Faults(slow=0.5, pace=4, cycles=3)
    turns = torch.stack([faults.turns(GRAPH.peers, seed=SEED, round=round) for round in range(14)])
    slow = turns[0] < 0
    assert turns[:, ~slow].T.tolist() == [[0, 1, 2, *[-1] * 11]] * int((~slow).sum())
    assert turns[:, slow].T.tolist() == [[-1, -1, -1, 0, -1, -1, -1, 1, -1, -1, -1, 2, -1, -1]] * int(slow.sum())


def test_slow_peers_train_on_the_batches_and_at_the_rates_of_their_own_cycles_until_they_have_made_all():
    table = {**DIGITS, "rounds": 4, "data": {"name": "wine"}, "model": {"name": "linear"}}
    options = {"start_factor": 1.0, "end_factor": 0.1, "total_iters": 4}
    schedule = {"schedule": {"name": "LinearLR", "options": options}}
    table["learning"] = {"algorithm": "gossip_learning", "dtype": "float64", **schedule}
    table["simulation"] = {"devices": {"stragglers": 1.0, "slowdown": 3.0}}
    late = simulate(table, baselines=False)
    table["simulation"] = {}
    plain = simulate(table, baselines=False)  # where all are equally slow, nobody is
    assert late.models.keys() == plain.models.keys()
    for peer, model in plain.models.items():
        for name, tensor in model.items():
            assert torch.equal(late.models[peer][name], tensor)
    assert [(each.peer, each.round) for each in late.metrics] == [(each.peer, each.round) for each in plain.metrics]


@pytest.mark.slow
def test_the_smaller_the_steps_the_nearer_peers_come_to_the_common_optimum_although_rows_are_late_and_lost():
    ring, faults = topology.ring(4), Faults(0.2, 0.1, delay=1.0)
    apart = []
    for rate, rounds in ((0.1, 60), (0.01, 600)):
        states = play(quadratics(rate=rate), ring, rounds=rounds, faults=faults)
        rows = torch.stack([state.rows for state in states[rounds // 2 :]])
        apart.append(float((rows - OPTIMUM).abs().mean()))
    assert apart[1] < 0.25 * apart[0]
    assert apart[1] < 0.1


DIGITS = {
    "rounds": 30,
    "topology": {"kind": "small_world", "peers": 10},
    "simulation": {"devices": {"stragglers": 0.2, "slowdown": 5.0}},
}


@pytest.mark.slow
def test_with_slow_peers_it_learns_digits_nearly_as_well_as_fedavg_that_nobody_slows():
    table = {**DIGITS, "learning": {"algorithm": "gossip_learning"}}
    late = simulate(table | {"simulation": {**DIGITS["simulation"], "delay": 1.0}}, baselines=False).summary
    plain = simulate({**DIGITS, "simulation": {}}, baselines=False).summary
    waits = simulate({**DIGITS, "rounds": 30 // 5, "simulation": {}}, baselines=False).summary
    assert late["together"] > plain["together"] - 0.03
    assert late["together"] > waits["together"] + 0.05  # a FedAvg that waits for them has made a fifth of its rounds


@pytest.mark.slow
def test_only_those_who_are_there_send():
    table = {**DIGITS, "rounds": 5, "learning": {"algorithm": "gossip_learning"}}
    run = simulate(table, baselines=False)
    sent = {record.peer: record.bytes_out for record in run.metrics if record.round == 4}
    row = 4 * (plan(read(table)).learner.layout.size + 1)
    assert set(sent.values()) == {5 * row}
    assert sorted({record.round for record in run.metrics}) == list(range(5))
    assert len(run.metrics) == 5 * 10


def test_private_noise_goes_with_it():
    table = {**DIGITS, "rounds": 2, "learning": {"algorithm": "gossip_learning"}, "privacy": {"mode": "independent"}}
    table["privacy"] |= {"noise": 0.01, "clip": 1.0}
    run = simulate(table, baselines=False)
    assert run.metrics[-1].privacy_spent > 0


def test_an_algorithm_that_mixes_is_told_that_nobody_waits():
    with pytest.raises(RunError, match="an asynchronous algorithm cannot mix, because peers do not wait for"):
        run_without_loop(flying(GRAPH, Faults())(0).mix(Released(torch.zeros(6, 1))))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        (["privacy.mode=pairwise"], "privacy.mode = .* masks do not cancel"),
        (["gossip.acceleration=chebyshev"], "gossip.acceleration = .* mixes nothing"),
        (["learning.stop=0.1"], "learning.stop = .* no decision"),
        (["learning.consensus=true"], "learning.consensus = true does not work with gossip_learning"),
        (["data.scale=true"], "data.scale = true does not work with gossip_learning"),
        (["compression.name=top_k"], "compression.name = .* does not work"),
        (["compression.name=bfloat16"], "compression.name = .* does not work"),
        (["learning.algorithm=fedavg", "simulation.delay=1.0"], "simulation.delay = 1 does not work with fedavg"),
        (
            ["learning.algorithm=dpsgd", "simulation.devices.seconds=1.0"],
            "simulation.devices: a table of clients does not work with dpsgd",
        ),
        (
            ["simulation.devices={ stragglers = 0.5, slowdown = 2.5 }"],
            "simulation.devices.slowdown = 2.5 does not work with gossip_learning, whose slow peers make one cycle",
        ),
        (
            ["simulation.devices={ stragglers = 0.5, slowdown = 2.0, seconds = 4.0 }"],
            "simulation.devices.seconds = 4.0 has no effect, because its peers count cycles",
        ),
    ],
)
def test_what_it_does_not_go_with_is_said(changes, match):
    with pytest.raises(ExperimentError, match=match):
        plan(read({"learning": {"algorithm": "gossip_learning"}}, changes=changes))


def test_exact_sums_over_neighbourhoods_do_not_go_with_it():
    with pytest.raises(ExperimentError, match=r"learning.algorithm|privacy.mode"):
        plan(read({"learning": {"algorithm": "gossip_learning"}}, changes=["privacy.mode=secagg"]))
