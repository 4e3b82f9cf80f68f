"""What a peer keeps is written one thing after the other, and what could not be written is told."""

import asyncio
import threading
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from msgspec.structs import replace

from p2pfl.algorithms import State
from p2pfl.core.errors import StorageError
from p2pfl.core.neighbourhood import Public
from p2pfl.network.peer.masking.model_protection import ModelProtection
from p2pfl.network.peer.storage.checkpoint import Checkpoint, CheckpointStore
from p2pfl.network.peer.storage.journal import Journal
from p2pfl.network.peer.storage.writer import Keeper, erase_keys
from p2pfl.network.protocol.ledgers.mask_slots import END, MaskSlots, Slot
from p2pfl.privacy.keys import SeededSource
from waiting import pass_turns


def checkpoint(round):
    row = torch.full((1, 3), float(round))
    return Checkpoint("ada", round, State(row, Public(row)))


def keeper(store):
    return Keeper(store, None, incarnation=1, peer="ada", source=SeededSource(0))


class Held(CheckpointStore):
    """Waits, while it writes a round, until that is let go."""

    def __init__(self, folder, *, rounds):
        super().__init__(folder, "ada")
        self.gates = {round: threading.Event() for round in rounds}
        self.begun = []
        self.busy = threading.Event()

    def save(self, checkpoint, model, *, own=None):
        self.begun.append(checkpoint.round)
        self.busy.set()
        assert self.gates[checkpoint.round].wait(timeout=30)
        super().save(checkpoint, model, own=own)


async def test_a_checkpoint_is_begun_when_the_one_before_is_written_also_where_nothing_was_sent_in_between(tmp_path):
    store = Held(tmp_path, rounds=(1, 2))

    kept = keeper(store)
    await kept.save(checkpoint(1), lambda row: {"row": row})
    second = asyncio.create_task(kept.save(checkpoint(2), lambda row: {"row": row}))
    store.gates[2].set()
    await asyncio.to_thread(store.busy.wait, 30)
    await pass_turns(100)  # as many turns as it likes
    assert store.begun == [1]
    assert not second.done()
    store.gates[1].set()
    await second
    await kept.end()
    assert [each.round for each in store.checkpoints()] == [2, 1]


def test_the_exchange_key_of_a_run_that_has_ended_is_erased_from_every_journal_and_nothing_else_is(tmp_path):
    (tmp_path / "peers").mkdir()
    stores = [CheckpointStore(tmp_path / "peers", name) for name in ("ada", "bob")]
    before = [Journal(7, bytes([number] * 32), released=3, until=END, ended=4) for number in (1, 2)]
    for store, journal in zip(stores, before, strict=True):
        store.note(journal)
    for _ in range(2):
        erase_keys(tmp_path)
        assert [store.journal() for store in stores] == [replace(journal, key=b"") for journal in before]
    assert not any(
        bytes([number] * 32) in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() for number in (1, 2)
    )


def extended(journal, released, alone=frozenset(), spent=None):
    return journal.after(round=released, until=Slot(0, released + 1), spent=spent or {}, alone=alone)


async def test_writes_of_the_journal_never_overlap_and_who_waits_finds_its_own_state_written(tmp_path):
    class Slow(CheckpointStore):
        writing, most, gate = 0, 0, threading.Event()

        def note(self, journal):
            self.writing += 1
            self.most = max(self.most, self.writing)
            assert self.gate.wait(timeout=30)
            super().note(journal)
            self.writing -= 1

    store, found = Slow(tmp_path, "ada"), []
    kept = keeper(store)

    async def written(round):
        nonlocal newest
        newest = round
        await kept.durable(lambda journal: extended(journal, newest))
        found.append((round, store.journal().released))

    newest = 0
    async with asyncio.TaskGroup() as tasks:
        for round in range(1, 5):
            tasks.create_task(written(round))
            await pass_turns(10)  # it begins to write, or to wait
        store.gate.set()
    assert store.most == 1
    assert all(there >= wanted for wanted, there in found)


def test_a_release_that_noise_alone_hides_is_never_written_without_its_cost():
    """A thread charges, first the cost and then the release, whenever it likes."""
    cover = SimpleNamespace(charged=set())

    class Meter:
        samples = SimpleNamespace(own={"ada": Counter()})

        @property
        def costs(self):
            cover.charged = {Slot(0, 0)}  # it charges just now
            return {}

    slots = MaskSlots("ada", partners=["bob"], until=Slot(0, 1))
    session = SimpleNamespace(records=(), ledgers=SimpleNamespace(masks=slots))
    protection = SimpleNamespace(name="ada", cover=cover, meter=Meter(), session=session, released=0)
    written = ModelProtection.extend(protection, Journal(1, b"key"))
    assert cover.charged
    assert written.uncovered == frozenset()


async def test_a_checkpoint_that_found_no_room_is_told_before_the_next_is_begun(tmp_path):
    class Full(CheckpointStore):
        def save(self, checkpoint, model, *, own=None):
            del checkpoint, model, own
            raise StorageError("expected room, got none")

    kept = keeper(Full(tmp_path, "ada"))
    await kept.save(checkpoint(1), lambda row: {"row": row})
    with pytest.raises(StorageError, match="expected room"):
        await kept.save(checkpoint(2), lambda row: {"row": row})
    await kept.end()
