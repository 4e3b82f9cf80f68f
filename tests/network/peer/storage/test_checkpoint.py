"""What a peer goes on from: exact, whole or refused, and decided alike by all."""

import errno
import os
from dataclasses import replace

import blake3
import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from p2pfl.algorithms import State, learn, start
from p2pfl.core.errors import RunError, StorageError
from p2pfl.core.neighbourhood import Public, run_without_loop
from p2pfl.experiment import plan, read
from p2pfl.experiment.catalogue import ALGORITHMS, traits_of
from p2pfl.network.peer.joining.resumption import explain_rounds, next_attempt
from p2pfl.network.peer.storage.checkpoint import (
    Best,
    Checkpoint,
    CheckpointStore,
    Former,
    ends_with_checkpoint,
    pack,
    rounds_apart,
    unpack,
)
from p2pfl.network.peer.storage.journal import Journal, decode_journal, encode_journal
from p2pfl.network.protocol.ledgers.mask_slots import MaskSlots, Slot
from p2pfl.network.protocol.ledgers.peer_ledgers import PeerLedgers
from p2pfl.network.protocol.membership.entry_round import common, entrance
from p2pfl.network.protocol.wire.messages import Announcement
from p2pfl.network.protocol.wire.wire_rows import Delivery, Head
from p2pfl.privacy.accounting.spending import Cost
from p2pfl.simulation.inline import Inline
from p2pfl.simulation.stacked import StackedNeighbourhood
from swarms import SMALL

ROW = torch.arange(3.0).unsqueeze(0)
CHECKPOINT = Checkpoint(
    "ada", 4, State(ROW, Public(ROW + 1), {"m": ROW}, {"extra": ROW.double()}), bytes_out=7, bytes_in=9
)


def same(one, other):
    tensors, others = ({"rows": each.rows, **each.tensors()} for each in (one, other))
    return tensors.keys() == others.keys() and all(
        torch.equal(tensors[name], others[name]) and tensors[name].dtype == others[name].dtype for name in tensors
    )


def played(resolved, state, rounds):
    async def after(_round, _state, _net):
        """Nothing is recorded."""

    everybody = torch.ones(len(resolved.topology.peers), dtype=torch.bool)
    learner = Inline(resolved.learner, present=lambda _: everybody, clock=lambda: 0.0)
    net = lambda round: StackedNeighbourhood(resolved.weights, round=round, seed=3)  # noqa: E731
    running = learn(
        resolved.played, learner, state, rounds=rounds, neighbourhood=net, private=lambda net, _: net, observe=after
    )
    return run_without_loop(running)


@pytest.mark.sampled(fast=3)
@pytest.mark.parametrize(
    "name", [name for name in ALGORITHMS if not traits_of(name).additive]
)  # the plug-in tests those
def test_an_algorithm_goes_on_from_a_checkpoint_as_if_it_had_not_stopped(name):
    changes = [f"learning.algorithm={name}", "topology.kind=path", "topology.peers=3", "rounds=4"]
    changes += ["compression.name=quantise"] if name == "choco" else []
    changes += ["model.name=norming:Normed"] if name == "fedbn" else []
    table = {**SMALL, "gossip": {} if name == "gossip_learning" else {"steps": 1}}
    resolved = plan(read(table, changes=changes))
    begun = start(resolved.learner, resolved.topology.peers)
    half = played(resolved, begun, range(2))
    again = unpack(pack(Checkpoint("all", 2, half))).state
    assert same(again, half)
    assert same(played(resolved, again, range(2, 4)), played(resolved, half, range(2, 4)))


@pytest.mark.parametrize("changes", [["compression.name=quantise"], ["learning.optimizer=adam"]])
def test_what_wraps_an_algorithm_goes_on_as_well(changes):
    resolved = plan(read(SMALL, changes=["topology.kind=path", "topology.peers=3", "gossip.steps=1", *changes]))
    half = played(resolved, start(resolved.learner, resolved.topology.peers), range(2))
    assert same(unpack(pack(Checkpoint("all", 2, half))).state, half)


@pytest.mark.skipif(os.name != "posix", reason="modes of files are those of POSIX")
def test_what_a_peer_keeps_is_for_its_owner_alone(tmp_path):
    store = CheckpointStore(tmp_path, "ada")
    model = {"weight": torch.zeros(2)}
    for round in (4, 5):  # the second keeps the first
        store.save(replace(CHECKPOINT, round=round), model, own=model)
    store.note(Journal(1, bytes(32)))
    store.keep(Best(3, 0.5, "validation"), model)
    kept = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_file()}
    assert len(kept) == 6  # two checkpoints, two models, the best one and the journal
    assert set(kept.values()) == {0o600}


@given(st.data())
def test_a_checkpoint_of_which_a_byte_has_changed_or_is_missing_is_refused(data):
    whole = pack(CHECKPOINT)
    place = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        broken = whole[:place]
    else:
        broken = bytearray(whole)
        broken[place] ^= data.draw(st.integers(1, 255))
    try:
        found = unpack(bytes(broken))
    except StorageError:
        return
    assert same(found.state, CHECKPOINT.state)  # white space of the header
    assert found.round == CHECKPOINT.round


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_journal_of_which_a_byte_has_changed_is_refused(place, change):
    whole = bytearray(encode_journal(Journal(5, bytes(32))))
    whole[place % len(whole)] ^= change
    with pytest.raises(StorageError, match="has changed since it was written"):
        decode_journal(bytes(whole))


def test_a_journal_of_another_version_is_refused_as_such(tmp_path):
    """An intact file is not damaged: in earlier versions verdicts were on releases, by peer."""
    verdicts = [{"subject": ["eve", 3, 0], "record": {}}]
    data = msgspec.msgpack.encode({"incarnation": 5, "key": bytes(32), "verdicts": verdicts})
    (tmp_path / "ada.journal").write_bytes(blake3.blake3(data).digest() + data)
    with pytest.raises(RunError, match=r"another version of p2pfl has written it .*; begin a new run, because"):
        CheckpointStore(tmp_path, "ada").journal()


def test_a_page_of_the_books_is_read_as_it_was_written():
    ledgers = PeerLedgers("ada", gossip=["bob", "eve"], heaviest=4.0)
    own, theirs = torch.zeros(2, dtype=torch.float64).numpy(), torch.ones(2, dtype=torch.float64)
    ledgers.open((0, 0), own, weights={"bob": 0.5, "eve": 0.25}, chain=0)
    ledgers.apply("bob", (0, 0), theirs.numpy())
    ledgers.close()
    assert ledgers.late("eve", Delivery(Head(0, 0, "float64", 2), theirs))
    page, rows = ledgers.page()
    kept = unpack(pack(Checkpoint("ada", 1, State(ROW, Public(ROW)), page, rows)))
    again = PeerLedgers("ada", gossip=["bob", "eve"], heaviest=4.0)
    again.turn(kept.page, kept.rows, round=1)
    assert again.flows.list_unsettled() == ledgers.flows.list_unsettled() == [("bob", (0, 0)), ("eve", (0, 0))]
    written = again.page()
    assert written[0].owed == page.owed
    assert again.remainder().tolist() == [0.25, 0.25]
    assert written[0].gossip_steps == page.gossip_steps
    assert all((written[1][name] == rows[name]).all() for name in rows)


def test_the_last_two_are_kept_and_a_torn_one_gives_way_to_the_one_before_aloud(tmp_path):
    store = CheckpointStore(tmp_path, "ada")
    for round in (4, 5, 6):
        store.save(Checkpoint("ada", round, State(ROW * round, Public(ROW))), {"weight": ROW})
    assert [each.round for each in store.checkpoints()] == [6, 5]
    assert load_file(tmp_path / "ada.safetensors").keys() == {"weight"}
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    newest = tmp_path / "ada.state"
    newest.write_bytes(newest.read_bytes()[:-2])
    former = store.former()
    assert [each.round for each in former.kept] == [5]
    [damaged] = store.damaged
    assert (damaged.file, damaged.previous) == (str(newest), True)
    store.save(Checkpoint("ada", 6, State(ROW, Public(ROW))), {"weight": ROW})
    assert [each.round for each in store.checkpoints()] == [6, 5]


def test_where_both_are_torn_it_is_said_that_there_is_none_before_and_the_start_is_no_common_round(tmp_path):
    store = CheckpointStore(tmp_path, "ada")
    store.note(Journal(1, bytes(32), released=6))
    for name in ("ada.state", "ada.previous.state"):
        (tmp_path / name).write_bytes(b"torn")
    former = store.former()
    assert former.kept == ()
    assert former.rounds == []  # it comes late, beside others that go on from round 6
    assert [damaged.previous for damaged in store.damaged] == [True, False]


def test_before_a_second_round_was_released_the_start_is_as_good_as_a_checkpoint(tmp_path):
    store = CheckpointStore(tmp_path, "ada")
    store.note(Journal(1, bytes(32), released=0))
    assert store.former().rounds == [0]


def test_a_peer_that_goes_back_forgets_what_was_newer(tmp_path):
    store = CheckpointStore(tmp_path, "ada")
    for round in (5, 6):
        store.save(Checkpoint("ada", round, State(ROW, Public(ROW))), {"weight": ROW})
    store.back(6)
    assert [each.round for each in store.checkpoints()] == [6, 5]
    store.back(5)
    assert [each.round for each in store.checkpoints()] == [5]
    store.back(0)
    assert store.checkpoints() == []


def test_a_full_disk_is_one_sentence_and_leaves_what_was_there(tmp_path, monkeypatch):
    store = CheckpointStore(tmp_path, "ada")
    store.save(CHECKPOINT, {"weight": ROW})

    def full(_descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("p2pfl.core.files.os.fsync", full)
        with pytest.raises(
            StorageError, match=r"ada\.state cannot be written \(No space left on device\), and its old contents are"
        ) as caught:
            store.save(Checkpoint("ada", 5, State(ROW, Public(ROW))), {"weight": ROW})
        assert caught.value.status == 1
        with pytest.raises(StorageError, match="journal"):
            store.note(Journal(1, bytes(32)))
    assert [each.round for each in store.checkpoints()] == [4]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ada.safetensors", "ada.state"]


def test_a_journal_is_for_its_owner_alone_and_nothing_goes_on_without_it(tmp_path):
    store = CheckpointStore(tmp_path, "ada")
    assert store.journal() is None
    store.note(Journal(3, bytes(32)))
    assert (tmp_path / "ada.journal").stat().st_mode & 0o777 == 0o600
    assert store.journal() == Journal(3, bytes(32))
    (tmp_path / "ada.journal").write_bytes(b"torn")
    with pytest.raises(RunError, match="begin a new run"):
        store.journal()


def test_a_journal_holds_used_slots_and_costs():
    journal = decode_journal(
        encode_journal(Journal(1, bytes(32)).after(round=4, until=Slot(2, 5), spent={Cost(0.5, 0.1): 3}))
    )
    assert journal.until == Slot(2, 5)
    assert journal.spent == {Cost(0.5, 0.1): 3}
    assert journal.released == 4


@given(st.lists(st.integers(0, 30).map(lambda round: [round + 1, round]), min_size=1, max_size=8))
def test_peers_find_the_last_round_that_all_have_or_the_last_that_most_have(kept):
    together = common(kept)
    newest = [max(rounds) for rounds in kept]
    if max(newest) - min(newest) <= 1:
        assert together == min(newest)
    elif together is None:
        assert not any(2 * sum(round in rounds for rounds in kept) > len(kept) for round in range(32))
    else:
        assert 2 * sum(together in rounds for rounds in kept) > len(kept)


def announced(peer, *, attempt=0, rounds=()):
    return Announcement(peer, 1, "up", rounds=[*rounds], attempt=attempt)


def test_peers_without_a_common_round_are_told_their_last_ones():
    there = [announced("ada", rounds=[5, 4]), announced("bob", rounds=[9]), announced("cleo")]
    assert "(their last are ada 5, bob 9)" in explain_rounds(there)


@pytest.mark.parametrize(
    ("mine", "others", "bare", "next_"),
    [
        (3, [4, 2, 1], False, 4),
        (3, [2**62, 4, 1], False, 4),  # nobody can have reached it
        (0, [2**21, 2**21, 2], True, 2**21),  # two others announce it
        (0, [2**62, 5, 5], True, 5),
        (0, [7], True, 7),
    ],
)
def test_peers_go_on_with_the_largest_attempt_that_can_be_true(mine, others, bare, next_):
    there = [announced(f"peer{number}", attempt=attempt) for number, attempt in enumerate(others)]
    assert next_attempt(announced("me", attempt=mine), there, bare=bare) == next_


@given(st.integers(0, 9), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=5), st.booleans())
def test_who_comes_back_is_never_behind_a_round_that_cannot_be_said_again(next_, others, again):
    first = entrance(next_, others=others, again=again)
    assert first >= next_ + (not again)
    assert all(first > round or (again and first == next_ and step <= 4) for round, step in others)


def test_the_common_start_is_as_good_as_a_checkpoint_until_there_are_two():
    first = Former((Checkpoint("ada", 1, State(ROW, Public(ROW))),))
    assert Former().rounds == [0]
    assert first.rounds == [1, 0]
    assert first.at(0).kept == ()
    assert first.at(0).rounds == [0]
    assert Former((CHECKPOINT,)).rounds == [4]


@given(st.lists(st.sampled_from(["released", "unsent", "dies"]), max_size=30))
def test_no_slot_is_used_twice_whatever_happened(history):
    """A peer releases rounds, is killed before its journal is durable, or goes back to the older of two checkpoints."""
    journal, used, round = encode_journal(Journal(1, bytes(32))), [], 0
    slots = MaskSlots("a", partners=["b"])
    for event in history:
        slot = Slot(slots.attempt, round)
        if event == "dies":
            round = max(0, round - 2)
            slots = MaskSlots("a", partners=["b"], until=decode_journal(journal).until)
            slots.agree(slots.attempt + 1)
            continue
        slots.take(slot, partners=["b"])
        if event == "unsent":
            slots = MaskSlots("a", partners=["b"], until=decode_journal(journal).until)
            slots.agree(slots.attempt + 1)
            continue
        journal = encode_journal(Journal(1, bytes(32)).after(round=round, until=slots.until, spent={}))
        used.append(slot)
        round += 1
    assert len({*used}) == len(used)


def test_checkpoints_are_as_rare_as_asked_but_for_the_first_and_last_round_and_where_none_could_be_gone_on_from():
    def written(*changes):
        resolved = plan(read(SMALL, changes=["rounds=8", "transport.checkpoint=3", *changes]), only=["peer0"])
        apart = rounds_apart(resolved)
        return [round for round in range(8) if ends_with_checkpoint(round, apart=apart, rounds=8)]

    assert written() == [0, 2, 5, 7]
    assert written("transport.checkpoint=1") == [*range(8)]
    assert written("learning.algorithm=relay_sgd", "topology.kind=path") == [*range(8)]
    assert written("compression.name=quantise", "compression.options.bits=8") == [*range(8)]
