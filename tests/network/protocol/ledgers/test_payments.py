"""Masks as they are drawn for one release: no key serves two of them."""

import itertools

import numpy as np

from p2pfl.network.protocol.ledgers.payments import Mask, Payment, points
from p2pfl.network.protocol.ledgers.slots import Slot
from p2pfl.privacy.keys import SeededSource
from p2pfl.privacy.masks import Masks, swarm_secrets
from p2pfl.topology import Topology

EDGES = (("ada", "bob"), ("bob", "cleo"))
GRAPH = Topology(("ada", "bob", "cleo"), EDGES)
SIZE = 2000


def test_masks_of_two_edges_rounds_or_attempts_are_independent():
    masks = Masks(swarm_secrets(GRAPH, source=SeededSource(3), run="test"), deviation=3.0, topology=GRAPH)
    rows = []
    for edge, round, attempt in itertools.product(EDGES, range(3), range(3)):
        slot = Slot(attempt, round)
        payment = Payment("bob", slot, (), {Mask(edge, slot): 1})
        rows.append(points(payment, masks=masks, size=SIZE) * 2.0**-20)
    alike = np.abs(np.corrcoef(rows)) - np.eye(len(rows))
    assert alike.max() < 6 / SIZE**0.5
    assert np.abs(np.std(rows, axis=1) / 3 - 1).max() < 6 / (2 * SIZE) ** 0.5
