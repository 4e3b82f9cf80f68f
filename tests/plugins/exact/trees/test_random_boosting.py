"""Boosting of trees of random structure: what a sample changes, and private noise that the peers draw themselves."""

import math
import tomllib
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
import torch
from sklearn import datasets
from sklearn.metrics import roc_auc_score

from benchmarks.private_boosting import area
from p2pfl import topology
from p2pfl.core.errors import ExperimentError, ModelError
from p2pfl.core.neighbourhood import run_without_loop
from p2pfl.data.data_description import Field
from p2pfl.experiment import plan, read, write
from p2pfl.learning import ExactLearner, Part
from p2pfl.learning.exact_model import Own
from p2pfl.network.transport import MemoryTransport
from p2pfl.plugins.exact import RandomBoosting
from p2pfl.plugins.exact.random_boosting import SPARE
from p2pfl.plugins.exact.sums import NOISY_FRACTION
from p2pfl.privacy import Settings
from p2pfl.privacy.accounting.accountant import account_total, calibrate_total
from p2pfl.privacy.accounting.spending import Cost, spent
from p2pfl.privacy.keys import SecretSource, SeededSource
from p2pfl.privacy.release import private
from p2pfl.results.summary import describe
from p2pfl.simulation import simulate
from p2pfl.simulation.stacked import StackedNeighbourhood
from plugins.exact.tables import masked_as_pooled, shared_out, trained
from sourcing import shared_source
from swarms import live

WINE = {f"x{number}": [low, high] for number, (low, high) in enumerate([(11, 15), (0, 6), (1, 4), (10, 30)])}


def wine():
    features, targets = datasets.load_wine(return_X_y=True)
    return features[:, :4], targets


def model_of(*, classes=3, rounds=5, **options):
    settings = {"features": 4, "bounds": WINE, "max_depth": 3, "max_bins": 8, "l2_regularization": 1.0}
    return RandomBoosting(classes=classes, rounds=rounds, **settings | options)


@pytest.mark.parametrize("classes", [2, 3])
def test_peers_under_masks_end_with_the_trees_of_their_pooled_data_bit_for_bit(classes):
    features, targets = wine()
    federation = shared_out(features, np.minimum(targets, classes - 1), classes=classes, peers=8)
    model = model_of(classes=classes)
    pooled = masked_as_pooled(model, federation, topology.ring(8), rounds=5)
    assert pooled["value"].any(axis=1).all()


def test_splits_follow_from_the_seed_and_no_data_and_the_module_predicts_them():
    features, targets = wine()
    hot = np.concatenate([features[:, :3], (features[:, 3:] > 19), (features[:, 3:] <= 19)], axis=1)
    fields = (*(Field(name) for name in "abc"), Field("kind", ("high", "low")))
    bounds = {"a": WINE["x0"], "b": [0, 6, "log"], "c": WINE["x2"]}
    model = model_of(features=5, bounds=bounds, fields=fields, rounds=20)
    _, one = trained(model, shared_out(hot, targets, classes=3, peers=2), rounds=20)
    _, two = trained(model, shared_out(hot * 0, targets[::-1].copy(), classes=3, peers=2), rounds=20)
    for name in ("feature", "threshold", "missing", "categories"):
        assert np.array_equal(one[name], two[name])
    assert not np.array_equal(one["value"], two["value"])
    assert {*np.unique(one["feature"])} == {-1.0, 0.0, 1.0, 2.0, 3.0}
    module = model.module()
    module.load_state_dict({name: torch.from_numpy(value) for name, value in one.items()}, strict=True)
    part = Part(hot.astype(np.float32), targets)
    assert np.allclose(module(torch.from_numpy(part.features)).numpy(), model.predicted(one, part), rtol=1e-12)
    assert (model.predicted(one, part).argmax(axis=1) == targets).mean() > 0.8


@pytest.mark.sampled(fast=3)
@pytest.mark.parametrize("clip", [0.4, 0.7, 1.0])
@pytest.mark.parametrize("classes", [2, 3, 10])
def test_one_sample_changes_a_total_by_no_more_than_is_declared(classes, clip):
    model, rng = model_of(classes=classes, clip=clip), np.random.default_rng(0)
    tensors, features = model.start(), np.array([wine()[0][0]], np.float32)
    largest = 0.0
    for trial in range(300):
        margins = rng.normal(size=(1, model.columns)) * 10.0 ** rng.integers(-2, 3)
        part = Part(features, np.array([trial % classes]))
        own = Own(part, Part(features[:0], np.zeros(0, np.int64)))
        fixed = replace(model)
        object.__setattr__(fixed, "margins", lambda *_, margins=margins: margins)
        question = next(fixed.round(tensors, lambda _, own=own: own))
        norm = float(np.linalg.norm(question.answer("ada").astype(float)))
        assert norm <= question.change
        largest = max(largest, norm / question.change)
    assert largest > 0.95


def test_leaves_shrink_by_the_noise_that_a_total_shows():
    """Two totals of equal derivatives, with and without noise in the numbers to which no peer adds anything."""
    features, targets = wine()
    learner = ExactLearner(model_of(classes=2), shared_out(features, np.minimum(targets, 1), classes=2, peers=1))
    found = []
    for noise in (0.0, 50.0):
        asking = learner.asking(learner.start(["peer0"])[0], round=0)
        question = next(asking)
        total = question.answer("peer0")
        added = np.zeros(len(total))
        added[-SPARE:] = noise * 2.0**NOISY_FRACTION
        with pytest.raises(StopIteration) as ended:
            asking.send(total + added.astype(np.int64))
        found.append(learner.tensors(ended.value.value.row)["value"][0])
    where = found[0] != 0
    assert where.any()
    curves = total[8:16] * 2.0 ** -(NOISY_FRACTION - 1) + 1.0  # of the eight leaves, with l2_regularization = 1
    shrunk = (curves / (curves + 2 * 50.0))[where[7:]]
    assert np.allclose((found[1] / np.where(where, found[0], 1.0))[where], shrunk)


def test_a_split_of_a_column_with_levels_sends_one_level_left_and_a_split_of_numbered_categories_a_half():
    fields = (Field("age"), Field("ward", tuple("abcde")))
    model = model_of(features=6, bounds={"age": [0, 100]}, fields=fields, rounds=40)
    numbered = model_of(features=2, bounds={"x0": [0, 100]}, categorical_features=[1], rounds=40)
    for given, most, sizes in ((model, 5, {1}), (numbered, 256, set(range(90, 167)))):
        found = set[int]()
        for round in range(40):
            structure = given._structure(round)
            for words in structure["categories"][structure["feature"] == 1]:
                members = np.flatnonzero((words.astype(np.int64)[:, None] >> np.arange(32)) & 1)
                assert len(members) in sizes
                found |= {*members.tolist()}
        assert found == {*range(most)}


def noisy_total(settings, *, peers, size, change, values=0, source=None):
    """Return the total of peers that add the same numbers, and noise."""
    graph = topology.complete(peers)
    net = StackedNeighbourhood((topology.metropolis(graph),), round=0, seed=0, graph=graph)
    hidden = private(net, settings=settings, masks=None, source=source or SecretSource(), round=0)
    own = np.full(size, values, np.int64)
    return run_without_loop(hidden.total(lambda _: own, size=size, change=change))


def test_the_noise_of_all_peers_adds_up():
    total = noisy_total(Settings(noise=3.0, clip=1.0), peers=5, size=40_000, change=100.0, source=SeededSource(3))
    assert total.std() == pytest.approx(3.0 * 100.0 * math.sqrt(5), rel=0.02)
    assert scipy.stats.kstest(total / (300.0 * math.sqrt(5)), "norm").pvalue > 1e-3


@pytest.mark.parametrize(("colluders", "claimed"), [(1, 1), (0, 1)], ids=["calibrated", "mutant: noise of all peers"])
def test_no_attack_beats_the_guarantee_unless_the_noise_is_that_of_too_few_colluders(colluders, claimed):
    """The attacker is a colluder that knows everything but the noise of the others and whether a sample is there."""
    peers, mu, games, change = 4, 1.0, 40_000, 2.0**10
    noise = calibrate_total(mu, peers=peers, colluders=colluders)
    given = noisy_total(Settings(noise=noise, clip=1.0), peers=peers - claimed, size=games, change=change)
    there = np.random.default_rng(0).random(games) < 0.5
    area = roc_auc_score(there, given + there * change)  # the colluder has subtracted its own noise
    bound = scipy.stats.norm.cdf(mu / math.sqrt(2))
    error = 4 / math.sqrt(games)
    assert area > bound + error if colluders < claimed else abs(area - bound) < error


def table(**privacy):
    return {
        "rounds": 8,
        "topology": {"kind": "small_world", "peers": 6, "degree": 4, "options": {"rewire": 0.5}},
        "data": {"name": "wine"},
        "model": {
            "name": "random_boosting",
            "options": {"bounds": {name: [-3.0, 3.0] for name in datasets.load_wine().feature_names}},
        },
        "privacy": {"mode": "pairwise", "mask_graph": "complete"} | privacy,
    }


def test_noise_is_calibrated_to_the_totals_of_all_rounds():
    resolved = plan(read(table(epsilon=2.0, colluders=2)))
    noise = resolved.protection.settings.noise
    mu = account_total(resolved.topology.peers, noise=noise, colluders=2).mu
    assert mu == pytest.approx(1 / (noise * math.sqrt(4)))
    assert spent({Cost(mu): 8}, delta=1e-5) == pytest.approx(2.0, rel=1e-6)
    said = describe(resolved, spent=None)["statement"]
    assert said.startswith("(2, 1e-05)-differential privacy of each single sample against a broker that only listens")
    given = "given the scaling of this public data set, which its training samples determine"
    assert f"and any 2 colluding peers, {given}; every peer adds a part of the noise" in said
    twice = plan(read(table(epsilon=2.0, colluders=2, adjacency="replace")))
    assert twice.protection.settings.noise == pytest.approx(2 * noise)
    again = plan(read(tomllib.loads(write(resolved.pinned))))
    assert again.protection.settings == resolved.protection.settings


def test_a_run_spends_its_epsilon_and_a_budget_stops_it():
    run = simulate(table(epsilon=2.0), baselines=False)
    assert run.summary["privacy"]["epsilon"] == pytest.approx(2.0, rel=1e-6)
    assert int(run.models["peer0"]["trees"][0]) == 8
    noise = plan(read(table(epsilon=2.0))).protection.settings.noise
    short = simulate(table(epsilon=1.2, noise=noise), baselines=False)
    assert 0 < short.summary["rounds"] < 8
    assert short.summary["privacy"]["epsilon"] <= 1.2


@pytest.mark.slow
async def test_live_peers_charge_each_total_and_end_with_one_model():
    experiment = read(table(epsilon=2.0), changes=["rounds=3"])
    source = shared_source()
    ended = await live(experiment, MemoryTransport(), source=source)
    models = [end.state.rows[0] for end in ended.values()]
    assert all(torch.equal(models[0], other) for other in models)
    cost = plan(experiment).protection.cost
    for end in ended.values():
        assert end.peer.meter.costs == {cost: 3}
        assert end.peer.meter.spent == pytest.approx(2.0, rel=1e-6)
    simulated = simulate(experiment, baselines=False, source=source).models
    found = ended["peer0"].peer.plan.learner.state_dict(models[0])
    assert all(torch.equal(found[name], simulated["peer0"][name]) for name in found)


@pytest.mark.nightly
@pytest.mark.parametrize(("epsilon", "least"), [(0.5, 0.898), (1.0, 0.903)])
def test_adult_keeps_its_area_under_the_curve_at_a_small_epsilon(epsilon, least, data_dir):
    """Sixteen peers, one colluder, public bins; `docs/notes/exact-models.md` states how the defaults were chosen."""
    areas = [area(data_dir, split=split, epsilon=epsilon) for split in range(1, 6)]
    assert np.mean(areas) >= least, areas


REFUSED = {
    "the exact model": ({"model": {"name": "boosting"}}, r'privacy\.epsilon .* set model\.name to "random_boosting"'),
    "no masks": ({"privacy": {"mode": "independent", "epsilon": 2.0}}, r'privacy\.mode = "independent" does not work'),
}


@pytest.mark.parametrize(("change", "said"), REFUSED.values(), ids=REFUSED)
def test_what_noise_does_not_cover_is_refused(change, said):
    with pytest.raises(ExperimentError, match=said):
        plan(read(table(epsilon=2.0) | change))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"classes": None}, "random_boosting predicts classes"),
        ({"bounds": {}}, 'those of "x0" are missing, and they must not depend on data'),
        ({"bounds": WINE | {"age": [0, 1]}}, 'there is no number "age"; choose from x0, x1, x2, x3'),
        ({"bounds": WINE | {"x1": [6, 0]}}, 'those of "x1" are'),
        ({"bounds": WINE | {"x1": [0, 6, "sqrt"]}}, 'those of "x1" are'),
        ({"max_depth": 11}, "max_depth is 11; set it to a value from 1 to 10"),
        ({"clip": 1.5}, "clip is 1.5; set it to a value above 0, at most 1"),
    ],
)
def test_invalid_options_are_refused(options, said):
    with pytest.raises(ModelError, match=said):
        model_of(**options)
