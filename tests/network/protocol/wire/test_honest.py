"""What the fuzzer begins with: every kind of message there is, and all of it comes past seals and signatures."""

from typing import get_args

import msgspec
import pytest

from honest import BOB, HONEST, genuine, pretended, sealed, sealed_for_bob, taken
from p2pfl.core.errors import AuthenticityError, DecodeError
from p2pfl.network.protocol.wire.messages import ForOne, Message, Plain
from p2pfl.network.protocol.wire.wire_codec import decode, encode


def opened(message):
    """As bob reads it when ada says it."""
    if isinstance(message, ForOne):
        return BOB.open_from("ada", sealed_for_bob(encode(message)))
    return decode(encode(message), plain=True) if isinstance(message, Plain) else BOB.open("ada", sealed(message))


def test_no_kind_of_message_is_forgotten():
    assert set(HONEST) == {kind.__name__ for kind in get_args(Message)}
    assert all(type(said).__name__ == kind for kind, said in HONEST.items())


@pytest.mark.parametrize("kind", sorted(HONEST))
def test_an_honest_message_is_taken_whether_it_is_signed_once_or_twice(kind):
    for message in (HONEST[kind], genuine(HONEST[kind])):
        assert opened(message) == message
        taken(opened(message))


@pytest.mark.parametrize("kind", sorted(HONEST))
def test_what_another_neighbour_says_in_that_ones_name_is_refused_and_changes_nothing(kind):
    before = dict(BOB._last)
    with pytest.raises(AuthenticityError):
        BOB.open("ada", pretended(HONEST[kind]))
    assert BOB._last == before


@pytest.mark.parametrize("kind", ["Announcement", "RollCall"])
def test_a_change_to_an_honest_message_has_the_signature_of_its_sender(kind):
    changes = {"Announcement": {"incarnation": 9}, "RollCall": {"here": ("bob", "cleo")}}[kind]
    lie = msgspec.structs.replace(HONEST[kind], **changes)
    assert genuine(lie).signature != lie.signature
    assert opened(genuine(lie)) == genuine(lie)


def test_what_is_decided_of_a_lie_is_a_refusal_and_what_is_true_is_still_taken_after_it():
    lie = msgspec.structs.replace(HONEST["Ready"], mass=2.0**30)
    with pytest.raises(DecodeError, match="which is too large"):
        taken(lie)
    taken(HONEST["Ready"])
