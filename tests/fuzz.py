"""A target for atheris: whatever the bytes are, what reads them raises DecodeError or InputError and nothing else.

``scripts/fuzz 600`` runs it for ten minutes. The first byte chooses the reader; the last argument is the corpus.
"""

import contextlib
import sys
import tempfile
from pathlib import Path

import atheris
import torch

with atheris.instrument_imports(include=["p2pfl"]):
    from p2pfl.errors import DecodeError, InputError
    from p2pfl.identity import ExchangeKey, Identity, Roster, SeededSource, SenderKey
    from p2pfl.wire.envelope import SEALED, Envelope
    from p2pfl.wire.messages import Account, Ack, Chunk, Claim, Hello, Key, Masked, Moved, Pulse, decode, encode
    from p2pfl.wire.rows import encode_row, pieces, read_row
    from p2pfl.wire.trailer import CHECKSUM, Signature

LARGEST = 2**16


def _end(name: str, life: int) -> Envelope:
    exchange = ExchangeKey.from_source(SeededSource(1), peer=name)
    return Envelope(name, life, exchange, SenderKey.draw(SeededSource(1), peer=name, round=life), "run")


def _acquainted() -> tuple[Envelope, Envelope]:
    ends = _end("ada", 1), _end("bob", 2)
    for one, other in (ends, ends[::-1]):
        one.meet(Hello(other.me, other.incarnation, "up", key=other.exchange.public))
    for one, other in (ends, ends[::-1], ends, ends[::-1]):
        other.hear(one.me, one.handover(other.me))
    return ends


ADA, BOB = _acquainted()
IDENTITY = Identity.generate(SeededSource(3), peer="ada")
SIGNED = Signature.of("run", "ada", 1, public=IDENTITY.public, identity=None)
FILE = Path(tempfile.mkdtemp()) / "roster.toml"


def one(data: bytes) -> None:
    """Read one input."""
    reader, rest = data[:1], data[1:]
    with contextlib.suppress(DecodeError, InputError):
        match reader[0] % 6 if reader else 0:
            case 0:
                message = decode(rest)
                assert decode(encode(message)) == message
            case 1:
                BOB.open("ada", bytes([SEALED]) + rest)
            case 2:
                BOB.hear("ada", Key(1, rest[:64], have=True, known=False))
            case 3:
                read_row(rest, trailer=CHECKSUM, largest=LARGEST)
            case 4:
                read_row(rest, trailer=SIGNED, largest=LARGEST)
            case _:
                FILE.write_bytes(rest)
                Roster.read(FILE)


def seeds(folder: Path) -> None:
    """What honest peers send, for the fuzzer to begin with: what msgspec reads it cannot look into."""
    row = b"".join(
        pieces(encode_row(torch.arange(20.0), round=1, step=0, grid=None, mass=1.0), size=LARGEST, trailer=CHECKSUM)
    )
    statement = Moved((0,), (1, 0), ((1, 0),), (), (0,))
    honest = [
        Hello("ada", 1, "up", {"seed": "1"}, bytes(32)).signed(IDENTITY, swarm="run"),
        Claim(1, bytes(32)),
        Pulse(1, 0, 2, 9, 1, 0, waiting=True),
        Ack(1, 0, 2, 9, [4, 5]),
        Account(
            1,
            1,
            [(statement, ["bob"])],
            {"bob": Masked((0, 0), (1, 0), ((0, 0, 1),), (0, 0), (0, 0))},
            lives={"bob": 1},
        ),
        Chunk(1, 0, 5, 4, 0, len(row), memoryview(row)),
    ]
    inputs = [bytes([0]) + encode(message) for message in honest]
    inputs += [bytes([1]) + ADA.seal(message)[1:] for message in honest[2:]]
    inputs += [bytes([2]) + ADA.handover("bob").wrapped, bytes([3]) + row, bytes([4]) + row]
    Roster({"ada": IDENTITY.public}).write(FILE)
    for number, each in enumerate([*inputs, bytes([5]) + FILE.read_bytes()]):
        (folder / f"seed{number:02}").write_bytes(each)


if __name__ == "__main__":
    seeds(Path(sys.argv[-1]))
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
