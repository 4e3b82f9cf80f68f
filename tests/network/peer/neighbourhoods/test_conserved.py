"""The average of a gossip step whose flows are conserved."""

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


def test_a_row_for_which_the_ledger_has_no_room_is_not_in_the_sum():
    ledgers = PeerLedgers("ada", gossip=OTHERS)
    added = list[bool]()
    for step in range(ROOM + 1):  # bob confirms none of them
        released = Released(torch.tensor([[8.0]], dtype=torch.float64))
        total = Conserved(released, ledgers, gossip_step=(0, step), chain=0)
        ledgers.open((0, step), total.own, weights=dict.fromkeys(OTHERS, 0.25), chain=0)
        row = Delivery(Head(0, step, "float64", 1), torch.zeros(1, dtype=torch.float64))
        added.append(total.add("bob", 0.25, row))
    assert added == [True] * ROOM + [False]
    assert total.close().values == torch.tensor([[8.0]])
