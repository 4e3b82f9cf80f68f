"""A target for atheris: whatever the bytes are, what reads them raises DecodeError or InputError and nothing else
(or PeerError: a neighbour runs another experiment, and that is to be told).

``scripts/fuzz 600`` runs it for ten minutes. The first byte chooses the reader; the last argument is the corpus. Some
readers take bytes as strangers send them, whom seals and checksums stop; the others put those around what the fuzzer
made, by the keys of a neighbour, and see what comes of it (``tests/support/honest.py``).
"""

import contextlib
import itertools
import sys
import tempfile
from pathlib import Path

import atheris
import msgspec
import torch

with atheris.instrument_imports(include=["p2pfl"]):
    from honest import (
        ADA,
        BOB,
        HONEST,
        genuine,
        kept,
        pretended,
        sealed,
        sealed_for_bob,
        taken,
    )
    from known_peers import LARGEST, ROSTER, SIGNED
    from model_messages import message_of
    from p2pfl.core.errors import AuthenticityError, DecodeError, InputError, PeerError
    from p2pfl.network.protocol.membership.audience import Audience, observer_swarm
    from p2pfl.network.protocol.wire.envelope import SEALED
    from p2pfl.network.protocol.wire.messages import Announcement, Chunk, ForOne, Key, Plain
    from p2pfl.network.protocol.wire.trailer import CHECKSUM
    from p2pfl.network.protocol.wire.wire_codec import PREFIX, VERSION, decode, encode
    from p2pfl.network.protocol.wire.wire_rows import ModelMessage, encode_row, read_row
    from p2pfl.privacy.keys import Identity, Roster, SeededSource
    from p2pfl.results.notices.kinds import PhaseBegan
    from p2pfl.results.swarm.state import Setting, swarm_of
    from p2pfl.results.swarm.telemetry import decode_entry as telemetry_entry
    from p2pfl.results.swarm.telemetry import encode_entry as telemetry_bytes

SOURCE = SeededSource(7)
OPS = Identity.generate(SOURCE, peer="ops")
AUDIENCE = Audience("run", envelope=ADA, source=SOURCE, observers={"ops": OPS.public}, past=list)
SECONDS = itertools.count(0.0, 10.0)

FILE = Path(tempfile.mkdtemp()) / "roster.toml"
EDGES = [0, 1, 2, 255, 2**16, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1, -1, -(2**63)]


# ---------------------------------------------------------------------- what strangers say


def message(data):
    said = decode(data)
    assert decode(encode(said)) == said


def forged(data):
    BOB.open("ada", bytes([SEALED]) + data)


def handed_over(data):
    BOB.receive("ada", Key(1, data[:64], have=True, known=False))


def unsigned(data):
    read_row(ModelMessage(memoryview(data), data[:32], data[:64]), trailer=SIGNED, largest=LARGEST)


def roster(data):
    FILE.write_bytes(data)
    Roster.read(FILE)


# ---------------------------------------------------------------------- what a neighbour says, who lies


def said_to_all(data):
    """Any bytes, in a genuine seal; those of a chunk in their place."""
    with contextlib.suppress(DecodeError):
        said = decode(data)
        if isinstance(said, Chunk):
            return taken(BOB.open("ada", sealed(said)))
    return taken(BOB.open("ada", sealed(data)))


def said_to_one(data):
    taken(BOB.open_from("ada", sealed_for_bob(data)))


def said_by_another(data):
    """Any bytes, sealed by a neighbour that holds ada's sender key, in her name: never believed, never remembered."""
    said, before = data, dict(BOB._last)
    with contextlib.suppress(DecodeError):
        said = decode(data)
    try:
        BOB.open("ada", pretended(said if isinstance(said, Chunk) else data))
    except AuthenticityError:
        assert BOB._last == before
    else:
        raise AssertionError("a neighbour spoke for another")


def row(data):
    """Any bytes, with a genuine end; no stream has empty messages."""
    for trailer in (CHECKSUM, SIGNED) if data else ():
        with contextlib.suppress(DecodeError):
            kept(message_of([data], size=LARGEST, trailer=trailer), trailer=trailer)


def other_row(data):
    """A row whose head says something else."""
    given = atheris.FuzzedDataProvider(data)
    head = msgspec.msgpack.encode(changed([1, 0, "float32", 20, None, 1.0, 0, False], given))
    prefix = len(head).to_bytes(4, "little") + head
    row(prefix + bytes(-len(prefix) % 64) + given.ConsumeBytes(given.remaining_bytes()).ljust(80, b"\0"))


def other_message(data):
    """An honest message with some of its fields changed, signed and sealed again."""
    given = atheris.FuzzedDataProvider(data)
    payload = encode(HONEST[given.PickValueInList(sorted(HONEST))])
    end = PREFIX + int.from_bytes(payload[1:PREFIX], "little")
    kind, *fields = msgspec.msgpack.decode(payload[PREFIX:end])
    head = msgspec.msgpack.encode([kind, *changed(fields, given)])
    if len(head) >= 2**16:
        return
    said = genuine(decode(bytes([VERSION]) + len(head).to_bytes(2, "little") + head + payload[end:]))
    if isinstance(said, ForOne):
        said = BOB.open_from("ada", sealed_for_bob(encode(said)))
    elif not isinstance(said, Plain):
        said = BOB.open("ada", sealed(said))
    taken(said)


def changed(fields, given):
    """Fields of a message, some of them, or of what is in them, replaced, doubled or left out."""
    for _ in range(given.ConsumeIntInRange(0, 4)):
        fields = _changed(fields, given)
        fields = fields if isinstance(fields, list) else [fields]
    return fields


def _changed(value, given):
    if isinstance(value, dict) and value and given.ConsumeIntInRange(0, 7):
        key = given.PickValueInList(sorted(value, key=repr))
        other = _alike(key, given) if given.ConsumeIntInRange(0, 3) == 0 else key
        return {**value, other: _changed(value[key], given)}
    if not isinstance(value, list) or not value:
        return _alike(value, given) if given.ConsumeIntInRange(0, 7) else _leaf(given)
    place, how = given.ConsumeIntInRange(0, len(value) - 1), given.ConsumeIntInRange(0, 9)
    if how == 0:
        return value[:place] + value[place + 1 :]
    if how == 1:
        return value + value[place:]
    return [*value[:place], _changed(value[place], given), *value[place + 1 :]]


def _alike(value, given):
    """Another of its type, so that it comes past what reads types."""
    match value:
        case bool():
            return not value
        case int():
            return given.PickValueInList([*EDGES[:9], value + 1, max(0, value - 1), given.ConsumeIntInRange(0, 20)])
        case float():
            return given.PickValueInList([0.0, -1.0, 11.0, 1e308, float("inf"), float("nan")])
        case str():
            return given.PickValueInList(
                ["ada", "bob", "cleo", "mallory", "up", "left", "dead", "float64", "int32", ""]
            )
        case bytes():
            return given.ConsumeBytes(len(value)).ljust(len(value), b"\0")
        case _:
            return _leaf(given)


def _leaf(given):
    match given.ConsumeIntInRange(0, 9):
        case 0 | 1 | 2 | 3:
            return given.PickValueInList([*EDGES, given.ConsumeIntInRange(0, 20)])
        case 4 | 5:
            return given.ConsumeBytes(given.PickValueInList([0, 32, 33, 64, 65]))
        case 6:
            return given.ConsumeBytes(given.ConsumeIntInRange(0, 64)).decode(errors="replace")
        case 7:
            return given.PickValueInList([None, True, False, float("nan"), float("inf"), -0.0, 1e308, 5e-324])
        case 8:
            return [[given.ConsumeIntInRange(0, 9)] * given.ConsumeIntInRange(0, 4)] * given.ConsumeIntInRange(0, 4)
        case _:
            return {}


def watched(data):
    """Any bytes, to a peer that observers may look at."""
    AUDIENCE.receive("ops", data, now=next(SECONDS))


def shared(data):
    """Any bytes as an entry of a peer that lies to its observers."""
    swarm_of(Setting(peers=("ada", "bob")), [(1.0, telemetry_entry(data, peer="ada", names=("ada", "bob")))])


READERS = (
    message,
    forged,
    handed_over,
    unsigned,
    roster,
    said_to_all,
    said_to_one,
    row,
    other_row,
    other_message,
    said_by_another,
    watched,
    shared,
)


def one(data: bytes) -> None:
    """Read one input."""
    if data:
        with contextlib.suppress(DecodeError, InputError, PeerError):
            READERS[data[0] % len(READERS)](data[1:])


def seeds(folder: Path) -> None:
    """What honest peers send, for the fuzzer to begin with: what msgspec reads it cannot look into."""
    squeezable = encode_row(torch.zeros(20), round=1, step=0, mass=1.0)
    ROSTER.write(FILE)
    inputs = [
        (forged, ADA.seal(HONEST["Chunk"])[1:]),
        (handed_over, ADA.handover("bob").wrapped),
        (unsigned, b"".join(squeezable)),
    ]
    inputs += [(roster, FILE.read_bytes()), (row, b"".join(squeezable)), (other_row, bytes(200))]
    ops = Announcement("ops", 0, "up", key=bytes(range(32)), nonce=bytes(16)).sign(OPS, swarm=observer_swarm("run"))
    inputs += [(watched, encode(ops)), (watched, ADA.seal_for("bob", HONEST["Look"]))]
    inputs += [(shared, telemetry_bytes(PhaseBegan(peer="ada", phase="learning", round=1), level="scores"))]
    for number, said in enumerate(HONEST[kind] for kind in sorted(HONEST)):
        inputs += [
            (said_by_another, encode(said)),
            (message, encode(said)),
            (said_to_one if isinstance(said, ForOne) else said_to_all, encode(said)),
        ]
        # FuzzedDataProvider takes numbers from the end of its bytes: first the kind, then how many changes.
        inputs += [(other_message, bytes([fields, 3, changes, number])) for changes in range(3) for fields in range(3)]
    for number, (reader, data) in enumerate(inputs):
        (folder / f"seed{number:03}").write_bytes(bytes([READERS.index(reader)]) + data)


if __name__ == "__main__":
    seeds(Path(sys.argv[-1]))
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
