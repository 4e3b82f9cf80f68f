"""Codes that no row has, from a neighbour that signs them."""

import pytest
import torch

from p2pfl.core.codecs import Coded
from p2pfl.experiment import read
from p2pfl.network.peer.neighbourhoods import live as module
from p2pfl.network.protocol.wire.wire_rows import encode_row
from p2pfl.network.transport import MemoryTransport
from swarms import SMALL, live

BASE = ["topology.kind=complete", "topology.peers=3", "rounds=2", "learning.weighted=false"]


def spoilt(data):
    return torch.full_like(data, 255)


def shortened(data):
    return data[:-1]


@pytest.mark.sampled(fast=0, all=3)
@pytest.mark.parametrize(("spoil", "fault"), [(spoilt, "codes"), (shortened, "shape")])
@pytest.mark.parametrize("name", ["top_k", "qsgd", "float16", "quantise"])
async def test_a_row_that_cannot_be_unpacked_is_refused_and_the_others_go_on(monkeypatch, name, spoil, fault):
    honest = Coded.data

    def data(self, index):
        return spoil(honest(self, index)) if self.at.peers == ("peer1",) else honest(self, index)

    monkeypatch.setattr(Coded, "data", data)
    ended = await live(read(SMALL, changes=[*BASE, f"compression.name={name}"]), MemoryTransport())
    for other in ("peer0", "peer2"):
        assert ended[other].peer.session.shared.refused == {f"peer1: {fault}": 6}
        assert ended[other].records[-1].missed == ["peer1"] * 3
        assert bool(ended[other].state.rows.isfinite().all())


@pytest.mark.slow
async def test_bytes_that_do_not_say_of_which_codec_they_are_are_refused(monkeypatch):
    monkeypatch.setattr(module, "encode_row", lambda row, **said: encode_row(row, **said | {"codec": 0}))
    ended = await live(read(SMALL, changes=[*BASE, "compression.name=qsgd"]), MemoryTransport())
    assert ended["peer0"].peer.session.shared.refused == {"peer1: codec": 6, "peer2: codec": 6}
