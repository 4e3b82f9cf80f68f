"""One honest message of every kind that peers know, and bob, who takes it: where a fuzzer begins and what it drives.

``HONEST`` has what ada says to bob, by kind; ``taken`` gives what she says to a bob who waits for just that.
``genuine`` and ``sealed`` put her signature and her seal on what an enemy has made of it: a Byzantine neighbour.
"""

import itertools
import struct

import msgspec
import numpy as np
import torch

from ballots import AGAIN, COUNTS, cast, decision, prepare, promised
from counting import SUMMED, TOTALLED, adding, summed, totalled, totalling, totals
from known_peers import IDENTITIES, LARGEST, NOW, SIGNED, SWARM, announcement, envelopes, membership
from model_messages import digest_in
from p2pfl.network.protocol.incoming.mailbox import Mailbox
from p2pfl.network.protocol.interface.requests import Try
from p2pfl.network.protocol.ledgers.peer_ledgers import PeerLedgers
from p2pfl.network.protocol.wire.bounds import TAG_BYTES
from p2pfl.network.protocol.wire.envelope import CONTROL, PRIVATE, SEALED
from p2pfl.network.protocol.wire.messages import (
    Account,
    Ack,
    Announcement,
    ChangeRelay,
    Chunk,
    Claim,
    FlowStatement,
    Key,
    Look,
    Plain,
    Pulse,
    Telemetry,
)
from p2pfl.network.protocol.wire.reliable_stream import Inbox, Outbox
from p2pfl.network.protocol.wire.sum_messages import OfSums, RollCall, sum_statement
from p2pfl.network.protocol.wire.total_messages import (
    Abort,
    Again,
    AgreedParticipants,
    OfTotals,
    participants_statement,
)
from p2pfl.network.protocol.wire.verdict_messages import (
    Admission,
    Ballot,
    Contradiction,
    Decision,
    JoinRequest,
    OfVerdicts,
    Place,
    Promise,
    Proposal,
    Report,
    Reports,
    Vote,
    draw_committee,
)
from p2pfl.network.protocol.wire.wire_codec import add_tags, decode, encode, parts
from p2pfl.network.protocol.wire.wire_rows import encode_row, head_of, read_row

# ---------------------------------------------------------------------- verdicts


KEY = bytes([9]) * 32


TRIO = ("ada", "bob", "cleo")
OWNER = draw_committee(TRIO, Place(0, 0), swarm=SWARM).owner
"""The member that proposes in the first ballot of the first attempt."""


def vote(member, value=COUNTS, *, number=0, final=True):
    """A signed vote on the first attempt: in the first ballot, or in one of ada's."""
    return resigned(cast(member, number, "ada" if number else OWNER, value, voter=1, final=final))


def promise(member, *, voted=False):
    """A signed promise for ada's ballot, and the vote that it reports."""
    made = promised(member, 1, "ada", voter=1)
    if voted:
        proof = tuple(vote(each, final=False) for each in TRIO[:2])
        made = msgspec.structs.replace(made, voted=Ballot(0, OWNER), value=COUNTS, proof=proof)
    return resigned(made)


def report(member, value=b"\0"):
    """A signed report on the first attempt."""
    return resigned(Report(Place(0, 0), member, value, incarnation=1))


def resigned(changed):
    """A vote, promise or report with the signature that its member would have put there."""
    statement = SWARM.encode() + b"/" + changed.statement
    signature = IDENTITIES[changed.member if changed.member in IDENTITIES else "ada"].sign(statement, domain="vote")
    return msgspec.structs.replace(changed, signature=signature)


def voting():
    """The commits of bob, which has begun the first attempt."""
    made = totalling("bob", "bob")
    made.handle(Try(0, 0, ("ada", "bob", "cleo")), now=0.0)
    return made.commits


VOTED = (
    Reports(Place(0, 0), (report("ada"), report("cleo")), vote("ada", final=False)),
    vote("ada"),
    prepare("ada", 1),
    promise("ada", voted=True),
    Proposal(vote("ada", AGAIN, number=1, final=False), (promise("ada"), promise("cleo"))),
    decision(vote("ada"), vote("bob")),
    Contradiction(vote("cleo"), vote("cleo", KEY)),
    JoinRequest(1),
    Admission(0, 1, ("ada", "bob")),
)
"""Messages that ada sends to bob while they decide whether a round counts."""


# ---------------------------------------------------------------------- all kinds


def outbox():
    """The stream of bob, of which ada has heard nothing yet."""
    made = Outbox(1, chunk=100)
    made.listen("ada")
    made.put(encode_row(torch.arange(90.0), round=0, step=0))
    return made, list(made.ready())


def inbox():
    """That in which bob hears ada."""
    return Inbox(1, 8, LARGEST)


def ledgers():
    """What bob has applied of ada."""
    made = PeerLedgers("bob", gossip=["ada"])
    made.begin("ada", incarnation=1)
    for step in range(3):
        made.open((0, step), np.zeros(2), weights={"ada": 0.5}, chain=0)
        made.apply("ada", (0, step), np.ones(2))
        made.close()
    return made


def account():
    statement = FlowStatement((0,), (1, 0), ((1, 0),), (), (0,))
    return Account(1, 1, [(statement, ["bob"])], incarnations={"bob": 1})


def row_chunk():
    made = Outbox(1, chunk=LARGEST, trailer=SIGNED)
    made.listen("bob")
    made.put(encode_row(torch.arange(20.0), round=0, step=0, mass=1.0))
    return next(iter(made.ready()))


ADA, BOB, EVE = envelopes()
NUMBERS = itertools.count(1000)
HONEST = {
    type(said).__name__: said
    for said in (
        announcement("ada"),
        ADA.handover("bob"),
        Claim(1, bytes(32)),
        Pulse(1, 0, 2, 9, 1, 0, waiting=True, first=0),
        Ack(1, 0, 1, 9, [1, 2]),
        account(),
        row_chunk(),
        *(summed(*each)[1]["ada"] for each in SUMMED.values()),
        *(totalled(middle, kind)[1] for kind, middle in TOTALLED.items()),
        Again(1, 0, 0, 0),
        Abort(1, 0, ["cleo"]),
        Look(bytes(16)),
        Telemetry(bytes(16), 0, ((1.0, b"entry"),), memoryview(bytes(9))),
        ChangeRelay(bytes(32), memoryview(b"a change")),
        *VOTED,
    )
}
"""What ada says to bob, by kind; a test holds that no kind is left out."""


def genuine(message):
    """The same under the signature that ada would have put there herself."""
    match message:
        case Announcement():
            return message.sign(IDENTITIES["ada"], swarm=SWARM)
        case RollCall():
            statement = sum_statement(announcement("ada").announced, swarm=SWARM, call=message)
            return msgspec.structs.replace(message, signature=IDENTITIES["ada"].sign(statement, domain="roll"))
        case AgreedParticipants():
            statement = participants_statement(message, swarm=SWARM)
            signature = IDENTITIES["ada"].sign(statement, domain="participants")
            return msgspec.structs.replace(message, signature=signature)
        case Reports() | Contradiction() | Vote():
            return _restated(message)
        case Promise(proof=proof):
            return msgspec.structs.replace(resigned(message), proof=tuple(map(resigned, proof)))
        case Proposal(own, promises, proof):
            return Proposal(resigned(own), tuple(map(resigned, promises)), tuple(map(resigned, proof)))
        case Decision(subject, value, votes):
            return Decision(subject, value, tuple(map(resigned, votes)))
        case _:
            return message


def _restated(message):
    match message:
        case Reports(subject, reports):
            return Reports(subject, tuple(map(resigned, reports)))
        case Contradiction(one, other):
            return Contradiction(resigned(one), resigned(other))
    return resigned(message)


def sealed(message):
    """Sealed by ada under the keys that bob knows, though it may be none that she would say; bytes stay as they are."""
    plain = isinstance(message, Plain)
    data = message if isinstance(message, bytes) else encode(message)
    if isinstance(message, Chunk):
        stream, sequence = message.phase % 2**32, message.sequence  # what has no place is put into another's
    else:
        stream, sequence = CONTROL, next(NUMBERS)
    prefix = struct.pack("<BIQ", SEALED, stream, sequence)
    if plain:
        return data
    ciphertext = ADA.sender.seal(data, stream=stream, sequence=sequence, header=prefix)
    return add_tags(prefix, digest_in(prefix, data), ciphertext, keys=[ADA._tags["bob"][0]])


def pretended(message):
    """Seal what eve, who holds ada's sender key, says in ada's name, under every tag that she can make or has seen."""
    data = message if isinstance(message, bytes) else encode(message)
    stream, sequence = CONTROL, next(NUMBERS)
    if isinstance(message, Chunk):
        stream, sequence = message.phase % 2**32, message.sequence
    prefix = struct.pack("<BIQ", SEALED, stream, sequence)
    ciphertext = EVE._keys["ada"].seal(data, stream=stream, sequence=sequence, header=prefix)
    seen = parts(ADA.seal(HONEST["Pulse"]), prefix=len(prefix)).tags
    own = parts(
        add_tags(prefix, digest_in(prefix, data), ciphertext, keys=[*EVE._tags["bob"], *EVE._tags["ada"]]),
        prefix=len(prefix),
    ).tags
    count = (len(seen) + len(own)) // TAG_BYTES
    return b"".join((prefix, count.to_bytes(2, "little"), seen, own, ciphertext))


def sealed_for_bob(data):
    """Bytes as ada seals them for bob alone."""
    secret, number = ADA._secrets["bob"][1], next(NUMBERS)
    key, prefix = ADA._private(secret, "bob", incarnation=1, receiver="bob@1"), struct.pack("<BQ", PRIVATE, number)
    return prefix + key.seal(data, stream=0, sequence=number, header=prefix)


def taken(message):
    """Have bob take what ada says, as far as that is decided without a network."""
    match message:
        case Announcement():
            met = membership("bob")
            if met.receive(message):
                met.prove(message.peer)
        case Key():
            BOB.receive("ada", message)
        case Chunk():
            mine = inbox()
            for row in mine.take(message):
                kept(row)
            decode(encode(mine.ack()))
        case Ack():
            said, chunks = outbox()
            assert all(again in chunks for again in said.acknowledge("ada", message))
        case Pulse():
            mine = inbox()
            mine.skip(message.tail)
            mine.ack(head=message.head)
        case Account():
            mine = ledgers()
            mine.receive("ada", message, incarnation=1)
            decode(encode(mine.account(1)))
        case _ if isinstance(message, OfTotals | OfSums | OfVerdicts):
            added(message)


def added(message):
    """Have bob take a message of a total, of verdicts, or of a secure sum."""
    kind = type(message).__name__
    if isinstance(message, OfVerdicts):
        voting().receive("ada", message)
    elif isinstance(message, OfTotals):
        totals(kind).receive("ada", message)
    else:
        for _, answer in adding(kind).receive("ada", message):
            decode(encode(answer))


def kept(row, *, trailer=SIGNED):
    """Have bob read a row of ada's, and use it."""
    head, numbers, said, *_ = read_row(row, trailer=trailer, largest=LARGEST)
    mine = Mailbox()
    mine.know("ada")
    mine.open(NOW, ["ada"])
    mine.deliver("ada", head, numbers, signed=said)
    mine.take("ada")
    if trailer is SIGNED:
        head_of(said)
    return head, numbers
