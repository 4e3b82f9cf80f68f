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
from p2pfl.network.protocol.agreement.agreement_effects import MemberRecord, VerdictRecord
from p2pfl.network.protocol.wire.verdict_messages import Ballot, Decision, Place, Vote
from p2pfl.privacy.accounting.spending import Cost

ROW = torch.ones(1, 3)


def later(table, *places):
    """Add a field to what is at these places."""
    inner = table
    for place in places:
        inner = inner[place]
    if isinstance(inner, list):  # a structure that is written as a list
        inner.append(7)
    else:
        inner["charged_twice"] = 7
    return table


def write_journal(store, *places):
    vote = Vote(Place(2, 0), "ada", Ballot(0, "ada"), b"counts", bytes(64))
    decision = Decision(vote.subject, vote.value, (vote,))
    record = VerdictRecord(vote.subject, MemberRecord(voted=vote, decided=decision, proof=(vote,)))
    journal = Journal(5, bytes(32), released=2, costs=((Cost(0.5, 1.0), 3),), verdicts=(record,))
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


RECORD = ("verdicts", 0, "record")


@pytest.mark.parametrize(
    ("places", "lost"),
    [
        ((*RECORD, "voted"), r"verdicts\.record\.voted\.8"),
        ((*RECORD, "decided"), r"verdicts\.record\.decided\.4"),
        ((*RECORD, "decided", 3, 0), r"verdicts\.record\.decided\.8"),
        ((*RECORD, "proof", 0), r"verdicts\.record\.proof\.8"),
    ],
    ids=["vote", "decision", "vote_of_a_decision", "proof"],
)
def test_a_journal_with_longer_statements_of_an_agreement_is_refused_and_stays(tmp_path, places, lost):
    store = CheckpointStore(tmp_path, "ada")
    path = write_journal(store, *places)
    before = path.read_bytes()
    with pytest.raises(RunError, match=rf"a later version of p2pfl has written .*, with {lost}, which"):
        store.former()
    assert path.read_bytes() == before


def test_a_journal_with_statements_of_this_version_is_read(tmp_path):
    store = CheckpointStore(tmp_path, "ada")
    data = write_journal(store, *RECORD, "voted").read_bytes()
    journal = msgspec.msgpack.decode(data[32:], type=Journal)
    store._journal.write_bytes(encode_journal(journal))
    assert store.journal() == journal


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
