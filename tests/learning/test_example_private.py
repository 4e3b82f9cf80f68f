"""DP-SGD inside a peer: what one sample can move, what hides it, and what that promises."""

import asyncio
import importlib.util
import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F  # noqa: N812 -- torch's own convention

from hidden_models import BranchingModel, HiddenModel
from p2pfl.core.errors import ExperimentError, InputError, LearningError, ModelError
from p2pfl.data import Dataset, Federation
from p2pfl.experiment import plan, read
from p2pfl.learning import Learner, TorchLearner
from p2pfl.learning.example_private import ExamplePrivateLearner, grid_deviation, grid_step
from p2pfl.network.peer import Peer
from p2pfl.network.transport import MemoryTransport
from p2pfl.privacy.accounting import divergence
from p2pfl.privacy.accounting.examples import SampledSteps, compose_epsilon, worst, worst_off
from p2pfl.privacy.keys import KEY_BYTES, SeededSource
from p2pfl.privacy.noise import NoiseSampler, exact_normals
from p2pfl.privacy.normal_stream import VALUES_PER_BLOCK, normals, spans
from p2pfl.results.spending.sampling import SamplingMeter
from p2pfl.simulation import simulate
from swarms import DEADLINE, SMALL

PEERS = ("ada", "bob", "cyd")
OPTIONS = {"seed": 7, "batch": 8, "dtype": torch.float64, "device": "cpu"}
TABLE = SMALL | {"learning": SMALL["learning"] | {"example_noise": 1.0, "max_norm": 0.5, "batch": 4}}


class Mixing(HiddenModel):
    """Shows every sample to all others in the batch."""

    def forward(self, x):
        return self.inner(x - x.mean(dim=0) + 100 * x.sum(dim=0))


def epsilon(noise, *, rate, steps, delta):
    return compose_epsilon({SampledSteps(noise, rate, steps): 1}, delta=delta)


def federation(sizes=(20, 7, 0), *, scale=1.0):
    """Random samples; the first is ``scale`` times as large."""
    random = torch.Generator().manual_seed(1)
    features = torch.randn(30, 6, generator=random, dtype=torch.float64)
    features[0] *= scale
    targets = torch.randint(3, (30,), generator=random)
    ends = np.cumsum((0, *sizes))
    train = {peer: np.arange(ends[i], ends[i + 1]) for i, peer in enumerate(PEERS)}
    none = dict.fromkeys(PEERS, np.arange(0))
    return Federation(Dataset(features, targets, 3), train, none, dict.fromkeys(PEERS, np.arange(20, 30)))


def mlp():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def learner_of(model=None, data=None, *, noise=0.0, clip=math.inf, source=11, exact=False, **options):
    return ExamplePrivateLearner(
        model or mlp(),
        data or federation(),
        noise=noise,
        clip=clip,
        source=SeededSource(source),
        normals=exact_normals(grid_deviation(noise=noise, clip=clip)) if exact else normals,
        **OPTIONS | options,
    )


def parts_of(learner):
    return list(learner.layout.split(learner.start(PEERS[:1])).values())


@pytest.mark.parametrize("wrap", [nn.Sequential, HiddenModel, BranchingModel])
def test_without_noise_clip_and_sampling_it_is_gradient_descent_on_all_samples(wrap):
    model, data = wrap(mlp()), federation()
    learner: Learner = learner_of(model, data, batch=20, steps=5, rate=0.3)
    fitted = learner.fit(learner.start(PEERS), peers=PEERS, round=2)
    for i, peer in enumerate(PEERS[:2]):
        own = wrap(mlp()).double()
        optimiser = torch.optim.SGD(own.parameters(), lr=0.3)
        for _ in range(5):
            optimiser.zero_grad()
            F.cross_entropy(
                own(data.dataset.features[data.train[peer]]), data.dataset.targets[data.train[peer]]
            ).backward()
            optimiser.step()
        expected = torch.cat([parameter.detach().flatten() for parameter in own.parameters()])
        torch.testing.assert_close(fitted.rows[i], expected, rtol=0, atol=1e-13)
    assert torch.equal(fitted.rows[2], learner.start(PEERS)[2])
    assert fitted.report.steps.tolist() == [5, 5, 0]


@pytest.mark.parametrize(
    "how",
    [
        {"optimizer": "adam"},
        {"options": {"momentum": 0.9, "weight_decay": 0.1}},
        {"optimizer": "adagrad", "schedule": "StepLR", "schedule_options": {"step_size": 1}},
    ],
)
def test_optimisers_and_their_memory_are_those_of_the_plain_learner(how):
    learner = learner_of(batch=20, epochs=3, **how)
    plain = TorchLearner(mlp(), federation(), **OPTIONS | {"batch": None, "epochs": 3} | how)
    rows, memory = learner.start(PEERS), [None, None]
    states = [rows, rows]
    for round in range(3):
        active = torch.tensor([True, round != 1, True])
        found = [
            each.fit(state, peers=PEERS, round=round, memory=kept, active=active)
            for each, state, kept in zip((learner, plain), states, memory, strict=True)
        ]
        states, memory = [fit.rows for fit in found], [fit.memory for fit in found]
        torch.testing.assert_close(states[0], states[1], rtol=0, atol=1e-12)
        torch.testing.assert_close(found[0].report.loss, found[1].report.loss)
    assert set(memory[0]) == set(memory[1])
    for name, value in memory[0].items():
        torch.testing.assert_close(value, memory[1][name], rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_a_step_is_that_of_opacus_on_the_same_batch():
    from opacus import GradSampleModule  # noqa: PLC0415 (it imports half of torch)
    from opacus.optimizers import DPOptimizer  # noqa: PLC0415 (it imports half of torch)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its hooks
        data, learner = federation(), learner_of(clip=0.4, rate=0.3, steps=1)
        chosen = learner.sample("ada", round=0, step=0)
        model = GradSampleModule(mlp().double(), loss_reduction="mean")
        optimiser = DPOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.3), noise_multiplier=0.0, max_grad_norm=0.4, expected_batch_size=8
        )
        F.cross_entropy(model(data.dataset.features[chosen]), data.dataset.targets[chosen]).backward()
        optimiser.step()
    expected = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    row = learner.fit(learner.start(["ada"]), peers=["ada"], round=0).rows[0]
    assert 0 < len(chosen) < 20
    torch.testing.assert_close(row, expected, rtol=1e-6, atol=1e-6)  # Opacus divides by the norm plus 1e-6


@given(
    scale=st.floats(1e-3, 1e150), wrap=st.sampled_from([nn.Sequential, HiddenModel, Mixing]), clip=st.floats(0.01, 10)
)
def test_one_sample_moves_the_sum_by_at_most_the_clip(scale, wrap, clip):
    learner = learner_of(wrap(mlp()), federation(scale=scale), clip=clip)
    parts, everybody = parts_of(learner), np.arange(20)
    difference = learner.clip_gradients(parts, everybody)[1] - learner.clip_gradients(parts, everybody[1:])[1]
    assert float(difference.norm()) <= clip * (1 + 1e-9)


@pytest.mark.slow
@given(
    scale=st.floats(1e-3, 1e150), wrap=st.sampled_from([nn.Sequential, HiddenModel, Mixing]), clip=st.floats(0.01, 10)
)
def test_under_noise_sums_are_exact_on_the_grid_and_one_sample_moves_them_by_no_more_than_the_clip(scale, wrap, clip):
    learner = learner_of(wrap(mlp()), federation(scale=scale), clip=clip, noise=1.0)
    parts, step = parts_of(learner), grid_step(clip)
    singles = [learner.clip_gradients(parts, np.array([place]))[1] / step for place in range(20)]
    whole = learner.clip_gradients(parts, np.arange(20))[1] / step
    for points in (*singles, whole):
        assert torch.equal(points, points.round())
        assert float(points.abs().max()) < 2**53
    assert all(math.hypot(*points[0].tolist()) * step <= clip for points in singles)
    without = learner_of(wrap(mlp()), federation(scale=scale), clip=clip)
    for place, points in enumerate(singles):  # rounded towards zero, so that no gradient gets longer, however large P
        plain = without.clip_gradients(parts, np.array([place]))[1] / step
        assert bool((points * plain.sign() <= plain.abs()).all())
        torch.testing.assert_close(points, plain, rtol=2.0**-23, atol=1.0)
    torch.testing.assert_close(whole, sum(singles), rtol=0, atol=2.0**10)  # stacks round gradients otherwise


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("clip", [0.5, 0.3])
def test_a_step_adds_the_points_of_the_exact_sampler_to_whole_numbers(clip, dtype):
    """The test fails for a sampler with holes, and for noise that is added to a sum beside the grid."""
    noise, step = 1.7, grid_step(clip)
    deviation = grid_deviation(noise=noise, clip=clip)
    assert deviation == pytest.approx(noise * clip / step, rel=1e-15)
    learner = learner_of(noise=noise, clip=clip, dtype=dtype, exact=True)
    _, total = learner.clip_gradients(parts_of(learner), np.arange(20))
    found = learner.hide(total, peer="ada", round=2, step=1)
    assert found.dtype == torch.float64
    key = SeededSource(11).bytes(KEY_BYTES, purpose="example noise 1", peer="ada", round=2)
    drawn = NoiseSampler(deviation).window([key], slice(0, learner.layout.size))
    assert torch.equal(found / step, total / step + torch.from_numpy(drawn))
    assert torch.equal(found / step, (found / step).round())


def test_learners_of_experiments_draw_noise_from_the_exact_sampler():
    learner = plan(read(TABLE)).learner
    deviation, key = grid_deviation(noise=1.0, clip=0.5), bytes(range(32))
    points = learner.normals(key, 70_000) * deviation
    expected = np.concatenate(
        [NoiseSampler(deviation).window([key], span)[0].copy() for span in spans(70_000, VALUES_PER_BLOCK)]
    )
    assert np.array_equal(np.rint(points), expected)
    assert np.abs(points - expected).max() < 0.01


def test_numbers_that_a_double_does_not_tell_apart_are_refused():
    for wrong in ({"noise": 1e6}, {"noise": 1.0, "batch": 2**21}):
        with pytest.raises(ModelError, match=r"must be at most 32768 and learning\.batch below 2097152"):
            learner_of(clip=1.0, **wrong)
    with pytest.raises(InputError, match=r"at most 2\^46 grid points"):
        exact_normals(2.0**47)


def test_noise_that_ends_within_reach_of_one_sample_guarantees_nothing():
    assert epsilon(0.1, rate=0.01, steps=1, delta=1e-5) == math.inf
    assert epsilon(0.5, rate=0.01, steps=1, delta=1e-5) < 10


def test_a_giant_outlier_moves_a_step_by_at_most_clip_times_rate_over_batch():
    def row(data):
        torch.manual_seed(3)
        learner = learner_of(nn.Sequential(nn.Linear(6, 3)), data, clip=0.5, rate=0.2, batch=20, steps=1)
        return learner.fit(learner.start(["ada"]), peers=["ada"], round=0).rows

    blank = row(federation(scale=1e300))  # the norm of its gradient is not finite, so it counts as zero
    moved = [float((row(federation(scale=scale)) - blank).norm()) for scale in (1.0, 1e6, 1e100)]
    assert torch.isfinite(blank).all()
    assert moved == pytest.approx([0.2 * 0.5 / 20] * 3, rel=1e-6)


def test_the_noise_has_its_deviation_and_is_drawn_anew_in_each_step():
    data, model = federation(), nn.Sequential(nn.Linear(6, 3000), nn.Linear(3000, 3))
    rows = {}
    for noise in (0.0, 2.0):
        learner = learner_of(model, data, noise=noise, clip=0.5, rate=0.1, steps=1)
        rows[noise] = learner.fit(learner.start(["ada"]), peers=["ada"], round=0).rows
    difference = (rows[2.0] - rows[0.0])[0]
    assert float(difference.std()) == pytest.approx(0.1 * 2.0 * 0.5 / 8, rel=0.02)
    noise = [
        learner.hide(torch.zeros(1, learner.layout.size), peer=peer, round=round, step=step)[0]
        for peer, round, step in [("ada", 0, 0), ("ada", 0, 1), ("ada", 1, 0), ("bob", 0, 0)]
    ]
    correlations = torch.corrcoef(torch.stack(noise)) - torch.eye(4)
    assert float(correlations.abs().max()) < 5 / math.sqrt(learner.layout.size)


def test_an_empty_batch_is_a_step_of_noise_alone():
    learner = learner_of(noise=1.0, clip=0.5, batch=1, steps=40, rate=0.1)
    drawn = [learner.sample("ada", round=0, step=step) for step in range(40)]
    empty = next(step for step, chosen in enumerate(drawn) if not len(chosen))
    loss, total = learner.clip_gradients(parts_of(learner), drawn[empty])
    assert (loss, float(total.norm())) == (0.0, 0.0)
    assert learner.fit(learner.start(["ada"]), peers=["ada"], round=0).report.steps.tolist() == [40]


def test_each_step_of_a_round_has_a_batch_of_its_own():
    learner = learner_of(clip=0.4, rate=0.3, steps=3)
    row = learner.start(["ada"])
    for step in range(3):
        parts = list(learner.layout.split(row).values())
        row = row - 0.3 * learner.clip_gradients(parts, learner.sample("ada", round=1, step=step))[1] / 8
    fitted = learner.fit(learner.start(["ada"]), peers=["ada"], round=1).rows
    torch.testing.assert_close(fitted, row, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_of_peers_with_different_noise_the_one_that_is_hidden_least_counts():
    less, more = SampledSteps(0.8, 0.1, 5), SampledSteps(2.0, 0.1, 5)
    assert worst_off([{more: 3}, {less: 3}], delta=1e-5) == worst_off([{less: 3}], delta=1e-5)


def test_each_sample_joins_independently_with_the_same_probability():
    learner = learner_of()
    joins = np.zeros((2000, 20))
    for step in range(2000):
        joins[step, learner.sample("ada", round=0, step=step)] = 1
    assert learner.cost("ada") == (0.4, 3)
    assert joins.mean(axis=0) == pytest.approx(0.4, abs=0.06)
    assert joins.sum(axis=1).var() == pytest.approx(20 * 0.4 * 0.6, rel=0.15)  # a fixed size would have none
    assert np.abs(np.corrcoef(joins.T) - np.eye(20)).max() < 0.12


def test_a_row_is_trained_alike_alone_and_in_a_stack_and_otherwise_with_other_secrets():
    learner = learner_of(noise=1.0, clip=0.5)
    start = learner.start(PEERS)
    together = learner.fit(start, peers=PEERS, round=1).rows
    alone = torch.cat([learner.fit(start[:1], peers=[peer], round=1).rows for peer in PEERS])
    assert torch.equal(together, alone)
    other = learner.drawing(SeededSource(12)).fit(start, peers=PEERS, round=1).rows
    assert not torch.equal(together[0], other[0])
    assert torch.equal(learner.fit(start, peers=PEERS, round=1).rows, together)


def test_a_correction_is_added_after_the_clip():
    learner = learner_of(clip=1e-9, rate=1.0, batch=20, steps=1)
    start = learner.start(PEERS)
    fitted = learner.fit(start, peers=PEERS, round=0, correction=lambda rows, index: rows * (1.0 + index[:, None]))
    torch.testing.assert_close(fitted.rows[:2], start[:2] * torch.tensor([[0.0], [-1.0]]), rtol=0, atol=1e-8)


def test_a_row_that_diverges_is_refused():
    learner = learner_of(noise=1.0, clip=1e300, rate=1e300)
    with pytest.raises(LearningError, match=r"training of ada diverged in round 4; set a smaller learning\.rate"):
        learner.fit(learner.start(["ada"]), peers=["ada"], round=4)


OPTIMAL = "ignore:Optimal order is the largest alpha"  # where Opacus begins to look


@pytest.mark.sampled(fast=0, all=2)
@pytest.mark.filterwarnings(OPTIMAL)
@pytest.mark.parametrize(
    ("noise", "rate", "steps", "delta", "expected"),
    [
        (5, 1, 100, 1e-5, 10.007715),
        (1, 0.01, 1000, 1e-5, 1.838372),
        (1.1, 256 / 60000, 14063, 1e-5, 2.391837),
        (1, 0.004, 10000, 1e-5, 2.192331),
        (0.8, 0.02, 500, 1e-5, 4.678355),
        (4, 0.1, 200, 1e-6, 1.634338),
    ],
)
def test_epsilon_is_that_of_opacus_and_a_little_tighter(noise, rate, steps, delta, expected):
    """Opacus bounds by the PRV accountant, from above with an error of .01 twice."""
    from opacus.accountants import PRVAccountant  # noqa: PLC0415 (it imports half of torch)

    opacus = PRVAccountant()
    opacus.history = [(noise, rate, steps)]
    with np.errstate(divide="ignore"):  # log 0
        bound = opacus.get_epsilon(delta)
    assert bound == pytest.approx(expected, abs=1e-5)
    assert bound - 0.02 < epsilon(noise, rate=rate, steps=steps, delta=delta) <= bound


@pytest.mark.slow
@pytest.mark.filterwarnings(OPTIMAL)
def test_rounds_of_two_kinds_cost_what_opacus_says_and_a_little_less():
    from opacus.accountants import PRVAccountant  # noqa: PLC0415 (it imports half of torch)

    opacus = PRVAccountant()
    opacus.history = [(1.0, 0.01, 100), (2.0, 0.05, 500)]
    with np.errstate(divide="ignore"):  # log 0
        bound = opacus.get_epsilon(1e-5)
    assert (
        bound - 0.02
        < compose_epsilon({SampledSteps(1.0, 0.01, 50): 2, SampledSteps(2.0, 0.05, 500): 1}, delta=1e-5)
        <= bound
    )


@pytest.mark.slow
@pytest.mark.filterwarnings(OPTIMAL, "ignore:Optimal order is the smallest alpha")
@pytest.mark.parametrize(("noise", "rate", "steps"), [(1.0, 0.01, 1000), (0.3, 0.1, 500), (1.0, 0.5, 2000)])
def test_the_loose_bound_is_that_of_opacus_by_renyi(noise, rate, steps):
    from opacus.accountants.analysis import rdp  # noqa: PLC0415 (it imports half of torch)

    orders = [*range(2, 64), 128, 256]
    spent = rdp.compute_rdp(q=rate, noise_multiplier=noise, steps=steps, orders=orders)
    expected, _ = rdp.get_privacy_spent(orders=orders, rdp=spent, delta=1e-5)
    assert divergence.renyi({(1 / noise, rate): steps}, delta=1e-5) == pytest.approx(expected, rel=1e-6)


def test_epsilon_at_its_ends():
    assert epsilon(1.0, rate=0.0, steps=10, delta=1e-5) == epsilon(1.0, rate=0.5, steps=0, delta=1e-5) == 0
    assert epsilon(0.0, rate=0.5, steps=1, delta=1e-5) == math.inf
    assert epsilon(1e-9, rate=0.5, steps=1, delta=1e-5) > 1e6
    assert epsilon(1.0, rate=0.2, steps=10_000, delta=1e-5) > 300  # Rényi's bound, at once
    assert epsilon(1e3, rate=0.001, steps=1, delta=1e-5) == 0  # the total variation, 4e-7, is less than delta


@pytest.mark.nightly
def test_the_worst_is_found_without_looking_at_all():
    costs = [(min(1.0, 8 / n), 5 * -(-n // 8)) for n in range(5, 120, 7)]
    each = {cost: epsilon(2.0, rate=cost[0], steps=cost[1], delta=1e-5) for cost in costs}
    found, rate, steps = worst(costs, noise=2.0, delta=1e-5)
    assert found == max(each.values()) == each[rate, steps]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"algorithm": "fedsgd"}, "fedavg"),
        ({"algorithm": "dpsgd"}, "fedavg"),
        ({"batch": "all"}, "learning.batch"),
        ({"precision": "mixed", "dtype": "float32"}, "learning.dtype"),
    ],
)
def test_what_does_not_go_with_it_is_refused(changes, words):
    table = TABLE | {"learning": {"device": "cpu", "example_noise": 1.0} | changes}
    with pytest.raises(InputError, match=words):
        plan(read(table))


def test_dropout_numbers_out_of_range_and_a_missing_extra_are_refused(monkeypatch):
    with pytest.raises(ModelError, match="dropout"):
        learner_of(nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 3)))
    for wrong in ({"noise": -1.0}, {"clip": 0.0}, {"noise": 1.0, "clip": math.inf}):
        with pytest.raises(
            ModelError,
            match=(
                r"learning\.example_noise must be at least 0 and learning\.max_norm finite and above 0, "
                r"but they are (-1\.0 and inf|0\.0 and 0\.0|1\.0 and inf); 1 and 1 are usual"
            ),
        ):
            learner_of(**wrong)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(InputError, match=r"p2pfl-mqtt\[privacy\]"):
        learner_of()


def test_keys_without_effect_are_refused_and_delta_has_one():
    with pytest.raises(ExperimentError, match=r"it is learning\.max_norm now"):
        read({"learning": {"example_clip": 2.0}})
    with pytest.raises(ExperimentError, match=r"privacy\.delta"):
        read({"privacy": {"delta": 1e-6}})
    assert read({"learning": {"example_noise": 1.0}, "privacy": {"delta": 1e-6}}).privacy.delta == 1e-6


@pytest.mark.slow
def test_without_a_source_of_ones_own_the_noise_is_secret():
    resolved = plan(read(TABLE))
    names = resolved.topology.peers
    fits = [resolved.learner.fit(resolved.learner.start(names), peers=names, round=0).rows for _ in range(2)]
    assert not torch.equal(*fits)
    assert plan(read(SMALL)).drawing(SeededSource(1)).source is None


@pytest.mark.sampled(fast=0, all=1)
@pytest.mark.parametrize("privacy", [{}, {"mode": "pairwise", "clip": 1.0, "noise": 0.1}], ids=["alone", "beside"])
def test_a_summary_says_what_single_samples_are_promised_beside_the_peer(privacy):
    resolved = plan(read(TABLE | {"privacy": privacy}))
    found = simulate(resolved).summary["privacy"]
    promise = found["examples"]
    smallest = min(len(part) for part in resolved.federation.train.values())
    assert promise["sampling_rate"] == min(1.0, 4 / smallest)
    assert promise["steps"] == 3 * -(-smallest // 4)
    assert (promise["noise_multiplier"], promise["clip"], promise["delta"]) == (1.0, 0.5, 1e-5)
    assert promise["epsilon"] == epsilon(1.0, rate=promise["sampling_rate"], steps=promise["steps"], delta=1e-5)
    assert f"({promise['epsilon']:.3g}, 1e-05)-differential privacy of each single sample" in found["statement"]
    assert (found["epsilon"] is not None) == bool(privacy)
    assert "no differential privacy is claimed," not in found["statement"]


@pytest.mark.slow
def test_the_account_has_the_rate_and_the_steps_of_training():
    learning = TABLE["learning"] | {"batch": 8, "epochs": 2}
    resolved = plan(read(TABLE | {"learning": learning}))
    peers = resolved.federation.peers
    held = {peer: len(resolved.federation.train[peer]) for peer in peers}
    meter = SamplingMeter(resolved, peers, run="demo")
    for rounds in (1, 2):
        meter.count(rounds - 1, None)
        for peer in peers:
            kind = SampledSteps(learning["example_noise"], 8 / held[peer], 2 * math.ceil(held[peer] / 8))
            assert meter.own[peer] == {kind: rounds}
    stated = resolved.examples(2, played=meter.played)
    assert (stated["sampling_rate"], stated["steps"]) in {(8 / n, 4 * math.ceil(n / 8)) for n in held.values()}
    joined = [len(resolved.learner.sample(peers[0], round=round, step=0)) for round in range(400)]
    n = held[peers[0]]
    assert abs(np.mean(joined) - 8) < 5 * math.sqrt(8 * (1 - 8 / n) / 400)


@pytest.mark.nightly
def test_only_rounds_in_which_a_peer_trains_count():
    learning = TABLE["learning"] | {"fraction": 0.5}
    whole, half = plan(read(TABLE)), plan(read(TABLE | {"rounds": 20, "learning": learning}))
    assert whole.examples(20)["steps"] > half.examples(20)["steps"]
    assert plan(read(SMALL)).examples(3) is None


@pytest.mark.slow
async def test_live_and_simulated_peers_with_the_same_source_learn_the_same():
    experiment, source = read(TABLE), SeededSource(9)
    transport = MemoryTransport()

    async def one(name, life):
        resolved = plan(experiment, only=[name])
        async with Peer(name, resolved, transport=transport, source=source, incarnation=life) as peer:
            return await peer.run()

    async def swarm():
        names = plan(experiment).topology.peers
        async with asyncio.timeout(DEADLINE):
            states = await asyncio.gather(*(one(name, life) for life, name in enumerate(names)))
        return dict(zip(names, states, strict=True))

    run = simulate(experiment, source=source, baselines=False)
    for name, state in (await swarm()).items():
        simulated = torch.cat([tensor.flatten() for tensor in run.models[name].values()])
        torch.testing.assert_close(state.rows[0], simulated, rtol=0, atol=1e-12)
