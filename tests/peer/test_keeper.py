"""What a peer keeps is written one thing after the other, and what could not be written is told."""

import asyncio
import threading

import pytest
import torch
from msgspec.structs import replace

from p2pfl.algorithms import State
from p2pfl.errors import StorageError
from p2pfl.identity import SeededSource
from p2pfl.neighbourhood import Public
from p2pfl.peer.storage.checkpoint import Checkpoint, Store
from p2pfl.peer.storage.journal import Journal
from p2pfl.peer.storage.writer import Keeper, erase_keys
from p2pfl.protocol.ledgers.slots import END


def checkpoint(round):
    row = torch.full((1, 3), float(round))
    return Checkpoint("ada", round, State(row, Public(row)))


def keeper(store):
    return Keeper(store, None, incarnation=1, peer="ada", source=SeededSource(0))


class Held(Store):
    """Waits, while it writes a round, until that is let go."""

    def __init__(self, folder, *, rounds):
        super().__init__(folder, "ada")
        self.gates = {round: threading.Event() for round in rounds}
        self.begun = []
        self.busy = threading.Event()

    def save(self, checkpoint, model):
        self.begun.append(checkpoint.round)
        self.busy.set()
        assert self.gates[checkpoint.round].wait(timeout=30)
        super().save(checkpoint, model)


async def test_a_checkpoint_is_begun_when_the_one_before_is_written_also_where_nothing_was_sent_in_between(tmp_path):
    store = Held(tmp_path, rounds=(1, 2))

    kept = keeper(store)
    await kept.save(checkpoint(1), lambda row: {"row": row})
    second = asyncio.create_task(kept.save(checkpoint(2), lambda row: {"row": row}))
    store.gates[2].set()
    await asyncio.to_thread(store.busy.wait, 30)
    for _ in range(100):  # as many turns as it likes
        await asyncio.sleep(0)
    assert store.begun == [1]
    assert not second.done()
    store.gates[1].set()
    await second
    await kept.end()
    assert [each.round for each in store.checkpoints()] == [2, 1]


def test_the_exchange_key_of_a_run_that_has_ended_is_erased_from_every_journal_and_nothing_else_is(tmp_path):
    (tmp_path / "peers").mkdir()
    stores = [Store(tmp_path / "peers", name) for name in ("ada", "bob")]
    before = [Journal(7, bytes([number] * 32), released=3, until=tuple(END), ended=4) for number in (1, 2)]
    for store, journal in zip(stores, before, strict=True):
        store.note(journal)
    for _ in range(2):
        erase_keys(tmp_path)
        assert [store.journal() for store in stores] == [replace(journal, key=b"") for journal in before]
    assert not any(
        bytes([number] * 32) in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() for number in (1, 2)
    )


async def test_a_checkpoint_that_found_no_room_is_told_before_the_next_is_begun(tmp_path):
    class Full(Store):
        def save(self, checkpoint, model):
            del checkpoint, model
            raise StorageError("expected room, got none")

    kept = keeper(Full(tmp_path, "ada"))
    await kept.save(checkpoint(1), lambda row: {"row": row})
    with pytest.raises(StorageError, match="expected room"):
        await kept.save(checkpoint(2), lambda row: {"row": row})
    await kept.end()
