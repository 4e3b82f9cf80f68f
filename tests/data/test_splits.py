import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from p2pfl.core.draws import draw
from p2pfl.core.errors import DataError
from p2pfl.data import SPLITS
from p2pfl.data.splits import column, dirichlet, hold_out, iid, power_law, shards

OPTIONS = {
    "iid": {},
    "dirichlet": {"alpha": 0.1},
    "shards": {"shards_per_peer": 2},
    "power_law": {"exponent": 1.5},
}

GOLDEN = {
    "iid": {"peer0000": [1, 2, 3, 9], "peer0001": [5, 6, 7, 11], "peer0002": [0, 4, 8, 10]},
    "dirichlet": {"peer0000": [9, 10, 11], "peer0001": [1, 2, 3, 6], "peer0002": [0, 4, 5, 7, 8]},
    "shards": {"peer0000": [8, 9, 10, 11], "peer0001": [0, 1, 2, 3], "peer0002": [4, 5, 6, 7]},
    "power_law": {"peer0000": [2, 11], "peer0001": [1, 3, 5, 6, 7, 8, 9], "peer0002": [0, 4, 10]},
}


def names(count):
    return [f"peer{k:04d}" for k in range(count)]


def lists(parts):
    return {peer: part.tolist() for peer, part in parts.items()}


def test_golden_splits_of_twelve_samples_do_not_change_between_versions():
    targets = np.repeat([0, 1, 2], 4)
    found = {split: lists(SPLITS[split](targets, peers=names(3), seed=7, **OPTIONS[split])) for split in OPTIONS}
    assert found == GOLDEN


@given(
    split=st.sampled_from(sorted(OPTIONS)),
    targets=st.lists(st.integers(0, 4), min_size=1, max_size=80),
    share=st.floats(0, 1),
    seed=st.integers(0, 2**32),
)
def test_every_split_is_a_partition_that_leaves_no_peer_empty(split, targets, share, seed):
    most = len(targets) // 2 if split == "shards" else len(targets)
    peers = names(max(1, int(share * most)))
    if most == 0:
        return
    parts = SPLITS[split](np.array(targets), peers=peers, seed=seed, **OPTIONS[split])
    assert list(parts) == peers
    assert min(map(len, parts.values())) >= 1
    assert sorted(np.concatenate(list(parts.values())).tolist()) == list(range(len(targets)))
    assert all((np.diff(part) > 0).all() for part in parts.values())


@given(split=st.sampled_from(sorted(OPTIONS)), order=st.permutations(names(6)), seed=st.integers(0, 99))
def test_the_order_of_peers_changes_nothing(split, order, seed):
    targets = np.arange(60) % 4
    there = SPLITS[split](targets, peers=order, seed=seed, **OPTIONS[split])
    assert lists(there) == lists(SPLITS[split](targets, peers=names(6), seed=seed, **OPTIONS[split]))


@pytest.mark.parametrize("split", sorted(OPTIONS))
def test_another_seed_gives_another_split(split):
    targets = np.arange(60) % 4
    one, other = (lists(SPLITS[split](targets, peers=names(6), seed=seed, **OPTIONS[split])) for seed in (1, 2))
    assert one != other


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("split", sorted(OPTIONS))
def test_two_thousand_peers_get_their_part(split):
    targets = np.arange(20_000) % 10
    parts = SPLITS[split](targets, peers=names(2000), seed=7, **OPTIONS[split])
    assert sum(map(len, parts.values())) == 20_000
    assert min(map(len, parts.values())) >= 1


def test_equal_parts_differ_by_one_sample_at_most():
    assert [len(part) for part in iid(np.zeros(11), peers=names(4), seed=7).values()] == [3, 3, 3, 2]


def test_dirichlet_counts_equal_the_rounded_proportions_of_a_brute_force_deal():
    peers, alpha, seed = names(5), 0.7, 11
    targets = np.repeat(np.arange(3), [40, 50, 60])
    parts = dirichlet(targets, peers=peers, seed=seed, alpha=alpha)
    gammas = []
    for peer in peers:
        rng = draw(seed, "dirichlet", peer)
        above, u = rng.standard_gamma(alpha + 1, 3), 1 - rng.random(3)
        gammas.append([g * v ** (1 / alpha) for g, v in zip(above, u, strict=True)])
    for c, size in enumerate([40, 50, 60]):
        total = sum(row[c] for row in gammas)
        ends = [int(size * sum(row[c] for row in gammas[: k + 1]) / total) for k in range(4)] + [size]
        counts = [end - start for start, end in zip([0, *ends], ends, strict=False)]
        assert [int((targets[part] == c).sum()) for part in parts.values()] == counts


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.05, 1.0, 20.0])
def test_dirichlet_proportions_have_the_marginal_beta_moments(alpha):
    shares, law = first_peers_shares(alpha), stats.beta(alpha, 3 * alpha)
    assert shares.mean() == pytest.approx(law.mean(), abs=4 * law.std() / np.sqrt(300))
    assert shares.std() == pytest.approx(law.std(), rel=0.15)


@pytest.mark.slow
def test_dirichlet_proportions_follow_the_marginal_beta_law():
    assert stats.kstest(first_peers_shares(1.0), stats.beta(1, 3).cdf).pvalue > 1e-3


def first_peers_shares(alpha):
    """Share of each of 300 classes that the first of four peers gets: Beta(alpha, 3 alpha)."""
    targets = np.repeat(np.arange(300), 500)
    parts = dirichlet(targets, peers=names(4), seed=5, alpha=alpha)
    return np.bincount(targets[parts["peer0000"]], minlength=300) / 500


def test_tiny_alpha_gives_every_class_to_one_peer_without_underflow():
    targets = np.arange(1000) % 10
    parts = dirichlet(targets, peers=names(4), seed=3, alpha=1e-6)
    owners = np.array([[(targets[part] == c).sum() for part in parts.values()] for c in range(10)])
    assert (owners.max(1) >= 98).all()  # all of a class but what empty peers were given


def test_large_alpha_is_nearly_iid():
    targets = np.arange(10_000) % 10
    parts = dirichlet(targets, peers=names(10), seed=3, alpha=1e6)
    counts = np.array([np.bincount(targets[part], minlength=10) for part in parts.values()])
    assert counts.min() >= 98
    assert counts.max() <= 102


def test_two_sorted_shards_hold_two_classes_each():
    targets = np.arange(6000) % 10
    parts = shards(targets, peers=names(10), seed=7, shards_per_peer=2)
    assert {len(part) for part in parts.values()} == {600}
    assert all(len(np.unique(targets[part])) <= 2 for part in parts.values())


def test_shards_of_numbers_are_ranges():
    targets = draw(7, "numbers").random(40)
    parts = shards(targets, peers=names(4), seed=7, shards_per_peer=1)
    ranges = sorted((targets[part].min(), targets[part].max()) for part in parts.values())
    assert all(high < low for (_, high), (low, _) in itertools.pairwise(ranges))


def test_power_law_sizes_follow_the_law():
    sizes = sorted(
        (len(p) for p in power_law(np.zeros(1004), peers=names(4), seed=7, exponent=1).values()), reverse=True
    )
    exact = [1 + 1000 / rank / (1 + 1 / 2 + 1 / 3 + 1 / 4) for rank in (1, 2, 3, 4)]
    assert sizes == pytest.approx(exact, abs=1)


def test_exponent_zero_is_equal_parts():
    parts = power_law(np.zeros(22), peers=names(4), seed=7, exponent=0)
    assert sorted(len(part) for part in parts.values()) == [5, 5, 6, 6]


def test_each_value_of_a_column_goes_to_the_peer_of_that_name():
    values = np.array(["va", "basel", "va", "budapest"])
    parts = column(np.zeros(4), peers=["va", "budapest", "basel"], values=values)
    assert lists(parts) == {"basel": [1], "budapest": [3], "va": [0, 2]}


def test_more_values_than_peers_are_dealt_in_turn():
    parts = column(np.zeros(6), peers=["ada", "bob"], values=np.array([3.0, 1.0, 2.0, 1.0, 3.0, 4.0]))
    assert lists(parts) == {"ada": [0, 1, 3, 4], "bob": [2, 5]}


def test_hold_out_takes_the_same_share_of_every_class():
    targets = np.repeat([0, 1, 2], [50, 100, 2])
    kept, held = hold_out(targets, fraction=0.2, rng=draw(7, "test"))
    assert np.bincount(targets[held]).tolist() == [10, 20, 1]
    assert sorted([*kept, *held]) == list(range(152))


@pytest.mark.parametrize(
    ("split", "targets", "options", "sentence"),
    [
        (
            "iid",
            np.zeros(2),
            {},
            "2 training samples are too few for 3 peers; use at most 2 peers or a larger data set",
        ),
        (
            "dirichlet",
            np.array([0, 1]),
            {"alpha": 1.0},
            "2 training samples are too few for 3 peers; use at most 2 peers or a larger data set",
        ),
        (
            "power_law",
            np.zeros(2),
            {"exponent": 1.0},
            "2 training samples are too few for 3 peers; use at most 2 peers or a larger data set",
        ),
        (
            "shards",
            np.zeros(5),
            {"shards_per_peer": 2},
            "5 training samples are too few for 3 x 2 shards; use fewer peers or shards",
        ),
        (
            "shards",
            np.zeros(5),
            {"shards_per_peer": 0},
            "each peer needs at least 1 shard, but shards_per_peer is 0; 2 is usual",
        ),
        (
            "dirichlet",
            np.arange(5),
            {"alpha": 0.0},
            "alpha must be above 0, but it is 0.0; 0.1 is very uneven, 100 nearly iid",
        ),
        (
            "dirichlet",
            np.zeros(5),
            {"alpha": 1.0},
            "the split by Dirichlet draws needs classes, but the targets are numbers; use iid, shards or power_law",
        ),
        (
            "power_law",
            np.zeros(5),
            {"exponent": -1.0},
            "the exponent must be at least 0, but it is -1.0; 0 gives equal parts, 1 Zipf's law",
        ),
    ],
)
def test_an_impossible_split_says_what_to_do(split, targets, options, sentence):
    with pytest.raises(DataError, match=sentence):
        SPLITS[split](targets, peers=names(3), seed=7, **options)


def test_fewer_values_than_peers_is_an_error():
    with pytest.raises(DataError, match=r"has 2 different values .* fewer than 3 peers; use at most 2 peers"):
        column(np.zeros(4), peers=names(3), values=np.array(["a", "b", "a", "b"]))
