"""The board's decoder agrees with that of Python, and refuses what Python refuses."""

import random

import blake3
import msgspec
import pytest
import torch

from model_messages import message_of
from p2pfl.core.errors import DecodeError
from p2pfl.network.protocol.wire.messages import (
    Account,
    Ack,
    Announcement,
    Chunk,
    Claim,
    Digest,
    FlowStatement,
    Key,
    Pulse,
)
from p2pfl.network.protocol.wire.trailer import Signature
from p2pfl.network.protocol.wire.wire_codec import decode, encode
from p2pfl.network.protocol.wire.wire_rows import encode_row, read_row
from p2pfl.privacy.keys import Identity, SeededSource

pytestmark = pytest.mark.slow  # the compiler, with sanitizers, takes seconds

IDENTITY = Identity.generate(SeededSource(7), peer="ada")
END = (2**63 - 1,)


def integer(draw, most):
    """Return an integer, often one at which msgpack changes its format."""
    return min(
        most, draw.choice([0, 1, 127, 128, 255, 256, 65535, 65536, 2**32 - 1, 2**32, most, draw.randrange(2**48)])
    )


def announcement(draw):
    facts = {f"key{number}": "x" * draw.choice([0, 31, 32, 300]) for number in range(draw.choice([0, 3, 15, 16, 40]))}
    return Announcement(
        draw.choice(["ada", "b", "A_-9" * 5]),
        integer(draw, 2**63 - 1),
        draw.choice(["up", "left", "dead"]),
        facts,
        draw.randbytes(32),
        answers=draw.choice([b"", draw.randbytes(32)]),
        rounds=[integer(draw, 2**32) for _ in range(draw.randrange(5))],
        attempt=integer(draw, 2**62),
        turn=integer(draw, 2**48),
        done=draw.random() < 0.5,
        version="2.0",
        nonce=draw.randbytes(16),
    ).sign(IDENTITY, swarm="clinic")


def pulse(draw):
    total = draw.choice([None, Digest(3, 1, 2, draw.randbytes(32))])
    numbers = [integer(draw, most) for most in (2**63 - 1, 2**32 - 2, 2**48, 2**48, 2**32, 2**32)]
    return Pulse(*numbers, draw.random() < 0.5, draw.choice([None, 0, 7]), total, integer(draw, 2**48))


def account(draw):
    def place():
        return draw.choice([(0,), END, (integer(draw, 2**62), integer(draw, 2**62))])

    def statement():
        applied = tuple((number, 0) for number in range(draw.choice([0, 3, 15, 16])))
        return FlowStatement(place(), place(), applied, (), place())

    flows = [(statement(), draw.choice([["bob"], ["ada", "bob"], []])) for _ in range(draw.randrange(3))]
    return Account(integer(draw, 2**63 - 1), integer(draw, 2**48), flows, incarnations={"ada": 5})


def message(draw):
    return draw.choice(
        [
            lambda: announcement(draw),
            lambda: Key(integer(draw, 2**63 - 1), draw.randbytes(48), True, False),
            lambda: Claim(integer(draw, 2**63 - 1), draw.randbytes(32)),
            lambda: pulse(draw),
            lambda: Ack(3, 0, integer(draw, 2**48), integer(draw, 2**48), [*range(draw.choice([0, 15, 16, 64]))]),
            lambda: account(draw),
            lambda: Chunk(
                9,
                0,
                integer(draw, 2**48),
                3,
                0,
                500,
                draw.choice([b"", draw.randbytes(64)]),
                memoryview(draw.randbytes(500)),
            ),
        ]
    )()


def read_by_board(account):
    """Return what a board named ada reads of an account."""
    mine = next((statement for statement, names in account.flows if "ada" in names or not names), None)
    settled = (0, 0) if mine is None else (*mine.settled, 0)[:2]
    ended = mine is not None and mine.closed[:1] == END
    numbers = account.incarnation, account.number, *settled, int(mine is not None), int(ended)
    return " ".join(map(str, numbers)).encode()


def mutated(draw, payload):
    """Return bytes with a few changes of the kinds that decoders stumble over."""
    changed = bytearray(payload)
    for _ in range(draw.choice([1, 1, 2, 5])):
        place = draw.randrange(len(changed)) if draw.random() < 0.5 else min(len(changed) - 1, draw.randrange(24))
        match draw.randrange(4):
            case 0:
                changed[place] ^= 1 << draw.randrange(8)
            case 1:
                changed[place] = draw.choice([0, 0x7F, 0x90, 0x9F, 0xC0, 0xC4, 0xC6, 0xCF, 0xDC, 0xDD, 0xDF, 0xFF])
            case 2:
                del changed[place : place + draw.randrange(1, 4)]
            case _:
                changed[place:place] = draw.randbytes(draw.randrange(1, 4))
        changed = changed or bytearray(1)
    return bytes(changed)


def expect_agreement(check, payload):
    """Hold that what the board understands is what Python reads; return whether it understood."""
    answer = check("m", payload)
    if answer is None:
        return False
    read = decode(payload)
    if isinstance(read, Account):
        assert answer == read_by_board(read)
    else:
        unknown = {"total": None, "pause": 0} if isinstance(read, Pulse) else {}  # fields of which a board has no use
        assert decode(answer) == msgspec.structs.replace(read, **unknown)
    return True


def test_board_reads_and_writes_what_python_writes(check):
    draw = random.Random(3)
    for _ in range(1500):
        sent = message(draw)
        payload = encode(sent)
        assert expect_agreement(check, payload)
        if not isinstance(sent, Account | Pulse):  # a board has no totals, of which a pulse has a digest
            assert check("m", payload) == payload
        if isinstance(sent, Announcement):
            assert check("s", payload) == sent.signable("clinic")


def test_board_understands_nothing_that_python_refuses(check):
    draw, understood = random.Random(4), 0
    for _ in range(6000):
        understood += expect_agreement(check, mutated(draw, encode(message(draw))))
    assert understood > 300  # else the test shows nothing


def test_board_ignores_fields_of_later_versions(check):
    draw = random.Random(5)
    for sent in (announcement(draw), Key(1, bytes(48), True, True), pulse(draw), Ack(1, 0, 2, 3), account(draw)):
        head = [*msgspec.msgpack.decode(msgspec.msgpack.encode(sent)), {"later": [1.5, None, -3, b"x"]}]
        packed = msgspec.msgpack.encode(head)
        payload = encode(Claim(1))[:1] + len(packed).to_bytes(2, "little") + packed
        assert expect_agreement(check, payload)


@pytest.mark.parametrize("size", [0, 1, 3, 64, 65, 1023, 1024, 1025, 2048, 2049, 5000, 16384, 31744, 40000])
def test_hashes_of_board_are_blake3(check, size):
    data, key = random.Random(size).randbytes(size), bytes(range(32))
    assert check("h", data) == blake3.blake3(data).digest()
    assert check("k", key + data) == blake3.blake3(data, key=key).digest()


def signed_row(row, *, round, step=0, mass=None):
    trailer = Signature.of("clinic", "ada", 5, public=IDENTITY.public, identity=IDENTITY)
    return message_of(encode_row(row, round=round, step=step, mass=mass), size=10**6, trailer=trailer), trailer


@pytest.mark.parametrize("length", [1, 127, 128, 2410, 9000])
@pytest.mark.parametrize("round", [0, 127, 128, 70000, 2**32])
def test_board_reads_and_writes_heads_of_rows(check, length, round):
    signed, trailer = signed_row(torch.randn(length), round=round, step=round % 300)
    assert check("r", signed.data) == signed.data[:64]
    assert read_row(signed, trailer=trailer).head.round == round


def test_board_refuses_rows_that_it_does_not_understand(check):
    for refused in (
        signed_row(torch.ones(3, dtype=torch.float64), round=1)[0].data,
        signed_row(torch.ones(3), round=1, mass=0.5)[0].data,
        signed_row(torch.ones(3), round=1)[0].data[:-1],
        bytes(signed_row(torch.ones(3), round=1)[0].data) + b"x",
        b"",
        bytes(200),
        b"\xff\xff\xff\xff" + bytes(200),
    ):
        assert check("r", refused) is None


def test_mutated_rows_are_read_as_by_python_or_refused(check):
    draw, understood = random.Random(6), 0
    signed, _ = signed_row(torch.randn(100), round=77, step=2)
    for _ in range(3000):
        changed = mutated(draw, signed.data[:64]) + signed.data[64:]
        answer = check("r", changed)
        if answer is not None:
            understood += 1
            try:
                head = read_row(signed._replace(data=memoryview(changed)), trailer=_Any("", b"")).head
            except DecodeError:
                assert answer is None
            else:
                assert answer == b"".join(encode_row(torch.zeros(head.length), round=head.round, step=head.step))[:64]
    assert understood > 100


class _Any(Signature):
    """A trailer of which everything is taken for genuine."""

    def check(self, statement, trailer):
        del statement, trailer
