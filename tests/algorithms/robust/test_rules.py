"""Robust rules against byzfl's numbers, against loops written out, and against what papers promise."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from golden import GOLDEN, outlying, scattered
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from effort import FEW
from p2pfl.algorithms.robust import ClippedGossip, Krum, Median, NearestMixed, SelfCentredClipping, TrimmedMean
from p2pfl.algorithms.robust.rules import mix_nearest

SINGLE = 2e-6
"""byzfl computes in single precision, and its numbers are kept to six digits."""

LARGEST = torch.finfo(torch.float64).max

BEARING = {
    "ClippedGossip": ClippedGossip(2),
    "self-centred clipping": SelfCentredClipping(1.5),
    "trimmed mean": TrimmedMean(2),
    "median": Median(2),
    "Krum": Krum(2),
    "multi-Krum": Krum(2, several=True),
    "NNM, trimmed mean": NearestMixed(TrimmedMean(2), 2),
    "NNM, Krum": NearestMixed(Krum(2), 2),
    "NNM, self-centred clipping": NearestMixed(SelfCentredClipping(1.5), 2),
}
RULES = pytest.mark.parametrize("rule", BEARING.values(), ids=BEARING)
SEEDS = st.integers(0, 2**32 - 1)


def alike(count):
    return torch.full((count,), 1 / count, dtype=torch.float64)


def drawn(seed, count=9, size=5):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((count, size)))


@pytest.mark.parametrize(
    ("name", "rule", "rows"),
    [
        ("median", Median(2), outlying(9)),
        ("median of 8", Median(2), outlying(9)[1:]),
        ("trimmed mean", TrimmedMean(2), outlying(9)),
        ("trimmed mean, scattered", TrimmedMean(3), scattered(9)),
        ("krum", Krum(2), outlying(9)),
        ("krum, scattered", Krum(2), scattered(9)),
        ("multi-krum", Krum(2, several=True), outlying(9)),
        ("self-centred clipping", SelfCentredClipping(1.5), outlying(9)),
        ("nearest mixed, trimmed mean", NearestMixed(TrimmedMean(3), 3), scattered(9)),
    ],
)
def test_a_rule_gives_what_byzfl_gives(name, rule, rows):
    assert rule(rows, alike(len(rows))).tolist() == pytest.approx(GOLDEN[name], abs=SINGLE)


@pytest.mark.parametrize("row", [0, 6])
def test_rows_are_mixed_with_the_nearest_as_byzfl_mixes_them(row):
    found = mix_nearest(scattered(9), attackers=4)[row]
    assert found.tolist() == pytest.approx(GOLDEN[f"nearest mixed {row}"], abs=SINGLE)


@given(SEEDS)
def test_clipped_gossip_is_the_formula_of_its_paper(seed):
    rows, f = drawn(seed).numpy(), 2
    weights = np.random.default_rng(seed + 1).dirichlet(np.ones(9))
    own, terms = rows[0], [weights[j] * np.sum((rows[0] - rows[j]) ** 2) for j in range(1, 9)]
    radius = np.sqrt(sum(sorted(terms)[:-f]) / sum(sorted(weights[1:])[-f:]))
    expected = weights[0] * own
    for j in range(1, 9):
        apart = rows[j] - own
        expected += weights[j] * (own + apart * min(1, radius / np.linalg.norm(apart)))
    found = ClippedGossip(f)(torch.from_numpy(rows), torch.from_numpy(weights))
    assert found.numpy() == pytest.approx(expected, abs=1e-12)


def scores(rows, f=2):
    """Of Krum, one for each row."""
    squares = ((rows[:, None] - rows[None]) ** 2).sum(-1)
    return np.array([np.sort(np.delete(row, i))[: len(rows) - f - 2].sum() for i, row in enumerate(squares)])


def decided(rule, rows):
    """Whether more than rounding says which row Krum takes: mixed rows often repeat, and then others score alike."""
    if not isinstance(rule, NearestMixed) or not isinstance(rule.rule, Krum):
        return True
    near = mix_nearest(rows, attackers=2).numpy()
    found = scores(near)
    best = found.argmin()
    return all(np.allclose(near[i], near[best]) for i in np.flatnonzero(found < found[best] + 1e-9))


@given(SEEDS)
def test_krum_is_the_row_of_least_score_and_multi_krum_the_mean_of_the_best(seed):
    rows, f = drawn(seed).numpy(), 2
    order = np.argsort(scores(rows))
    stack = torch.from_numpy(rows)
    assert (Krum(f)(stack, alike(9)).numpy() == rows[order[0]]).all()
    assert Krum(f, several=True)(stack, alike(9)).numpy() == pytest.approx(rows[order[: 9 - f]].mean(0), abs=1e-12)


@RULES
@given(SEEDS)
@settings(FEW)
def test_the_order_in_which_others_are_heard_does_not_matter(rule, seed):
    rows, weights = drawn(seed), torch.from_numpy(np.random.default_rng(seed).dirichlet(np.ones(9)))
    assume(decided(rule, rows))
    order = torch.cat([torch.tensor([0]), 1 + torch.from_numpy(np.random.default_rng(seed + 1).permutation(8))])
    assert torch.allclose(rule(rows, weights), rule(rows[order], weights[order]), atol=1e-12)


@RULES
@given(SEEDS)
@example(seed=10094)  # two different rows of equal score
@settings(FEW)
def test_where_all_rows_are_moved_so_is_what_a_rule_makes_of_them(rule, seed):
    rows, shift = drawn(seed), drawn(seed + 1, count=1)
    assume(decided(rule, rows))
    assert torch.allclose(rule(rows + shift, alike(9)), rule(rows, alike(9)) + shift, atol=1e-12)


@RULES
def test_equal_rows_are_agreed_upon(rule):
    rows = drawn(0, count=1).expand(9, -1)
    assert torch.allclose(rule(rows, alike(9)), rows[0], atol=1e-15)


@RULES
@given(seed=SEEDS, far=st.floats(10, LARGEST), opposite=st.booleans())
@settings(FEW)
def test_two_attackers_however_far_move_a_row_no_further_than_honest_rows_lie(rule, seed, far, opposite):
    rows = drawn(seed)
    rows[4], rows[7] = far, -far if opposite else far
    honest = rows[[0, 1, 2, 3, 5, 6, 8]]
    found = rule(rows, alike(9))
    apart = torch.linalg.vector_norm(honest[:, None] - honest[None], dim=-1).max()
    assert torch.linalg.vector_norm(found - honest.mean(0)) <= 2 * apart


@RULES
@given(seed=SEEDS, size=st.sampled_from([1e150, 1e200, 1e307, 1e308, LARGEST]), attackers=st.integers(1, 9))
def test_rows_as_large_as_a_number_can_be_give_a_row_of_numbers_however_many_they_are(rule, seed, size, attackers):
    rows, random = drawn(seed), np.random.default_rng(seed)
    rows[9 - attackers :] = size * torch.from_numpy(random.choice([-1.0, 1.0, 0.5], (attackers, 5)))
    for weights in (alike(9), torch.from_numpy(random.permutation([0.0] * 4 + [0.2] * 5))):
        assert rule(rows, weights).isfinite().all()


@given(SEEDS)
def test_clipped_gossip_of_rows_that_are_times_as_large_is_times_as_large_though_squares_are_too_large(seed):
    rows, times = drawn(seed), 2.0**900
    found = ClippedGossip(2)(rows * times, alike(9)) / times
    assert torch.allclose(found, ClippedGossip(2)(rows, alike(9)), rtol=1e-12, atol=1e-12)


def test_what_is_infinitely_far_or_not_mixed_moves_nothing():
    rows = torch.tensor([[LARGEST], [-LARGEST], [-LARGEST]], dtype=torch.float64).expand(-1, 5)
    assert torch.equal(ClippedGossip(1)(rows, alike(3)), rows[0])
    weights = torch.tensor([0.5, 0.25, 0.25, 0.0], dtype=torch.float64)  # the last is not mixed at all
    near = torch.tensor([[1.0], [2.0], [3.0], [LARGEST]], dtype=torch.float64)
    assert torch.equal(ClippedGossip(1)(near, weights), ClippedGossip(1)(near[:3], weights[:3]))


def test_a_plain_average_is_not_robust_but_moved_by_any_one_malicious_peer():
    rows = drawn(0)
    rows[4] = 1e6
    assert float(rows.mean(0).abs().min()) > 1e5


@given(SEEDS)
def test_in_each_number_the_trimmed_mean_and_the_median_lie_among_the_honest(seed):
    rows = drawn(seed)
    rows[4], rows[7] = 1e9 * drawn(seed + 1, count=1), -3.0
    honest = rows[[0, 1, 2, 3, 5, 6, 8]]
    for rule in (TrimmedMean(2), Median(2)):
        found = rule(rows, alike(9))
        assert (found >= honest.amin(0)).all()
        assert (found <= honest.amax(0)).all()


@given(seed=SEEDS, far=st.floats(10, 1e12))
def test_what_attackers_add_to_clipped_gossip_is_bounded_by_what_honest_rows_differ(seed, far):
    rows, weights = drawn(seed), torch.from_numpy(np.random.default_rng(seed).dirichlet(np.ones(9)))
    rows[4], rows[7] = far, -far
    others = [1, 2, 3, 5, 6, 8]
    spread = (weights[others] * ((rows[others] - rows[0]) ** 2).sum(-1)).sum()
    suspected = weights[1:].topk(2).values.sum()
    moved = ClippedGossip(2)(rows, weights) - rows[0]
    bound = (suspected * spread).sqrt() + (weights[others].sum() * spread).sqrt()  # by attackers and by the honest
    assert torch.linalg.vector_norm(moved) <= bound * (1 + 1e-9)


def test_with_a_smaller_radius_rows_move_less():
    rows = scattered(9)
    moved = [float((SelfCentredClipping(radius)(rows, alike(9)) - rows[0]).norm()) for radius in (0.1, 0.5, 1.0)]
    assert all(less < more for less, more in pairwise(moved))


@RULES
def test_numbers_as_large_as_single_precision_has_do_no_harm(rule):
    rows = drawn(0).float()
    rows[4], rows[7] = torch.finfo(torch.float32).max, torch.finfo(torch.float32).min
    found = rule(rows, alike(9))
    assert found.dtype == torch.float32
    assert float(found.abs().max()) < 10
