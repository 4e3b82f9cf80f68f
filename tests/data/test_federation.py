import re
import sys
import types

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import FEW
from p2pfl.core.errors import DataError
from p2pfl.data import SOURCES, SPLITS, Dataset, Federation, describe, federate

PEERS = ("ada", "bob", "eve", "kim")
GOLDEN_SAMPLES = [13, 8, 95, 13]
GOLDEN_TEST = [5, 20, 25, 27, 29, 30, 36, 37]


@pytest.fixture
def own(monkeypatch):
    """A user's module whose functions give a peer its data, and a list of the peers that were asked for."""
    module = types.ModuleType("users_own")
    module.asked = []

    def sensors(*, peer, peers, seed):
        module.asked.append(peer)
        k = peers.index(peer)
        return np.full((10 + k, 3), seed + k), np.arange(10 + k) % (2 + k)

    module.sensors = sensors
    module.temperatures = lambda *, peer, peers, seed, scale: (torch.ones(5, 2), scale * torch.rand(5))  # noqa: ARG005 - a protocol of three names
    module.broken = lambda *, peer, peers, seed: [[1.0, float("nan")]] * 4  # noqa: ARG005 - a protocol of three names
    module.holes = lambda *, peer, peers, seed: ([[1.0, float("nan")]] * 4, [0, 1, 0, 1])  # noqa: ARG005 - a protocol of three names
    module.single = lambda *, peer, peers, seed: ([[1.0]], [0])  # noqa: ARG005 - a protocol of three names
    module.short = lambda *, peer, peers, seed: ([[1.0], [2.0]], [0, 1, 0])  # noqa: ARG005 - a protocol of three names
    module.uneven = lambda *, peer, peers, seed: (np.ones((4, 1 + peers.index(peer))), [0, 1, 0, 1])  # noqa: ARG005 - a protocol of three names
    module.number = 3
    monkeypatch.setitem(sys.modules, "users_own", module)
    return module


def same(one, other):
    """Equal in every sample of every part, wherever it lies."""
    assert one.peers == other.peers
    for part in ("train", "validation", "test"):
        for peer in one.peers:
            a, b = getattr(one, part)[peer], getattr(other, part)[peer]
            assert torch.equal(one.dataset.features[a], other.dataset.features[b])
            assert torch.equal(one.dataset.targets[a], other.dataset.targets[b])


@pytest.mark.parametrize("split", ["iid", "dirichlet", "shards", "power_law"])
def test_all_parts_together_are_a_partition_of_the_data(split):
    swarm = federate("digits", peers=PEERS, seed=7, split=split, validation=0.25)
    own = [*swarm.train.values(), *swarm.validation.values(), swarm.test["ada"]]
    assert sorted(np.concatenate(own).tolist()) == list(range(1797))
    assert len(swarm.test["ada"]) == pytest.approx(1797 * 0.2, abs=5)
    for peer in PEERS:
        assert swarm.test[peer] is swarm.test["ada"]
        both = len(swarm.train[peer]) + len(swarm.validation[peer])
        assert len(swarm.validation[peer]) == pytest.approx(both * 0.25, abs=0.5)


@settings(FEW)
@given(order=st.permutations(PEERS), split=st.sampled_from(["iid", "dirichlet", "shards", "power_law"]))
def test_the_order_of_peers_does_not_change_a_federation(order, split):
    same(*(federate("wine", peers=peers, seed=7, split=split, validation=0.1) for peers in (order, PEERS)))


@pytest.mark.parametrize("name", ["wine", "digits", "diabetes", "synthetic"])
def test_a_peer_at_hand_alone_has_the_samples_it_has_among_all(name):
    swarm = federate(name, peers=PEERS, seed=7, validation=0.2)
    alone = federate(name, peers=PEERS, seed=7, validation=0.2, only=["eve"])
    same(swarm.of("eve"), alone)
    assert len(alone.dataset) == sum(len(part["eve"]) for part in (alone.train, alone.validation, alone.test))


def test_everything_repeats_from_the_seed_and_changes_with_it():
    one, again, other = (federate("wine", peers=PEERS, seed=seed, split="dirichlet") for seed in (7, 7, 8))
    same(one, again)
    assert not np.array_equal(one.test["ada"], other.test["ada"])


def test_golden_wine_split_does_not_change_between_versions():
    swarm = federate("wine", peers=PEERS, seed=7, split="dirichlet", alpha=0.5, validation=0.1)
    assert swarm.samples(PEERS).tolist() == GOLDEN_SAMPLES
    assert swarm.test["ada"][:8].tolist() == GOLDEN_TEST


def test_pooled_holds_the_union_and_keeps_a_shared_test_part():
    swarm = federate("wine", peers=PEERS, seed=7, validation=0.1)
    pooled = swarm.pooled("all")
    assert pooled.peers == ("all",)
    assert pooled.samples(["all"]).item() == swarm.samples(PEERS).sum().item()
    assert np.array_equal(pooled.test["all"], swarm.test["ada"])
    assert pooled.dataset is swarm.dataset


def test_pooled_tests_on_all_own_test_parts():
    swarm = federate("synthetic", peers=PEERS, seed=7)
    assert len(swarm.pooled().test["pooled"]) == sum(len(part) for part in swarm.test.values())


def test_of_takes_only_these_peers():
    swarm = federate("wine", peers=PEERS, seed=7).of("kim", "bob")
    assert swarm.peers == ("bob", "kim")
    assert swarm.samples(["kim", "bob"]).dtype == torch.int64
    with pytest.raises(DataError, match=r'peer "kin" has no data; did you mean "kim"\?'):
        swarm.of("kin")


def test_a_users_function_is_asked_for_the_peers_at_hand_alone(own):
    swarm = federate("users_own:sensors", peers=PEERS, seed=7, only=["bob"], options={"classes": 5}, test=0.3)
    assert own.asked == ["bob"]
    assert swarm.peers == ("bob",)
    assert swarm.dataset.classes == 5
    assert swarm.dataset.features.unique().tolist() == [8.0]
    assert (len(swarm.train["bob"]), len(swarm.test["bob"])) == (8, 3)


def test_all_peers_together_show_the_number_of_classes(own):
    swarm = federate("users_own:sensors", peers=PEERS, seed=7)
    assert own.asked == list(PEERS)
    assert swarm.dataset.classes == 5
    assert len(swarm.dataset) == 10 + 11 + 12 + 13
    same(swarm.of("kim"), federate("users_own:sensors", peers=PEERS, seed=7, only=["kim"], options={"classes": 5}))


def test_fractions_as_targets_are_a_regression(own):
    swarm = federate("users_own:temperatures", peers=PEERS, seed=7, options={"scale": 2.0})
    assert swarm.dataset.classes is None
    assert swarm.dataset.targets.dtype == torch.float32
    assert own.asked == []


def test_description_counts_classes_and_label_distance():
    data = Dataset(torch.zeros(6, 1), torch.tensor([0, 0, 0, 1, 1, 2]), classes=3)
    parts = {"ada": np.array([0, 1]), "bob": np.array([2, 3, 4, 5])}
    facts = describe(Federation(data, parts, parts, parts))
    assert facts == {
        "peers": 2,
        "samples": {"min": 2, "median": 3.0, "max": 4},
        "classes_per_peer": {"min": 1, "median": 2.0, "max": 3},
        "label_distance": pytest.approx(((1 / 2 + 1 / 3 + 1 / 6) / 2 + (1 / 4 + 1 / 6 + 1 / 12) / 2) / 2),
    }


def test_description_of_a_regression_has_no_classes():
    facts = describe(federate("diabetes", peers=PEERS, seed=7))
    assert facts["classes_per_peer"] is None
    assert facts["label_distance"] is None


def test_label_distance_grows_as_alpha_falls():
    distances = [
        describe(federate("digits", peers=PEERS, seed=7, split="dirichlet", alpha=alpha))["label_distance"]
        for alpha in (100.0, 1.0, 0.05)
    ]
    assert distances == sorted(distances)
    assert distances[0] < 0.1
    assert distances[2] > 0.5


def test_tables_name_what_the_experiment_file_may_name():
    sets = {
        "digits",
        "breast_cancer",
        "wine",
        "diabetes",
        "mnist",
        "fashion_mnist",
        "fed_heart",
        "csv",
        "table",
        "synthetic",
    }
    assert set(SOURCES) == sets
    assert set(SPLITS) == {"iid", "dirichlet", "shards", "power_law", "column"}


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("digit", {}, r'"digit" is neither a data set nor a "package\.module:function"; did you mean "digits"\?'),
        (
            "zzz",
            {},
            (
                '"zzz" is neither a data set nor a "package.module:function"; choose from breast_cancer, csv, '
                "diabetes, digits, fashion_mnist, fed_heart, mnist, synthetic, table, wine"
            ),
        ),
        (
            "wine",
            {"split": "dirichelt"},
            r'"dirichelt" is neither a split nor a "package.module:function"; did you mean "dirichlet"\?',
        ),
        (
            "wine",
            {"split": "column", "column": "x"},
            (
                "`column` is 'x', which is not a column of the data set "
                '"wine"; use a data set of the kind "csv", which has columns'
            ),
        ),
        ("wine", {"options": {"path": "x"}}, 'the data set "wine" has no option "path"; choose from none'),
        ("csv", {"options": {"path": "x"}}, 'the data set "csv" needs the option "target"; add it to the options'),
        (
            "synthetic",
            {"options": {"alhpa": 1}},
            r'the data set "synthetic" has no option "alhpa"; did you mean "alpha"\?',
        ),
        ("synthetic", {"options": {"alpha": -1}}, 'the option "alpha" must be at least 0, but it is -1; 1 is usual'),
        (
            "synthetic",
            {"options": {"classes": 0}},
            'the option "classes" must be a whole number above 0, but it is 0; change it',
        ),
        ("synthetic", {"options": {"iid": "yes"}}, ("the option \"iid\" is 'yes'; use true or false")),
        (
            "synthetic",
            {"split": "shards"},
            'each peer of "synthetic" owns its data, which cannot be split by "shards"; leave the split out',
        ),
        (
            "wine",
            {"test": 1.0},
            (
                "test and validation must be at least 0 and below 1, but they are 1.0 and 0.0; both are shares of the "
                "samples"
            ),
        ),
        (
            "wine",
            {"validation": 1.0},
            (
                "test and validation must be at least 0 and below 1, but they are 0.2 and 1.0; both are shares of the "
                "samples"
            ),
        ),
        ("wine", {"only": ["adda"]}, r'peer "adda" is not part of the run; did you mean "ada"\?'),
        (
            "wine",
            {"peers": []},
            "the peers must be at least one and each named once, but they are none; change the list",
        ),
        (
            "wine",
            {"peers": ["ada", "ada"]},
            "the peers must be at least one and each named once, but they are ada, ada; change the list",
        ),
        (
            "wine",
            {"peers": [f"p{k}" for k in range(200)]},
            "142 training samples are too few for 200 peers; use at most 142 peers or a larger data set",
        ),
        ("users_own:nothing", {}, r'"users_own:nothing" cannot be imported .*correct the name'),
        ("no_such_module:f", {}, r"No module named 'no_such_module'"),
        ("users_own:number", {}, '"users_own:number" is an object of the type int; name a function'),
        (
            "users_own:sensors",
            {"options": {"rate": 1}},
            (
                r"users_own:sensors takes \(\*, peer, peers, seed\) and cannot be called as "
                r"function\(peer=\.\.\., peers=\.\.\., seed=\.\.\., rate=\.\.\.\) \(got an unexpected keyword "
                r"argument 'rate'\); change its parameters or the options"
            ),
        ),
        (
            "users_own:sensors",
            {"options": {"classes": "3"}},
            ("the option \"classes\" is '3', not a whole number above 0; change it"),
        ),
        ("users_own:sensors", {"only": ["ada"]}, r"add `classes` to the options"),
        (
            "users_own:sensors",
            {"options": {"classes": 2}},
            (
                'users_own:sensors for peer "bob": the classes run from 0 to 2, not from 0 to 1; number the classes '
                "from 0 and set `classes` to their number"
            ),
        ),
        (
            "users_own:temperatures",
            {"options": {"scale": 1, "classes": 2}},
            (
                'users_own:temperatures returns fractions as targets for peer "ada", although the option "classes" '
                'is set; convert them to whole numbers, or leave "classes" out to predict numbers'
            ),
        ),
        (
            "users_own:broken",
            {},
            (re.escape('users_own:broken returns a list of 4 for peer "ada"; return (features, targets) as arrays')),
        ),
        (
            "users_own:holes",
            {},
            (
                'users_own:holes for peer "ada": feature 1 contains NaN or infinity, first in sample 0; impute or '
                "remove these values"
            ),
        ),
        (
            "users_own:single",
            {},
            (
                'users_own:single returns 1 samples for peer "ada", but training and test need at least 2 samples; add '
                "data"
            ),
        ),
        (
            "users_own:short",
            {},
            (
                r'users_own:short for peer "ada": targets of shape \(3,\) do not match 2 samples; give as many '
                "targets as features"
            ),
        ),
        (
            "users_own:uneven",
            {},
            (
                re.escape(
                    "the peers have features or targets of different shapes or types "
                    "(((1,), 'numbers', (), 'whole numbers'), ((2,), 'numbers', (), 'whole numbers'), "
                )
            ),
        ),
    ],
)
@pytest.mark.usefixtures("own")
def test_wrong_input_is_one_sentence_with_a_remedy(name, arguments, sentence):
    with pytest.raises(DataError, match=sentence):
        federate(name, **{"peers": PEERS, "seed": 7, **arguments})


def test_a_hole_in_a_picture_is_named_by_its_pixel():
    pictures = torch.zeros(2, 1, 4, 4)
    pictures[1, 0, 2, 3] = torch.inf
    with pytest.raises(
        DataError,
        match=r"feature \(0, 2, 3\) contains NaN or infinity, first in sample 1; impute or remove these values",
    ):
        Dataset(pictures, torch.zeros(2, dtype=torch.int64), classes=1)


def test_large_finite_features_are_accepted_though_their_sum_overflows():
    data = Dataset(torch.full((2, 2), 3e38), torch.zeros(2, dtype=torch.int64), classes=1)
    assert len(data) == 2


def test_a_read_only_array_of_a_user_is_copied(own):
    array = np.ones((4, 2), np.float32)
    array.flags.writeable = False
    own.fixed = lambda *, peer, peers, seed: (array, torch.tensor([True, False, True, False]))  # noqa: ARG005 - a protocol of three names
    data = federate("users_own:fixed", peers=["ada"], seed=7).dataset
    assert (data.classes, data.targets.tolist()) == (2, [1, 0, 1, 0])
    data.features.zero_()
    assert array.min() == 1


def test_a_target_that_is_no_number_is_an_error():
    with pytest.raises(DataError, match="the targets contain NaN or infinity; remove those samples"):
        Dataset(torch.zeros(2, 1), torch.tensor([0.0, torch.nan]), classes=None)
