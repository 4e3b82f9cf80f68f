"""Files that a later version of p2pfl has written, after going back to this one."""

import blake3
import msgspec
import pytest
import torch
from safetensors.torch import load, save

from p2pfl.algorithms import State
from p2pfl.core.errors import RunError
from p2pfl.core.neighbourhood import Public
from p2pfl.network.peer.storage.checkpoint import Checkpoint, CheckpointStore, _digest, pack
from p2pfl.network.peer.storage.journal import Journal, encode_journal
from p2pfl.privacy.accounting.spending import Cost

ROW = torch.ones(1, 3)


def later(table, *places):
    """Add a field to the tables at these places."""
    inner = table
    for place in places:
        inner = inner[place]
    inner["charged_twice"] = 7
    return table


def write_journal(store, *places):
    journal = Journal(5, bytes(32), released=2, costs=((Cost(0.5, 1.0), 3),))
    body = msgspec.msgpack.encode(later(msgspec.msgpack.decode(encode_journal(journal)[32:]), *places))
    store._journal.write_bytes(blake3.blake3(body).digest() + body)
    return store._journal


def write_checkpoint(store):
    data = pack(Checkpoint("ada", 4, State(ROW, Public(ROW))))
    size = int.from_bytes(data[:8], "little")
    note = later(msgspec.json.decode(msgspec.json.decode(data[8 : 8 + size])["__metadata__"]["note"]))
    text, tensors = msgspec.json.encode(note).decode(), load(data)
    store._newest.write_bytes(save(tensors, {"note": text, "hash": _digest(tensors, text)}))
    return store._newest


@pytest.mark.parametrize("places", [(), ("costs", 0, 0)])
def test_a_journal_with_what_this_version_would_lose_is_refused_and_stays(tmp_path, places):
    store = CheckpointStore(tmp_path, "ada")
    path = write_journal(store, *places)
    before = path.read_bytes()
    with pytest.raises(RunError, match=r"a later version of p2pfl has written .*charged_twice.*install that version"):
        store.former()
    assert path.read_bytes() == before


def test_a_checkpoint_with_what_this_version_would_lose_is_refused_and_stays(tmp_path):
    store = CheckpointStore(tmp_path, "ada")
    path = write_checkpoint(store)
    before = path.read_bytes()
    with pytest.raises(RunError, match=r"a later version of p2pfl has written .*ada\.state, with charged_twice"):
        store.former()
    assert path.read_bytes() == before
    assert store.damaged == []


def test_a_journal_of_an_earlier_version_lacks_fields_and_is_read(tmp_path):
    store = CheckpointStore(tmp_path, "ada")
    body = msgspec.msgpack.encode({"incarnation": 5, "key": bytes(32)})
    store._journal.write_bytes(blake3.blake3(body).digest() + body)
    assert store.journal() == Journal(5, bytes(32))
