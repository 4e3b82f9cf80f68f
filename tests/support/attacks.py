"""What attacks on live peers share: four peers of a ring with their identities, and a broker in the middle.

What must have no effect leaves every final row as it is in an undisturbed run, bit for bit.
"""

import asyncio

import torch

from p2pfl.experiment import plan
from p2pfl.network.peer import Peer
from p2pfl.network.peer.storage.checkpoint import CheckpointStore
from p2pfl.network.protocol.wire.envelope import CONTROL, SEALED
from p2pfl.network.protocol.wire.wire_codec import decode
from p2pfl.network.transport import MemoryTransport
from p2pfl.privacy.keys import Identity, Roster, SeededSource
from swarms import Ended

NAMES = ("peer0", "peer1", "peer2", "peer3")
IDENTITIES = {name: Identity.generate(SeededSource(7), peer=name) for name in NAMES}
PUBLIC = {name: identity.public for name, identity in IDENTITIES.items()}
MALLORY = Identity.generate(SeededSource(7), peer="mallory")
RING = ["topology.kind=ring", "topology.peers=4"]
ROOT = "p2pfl/v1/test/peer"
PREFIX = 13
"""Bytes of a sealed message that name its place, in the clear."""


class Middle(MemoryTransport):
    """A broker that reads everything, and publishes what ``meddle`` makes of it."""

    def __init__(self, meddle=None):
        super().__init__()
        self.meddle = meddle or (lambda topic, data, retain: [(topic, data, retain)])
        self.seen = []
        self.inject = self._broker.publish
        self._broker.publish = self._publish

    def _publish(self, topic, data, *, retain):
        self.seen.append((topic, data, retain))
        for place, payload, kept in self.meddle(topic, data, retain):
            self.inject(place, payload, retain=kept)


def roster():
    return Roster(PUBLIC)


async def together(
    experiment, transport, *, trust=roster, life=100, source=None, prepare=None, names=NAMES, folder=None
):
    """Run peers, all four by default, with their identities; each ends in what became of it, or its error."""
    notices = []

    async def one(index, name):
        records = []
        peer = Peer(
            name,
            plan(experiment, only=[name]),
            transport=transport,
            source=source,
            identity=IDENTITIES[name],
            trust=trust(),
            incarnation=life + index,
            observe=lambda record, _: records.append(record),
            notice=notices.append,
            store=None if folder is None else CheckpointStore(folder, name),
        )
        async with peer:
            if prepare is not None:
                prepare(peer)
            return Ended(peer, await peer.run(), records)

    async with asyncio.timeout(60):
        ended = await asyncio.gather(*(one(*each) for each in enumerate(names)), return_exceptions=True)
    return dict(zip(names, ended, strict=True)), notices


async def run(experiment, transport=None, **options):
    ended, _ = await together(experiment, transport or MemoryTransport(), **options)
    return ended


def assert_no_effect(ended, undisturbed):
    for name, end in ended.items():
        if isinstance(end, BaseException):
            raise end
        assert torch.equal(end.state.rows, undisturbed[name])
        assert not any(record.missed for record in end.records)


def decode_plain(data):
    return None if data[:1] == bytes([SEALED]) else decode(data)


def is_chunk(data):
    return data[:1] == bytes([SEALED]) and data[1:5] != CONTROL.to_bytes(4, "little")
