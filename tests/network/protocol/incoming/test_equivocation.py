"""Proofs of equivocation, kept for third parties."""

import msgspec
import pytest
from msgspec.structs import replace

from ballots import AGAIN, COUNTS
from p2pfl.core.errors import InputError
from p2pfl.network.peer.storage.checkpoint import CheckpointStore
from p2pfl.network.protocol.incoming.equivocation import Proof
from p2pfl.network.protocol.wire.messages import Announcement
from p2pfl.network.protocol.wire.sum_messages import RollCall, sum_statement
from p2pfl.network.protocol.wire.trailer import SignedStatement
from p2pfl.network.protocol.wire.verdict_messages import Ballot, Place, Promise, Report, Vote
from p2pfl.privacy.keys import Identity, SeededSource

EVE, ADA = (Identity.generate(SeededSource(7), peer=name) for name in ("eve", "ada"))


def roll(*here, round=3, life=1, receiver="eve"):
    call = RollCall(round, 0, here, (bytes(16),) * len(here), bytes(64))
    return sum_statement(Announcement(receiver, life, "up"), swarm="clinic", call=call)


def signed(statement, *, by=EVE, domain="roll"):
    return SignedStatement(statement, by.sign(statement, domain=domain))


def test_two_rolls_of_one_sum_convict_who_signed_them_and_nobody_else(tmp_path):
    proof = Proof(signed(roll("ada", "bob")), signed(roll("ada")), "roll")
    assert proof.gossip_step == (3, 0)
    path = CheckpointStore(tmp_path, "ada").accuse("eve", proof)
    assert path == tmp_path / "ada.accuses-eve.json"
    kept = Proof.read(path)
    assert kept == proof
    assert kept.holds(EVE.public)
    assert not kept.holds(ADA.public)


@pytest.mark.parametrize(
    "other",
    [
        signed(roll("ada", "bob")),
        signed(roll("ada", round=4)),
        signed(roll("ada", life=2)),
        signed(roll("ada", receiver="bob")),
        signed(roll("ada"), by=ADA),
        signed(roll("ada"), domain="consent"),
        signed(b"clinic/" + bytes(9)),
        SignedStatement(b"", b""),
    ],
)
def test_what_is_no_contradiction_convicts_nobody(other):
    assert not Proof(signed(roll("ada", "bob")), other, "roll").holds(EVE.public)


PLACE = Place(3, 0)
VOTE = Vote(PLACE, "eve", Ballot(0, "ada"), COUNTS, incarnation=1)


def voted(made, *, by=EVE, swarm=b"clinic"):
    return signed(swarm + b"/" + made.statement, by=by, domain="vote")


REPORT = Report(PLACE, "eve", b"\0", incarnation=1)
HIDES = Promise(PLACE, "eve", Ballot(1, "bob"), incarnation=1)
OTHER = Vote(PLACE, "eve", Ballot(1, "bob"), AGAIN, incarnation=1, final=False)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (VOTE, HIDES),
        (OTHER, replace(OTHER, value=COUNTS)),
        (VOTE, replace(VOTE, value=AGAIN)),
        (REPORT, replace(REPORT, value=b"\1")),
    ],
)
def test_statements_on_an_attempt_that_contradict_each_other_convict_who_signed_them(one, other, tmp_path):
    proof = Proof(voted(one), voted(other), "vote")
    assert proof.gossip_step == (3, 0)
    kept = Proof.read(CheckpointStore(tmp_path, "ada").accuse("eve", proof))
    assert kept.holds(EVE.public)
    assert not kept.holds(ADA.public)


@pytest.mark.parametrize(
    "other",
    [
        voted(VOTE),
        voted(OTHER),
        voted(HIDES, by=ADA),
        voted(HIDES, swarm=b"other"),
        voted(replace(HIDES, incarnation=2)),
        voted(replace(HIDES, subject=PLACE._replace(round=4))),
        voted(replace(HIDES, voted=Ballot(0, "ada"), value=COUNTS)),
        signed(b"clinic/" + msgspec.msgpack.encode(("vote", "Release")), domain="vote"),
        signed(b"clinic/" + msgspec.msgpack.encode(7), domain="vote"),
        signed(b"clinic", domain="vote"),
    ],
)
def test_statements_on_an_attempt_that_can_both_be_true_convict_nobody(other):
    assert not Proof(voted(VOTE), other, "vote").holds(EVE.public)


@pytest.mark.parametrize("text", ["", "{}", '{"domain": "row", "said": [1, 2]}', '{"domain": "odd", "said": []}'])
def test_a_file_that_is_no_proof_is_refused_in_one_sentence(text, tmp_path):
    path = tmp_path / "odd.json"
    with pytest.raises(InputError, match="cannot be read"):
        Proof.read(path)
    path.write_text(text)
    with pytest.raises(InputError, match="is no proof of equivocation"):
        Proof.read(path)
