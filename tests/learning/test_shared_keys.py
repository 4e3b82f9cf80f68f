"""The number of keys that several peers have: what it is, and what the totals show."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2pfl.core.errors import DataError, PrivacyError
from p2pfl.learning import shared_keys
from p2pfl.learning.shared_keys import count_shared_keys
from p2pfl.privacy.commutative_powers import hash_to_point
from p2pfl.privacy.keys import SecretSource

NAMES = ("ada", "bob", "cat", "dan")


def count(keys, *, totals=None, peers=None, changed=None):
    """Return the number that the peers with keys find; ``changed`` alters a total by its number."""
    asked = count_shared_keys(keys.__getitem__, peers=peers or list(keys), source=SecretSource())
    total, number = None, 0
    while True:
        try:
            question = asked.send(total)
        except StopIteration as stop:
            return stop.value
        total = sum(question.answer(peer) for peer in keys)
        assert total.shape == (question.size,)
        assert np.array_equal(total, sum(question.answer(peer) for peer in keys))  # an attempt may be played again
        if changed is not None:
            total = changed(number, total)
        if totals is not None:
            totals.append(total)
        number += 1


@settings(max_examples=10)
@given(st.integers(2, 4), st.lists(st.sets(st.sampled_from("abcdefg")), min_size=4, max_size=4))
def test_the_number_is_how_often_a_key_is_anothers_too(peers, sets):
    keys = {name: sorted(own) for name, own in zip(NAMES[:peers], sets, strict=False)}
    expected = sum(times - 1 for times in Counter(key for own in keys.values() for key in own).values())
    assert count(keys) == expected


def test_a_key_that_a_peer_has_twice_counts_once():
    assert count({"ada": ["x", "x", "y"], "bob": ["x", "x"]}) == 1


def test_a_peer_that_takes_no_part_does_not_count():
    assert count({"ada": ["x"], "cat": ["x"]}, peers=NAMES) == 1
    assert count({"ada": ["x"]}, peers=NAMES) == 0


def test_no_total_has_a_key_or_a_number_of_keys_of_one_peer():
    """Check that all peers see points of no key, as many whatever the others have."""
    many = {"ada": ["x", "y", "z"], "bob": ["x"], "cat": ["x", "v", "w", "u"]}
    few = {"ada": ["x"], "bob": ["x", "a", "b", "c"], "cat": ["q"]}
    totals, others = [], []
    count(many, totals=totals)
    count(few, totals=others)
    assert [len(total) for total in totals] == [len(total) for total in others]
    seen = b"".join(total.astype("<u4").tobytes() for total in totals[1:])
    for key in "xyzvwu":
        assert hash_to_point(b"p2pfl shared key" + key.encode()) not in seen


def test_equal_keys_look_different_in_every_total():
    """Only the judge, who opens the envelopes, sees that two are equal: no 32 bytes appear twice."""
    totals = []
    assert count({"ada": ["x", "y"], "bob": ["x", "y"], "cat": ["x", "y"]}, totals=totals) == 4
    for total in totals[1:-1]:
        data = total.astype("<u4").tobytes()
        pieces = [data[place : place + 32] for place in range(0, len(data), 32) if any(data[place : place + 32])]
        assert len(set(pieces)) == len(pieces)


def test_totals_that_are_no_points_are_refused():
    def changed(number, total):
        return total - 2**40 if number == 1 else total

    with pytest.raises(PrivacyError, match=r"received no bytes; a peer does not follow the protocol"):
        count({"ada": ["x"], "bob": ["y"]}, changed=changed)
    with pytest.raises(PrivacyError, match=r"received no points; a peer does not follow the protocol"):
        count({"ada": ["x"], "bob": ["y"]}, changed=lambda number, total: total * (number != 1))


def test_too_many_keys_are_refused(monkeypatch):
    monkeypatch.setattr(shared_keys, "MAX_CLASS", 1)
    with pytest.raises(DataError, match=r"ada has 3 keys, more than 2; leave out data\.options\.key_across"):
        count({"ada": ["x", "y", "z"], "bob": ["x"]})
