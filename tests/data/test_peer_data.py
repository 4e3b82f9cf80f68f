"""Data of peers that own it, divided among processes."""

import numpy as np
import pytest
import torch

from p2pfl.core.errors import DataError
from p2pfl.data import Federation, federate
from p2pfl.data.federation import Elsewhere, Sizes
from p2pfl.simulation.sharding.shard import Shard
from sharding import together

PEERS = ("ada", "bob", "cy", "dan")
HANDS = (("ada", "cy"), ("bob", "dan"))


def divided(name, *, options=None, hands=HANDS, **how):
    """Return the federations of two processes that share the peers."""

    class Part(Shard):
        def __init__(self, group):
            super().__init__(PEERS)
            self.group = group

        def total(self, integers, *, refused=None):
            self.group.agree(refused)
            return self.group.total(torch.from_numpy(integers)).numpy()

    def work(group):
        return federate(
            name, peers=PEERS, seed=3, only=hands[group.rank], total=Part(group).total, options=options or {}, **how
        )

    return together(work, workers=2)


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("wine", {"split": "dirichlet", "validation": 0.2}),
        ("digits", {}),
        ("synthetic", {"validation": 0.1}),
        ("data.test_peer_data:uneven", {}),
    ],
    ids=["wine", "digits", "synthetic", "own"],
)
def test_a_process_holds_the_samples_of_its_own_peers_and_knows_the_sizes_of_all(name, how):
    whole = federate(name, peers=PEERS, seed=3, **how)
    for part, hands in zip(divided(name, **how), HANDS, strict=True):
        assert part.peers == hands
        assert [part.sizes(peer) for peer in PEERS] == [whole.sizes(peer) for peer in PEERS]
        assert part.samples(PEERS).tolist() == whole.samples(PEERS).tolist()
        assert (part.common, part.dataset.classes) == (whole.common, whole.dataset.classes)
        assert len(part.dataset) < len(whole.dataset)
        for peer in hands:
            for mine, its in ((part.train, whole.train), (part.validation, whole.validation), (part.test, whole.test)):
                assert torch.equal(part.dataset.features[mine[peer]], whole.dataset.features[its[peer]])
                assert torch.equal(part.dataset.targets[mine[peer]], whole.dataset.targets[its[peer]])


def uneven(*, peer, peers, seed):
    """Return samples of classes that no peer has all of."""
    del seed
    number = peers.index(peer)
    return np.full((10 + number, 2), number, np.float32), np.arange(10 + number) % (2 + number)


def wider(*, peer, peers, seed):
    """Return samples of which those of one peer have more features."""
    del peers, seed
    return np.zeros((10, 3 if peer == "dan" else 2), np.float32), np.arange(10) % 2


def test_data_of_another_shape_in_another_process_are_refused_in_all():
    hands = (("ada", "bob", "cy"), ("dan",))
    with pytest.raises(DataError, match="features or targets of different shapes or types"):
        divided("data.test_peer_data:wider", hands=hands)


def missing(*, peer, peers, seed):
    """Raise an error for one peer."""
    if peer == "dan":
        raise OSError("no such disk")
    return uneven(peer=peer, peers=peers, seed=seed)


def test_data_that_one_process_cannot_load_end_all_of_them_with_its_reason():
    with pytest.raises(DataError, match=r'cannot load the data for peer "dan" .*no such disk'):
        divided("data.test_peer_data:missing")


def test_a_federation_has_a_common_test_part_if_all_peers_hold_the_same_array():
    data, own = federate("wine", peers=["ada"], seed=0).dataset, np.arange(3)
    same, other = {"ada": own, "bob": own}, {"ada": own, "bob": own.copy()}
    assert Federation(data, other, other, same).common
    assert not Federation(data, other, other, other).common
    sizes = {"ada": Sizes(1, 2, 3), "bob": Sizes(4, 5, 6)}
    part = Federation(data, {"ada": own}, {"ada": own}, {"ada": own}, Elsewhere(sizes, common=False))
    assert not part.common
    assert part.samples(["bob", "ada"]).tolist() == [4, 1]
