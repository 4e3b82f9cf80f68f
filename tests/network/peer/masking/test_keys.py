"""No key hides two different plaintexts, whichever incarnation uses it."""

import asyncio
import shutil

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from p2pfl.experiment import read
from p2pfl.network.peer.masking import mask_cover
from p2pfl.network.peer.storage.checkpoint import CheckpointStore
from p2pfl.network.peer.storage.writer import erase_keys
from p2pfl.network.protocol.ledgers.mask_slots import draw_masks, mask_key
from p2pfl.network.protocol.membership.entry_round import common
from p2pfl.network.transport import MemoryTransport
from p2pfl.privacy.keys import SecretSource, exchange
from p2pfl.privacy.secagg import protocol as secagg
from p2pfl.results.notices.kinds import ReleasesEnded
from restarts import RestartablePeers
from swarms import SMALL

pytestmark = pytest.mark.slow

COMPLETE = ["topology.kind=complete", "topology.peers=4", "gossip.steps=1", "learning.algorithm=dpsgd"]
SUMS = [*COMPLETE, "rounds=4", "privacy.mode=secagg"]
MASKS = [*COMPLETE, "rounds=6", "privacy.mode=pairwise", "privacy.mask=30.0"]


def swarm(changes, folder):
    return RestartablePeers(read(SMALL, changes=changes), MemoryTransport(), folder, source=SecretSource())


async def killed(lives, *, at):
    """Kill all peers when the first of them is in a round."""
    lives.start()
    await lives.until(lambda now: any(peer.mailbox.gossip_step >= (at, 0) for peer in now.values()))
    await lives.kill()


def seen(monkeypatch):
    """Return by sum and sender what each incarnation added and sent."""
    terms, shares = {}, {}
    share = secagg.Sender.share

    def shared(sender, points, here):
        sent = share(sender, points, here)
        terms.setdefault((sender.sum.slot, sender.peer), []).append(points.copy())
        shares.setdefault((sender.sum.slot, sender.peer), []).append(sent.copy())
        return sent

    monkeypatch.setattr(secagg.Sender, "share", shared)
    return terms, shares


async def test_a_receiver_learns_no_difference_of_two_terms_from_a_sum_that_is_played_again(tmp_path, monkeypatch):
    terms, shares = seen(monkeypatch)

    async with asyncio.timeout(60):
        lives = swarm(SUMS, tmp_path)
        await killed(lives, at=2)
        lives.start(resume=True, at=1)
        await lives.end()
    again = [each for each, found in shares.items() if len(found) == 2]
    assert again
    for each in again:
        first, second = shares[each]
        assert not np.array_equal((first - second).view(np.int64), terms[each][0] - terms[each][1])


def fresh_masks(monkeypatch):
    """Keys of the masks that enter releases, each by the end of the edge that uses it."""
    used = []

    def watched(terms, *, masks, size):
        used.extend((factor, mask_key(mask, masks)) for mask, factor in terms.items())
        return draw_masks(terms, masks=masks, size=size)

    monkeypatch.setattr(mask_cover, "draw_masks", watched)
    return used


async def resumed_twice(changes, folder, *, between):
    """Kill a swarm, and resume two copies of its run directory, one after the other."""
    copies = [folder / name for name in ("one", "two")]
    copies[0].mkdir()

    await asyncio.wait_for(killed(swarm(changes, copies[0]), at=3), 60)  # and wait for what is being written
    shutil.copytree(*copies)

    async def resumed(copy):
        lives = swarm(changes, copy)
        lives.count = len(lives.names)  # the same incarnations in both: only the nonces differ
        together = common(CheckpointStore(copy, name).former().rounds for name in lives.names)
        lives.start(resume=True, at=together)
        return await lives.end()

    for copy in copies:
        between(await asyncio.wait_for(resumed(copy), 60))


async def test_two_copies_of_a_run_directory_that_are_resumed_share_no_mask(tmp_path, monkeypatch):
    used, drawn = fresh_masks(monkeypatch), []

    def ended(ends):
        del ends
        drawn.append(len(used))

    await resumed_twice(MASKS, tmp_path, between=ended)
    assert len(set(used)) == len(used)
    assert drawn[1] - drawn[0] >= 2 * 6 * 3  # both ends of six edges, in the rounds that are left


@pytest.mark.parametrize("changes", [MASKS, [*SUMS, "rounds=6"]], ids=["masks", "sums"])
async def test_two_copies_of_a_run_directory_that_are_resumed_seal_nothing_alike(tmp_path, monkeypatch, changes):
    seals = {}

    class Watched:
        def __init__(self, key):
            self.key, self.cipher = bytes(key), AESGCM(key)
            self.decrypt = self.cipher.decrypt

        def encrypt(self, nonce, data, header):
            found = self.cipher.encrypt(nonce, data, header)
            seals.setdefault((self.key, bytes(nonce)), set()).add(found)
            return found

    monkeypatch.setattr(exchange, "AESGCM", Watched)
    await resumed_twice(changes, tmp_path, between=lambda _ended: None)
    assert len(seals) > 100
    assert not [place for place, found in seals.items() if len(found) > 1]


async def test_a_peer_whose_key_was_erased_after_its_run_rests_with_the_row_that_it_has(tmp_path):
    (tmp_path / "peers").mkdir()

    async with asyncio.timeout(60):
        lives = swarm(MASKS, tmp_path / "peers")
        lives.start()
        before = dict(await lives.end())
        erase_keys(tmp_path)
        for _ in range(2):  # as often as it is tried
            lives.start(resume=True)
            await lives.end()
        assert not any(CheckpointStore(tmp_path / "peers", name).journal().key for name in lives.names)
    for name, end in lives.ended.items():
        assert torch.equal(end.state.rows, before[name].state.rows)
        assert len(end.records) == 6  # none of them again
        ended = [notice for notice in lives.notices if notice.peer == name and isinstance(notice, ReleasesEnded)]
        assert {notice.rounds for notice in ended} == {6}
