"""What the world notices of keys."""

import pytest

from p2pfl.network.protocol.ledgers import mask_slots
from p2pfl.network.protocol.wire.envelope import Envelope
from p2pfl.network.protocol.wire.messages import Announcement, Pulse
from p2pfl.network.protocol.wire.sum_messages import Ready
from p2pfl.privacy import total_masks
from p2pfl.privacy.keys import ExchangeKey, SeededSource, SenderKey
from worlds.explore import outcome
from worlds.keys import KeyWatch, WatchedEnvelope
from worlds.settings import Plans, setting

SOURCE = SeededSource(1)


@pytest.fixture
def failures():
    return []


@pytest.fixture
def watch(failures):
    return KeyWatch(failures.append)


def test_a_key_may_hide_one_plaintext_again_and_others_for_another_use(watch, failures):
    for key, use, hidden in (
        (b"k", "mask", b"one"),
        (b"k", "mask", b"one"),
        (b"k", "seal", b"two"),
        (b"l", "mask", b"3"),
    ):
        watch.used(key, use, hidden)
    assert not failures
    watch.used(b"k", "mask", b"2")
    assert failures == ["one key hides two different plaintexts as mask"]


def envelope(watch, *, nonce):
    own = ExchangeKey.from_source(SOURCE, peer="ada")
    made = Envelope("ada", 1, own, SenderKey.draw(SOURCE, peer="ada", round=nonce[0]), "run", nonce)
    made.meet(Announcement("bob", 1, "up", key=ExchangeKey.from_source(SOURCE, peer="bob").public, nonce=bytes(16)))
    return WatchedEnvelope.of(made, watch, genuine=lambda *_: True)


def sealed(end, number):
    end.seal(Pulse(1, 0, number, number))
    end.seal_for("bob", Ready(number, 0))
    end.handover("bob")


def test_seals_of_two_copies_of_an_incarnation_are_under_two_keys(watch, failures):
    for number in (1, 2):
        sealed(envelope(watch, nonce=bytes([number] * 16)), number)
    assert not failures
    assert len(watch.uses) == 6


@pytest.mark.parametrize("use", ["seal", "seal_for"])
def test_a_nonce_that_comes_again_under_its_key_is_noticed(watch, failures, use):
    said = {
        "seal": lambda end, number: end.seal(Pulse(1, 0, number, number)),
        "seal_for": lambda end, number: end.seal_for("bob", Ready(number, 0)),
    }[use]
    for number in (1, 2):
        said(envelope(watch, nonce=bytes([1] * 16)), number)
    assert len(failures) == 1
    assert failures[0].startswith("one key hides two different plaintexts as seal")


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize(("mode", "module"), [("pairwise", mask_slots), ("secagg", total_masks)], ids=["masks", "sums"])
def test_worlds_notice_masks_that_come_again_in_the_next_round(monkeypatch, mode, module):
    derived = module.edge_key
    monkeypatch.setattr(module, "edge_key", lambda secret, **use: derived(secret, **use | {"round": 0}))
    seed = next(seed for seed in range(200) if {f"privacy.mode={mode}", "rounds=3"} <= {*setting(seed).changes})
    assert "one key hides two different plaintexts as mask of" in outcome(seed, plans=Plans(), kinds=()).failure
