"""What neighbours seal, and everything an outsider, the broker or another neighbour may try with it."""

import blake3
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import MANY
from model_messages import digest_in
from p2pfl.core.errors import AuthenticityError, DecodeError
from p2pfl.network.protocol.wire.envelope import MAX_SEQUENCE, OVERHEAD, PRIVATE, SEALED, Envelope
from p2pfl.network.protocol.wire.messages import Account, Ack, Announcement, Chunk, Key, Pulse
from p2pfl.network.protocol.wire.sum_messages import Ready, RollCall
from p2pfl.network.protocol.wire.total_messages import Subtotal
from p2pfl.network.protocol.wire.wire_codec import add_tags, decode, encode, parts
from p2pfl.privacy.keys import ExchangeKey, SeededSource, SenderKey

CHUNK = Chunk(7, 0, 5, 4, 10, 100, data=memoryview(b"a row's bytes"))
PULSE = Pulse(7, 0, 2, 9, 4, 1, waiting=True)
LIFE = {"ada": 7, "bob": 8, "eve": 9}


def envelope(name, *, seed=1, life=None, run="run", nonce=b""):
    source, life = SeededSource(seed), life or LIFE[name]
    exchange = ExchangeKey.from_source(source, peer=name)
    return Envelope(name, life, exchange, SenderKey.draw(source, peer=name, round=life), run, nonce)


def announcement(end):
    return Announcement(end.me, end.incarnation, "up", key=end.exchange.public, nonce=end.nonce)


def acquainted(*names, **options):
    """Envelopes that have handed all keys over."""
    ends = [envelope(name, **options) for name in names]
    for one in ends:
        for other in ends:
            if one is not other:
                one.meet(announcement(other))
    for _ in range(2):
        for one in ends:
            for other in ends:
                if one is not other:
                    other.receive(one.me, one.handover(other.me))
    return ends


@pytest.mark.parametrize("message", [CHUNK, PULSE, Ack(8, 0, 5, 9, [6])], ids=lambda each: type(each).__name__)
def test_a_neighbour_reads_what_was_sealed(message):
    ada, bob = acquainted("ada", "bob")
    assert bob.open("ada", ada.seal(message)) == message


def test_a_statement_has_tags_for_those_that_others_pass_it_on_to_and_none_of_them_seals_a_payload():
    ada, bob, eve = acquainted("ada", "bob", "eve")
    sealed = parts(ada.seal(PULSE, to=["bob"]), prefix=13)
    for statement in (b"complete", sealed.prefix + encode(PULSE) + blake3.blake3(b"").digest()):
        tags = ada.tags(statement, to=["dan", "bob"])
        assert tags[:16] == bytes(16)
        assert bob.has_tagged("ada", statement, tags)
        assert not eve.has_tagged("ada", statement, tags)
        assert not eve.has_tagged("bob", statement, tags)
        assert not bob.has_tagged("ada", statement + b".", tags)
        assert tags[16:] != bytes(sealed.tags)


def test_all_neighbours_read_one_sealed_message():
    ada, bob, eve = acquainted("ada", "bob", "eve")
    sealed = ada.seal(CHUNK)
    assert bob.open("ada", sealed) == eve.open("ada", sealed) == CHUNK


def test_keys_are_settled_once_each_knows_that_the_other_has_them():
    ada, bob = envelope("ada"), envelope("bob")
    ada.meet(announcement(bob))
    bob.meet(announcement(ada))
    assert bob.receive("ada", ada.handover("bob"))  # bob is to answer
    assert not bob.has_settled(["ada"])
    assert ada.receive("bob", bob.handover("ada"))
    assert ada.has_settled(["bob"])
    assert not bob.receive("ada", ada.handover("bob"))  # both know: nobody answers any more
    assert bob.has_settled(["ada"])


@given(st.integers(0, len(encode(CHUNK)) + OVERHEAD - 1), st.integers(0, 7), st.sampled_from([CHUNK, PULSE]))
@settings(MANY)
def test_a_message_with_any_flipped_bit_is_refused(place, bit, message):
    ada, bob = acquainted("ada", "bob")
    sealed = bytearray(ada.seal(message))
    sealed[place % len(sealed)] ^= 1 << bit
    if place % len(sealed) == 0:  # that byte says whether it is sealed, and no sealed message is a plain one
        with pytest.raises(DecodeError):
            decode(sealed)
    with pytest.raises(DecodeError):
        bob.open("ada", sealed)


@given(st.binary(max_size=300))
@settings(MANY)
def test_hostile_bytes_raise_decode_error_and_nothing_else(data):
    _, bob = PAIR
    with pytest.raises(DecodeError):
        bob.open("ada", b"\2" + data)


PAIR = acquainted("ada", "bob")


def test_a_message_in_another_senders_name_is_refused():
    ada, bob, _ = acquainted("ada", "bob", "eve")
    with pytest.raises(DecodeError):
        bob.open("eve", ada.seal(CHUNK))


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**63))
@settings(MANY)
def test_a_message_at_another_place_is_refused(stream, sequence):
    ada, bob = PAIR
    sealed = bytearray(ada.seal(CHUNK))
    moved = stream.to_bytes(4, "little") + sequence.to_bytes(8, "little")
    if moved != sealed[1:13]:
        sealed[1:13] = moved
        with pytest.raises(DecodeError):
            bob.open("ada", sealed)


def test_a_control_message_counts_once_and_only_while_it_is_the_latest():
    ada, bob = acquainted("ada", "bob")
    first, second = ada.seal(PULSE), ada.seal(PULSE)
    bob.open("ada", second)
    for replayed in (first, second):
        with pytest.raises(DecodeError, match="is a replay"):
            bob.open("ada", replayed)


def test_control_messages_of_two_kinds_may_pass_each_other():
    ada, bob = acquainted("ada", "bob")
    ack, pulse = ada.seal(Ack(8, 0, 1, 3)), ada.seal(PULSE)
    bob.open("ada", pulse)
    bob.open("ada", ack)


def test_a_message_before_the_key_is_refused():
    ada, _ = acquainted("ada", "bob")
    with pytest.raises(DecodeError, match="before the key that opens it"):
        envelope("bob").open("ada", ada.seal(CHUNK))


def test_a_chunk_that_is_sent_again_is_the_same_bytes():
    ada, _ = acquainted("ada", "bob")
    first = ada.seal(CHUNK)
    ada.seal(PULSE)
    assert ada.seal(CHUNK) == first


def test_no_two_different_messages_are_sealed_at_one_place():
    ada, _ = acquainted("ada", "bob")
    sealed = {ada.seal(message) for message in (CHUNK, PULSE, PULSE, Ack(8, 0, 1, 3), CHUNK)}
    assert len({each[:13] for each in sealed}) == len(sealed)


def test_incarnations_that_keep_their_exchange_key_use_no_key_and_nonce_twice():
    tap = pytest.importorskip("p2pfl.plugins.audit.live.tap")
    bob, encrypted = envelope("bob"), tap.EncryptionRecord()
    exchange = ExchangeKey.from_source(SeededSource(1), peer="ada")
    with tap.record_ciphers(lambda *each: encrypted.note(0, *each)):
        for life, nonce in ((7, b"a" * 16), (8, b"b" * 16), (8, b"c" * 16)):  # the last two resume from one copy
            sender = SenderKey.draw(SeededSource(nonce[0]), peer="ada", round=life)
            ada = Envelope("ada", life, exchange, sender, "run", nonce)
            ada.meet(announcement(bob))
            ada.handover("bob")
            ada.seal(msgspec.structs.replace(PULSE, round=life))
            ada.seal(Chunk(7, 0, 5, 4, 10, 100, data=memoryview(nonce)))
            ada.seal_for("bob", Ready(nonce[0], 0))
    assert len(encrypted.keys(0)) == 9  # of handing over, for all, and for one, by each of three
    assert encrypted.count_repeats() == 0


def test_two_ends_of_one_incarnation_hand_over_and_seal_under_no_key_and_nonce_twice():
    tap = pytest.importorskip("p2pfl.plugins.audit.live.tap")
    encrypted = tap.EncryptionRecord()
    with tap.record_ciphers(lambda *each: encrypted.note(0, *each)):
        ends = [envelope(name, seed=seed, life=7) for seed, name in enumerate(("ada", "bob", "eve"))]
        for one in ends:
            for other in ends:
                if one is not other:
                    one.meet(announcement(other))
                    one.handover(other.me)
                    one.seal_for(other.me, Ready(7, ends.index(one)))
            one.seal(PULSE)
            one.seal(CHUNK)
    assert len(encrypted.keys(0)) == 3 + 6 + 6
    assert encrypted.count_repeats() == 0


def test_a_key_for_another_life_is_refused():
    ada, bob = acquainted("ada", "bob")
    old = ada.handover("bob")
    later = envelope("ada", seed=2, life=17)
    bob.meet(announcement(later))
    with pytest.raises(DecodeError, match="incarnation 17"):
        bob.receive("ada", old)
    with pytest.raises(DecodeError):  # nor under the number of this life
        bob.receive("ada", Key(17, old.wrapped, old.have, old.known))


def test_a_key_that_was_handed_to_our_own_earlier_life_is_refused():
    ada, _ = acquainted("ada", "bob")
    old = ada.handover("bob")
    again = envelope("bob", seed=2, life=18)
    again.meet(announcement(ada))
    with pytest.raises(DecodeError):
        again.receive("ada", old)


def test_what_was_sealed_for_our_own_earlier_life_is_refused_by_the_next_that_has_its_key():
    ada, _ = acquainted("ada", "bob")
    old = ada.seal_for("bob", Ready(1, 2))
    again = envelope("bob", seed=2, life=18)
    again.meet(announcement(ada))
    with pytest.raises(DecodeError):
        again.open_from("ada", old)
    ada.meet(announcement(again))
    assert isinstance(again.open_from("ada", ada.seal_for("bob", Ready(1, 2))), Ready)


def test_two_copies_of_an_incarnation_seal_for_a_neighbour_under_two_keys():
    bob = envelope("bob", nonce=bytes(16))
    copies = [envelope("ada", nonce=bytes([number] * 16)) for number in (1, 2)]
    for ada in copies:
        ada.meet(announcement(bob))
    one, two = (ada.seal_for("bob", Ready(1, 2)) for ada in copies)
    assert one != two
    assert copies[0].handover("bob").wrapped != copies[1].handover("bob").wrapped
    bob.meet(announcement(copies[0]))
    assert bob.open_from("ada", one) == Ready(1, 2)
    with pytest.raises(DecodeError):
        bob.open_from("ada", two)


def test_a_key_for_another_neighbour_or_reflected_is_refused():
    ada, bob, eve = acquainted("ada", "bob", "eve")
    with pytest.raises(DecodeError):
        eve.receive("ada", ada.handover("bob"))
    told = ada.handover("bob")
    with pytest.raises(DecodeError):
        ada.receive("bob", Key(bob.incarnation, told.wrapped, told.have, told.known))


@pytest.mark.parametrize("have", [False, True])
@pytest.mark.parametrize("known", [False, True])
def test_what_a_key_says_of_the_other_cannot_be_changed(have, known):
    ada, bob = envelope("ada"), envelope("bob")
    ada.meet(announcement(bob))
    bob.meet(announcement(ada))
    told = ada.handover("bob")
    if (have, known) != (told.have, told.known):
        with pytest.raises(DecodeError):
            bob.receive("ada", Key(told.incarnation, told.wrapped, have, known))
        assert not bob.has_settled(["ada"])


def test_a_new_life_of_a_neighbour_ends_what_the_old_one_could_say():
    ada, bob = acquainted("ada", "bob")
    bob.meet(announcement(envelope("ada", seed=2, life=17)))
    assert not bob.has_settled(["ada"])
    with pytest.raises(DecodeError):
        bob.open("ada", ada.seal(CHUNK))


def test_peers_of_two_runs_or_rosters_hand_nothing_over():
    ada, bob = envelope("ada"), envelope("bob", run="another run")
    ada.meet(announcement(bob))
    bob.meet(announcement(ada))
    with pytest.raises(DecodeError):
        bob.receive("ada", ada.handover("bob"))


@pytest.mark.parametrize("key", [b"", bytes(32), bytes(31)], ids=["none", "a weak point", "short"])
def test_a_public_key_that_leads_to_no_secret_is_refused(key):
    with pytest.raises(DecodeError):
        envelope("bob").meet(Announcement("ada", 7, "up", key=key))


@pytest.mark.parametrize("message", [CHUNK, PULSE], ids=["chunk", "control"])
def test_a_message_that_its_sender_sealed_in_the_place_of_another_is_refused(message):
    ada, bob = acquainted("ada", "bob")
    prefix = bytes([SEALED]) + (3).to_bytes(4, "little") + (6).to_bytes(8, "little")
    payload = encode(message)
    ciphertext = ada.sender.seal(payload, stream=3, sequence=6, header=prefix)
    with pytest.raises(DecodeError, match=r"in the place of another chunk|in the stream of chunks"):
        bob.open("ada", add_tags(prefix, digest_in(prefix, payload), ciphertext, keys=[ada._tags["bob"][0]]))


# ---------------------------------------------------------------------- a neighbour that holds the same sender key


def forged(ada, eve, bob):
    """Return everything that eve can make of ada's sender key, her own keys and what ada has said."""
    pretender = Envelope("ada", ada.incarnation, eve.exchange, eve._keys["ada"], eve.run)
    pretender.meet(announcement(bob))  # the edge of eve and bob, under ada's name
    pretender._next = 2**47
    other = Chunk(7, 0, 5, 4, 10, 100, data=memoryview(b"other bytes"))  # in the place of a genuine one
    for message in (other, PULSE, Ack(8, 0, 5, 9), Account(7, 2**47)):
        yield pretender.seal(message)
        genuine, made = parts(ada.seal(CHUNK), prefix=13), parts(pretender.seal(message), prefix=13)
        yield b"".join((made.prefix, b"\2\0", genuine.tags, made.ciphertext))  # tags of another message
        yield b"".join((genuine.prefix, b"\0\0", genuine.ciphertext))  # none
    yield add_tags(*pretended(eve), keys=[eve._tags["bob"][0]])  # as if it were her own


def pretended(eve):
    prefix = bytes([SEALED]) + (2**32 - 1).to_bytes(4, "little") + (2**47).to_bytes(8, "little")
    payload = encode(PULSE)
    ciphertext = eve._keys["ada"].seal(payload, stream=2**32 - 1, sequence=2**47, header=prefix)
    return prefix, digest_in(prefix, payload), ciphertext


def test_a_neighbour_that_holds_the_sender_key_speaks_for_nobody_else():
    ada, bob, eve = acquainted("ada", "bob", "eve")
    before = dict(bob._last)
    for payload in forged(ada, eve, bob):
        with pytest.raises(AuthenticityError):
            bob.open("ada", payload)
    assert bob._last == before  # no number of it is remembered
    assert bob.open("ada", ada.seal(PULSE)) == PULSE


def test_a_message_that_is_tagged_for_one_neighbour_is_believed_by_no_other():
    ada, bob, eve = acquainted("ada", "bob", "eve")
    payload = ada.seal(Ack(8, 0, 5, 9), to=["bob"])
    assert len(payload) == len(ada.seal(Ack(8, 0, 5, 9))) - 16
    with pytest.raises(AuthenticityError):
        eve.open("ada", payload)
    assert bob.open("ada", payload) == Ack(8, 0, 5, 9)


def test_a_chunk_that_is_sent_again_to_one_neighbour_has_the_same_ciphertext_under_another_tag():
    ada, bob = acquainted("ada", "bob")
    first = parts(ada.seal(CHUNK), prefix=13)
    later = envelope("bob", seed=2, life=18)
    ada.meet(announcement(later))
    second = parts(ada.seal(CHUNK, to=["bob"]), prefix=13)
    assert (second.prefix, second.ciphertext) == (first.prefix, first.ciphertext)
    assert bytes(second.tags) != bytes(first.tags)
    with pytest.raises(AuthenticityError):
        bob.open("ada", ada.seal(CHUNK))


def test_tags_differ_between_directions_and_incarnations():
    ada, bob = acquainted("ada", "bob")
    keys = {*ada._tags["bob"], *bob._tags["ada"]}
    assert len(keys) == 2  # one for each direction, the same at both ends
    ada.meet(announcement(envelope("bob", life=18)))
    again = envelope("ada", life=17)
    again.meet(announcement(bob))
    assert not keys & {*ada._tags["bob"], *again._tags["bob"]}


def test_a_sequence_that_cannot_be_is_refused_and_not_remembered():
    ada, bob = acquainted("ada", "bob")
    ada._next = MAX_SEQUENCE
    with pytest.raises(DecodeError, match="out of range"):
        bob.open("ada", ada.seal(PULSE))
    ada._next = 0
    assert bob.open("ada", ada.seal(PULSE)) == PULSE


# ---------------------------------------------------------------------- for one neighbour alone

FOR_ONE = (
    Subtotal(3, 1, 2**32, 8, 100, memoryview(b"numbers!")),
    RollCall(3, 1, ("ada", "bob"), (bytes(16), bytes(16)), bytes(64)),
    Ready(3, 1, 0.5),
)


@pytest.mark.parametrize("message", FOR_ONE, ids=lambda each: type(each).__name__)
def test_only_the_neighbour_that_it_is_for_reads_what_is_for_one_alone(message):
    ada, bob, eve = acquainted("ada", "bob", "eve")
    sealed = ada.seal_for("bob", message)
    assert sealed[0] == PRIVATE
    for end, sender in ((eve, "ada"), (eve, "bob"), (bob, "eve"), (ada, "bob"), (bob, "mallory")):
        with pytest.raises(DecodeError):
            end.open_from(sender, sealed)
    assert bob.open_from("ada", sealed) == message
    with pytest.raises(DecodeError, match="is a replay"):
        bob.open_from("ada", sealed)


@pytest.mark.parametrize("message", FOR_ONE, ids=lambda each: type(each).__name__)
def test_what_is_sealed_for_all_neighbours_is_none_for_one_alone(message):
    """Neighbours share a sender key, so that any of them could have sealed it."""
    ada, bob = acquainted("ada", "bob")
    with pytest.raises(DecodeError, match="for one neighbour was sent to all"):
        bob.open("ada", ada.seal(message))


def test_what_is_for_all_neighbours_is_not_told_to_one_alone():
    ada, bob = acquainted("ada", "bob")
    with pytest.raises(DecodeError, match="to one neighbour alone"):
        bob.open_from("ada", ada.seal_for("bob", PULSE))


@given(at=st.integers(0, 80), bit=st.integers(0, 7))
def test_a_bit_that_changes_on_the_way_to_one_neighbour_is_noticed(at, bit):
    ada, bob = acquainted("ada", "bob")
    sealed = bytearray(ada.seal_for("bob", FOR_ONE[2]))
    sealed[at % len(sealed)] ^= 1 << bit
    with pytest.raises(DecodeError):
        bob.open_from("ada", bytes(sealed))


@given(junk=st.binary(max_size=60))
def test_junk_for_one_neighbour_is_refused_as_such(junk):
    _, bob = acquainted("ada", "bob")
    with pytest.raises(DecodeError):
        bob.open_from("ada", bytes([PRIVATE]) + junk)


def test_numbers_and_directions_and_lives_never_share_a_key_and_nonce():
    ada, bob = acquainted("ada", "bob")
    again = envelope("ada", life=70)
    again.meet(announcement(bob))
    sealed = [ada.seal_for("bob", FOR_ONE[2]), ada.seal_for("bob", FOR_ONE[2])]
    sealed += [bob.seal_for("ada", FOR_ONE[2]), again.seal_for("bob", FOR_ONE[2])]
    assert len({each[9:] for each in sealed}) == 4
    with pytest.raises(DecodeError):  # of another life
        bob.open_from("ada", sealed[3])


def test_what_no_neighbour_has_encrypted_is_not_authentic():
    ada, bob = acquainted("ada", "bob")
    payload = bytearray(ada.seal(CHUNK))
    payload[-1] ^= 1
    with pytest.raises(AuthenticityError, match="not those that their sender sealed"):
        bob.open("ada", payload)


@pytest.mark.parametrize(
    "change",
    [{"offset": 20}, {"total": 101}, {"first": 5}, {"trailer": b"x" * 64}, {"data": memoryview(b"a row's byteS")}],
    ids=lambda change: next(iter(change)),
)
def test_a_neighbour_that_encrypts_a_changed_chunk_under_its_genuine_tags_is_not_believed(change):
    ada, bob, eve = acquainted("ada", "bob", "eve")
    genuine, payload = parts(ada.seal(CHUNK), prefix=13), encode(msgspec.structs.replace(CHUNK, **change))
    ciphertext = eve._keys["ada"].seal(payload, stream=0, sequence=5, header=genuine.prefix)
    count = (len(genuine.tags) // 16).to_bytes(2, "little")
    with pytest.raises(AuthenticityError, match="no tag"):
        bob.open("ada", b"".join((genuine.prefix, count, genuine.tags, ciphertext)))


def test_the_digest_of_a_chunk_that_arrived_is_that_of_its_data():
    ada, bob = acquainted("ada", "bob")
    arrived = bob.open("ada", ada.seal(CHUNK))
    assert vars(arrived)["digest"] == CHUNK.digest
