import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covers import linear_view
from p2pfl.core.errors import InputError
from p2pfl.privacy.accounting import sum_leakage as module
from p2pfl.privacy.accounting.sum_leakage import Sums
from p2pfl.topology import complete, metropolis, random_regular


def view(matrix, *, exchanges=1, rounds=1):
    """What gossip with these weights shows, written from the definition: rows that were mixed are released again."""
    n = len(matrix)
    state, seen = np.zeros((n, rounds, n)), []
    for round in range(rounds):
        state[:, round] += np.eye(n)
        for _ in range(exchanges):
            state = np.tensordot(matrix, state, axes=1)
            seen.append(state)
    return Sums(tuple(f"peer{number}" for number in range(n)), np.stack(seen))


def weights(n=8, degree=4, seed=0):
    graph = complete(n) if degree == n - 1 else random_regular(n, degree=degree, seed=seed)
    return metropolis(graph).matrix.toarray()


# Exact


@pytest.mark.parametrize("n", [4, 5, 9])
@pytest.mark.parametrize("colluders", [1, 2])
@pytest.mark.parametrize("rounds", [1, 3])
def test_on_the_complete_graph_a_row_is_one_of_all_honest_ones_in_every_round(n, colluders, rounds):
    found = view(weights(n, n - 1), rounds=rounds)
    assert found.leak(colluders) == pytest.approx(1 / (n - colluders) if n > colluders + 1 else 1)
    assert found.guarantee(clip=1.0, noise=0.5, colluders=colluders).mu == pytest.approx(2 / math.sqrt(n - colluders))


@given(st.lists(st.floats(0.01, 1.0), min_size=3, max_size=8))
def test_one_sum_of_unequal_weights_leaks_the_share_of_each_square(shares):
    n = len(shares) + 1
    seen = np.zeros((1, n, 1, n))
    seen[0, 0, 0, 1:] = shares
    leaks = Sums(tuple(str(number) for number in range(n)), seen).leaks({"0"})
    squares = np.square(shares)
    np.testing.assert_allclose(leaks, [0.0, *squares / squares.sum()], rtol=1e-9)


def test_the_broker_sees_nothing_and_everyone_else_all_but_private_noise():
    found = view(weights())
    broker, everyone = (found.guarantee(clip=1.0, noise=0.5, colluders=count) for count in (0, 7))
    assert (broker.mu, broker.local, broker.observer) == (0.0, 2.0, "broker")
    assert (everyone.mu, everyone.observer, everyone.search) == (2.0, "broker and everyone else", "exact")


def test_a_change_of_one_update_for_another_is_twice_as_large_and_the_grid_adds_its_rounding():
    found = view(weights())
    given = {"noise": 0.5, "bits": 10, "size": 10_000}
    once, twice = (found.guarantee(clip=1.0, adjacency=kind, **given).mu for kind in ("zero-out", "replace"))
    rounding = 2.0**-10 * 100 / 2
    assert twice / once == pytest.approx((2 + 2 * rounding) / (1 + rounding))  # both updates are rounded


# Oracle


@given(seed=st.integers(0, 50), exchanges=st.integers(1, 3), data=st.data())
def test_one_round_is_the_accountants_linear_view(seed, exchanges, data):
    found = view(weights(seed=seed), exchanges=exchanges)
    together = data.draw(st.sets(st.sampled_from(found.peers), min_size=1, max_size=3))
    rows = [number for number, peer in enumerate(found.peers) if peer in together]
    honest = [number for number in range(8) if number not in rows]
    A = found.seen[:, rows][:, :, 0][..., honest].reshape(-1, len(honest))
    expected = linear_view(A, A, variances=0.25, sensitivity=1.5, local=3.0)
    np.testing.assert_allclose(np.sqrt(found.leaks(together)[honest]) * 3.0, list(expected.values()), rtol=1e-9)


@pytest.mark.parametrize("exchanges", [1, 2])
@pytest.mark.parametrize("rounds", [2, 4])
def test_many_rounds_cost_at_least_what_the_linear_view_of_the_whole_run_says_and_so_do_the_first(exchanges, rounds):
    matrix = weights(seed=3)
    found = view(matrix, exchanges=exchanges, rounds=rounds)
    leaks = found.leaks({"peer0"})
    for first in range(1, rounds + 1):
        A = view(matrix, exchanges=exchanges, rounds=first).seen[:, 0, :, 1:].reshape(exchanges * first, -1)
        users = [peer for _ in range(first) for peer in range(1, 8)]
        whole = linear_view(A, A, variances=1.0, sensitivity=1.0, users=users, local=math.sqrt(first))
        for peer, mu in whole.items():
            assert mu <= math.sqrt(first * leaks[peer]) * (1 + 1e-9)
    assert leaks.max() <= 1


def test_the_worst_receivers_are_those_that_brute_force_finds():
    found = view(weights(n=9, seed=4))
    for count in (1, 2, 3):
        worst = max(found.leaks(those).max() for those in itertools.combinations(found.peers, count))
        given = found.guarantee(clip=1.0, noise=1.0, colluders=count)
        assert given.mu**2 == pytest.approx(worst)
        assert found.leaks(given.colluders).max() == pytest.approx(worst)
        assert given.search == "enumerated"


# Invariant


@given(seed=st.integers(0, 50), exchanges=st.integers(1, 4), data=st.data())
def test_more_exchanges_and_more_colluders_never_see_less(seed, exchanges, data):
    matrix = weights(seed=seed)
    few, more = view(matrix, exchanges=exchanges), view(matrix, exchanges=exchanges + 1)
    names = data.draw(st.permutations(few.peers))
    first, second = {*names[:1]}, {*names[:2]}
    honest = [peer not in second for peer in few.peers]
    assert (few.leaks(first) <= more.leaks(first) + 1e-9).all()
    assert (few.leaks(first)[honest] <= few.leaks(second)[honest] + 1e-9).all()


def test_as_many_exchanges_as_there_are_honest_peers_leave_nothing_but_private_noise():
    found = view(weights(seed=1), exchanges=8)
    assert found.leak(1) == pytest.approx(1.0)


# Exposed


def test_two_receivers_whose_sums_differ_by_one_peer_expose_it():
    seen = np.zeros((1, 6, 1, 6))
    seen[0, 0, 0, 2:6] = 0.2
    seen[0, 1, 0, 2:5] = 0.2
    found = Sums(tuple("abcdef"), seen)
    assert found.find_exposed(1) is None
    assert found.find_exposed(2) == (("a", "b"), "f")


def test_one_receiver_exposes_others_over_many_exchanges():
    together, peer = view(weights(seed=1), exchanges=8).find_exposed(1)
    assert len(together) == 1
    assert peer not in together


def test_every_round_of_a_schedule_is_looked_at():
    seen = np.zeros((2, 6, 2, 6))
    seen[0, 0, 0, 2:6] = seen[1, 0, 1, 2:6] = seen[0, 1, 0, 2:6] = 0.2
    seen[1, 1, 1, 2:5] = 0.2
    assert Sums(tuple("abcdef"), seen).find_exposed(2) == (("a", "b"), "f")


# Bounds


def test_a_view_that_is_too_large_says_the_local_floor(monkeypatch):
    small = view(weights())
    bare = Sums(small.peers, None)
    assert bare.guarantee(clip=1.0, noise=0.5, colluders=2).mu == 2.0
    assert bare.find_exposed(2) is None
    monkeypatch.setattr(module, "MAX_EFFORT", 1.0)
    assert small.guarantee(clip=1.0, noise=0.5, colluders=2).mu == 2.0


def test_of_too_many_sets_those_around_each_receiver_are_looked_at(monkeypatch):
    monkeypatch.setattr(module, "MAX_COLLUDER_SETS", 10)
    found = view(weights())
    sets, search = found.sets(2)
    assert search == "searched"
    assert {row for rows in sets for row in rows} == set(range(8))
    assert 0 < found.leak(2) <= 1


def test_without_noise_nothing_is_promised():
    assert view(weights()).guarantee(clip=1.0, noise=0.0).mu == math.inf


def test_a_colluder_who_is_no_peer_is_refused():
    with pytest.raises(InputError, match='colluder "mallory" is not one of the 8 peers; check its name'):
        view(weights()).leaks({"mallory"})
