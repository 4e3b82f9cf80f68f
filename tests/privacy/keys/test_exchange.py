import hashlib

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import assume, given
from hypothesis import strategies as st

from p2pfl.core.errors import InputError, PrivacyError
from p2pfl.privacy.keys import (
    Announced,
    ExchangeKey,
    SecretSource,
    SeededSource,
    edge_key,
    edge_secret,
    epoch_of,
    epoch_secret,
)
from schedule import derived

# RFC 7748, section 6.1
BOB = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
BOB_PUBLIC = bytes.fromhex("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f")
ALICE_PUBLIC = bytes.fromhex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
SHARED = bytes.fromhex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")

names = st.text(st.sampled_from("abcXYZ019_-"), min_size=1, max_size=22)


def pair():
    source = SeededSource(7)
    return ExchangeKey.from_source(source, peer="ada"), ExchangeKey.from_source(source, peer="bob")


def test_a_seeded_source_repeats_itself_and_separates_purpose_peer_and_round():
    source = SeededSource(7)
    asked = [("noise", "ada", 0), ("noise", "ada", 1), ("noise", "bob", 0), ("exchange", "ada", 0)]
    drawn = [source.bytes(32, purpose=purpose, peer=peer, round=round) for purpose, peer, round in asked]
    assert len(set(drawn)) == len(asked)
    again = SeededSource(7)
    assert [again.bytes(32, purpose=purpose, peer=peer, round=round) for purpose, peer, round in asked] == drawn
    assert SeededSource(8).bytes(32, purpose="noise", peer="ada") != drawn[0]


def test_a_secret_source_never_repeats_itself():
    source = SecretSource()
    assert len({source.bytes(32, purpose="noise", peer="ada") for _ in range(10)}) == 10
    assert len(source.bytes(5, purpose="noise", peer="ada")) == 5


def test_neither_seed_nor_private_key_shows_in_a_representation():
    assert "1234567" not in repr(SeededSource(1234567))
    assert BOB.hex() not in repr(ExchangeKey(BOB))


def test_the_exchange_is_that_of_rfc_7748():
    bob = ExchangeKey(BOB)
    assert bob.public == BOB_PUBLIC
    assert bob.shared(ALICE_PUBLIC) == SHARED


def test_both_ends_of_an_edge_get_the_same_secret_and_other_runs_another():
    ada, bob = pair()
    secret = edge_secret(ada, bob.public, run="demo")
    assert secret == edge_secret(bob, ada.public, run="demo")
    assert secret != edge_secret(ada, bob.public, run="demo2")
    assert secret != edge_secret(ada, ada.public, run="demo")


def test_the_key_schedule_is_hkdf():
    ada, bob = pair()
    whole = HKDF(SHA256(), 32, salt=hashlib.sha256(b"demo").digest(), info=b"p2pfl/v1/mask/ada/bob/3/1/eve")
    key = edge_key(
        edge_secret(ada, bob.public, run="demo"), purpose="mask", a="bob", b="ada", round=3, attempt=1, receiver="eve"
    )
    assert key == whole.derive(ada.shared(bob.public))


def test_an_epoch_is_named_by_both_incarnations_and_both_nonces_and_by_neither_end_first():
    ada, bob = Announced("ada", 3, bytes(range(16))), Announced("bob", 4, bytes(range(16, 32)))
    named = epoch_of(ada, bob)
    text = f"p2pfl/v1/epoch/ada/3/{bytes(range(16)).hex()}/bob/4/{bytes(range(16, 32)).hex()}"
    assert named == epoch_of(bob, ada) == hashlib.sha256(text.encode()).digest()[:16]
    others = [
        (ada._replace(incarnation=4), bob), (ada, bob._replace(incarnation=3)), (ada._replace(nonce=bytes(16)), bob),
        (ada, bob._replace(nonce=bytes(16))), (ada._replace(nonce=bob.nonce), bob._replace(nonce=ada.nonce)),
        (ada._replace(incarnation=4), bob._replace(incarnation=3)), (ada._replace(peer="al"), bob),
    ]  # fmt: skip
    assert len({named, *(epoch_of(*ends) for ends in others)}) == len(others) + 1


def test_the_key_of_a_use_follows_from_the_secret_of_its_epoch():
    ada, bob = (ExchangeKey.from_source(SeededSource(7), peer=peer) for peer in ("ada", "bob"))
    ends = (Announced.draw(SeededSource(7), peer=peer, incarnation=each) for peer, each in (("ada", 2), ("bob", 5)))
    present = epoch_secret(edge_secret(ada, bob.public, run="demo"), epoch_of(*ends))
    use = {"purpose": "mask", "a": "ada", "b": "bob", "round": 3, "attempt": 1, "receiver": "eve"}
    assert edge_key(present, **use) == derived(SeededSource(7), run="demo", incarnations=(2, 5), **use)


def test_every_use_has_its_own_key():
    use = {"purpose": "mask", "a": "ada", "b": "bob", "round": 1, "attempt": 0, "receiver": ""}
    others = [
        {"purpose": "selfmask"}, {"a": "ad"}, {"b": "bo"}, {"round": 10}, {"round": 11}, {"attempt": 1},
        {"attempt": 11}, {"receiver": "ada"}, {"receiver": "1"}, {"round": -1},
    ]  # fmt: skip
    keys = {edge_key(bytes(32), **use), *(edge_key(bytes(32), **(use | other)) for other in others)}
    assert len(keys) == len(others) + 1
    assert edge_key(bytes([1] * 32), **use) not in keys


@given(a=names, b=names, round=st.integers(0, 2**40), attempt=st.integers(0, 9))
def test_a_key_does_not_depend_on_which_end_asks(a, b, round, attempt):
    assume(a != b)
    use = {"purpose": "mask", "round": round, "attempt": attempt}
    assert edge_key(bytes(32), a=a, b=b, **use) == edge_key(bytes(32), a=b, b=a, **use)


@pytest.mark.parametrize("public", [bytes(32), bytes([1]) + bytes(31)])
def test_a_weak_public_key_is_refused(public):
    ada, _ = pair()
    with pytest.raises(PrivacyError, match="weak point"):
        ada.shared(public)


def test_keys_of_the_wrong_length_are_refused():
    ada, _ = pair()
    with pytest.raises(
        InputError, match="a public key must have 32 bytes, but it has 31; pass the raw bytes of the key"
    ):
        ada.shared(bytes(31))
    with pytest.raises(
        InputError, match="a private key must have 32 bytes, but it has 33; pass the raw bytes of the key"
    ):
        ExchangeKey(bytes(33))


@pytest.mark.parametrize("wrong", [{"a": "bob"}, {"a": "a/b"}, {"purpose": "a/b"}, {"receiver": "a/b"}])
def test_an_ambiguous_use_is_refused(wrong):
    with pytest.raises(InputError, match="two different peers"):
        edge_key(bytes(32), **({"purpose": "mask", "a": "ada", "b": "bob", "round": 0} | wrong))
