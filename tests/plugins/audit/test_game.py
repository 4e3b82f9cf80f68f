import math
from dataclasses import replace

import builds
import numpy as np
import pytest

from p2pfl.plugins.audit.attacks.game import play
from p2pfl.plugins.audit.pipeline import Observer, release
from p2pfl.privacy import Settings
from p2pfl.privacy.accounting.accountant import account
from p2pfl.topology import complete, exponential, ring, small_world

PRIVATE = Settings(clip=1.0, noise=1.0, mask=4.0)


def against(settings, graph, colluders):
    given = account(graph, clip=settings.clip, noise=settings.noise, mask=settings.mask, colluders=colluders)
    return Observer.of(given, graph=graph, settings=settings)


@pytest.mark.slow
@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize(
    ("colluders", "mu"), [((), 0.40385), (("peer4",), 0.48635), (("peer1", "peer7"), 1.0)], ids=["none", "one", "both"]
)
def test_what_is_measured_on_a_ring_of_eight_is_what_is_accounted(colluders, mu):
    observer = against(PRIVATE, ring(8), colluders)
    optimal, learned = play(builds.target(PRIVATE, ring(8)), [observer], trials=40_000)
    assert optimal.accounted == pytest.approx(mu, abs=1e-5)
    assert optimal.measured == pytest.approx(mu, abs=4 * optimal.error)
    assert learned.accounted == pytest.approx(mu * math.sqrt(3), abs=1e-4)
    assert learned.measured == pytest.approx(mu * math.sqrt(3), abs=0.03 + 4 * learned.error)
    assert optimal.error == pytest.approx(0.0101, abs=6e-4)


@pytest.mark.sampled(fast=0, all=3)
@pytest.mark.parametrize("graph", [small_world(12, degree=4, rewire=0.3, seed=1), complete(6), exponential(8)])
@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_both_players_reach_the_accountant_and_none_exceeds_it(graph, adjacency):
    settings = Settings(clip=0.3, noise=0.5, mask=2.0)
    found = builds.observers(settings, graph, colluders=2, adjacency=adjacency)
    for game in play(builds.target(settings, graph), found):
        assert not game.broken
        assert game.measured == pytest.approx(game.accounted, abs=0.06 + 4 * game.error)


@pytest.mark.slow
def test_masks_alone_hide_whose_an_update_was_and_not_that_it_was():
    settings = Settings(mask=4.0)
    games = play(builds.target(settings, ring(8)), builds.observers(settings, ring(8)))
    broker = [game for game in games if game.observer == "broker"]
    assert broker[0].question == "whose an update was, peer0's or peer1's"
    assert broker[0].accounted == pytest.approx(math.sqrt(7 / 8) / 4)
    assert broker[0].measured == pytest.approx(broker[0].accounted, abs=4 * broker[0].error)
    everyone = [game for game in games if game.observer == "broker and everyone else"]
    assert all(math.isinf(game.measured) and math.isinf(game.accounted) for game in everyone)


def test_what_nothing_hides_is_seen_exactly_and_breaks_no_promise():
    for game in play(builds.target(Settings(), ring(4)), builds.observers(Settings(), ring(4)), trials=1000):
        assert math.isinf(game.measured)
        assert not game.broken


@pytest.mark.slow
def test_noise_without_a_clip_is_held_against_an_update_of_norm_one():
    settings = Settings(noise=0.5, mask=2.0)
    games = play(builds.target(settings, ring(8)), builds.observers(settings, ring(8)))
    assert games[0].accounted == pytest.approx(account(ring(8), clip=1.0, noise=0.5, mask=2.0).mu)
    assert games[0].measured == pytest.approx(games[0].accounted, abs=4 * games[0].error)


@pytest.mark.slow
def test_the_same_coins_and_keys_give_the_same_games():
    found = builds.observers(PRIVATE, ring(6))
    first = play(builds.target(PRIVATE, ring(6)), found, trials=1000)
    assert first == play(builds.target(PRIVATE, ring(6)), found, trials=1000)
    assert first != play(builds.target(PRIVATE, ring(6), seed=1), found, trials=1000)


def test_a_promise_that_is_too_good_by_a_fifth_is_found_out():
    observer = against(PRIVATE, ring(8), ("peer1", "peer7"))
    boast = replace(observer, promised=observer.promised / 1.2)
    assert [game.broken for game in play(builds.target(PRIVATE, ring(8)), [boast])] == [True, True]


def test_an_observer_subtracts_what_his_colluders_know():
    settings = Settings(mask=4.0)
    pipeline = builds.target(settings, ring(4)).run(0)
    rows = np.arange(20.0).reshape(4, 5)
    seen = release(pipeline.round(2), rows, since=np.zeros((4, 5)))
    both = Observer("", ("peer1", "peer3"), "peer0", math.inf, ring(4), settings)
    np.testing.assert_allclose(both.sees(pipeline, seen, round=2), rows[[0, 2]], atol=2.0**-20)
    one = Observer("", ("peer1",), "peer0", math.inf, ring(4), settings)
    left = one.sees(pipeline, seen, round=2) - rows[[0, 2, 3]]
    assert np.abs(left).min(axis=1).max() > 0.01
    np.testing.assert_allclose(left.sum(0), 0.0, atol=3 * 2.0**-20)
