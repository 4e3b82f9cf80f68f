"""Tests of the weighted sum of one peer, where flows are not conserved."""

import pytest
import torch

from p2pfl.core.neighbourhood import Released
from p2pfl.network.peer.neighbourhoods.live import Weighted
from p2pfl.network.protocol.wire.wire_rows import Delivery, Head

OWN = Released(torch.tensor([[1.0, 2.0]]))


def delivery(*numbers, **head):
    return Delivery(Head(0, 0, "float32", len(numbers), **head), torch.tensor(numbers))


@pytest.mark.parametrize(
    ("arrived", "wanted"),
    [
        ([delivery(8.0, 4.0), delivery(16.0, 0.0)], [6.5, 2.0]),
        ([None, delivery(16.0, 0.0)], [4.75, 1.5]),
        ([delivery(8.0, 4.0), None], [2.75, 2.5]),
        ([None, None], [1.0, 2.0]),
    ],
)
def test_what_does_not_come_falls_to_the_own_row(arrived, wanted):
    total = Weighted(OWN, 0.5)
    for sender, came in zip(("ada", "bob"), arrived, strict=True):
        total.add(sender, 0.25, came)
    assert total.close().rows.tolist() == [wanted]
    assert OWN.rows.tolist() == [[1.0, 2.0]]


def test_masses_are_weighted_as_the_rows_are():
    total = Weighted(Released(OWN.rows, torch.tensor([[2.0]], dtype=torch.float64)), 0.5)
    total.add("ada", 0.25, delivery(8.0, 4.0, mass=4.0))
    total.add("bob", 0.25, None)
    assert total.close().masses.tolist() == [[2.5]]
