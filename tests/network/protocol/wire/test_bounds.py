"""Every field of every message has a finite bound, which decoding holds; see p2pfl/network/protocol/wire/bounds.py."""

import math
from typing import get_args

import msgpack
import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect

from p2pfl.core.errors import DecodeError
from p2pfl.network.protocol.wire.bounds import MAX_ENTRIES, TAG_BYTES
from p2pfl.network.protocol.wire.messages import ChangeRelay, Chunk, Message, Telemetry
from p2pfl.network.protocol.wire.total_messages import Subtotal, Total
from p2pfl.network.protocol.wire.verdict_messages import (
    REPORTS,
    SEATS,
    Ballot,
    Place,
    Promise,
    Proposal,
    Report,
    Reports,
    Vote,
)
from p2pfl.network.protocol.wire.wire_codec import (
    HEAD,
    PREFIX,
    VERSION,
    decode,
    encode,
)
from p2pfl.network.protocol.wire.wire_rows import Head, _head, encode_row

DATA = {kind.__name__ for kind in (Chunk, Subtotal, Total, Telemetry, ChangeRelay)}
"""Messages that carry data, which follow the head."""

KINDS = {kind.__name__: kind for kind in get_args(Message)}
ALL = KINDS | {"Head": Head}


def fields(kind):
    """The fields in the head of a message with their types."""
    return {field.name: field.type for field in heads(kind)}


def heads(kind):
    return [field for field in inspect.type_info(kind).fields if not isinstance(field.type, inspect.MemoryViewType)]


def unbounded(kind, where=""):  # noqa: C901, PLR0912 (one case for each type)
    """Yield each place in a type at which a value can be endlessly large."""
    match kind:
        case inspect.IntType() | inspect.FloatType():
            if kind.ge is None or kind.le is None:
                yield where
        case inspect.StrType() | inspect.BytesType() | inspect.MemoryViewType():
            if kind.max_length is None:
                yield where
        case inspect.ListType() | inspect.VarTupleType():
            if kind.max_length is None:
                yield where
            yield from unbounded(kind.item_type, f"{where}[]")
        case inspect.DictType():
            if kind.max_length is None:
                yield where
            yield from unbounded(kind.key_type, f"{where} key")
            yield from unbounded(kind.value_type, f"{where}{{}}")
        case inspect.NamedTupleType():
            for each in kind.fields:
                yield from unbounded(each.type, f"{where}.{each.name}")
        case inspect.TupleType():
            for number, each in enumerate(kind.item_types):
                yield from unbounded(each, f"{where}[{number}]")
        case inspect.UnionType():
            for each in kind.types:
                yield from unbounded(each, where)
        case inspect.StructType():
            for each in kind.fields:
                yield from unbounded(each.type, f"{where}.{each.name}")
        case inspect.BoolType() | inspect.NoneType() | inspect.LiteralType():
            return
        case _:
            yield f"{where} ({type(kind).__name__})"


@pytest.mark.parametrize("name", ALL)
def test_every_field_has_a_finite_bound(name):
    assert list(unbounded(inspect.type_info(ALL[name]), name)) == []


def test_a_field_without_a_bound_would_be_found():
    class Endless(msgspec.Struct):
        number: int
        texts: list[str]
        known: bool

    assert list(unbounded(inspect.type_info(Endless))) == [".number", ".texts", ".texts[]"]


# ---------------------------------------------------------------------- values inside and outside

LETTERS = st.sampled_from("abcXYZ019_-")


def inside(kind):  # noqa: C901, PLR0911, PLR0912 (one case for each type)
    """A strategy for values that a type allows; as they are in msgpack."""
    match kind:
        case inspect.IntType():
            return st.one_of(st.sampled_from([kind.ge, kind.le]), st.integers(kind.ge, kind.le))
        case inspect.FloatType():
            return st.floats(kind.ge, kind.le)
        case inspect.StrType():
            least = 1 if kind.pattern else 0
            return st.text(LETTERS, min_size=least, max_size=min(kind.max_length, 30))
        case inspect.BytesType():
            return st.binary(min_size=kind.min_length or 0, max_size=kind.max_length)
        case inspect.ListType() | inspect.VarTupleType():
            return st.lists(inside(kind.item_type), max_size=min(kind.max_length, 3))
        case inspect.DictType():
            return st.dictionaries(inside(kind.key_type), inside(kind.value_type), max_size=3)
        case inspect.NamedTupleType():
            return st.tuples(*(inside(each.type) for each in kind.fields)).map(list)
        case inspect.TupleType():
            return st.tuples(*map(inside, kind.item_types)).map(list)
        case inspect.UnionType():
            return st.one_of([inside(each) for each in kind.types])
        case inspect.StructType():
            tag = [] if kind.tag is None else [kind.tag]
            return st.tuples(*(inside(each.type) for each in kind.fields)).map(lambda values: [*tag, *values])
        case inspect.BoolType():
            return st.booleans()
        case inspect.LiteralType():
            return st.sampled_from(kind.values)
        case _:
            return st.none()


def outside(kind):  # noqa: C901, PLR0912 (one case for each type)
    """Strategies for values that a type refuses, each wrong in one place."""
    match kind:
        case inspect.IntType():
            yield st.sampled_from([kind.ge - 1, kind.le + 1, 2**64 - 1, -(2**63)])
        case inspect.FloatType():
            yield st.sampled_from([math.nan, math.inf, -math.inf, 2 * kind.le])
        case inspect.StrType():
            yield st.just("x" * (kind.max_length + 1))
        case inspect.BytesType():
            yield st.just(bytes(kind.max_length + 1))
        case inspect.ListType() | inspect.VarTupleType():
            for wrong in nested(kind.item_type):
                yield wrong.map(lambda each: [each])
            yield from too_many(kind, inside(kind.item_type), list)
        case inspect.DictType():
            for wrong in outside(kind.value_type):
                yield st.tuples(inside(kind.key_type), wrong).map(lambda pair: dict([pair]))
            for wrong in outside(kind.key_type):
                yield st.tuples(wrong, inside(kind.value_type)).map(lambda pair: dict([pair]))
            yield from too_many(kind, inside(kind.value_type), lambda many: {f"{n}": v for n, v in enumerate(many)})
        case inspect.NamedTupleType():
            types = [each.type for each in kind.fields]
            for place, each in enumerate(types):
                yield from (replaced(types, place, wrong) for wrong in outside(each))
        case inspect.TupleType():
            for place, each in enumerate(kind.item_types):
                yield from (replaced(kind.item_types, place, wrong) for wrong in outside(each))
        case inspect.UnionType():
            others = [each for each in kind.types if not isinstance(each, inspect.NoneType)]
            yield from outside(others[0])
        case inspect.StructType():
            types = [each.type for each in kind.fields]
            for place, each in enumerate(types):
                yield from (replaced(types, place, wrong) for wrong in nested(each))
        case inspect.LiteralType():
            yield st.just("other")
        case _:
            return


def nested(kind):
    """Strategies for wrong values of a type within another one, where a message has its tag."""
    if isinstance(kind, inspect.StructType) and kind.tag is not None:
        return (wrong.map(lambda values: [kind.tag, *values]) for wrong in outside(kind))
    return outside(kind)


def too_many(kind, item, build):
    """One more than the most that a collection takes; of what fits into a head."""
    yield item.map(lambda each: build([each] * (kind.max_length + 1)))


def replaced(types, place, wrong):
    return st.tuples(*(wrong if at == place else inside(each) for at, each in enumerate(types))).map(list)


def payload(kind, values, data=b""):
    """The bytes of a message with these fields; ``None`` if they are more than a head takes."""
    head = msgspec.msgpack.encode([inspect.type_info(kind).tag, *values])
    return None if len(head) >= HEAD else bytes([VERSION]) + len(head).to_bytes(2, "little") + head + data


WRONG = {name: [*outside(inspect.type_info(kind))] for name, kind in ALL.items()}


@pytest.mark.sampled(fast=4, all=18)
@pytest.mark.parametrize("name", KINDS)
@given(data=st.data())
def test_a_message_within_its_bounds_survives_the_wire(name, data):
    kind = KINDS[name]
    values = [data.draw(inside(each)) for each in fields(kind).values()]
    message = decode(payload(kind, values, b"data" if name in DATA else b""))
    assert type(message).__name__ == name
    assert decode(encode(message)) == message


@pytest.mark.sampled(fast=4)
@pytest.mark.parametrize("name", KINDS)
@given(data=st.data())
def test_a_message_with_a_field_out_of_its_bounds_is_refused(name, data):
    kind = KINDS[name]
    wrong = data.draw(st.sampled_from(WRONG[name]))
    made = payload(kind, data.draw(wrong))
    if made is None:
        return  # a head of 64 KiB holds less
    with pytest.raises(DecodeError):
        decode(made)


@given(data=st.data())
def test_the_head_of_a_row_is_held_to_its_bounds(data):
    values = [data.draw(inside(each)) for each in fields(Head).values()]
    assert msgspec.structs.astuple(_head(msgspec.msgpack.encode(values))) == tuple(values)
    wrong = data.draw(data.draw(st.sampled_from(WRONG["Head"])))
    with pytest.raises(DecodeError):
        _head(msgspec.msgpack.encode(wrong))


@pytest.mark.sampled(fast=4, all=18)
@pytest.mark.parametrize("name", KINDS)
@given(data=st.data())
def test_the_reference_package_of_msgpack_reads_what_we_send_and_we_read_what_it_packs(name, data):
    kind = KINDS[name]
    values = [data.draw(inside(each)) for each in fields(kind).values()]
    rest = b"data" if name in DATA else b""
    message = decode(payload(kind, values, rest))
    sent = encode(message)
    end = PREFIX + int.from_bytes(sent[1:PREFIX], "little")
    head = msgpack.unpackb(sent[PREFIX:end], strict_map_key=False)
    assert head == [inspect.type_info(kind).tag, *values]
    packed = msgpack.packb(head)
    assert decode(sent[:1] + len(packed).to_bytes(2, "little") + packed + rest) == message


@given(data=st.data())
def test_the_reference_package_of_msgpack_reads_the_head_of_a_model(data):
    row = torch.arange(data.draw(st.integers(1, 30)), dtype=torch.float32)
    round, step = data.draw(st.integers(0, 10**6)), data.draw(st.integers(0, 1000))
    prefix, _ = encode_row(row, round=round, step=step)
    length = int.from_bytes(prefix[:4], "little")
    head = msgpack.unpackb(prefix[4 : 4 + length])
    assert head == [round, step, "float32", len(row), None, None, 0, False]


def test_messages_of_agreements_with_all_that_they_may_have_fit_into_the_head_of_a_message():
    name, most = "x" * 22, 2**32
    place, ballot, value = Place(most, 2**62), Ballot(most, name), bytes(19 + MAX_ENTRIES // 8)
    vote = Vote(place, name, ballot, value, bytes(64), 2**63 - 1, final=False)
    promise = Promise(place, name, ballot, ballot, value, bytes(64), 2**63 - 1)
    proposal = Proposal(vote, (promise,) * SEATS, (vote,) * SEATS)
    report = Report(place, name, bytes(32), bytes(64), 2**63 - 1, bytes(SEATS * TAG_BYTES))
    for message in (proposal, Reports(place, (report,) * REPORTS, vote)):
        assert decode(encode(message)) == message
