"""Members with valid keys that break the protocol of settled rounds, one of four and more or two of seven.

What must hold: all others learn the same outcome of each attempt and the same members, none of them is dropped or
excluded for what insiders do, their masks cancel, and none waits for ever. If they are connected without the
insiders, each of which sends valid models in one of two attempts at least, they play all rounds.

What cannot hold: whoever takes part states its own update, so one may send each neighbour another. With weights that
keep the mean, x added to a model that is sent in a gossip step moves the mean of n members by x / n at most, which is
checked. A false number of samples counts as a false model; one that is impossible is refused, and the attempt fails.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as changed

import msgspec
import numpy as np
from msgspec.structs import replace

from p2pfl.core.draws import draw
from p2pfl.network.peer import Peer
from p2pfl.network.protocol.agreement.attempt_reports import FAILED
from p2pfl.network.protocol.interface.effects import Answer, Effect, Publish
from p2pfl.network.protocol.interface.requests import ReportAttempt, Request
from p2pfl.network.protocol.wire.envelope import Envelope
from p2pfl.network.protocol.wire.messages import Chunk, Message
from p2pfl.network.protocol.wire.reliable_stream import Outbox, _Cut
from p2pfl.network.protocol.wire.verdict_messages import Decision, Report, Reports, Vote
from p2pfl.network.protocol.wire.wire_rows import ALIGNMENT, Head, Pieces

WITHHELD = {"acceptances": Vote, "reports": Reports, "decisions": Decision}
"""Messages that an insider may never send, by its fault."""

FAULTS = (*WITHHELD, "failures", "two reports")
"""Faults: these, false failures of every other attempt, and signed reports that contradict each other."""

MODEL_FAULTS = ("two models", "sample numbers")
"""Faults of what is learned: different models, and different numbers of samples, for half of the neighbours."""

ADDED = 4.0
"""Number added to one parameter of a model: a quarter of the largest parameter of a goal."""

NUMBERS = (0.0, 0.25, 3.0)
"""Factors of false numbers of samples; every other attempt, the number is beyond any bound."""

HELD, REPEATED = 1.5, 20.0
"""Seconds by which a broker that colludes delays messages, and after which it repeats some, at most."""

MEMBERS = {1: 4, 2: 7}
"""Fewest members of an attempt by how many of them may be malicious."""

PAIRS = 0.25
"""Share of worlds with two insiders."""


@dataclass
class Insider:
    """A malicious member.

    Attributes
    ----------
    peer, fault
        Name of the member, and its fault.
    deceived
        Peers that receive other models than the rest.
    colludes
        True if the broker delays and repeats what concerns the insider and those that it deceives.
    seed
        Of the draws of the broker.
    reports
        Attempts that it has completed.
    added
        By round, the sum of what it has added to one parameter of models.
    """

    peer: str
    fault: str
    deceived: Collection[str] = ()
    colludes: bool = False
    seed: int = 0
    reports: int = 0
    added: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = draw(self.seed, "world insider broker")

    def meddle(self, receiver: str, topic: str) -> tuple[float, float]:
        """Return by how many seconds the broker delays a delivery, and after how many it repeats it, 0 for never."""
        if not self.colludes or not (receiver in self.deceived or f"/{self.peer}/" in f"{topic}/"):
            return 0.0, 0.0
        chances, seconds = self._random.random(2), self._random.random(2)
        return (
            HELD * float(seconds[0]) if chances[0] < 0.2 else 0.0,
            REPEATED * float(seconds[1]) if chances[1] < 0.1 else 0.0,
        )

    def corrupt(self, peer: Peer) -> None:
        """Let a peer that has joined break the protocol."""
        connection = peer.connection
        carry_out, ask, withheld = connection._carry_out, connection.ask, WITHHELD.get(self.fault)

        def carried_out(effect: Effect) -> None:
            if not (withheld and isinstance(effect, Publish) and isinstance(effect.message, withheld)):
                carry_out(effect)

        async def asked(request: Request) -> Answer:
            if isinstance(request, ReportAttempt) and request.complete:
                self.reports += 1
                if self.fault == "failures" and self.reports % 2:
                    return await ask(ReportAttempt(complete=False, incarnations=b""))
                if self.fault == "two reports":
                    _contradict(peer)
            return await ask(request)

        connection._carry_out, connection.ask = carried_out, asked  # type: ignore[method-assign]
        if self.fault in MODEL_FAULTS:
            _SecondModels(self, peer).install()


def _contradict(peer: Peer) -> None:
    """Send half of the committee a signed failure."""
    assert peer.session.commits is not None
    settlement = peer.session.commits._settlement
    false = Report(settlement.subject, peer.name, FAILED, incarnation=settlement.incarnation)
    false = replace(false, signature=settlement.sign(false.statement), tags=settlement.tag(false.statement))
    for member in settlement.committee.members[::2]:
        if member != peer.name:
            peer.connection.post(f"in/{member}", Reports(settlement.subject, (false,)))


class _SecondModels:
    """Messages of an insider to the deceived: chunks of other models, in the places of those for the rest.

    They are cut, signed, tagged and sealed as any; nobody has a chunk whose tags are for the others.

    Parameters
    ----------
    insider
        What it does.
    peer
        Its peer.
    """

    def __init__(self, insider: Insider, peer: Peer) -> None:
        self.insider = insider
        self.peer = peer
        self.cuts: list[tuple[_Cut, _Cut]] = []
        self.chunks: dict[tuple[int, int], Chunk] = {}
        """Chunks for the deceived, by phase and sequence."""

    def install(self) -> None:
        """Let the peer send two models in each gossip step."""
        connection, codec = self.peer.connection, self.peer.session.shared.codec
        assert codec.envelope is not None
        for outbox in self.peer.session.streams.outboxes:
            self._divide(outbox)
        envelope, seal, carry_out = codec.envelope, codec.envelope.seal, connection._carry_out

        def sealed(message: Message, *, to: Collection[str] | None = None) -> bytes:
            second = self.chunks.get((message.phase, message.sequence)) if isinstance(message, Chunk) else None
            if second is None:
                return seal(message, to=to)
            if message is second:  # under the key of the first: it is its own secret
                return Envelope.seal(envelope, message, to=self.insider.deceived)
            return seal(message, to=[each for each in envelope._tags if each not in self.insider.deceived])

        def carried_out(effect: Effect) -> None:
            carry_out(effect)
            if isinstance(effect, Publish) and isinstance(chunk := effect.message, Chunk):
                second = self.chunks.get((chunk.phase, chunk.sequence))
                if second is not None:
                    carry_out(changed(effect, message=second, receipt=""))

        envelope.seal, connection._carry_out = sealed, carried_out  # type: ignore[method-assign]

    def _divide(self, outbox: Outbox) -> None:
        """Cut two models at a time."""
        put, cut = outbox.put, outbox._cut

        def put_two(parts: Sequence[bytes | memoryview]) -> None:
            put(parts)
            pieces = Pieces(self._false(parts), size=outbox.chunk)
            self.cuts.append((outbox._waiting[-1], _Cut(pieces, pieces.left)))

        def cut_two(message: _Cut) -> Chunk:
            for first, second in self.cuts:
                if first is message:
                    found = cut(second)
                    self.chunks[found.phase, found.sequence] = found
            return cut(message)

        outbox.put, outbox._cut = put_two, cut_two  # type: ignore[method-assign]

    def _false(self, parts: Sequence[bytes | memoryview]) -> tuple[bytes, bytes]:
        """Return a false model."""
        start, numbers = bytes(parts[0]), b"".join(map(bytes, parts[1:]))
        head = msgspec.msgpack.decode(start[4 : 4 + int.from_bytes(start[:4], "little")], type=Head)
        if self.insider.fault == "two models":
            row = np.frombuffer(numbers, dtype=head.dtype).copy()
            row[0] += ADDED * (1 if head.grid is None else 2**head.grid)
            self.insider.added[head.round] = self.insider.added.get(head.round, 0.0) + ADDED
            return start, row.tobytes()
        attempts = self.peer.hiding.attempts
        if head.mass is not None:
            odd = attempts is not None and attempts.attempt % 2
            head = replace(head, mass=1e30 if odd else head.mass * NUMBERS[head.step % len(NUMBERS)])
        named = msgspec.msgpack.encode(head)
        named = len(named).to_bytes(4, "little") + named
        return named + bytes(-len(named) % ALIGNMENT), numbers


def meddle(insiders: Sequence[Insider], receiver: str, topic: str) -> tuple[float, float]:
    """Return how long a broker that colludes with insiders delays a delivery, and after how long it repeats it."""
    found = [each.meddle(receiver, topic) for each in insiders]
    return max((held for held, _ in found), default=0.0), max((repeated for _, repeated in found), default=0.0)


def insider(seed: int, peers: Sequence[str], *, also: str = "") -> Insider:
    """Draw who breaks the protocol in the world of a seed, and how; another one beside the one named."""
    random = draw(seed, f"world insider beside {also}" if also else "world insider")
    others = [each for each in peers if each != also]
    peer, fault = others[int(random.integers(len(others)))], FAULTS[int(random.integers(len(FAULTS)))]
    if random.random() < 0.5:
        fault = MODEL_FAULTS[int(random.integers(len(MODEL_FAULTS)))]
    deceived = [each for each in peers if each != peer][int(random.integers(2)) :: 2]
    return Insider(peer, fault, deceived, colludes=bool(random.random() < 0.5), seed=seed)


def two(seed: int) -> bool:
    """Draw whether the world of a seed has two insiders."""
    return draw(seed, "world insiders").random() < PAIRS
