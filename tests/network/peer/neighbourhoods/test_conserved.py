"""The average of a settled gossip step."""

import pytest
import torch

from p2pfl.core.neighbourhood import Released
from p2pfl.network.peer.neighbourhoods.live import Conserved
from p2pfl.network.protocol.incoming.mailbox import Delivery
from p2pfl.network.protocol.ledgers.peer_ledgers import ROOM, PeerLedgers
from p2pfl.network.protocol.wire.wire_rows import Head

NOW = (0, 0)
OTHERS = ("bob", "eve", "mia")


def model(value):
    return Delivery(Head(*NOW, "float64", 1), torch.full((1,), value, dtype=torch.float64))


@pytest.mark.parametrize("late", [(), ("eve",), ("bob", "eve")])
def test_a_model_that_came_late_has_the_weight_of_the_others_if_it_counts(late):
    ledgers = PeerLedgers("ada", gossip=OTHERS)
    total = Conserved(Released(torch.tensor([[8.0]], dtype=torch.float64)), ledgers, gossip_step=NOW, chain=0, peers=4)
    ledgers.open(NOW, total.own, weights=dict.fromkeys(OTHERS, 0.25), chain=0)
    values = {"bob": 4.0, "eve": 0.0}
    for name in sorted(values.keys() - {*late}):
        total.add(name, 0.25, model(values[name]))
    for name in late:
        assert ledgers.late(name, model(values[name]))
    total.gather()
    total.average()
    total.final()
    assert not ledgers.late("mia", model(100.0))
    assert total.close().values == torch.tensor([[4.0]])
    assert ledgers.remainder() is None


def test_a_row_for_which_the_ledger_has_no_room_is_not_in_the_sum():
    ledgers = PeerLedgers("ada", gossip=OTHERS)
    added = list[bool]()
    for step in range(ROOM + 1):  # bob confirms none of them
        released = Released(torch.tensor([[8.0]], dtype=torch.float64))
        total = Conserved(released, ledgers, gossip_step=(0, step), chain=0, peers=4)
        ledgers.open((0, step), total.own, weights=dict.fromkeys(OTHERS, 0.25), chain=0)
        row = Delivery(Head(0, step, "float64", 1), torch.zeros(1, dtype=torch.float64))
        added.append(total.add("bob", 0.25, row))
    assert added == [True] * ROOM + [False]
    assert total.close().values == torch.tensor([[8.0]])
