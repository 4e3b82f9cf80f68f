"""What of records and notices leaves a peer for its observers, and what an observer accepts from a peer."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.core.errors import DecodeError
from p2pfl.results.notices.kinds import (
    LossRose,
    Notice,
    PeerFailed,
    PeerFinished,
    PhaseBegan,
    PresenceChanged,
    VersionDiffers,
    WaitBegan,
    WaitEnded,
    kinds,
)
from p2pfl.results.records import Record
from p2pfl.results.swarm.alerts import alerts
from p2pfl.results.swarm.headline import headline
from p2pfl.results.swarm.state import Setting, Swarm, swarm_of
from p2pfl.results.swarm.telemetry import (
    FIELDS,
    HEALTH_FIELDS,
    MAX_NAMES,
    RECENT_NOTICES,
    RECORD_FIELDS,
    SCORE_FIELDS,
    Recent,
    decode_entry,
    encode_entry,
)

NAMES = ("ada", "bob", "cy")
SECRETS = {
    "scores": {"loss": 0.123, "accuracy": 0.987},
    "training_loss": 0.456,
    "distance": 7.89,
    "update": 6.54,
    "privacy_spent": 3.21,
}
RECORD_OF_ADA = Record(
    peer="ada", round=4, **SECRETS, bytes_out=100, bytes_in=90, seconds_training=1.5, seconds_waiting=0.5, received=2
)

KEPT_BACK = {
    "key_trusted": "the peer's own log asks people to compare the key",
    "name_shared": "as above",
    "password_exposed": "it contains the address of the broker",
    "announcement_ahead": "everybody on the broker sees the announcement",
    "checkpoint_damaged": "it contains a path",
    "best_model_damaged": "it contains a path",
    "steps_unsettled": "it comes when the connection ends",
    "sums_unsettled": "it comes when the connection ends",
    "consensus_unknown": "it contains the message of an error",
    "quality_lowered": "it contains the message of an error",
    "common_scores_unknown": "it contains the message of an error",
    "peer_announced": "the observer itself sees it",
    "peer_silent": "the observer itself sees it",
    "peer_responded": "the observer itself sees it",
    "telemetry_stopped": "nobody can look",
    "data_read": "loss and drift of new rows concern their owner",
    "data_unreadable": "it contains the message of an error",
    "data_outdated": "it concerns the owner of the data",
    "data_replaced": "it concerns the owner of the data",
    "change_taken": "the operator has the peer's own answer",
    "change_refused": "it contains the message of an error",
    "change_unconfirmed": "it comes when the connection ends",
    "hook_failed": "it contains the message of an error",
}
"""Kinds that no level shares, with the reason."""

SCORED = {"scores", "before", "now", "training_loss", "privacy_spent", "spent", "epsilon", "values"}
"""Fields that depend on data or on what a guarantee counts."""

NEVER = {"distance", "update", "disagreement", "diversity", "message", "file", "proof", "best_file", "weight"}
"""Fields that no level shares."""


def passed(entry, level="scores"):
    """Return an entry as an observer receives it."""
    return decode_entry(encode_entry(entry, level=level), peer=entry.peer, names=NAMES)


def test_each_kind_is_shared_or_kept_back_for_a_reason():
    assert {*SCORE_FIELDS} - {RECORD_FIELDS} | {*KEPT_BACK} == {*kinds()}
    assert not {*SCORE_FIELDS} & {*KEPT_BACK}


def test_health_contains_no_score_and_no_level_a_norm_a_path_or_a_message():
    assert not SCORED & {field for fields in HEALTH_FIELDS.values() for field in fields}
    for fields in FIELDS.values():
        assert not NEVER & {field for each in fields.values() for field in each}
    for kind, fields in SCORE_FIELDS.items():
        of = Record if kind == RECORD_FIELDS else kinds()[kind]
        assert {*fields} <= {*of.__struct_fields__}


def test_a_record_at_the_level_health_has_no_number_that_depends_on_data():
    data = encode_entry(RECORD_OF_ADA, level="health")
    assert msgspec.msgpack.decode(data) == {
        "kind": "record",
        "round": 4,
        "bytes_out": 100,
        "bytes_in": 90,
        "seconds_training": 1.5,
        "seconds_waiting": 0.5,
        "received": 2,
        "missed": [],
        "awaited": [],
    }
    found = passed(RECORD_OF_ADA, "health")
    assert (found.scores, found.training_loss, found.privacy_spent) == ({}, None, None)


def test_scores_pass_at_their_level_without_norms():
    found = passed(RECORD_OF_ADA)
    assert (found.scores, found.training_loss, found.privacy_spent) == (SECRETS["scores"], 0.456, 3.21)
    assert math.isnan(found.distance)
    assert found.update is None


def test_an_alarm_passes_at_the_level_of_scores_alone():
    alarm = LossRose(peer="ada", round=3, before=SECRETS["scores"], now={"loss": 9.0})
    assert passed(alarm).now == {"loss": 9.0}
    assert encode_entry(alarm, level="health") is None


def test_the_message_of_an_error_stays_on_its_device():
    failed = PeerFailed(peer="ada", error="StorageError", message="/home/ada/secret is full", status=1)
    assert b"secret" not in encode_entry(failed, level="scores")
    assert passed(failed).error == "StorageError"


def test_an_entry_is_of_the_peer_that_sent_it_whatever_it_says():
    data = msgspec.msgpack.encode({"kind": "phase_began", "peer": "bob", "phase": "learning", "round": 1})
    assert decode_entry(data, peer="ada", names=NAMES).peer == "ada"


@pytest.mark.parametrize(
    "table",
    [
        {},
        {"kind": "unknown"},
        {"kind": ["phase_began"]},
        {"kind": "phase_began", "round": 1},
        {"kind": "phase_began", "phase": "learning", "round": -1},
        {"kind": "record", "round": 2**60, "bytes_out": 0, "bytes_in": 0, "seconds_training": 0.0},
        {"kind": "wait_began", "round": 1, "neighbours": "bob"},
        {"kind": "broker_unavailable", "seconds": math.inf},
        {"kind": "broker_unavailable", "seconds": math.nan},
        {"kind": "peer_announced", "status": "dead"},
    ],
)
def test_what_is_no_entry_is_refused(table):
    with pytest.raises(DecodeError):
        decode_entry(msgspec.msgpack.encode(table), peer="ada", names=NAMES)


def test_names_of_nobody_and_characters_that_control_a_terminal_do_not_pass():
    wait = WaitBegan(peer="ada", round=1, neighbours=("bob", "mallory"))
    assert passed(wait).neighbours == ("bob",)
    other = VersionDiffers(peer="ada", neighbour="bob", theirs="\x1b[2J", ours="1")
    assert passed(other).theirs == "\\x1b[2J"


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)


@given(kind=st.sampled_from(sorted(SCORE_FIELDS)), data=st.data())
def test_no_entry_of_a_lying_peer_breaks_the_page(kind, data):
    fields = data.draw(st.fixed_dictionaries(dict.fromkeys(SCORE_FIELDS[kind], VALUES)))
    try:
        entry = decode_entry(msgspec.msgpack.encode({"kind": kind, **fields}), peer="ada", names=NAMES)
    except DecodeError:
        return
    swarm = Swarm(Setting(peers=NAMES, rounds=5, epsilon=8.0))
    swarm.apply(1.0, entry)
    frames = pytest.importorskip("p2pfl.plugins.watch.frames")
    msgspec.json.encode(frames.frame(swarm, now=2.0, stage="running"))
    swarm.history.curves("loss")
    assert headline(swarm, now=2.0).sentence
    assert all(alert.sentence for alert in alerts(swarm, now=2.0))
    assert {*swarm.peers} == {*NAMES}


def test_a_peer_that_has_finished_and_never_began_breaks_no_headline():
    swarm = swarm_of(Setting(peers=NAMES), [(1.0, passed(PeerFinished(peer="ada", scores={})))])
    assert headline(swarm, now=2.0).sentence == "no peer has begun yet"


@given(data=st.binary(max_size=64))
def test_any_bytes_are_an_entry_or_refused(data):
    try:
        found = decode_entry(data, peer="ada", names=NAMES)
    except DecodeError:
        return
    assert isinstance(found, Record | Notice)


# ---------------------------------------------------------------------- what an observer that comes later is sent


def course():
    """Return what ada does, with times."""
    return [
        (0.0, PhaseBegan(peer="ada", phase="learning", round=0)),
        (0.1, PresenceChanged(peer="ada", came=("bob", "cy"))),
        (1.0, WaitBegan(peer="ada", round=0, neighbours=("cy",))),
        (2.0, WaitEnded(peer="ada")),
        *((2.0 + round, msgspec.structs.replace(RECORD_OF_ADA, round=round)) for round in range(4)),
        (5.5, PresenceChanged(peer="ada", left=("cy",))),
        (6.0, VersionDiffers(peer="ada", neighbour="bob", theirs="2", ours="1")),
        (7.0, WaitBegan(peer="ada", round=4, neighbours=("bob",))),
    ]


def shown(swarm):
    """Return what differs between peers that are in different states."""
    ada = swarm.peers["ada"]
    names = {name: peer.activity for name, peer in swarm.peers.items()}
    return names, ada.rounds, ada.waits_for, ada.waiting_since, ada.scores, ada.bytes_out, [*swarm.notices]


@pytest.mark.parametrize("count", range(1, 12))
def test_a_new_observer_sees_the_present_state(count):
    recent, entries = Recent("ada"), course()[:count]
    for at, entry in entries:
        recent.take(at, entry)
    setting = Setting(peers=NAMES)
    assert shown(swarm_of(setting, recent.past(8.0))) == shown(swarm_of(setting, entries))


def test_the_past_does_not_grow():
    recent = Recent("ada")
    for second in range(5000):
        at = float(second)
        recent.take(at, msgspec.structs.replace(RECORD_OF_ADA, round=second))
        recent.take(at, VersionDiffers(peer="ada", neighbour="bob", theirs="2", ours="1"))
    assert len(recent.past(5000.0)) <= RECENT_NOTICES + 6
    assert len(recent.news()) <= RECENT_NOTICES * MAX_NAMES
    assert recent.news() == []


def test_records_that_nobody_took_in_time_are_merged_and_lose_no_count():
    recent = Recent("ada")
    for round in range(47):
        recent.take(float(round), msgspec.structs.replace(RECORD_OF_ADA, round=round, missed=["bob"]))
    [(at, record)] = recent.news()
    assert (at, record.round, record.received, len(record.missed)) == (46.0, 46, 94, 47)


def test_a_peer_with_many_neighbours_says_so_in_parts():
    many = tuple(f"peer{number:03}" for number in range(40))
    recent = Recent("ada")
    recent.take(0.0, PresenceChanged(peer="ada", came=many))
    parts = [entry for _, entry in recent.news()]
    assert max(len(entry.came) for entry in parts) <= MAX_NAMES
    assert tuple(name for entry in parts for name in entry.came) == many
    assert all(len(encode_entry(entry, level="health")) < 500 for entry in parts)


def test_a_peer_that_ends_says_so():
    recent = Recent("ada")
    recent.take(0.0, PeerFinished(peer="ada", scores={"loss": 1.0}))
    assert [type(entry) for _, entry in recent.past(1.0)] == [PeerFinished]
