"""Messages, bytes and subscriptions of a peer and round, with and without masks whose rounds are settled.

    python -m benchmarks.settlements [--peers 8 16 32 64 128 256 512] [--live 64] [--write docs/notes/settled-rounds.md]

Two measurements, both deterministic and in virtual time:

- *Settlement alone*: the state machines of all members settle rounds over a network that loses nothing. Messages are
  those that a peer publishes, and bytes what all peers publish, encoded and not sealed; the mean of all peers, and the
  owner of the committee.
- *Live peers* of degree 4 with a small model, up to ``--live`` peers: all messages that a peer publishes and receives
  in a round, the bytes that it publishes, and its subscriptions. The introductions at the start are not counted.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path

from p2pfl.experiment import plan, read
from p2pfl.network.peer import Peer
from p2pfl.network.protocol.agreement.agreement_effects import Send, StoreRecord
from p2pfl.network.protocol.agreement.attempt_reports import complete
from p2pfl.network.protocol.agreement.settlement import Settlement
from p2pfl.network.protocol.interface.effects import Publish
from p2pfl.network.protocol.interface.events import Received
from p2pfl.network.protocol.wire.verdict_messages import Place, draw_committee
from p2pfl.network.protocol.wire.wire_codec import encode
from p2pfl.network.transport import MemoryTransport
from p2pfl.network.virtual.clock import VirtualLoop
from p2pfl.privacy.keys import FIRST, SeededSource

MARKS = ("<!-- measured -->", "<!-- /measured -->")
COLUMNS = (
    "peers",
    "settlement: messages, KB",
    "of the owner",
    "messages sent without masks",
    "with",
    "received without",
    "with",
    "KB sent without",
    "with",
    "subscriptions without",
    "with",
)
HEAD = [f"| {' | '.join(COLUMNS)} |", f"|{' ---: |' * len(COLUMNS)}"]
ROUNDS = 5
"""Rounds of a live run, of which those between the first and the last are counted."""

SIGNATURE = bytes(64)


@dataclass
class Traffic:
    """What peers send, by peer."""

    sent: Counter[str] = field(default_factory=Counter)
    size: Counter[str] = field(default_factory=Counter)
    received: Counter[str] = field(default_factory=Counter)
    subscriptions: Counter[str] = field(default_factory=Counter)


def settle(peers: int, *, round: int) -> tuple[Traffic, str]:
    """Return the traffic of one settlement without a death, and the owner of its committee."""
    names, place, traffic = tuple(f"peer{number}" for number in range(peers)), Place(round, 0), Traffic()
    committee = draw_committee(names, place, swarm="benchmark")
    members = {
        name: Settlement(name, place, names, committee, sign=lambda _: SIGNATURE, incarnation=2**60) for name in names
    }
    queue = deque((name, "report", (complete(bytes(29)),)) for name in names)
    while queue:
        name, what, given = queue.popleft()
        for effect in getattr(members[name], what)(*given, now=0.0):
            match effect:
                case StoreRecord():
                    queue.append((name, "finish_write", ()))
                case Send(to, message):
                    publishes = 1 if {*to, name} == {*names} else len(to)  # all others subscribe to one topic
                    traffic.sent[name] += publishes
                    traffic.size[name] += publishes * len(encode(message))
                    queue.extend((each, "receive", (name, message)) for each in to)
    assert all(each.outcome is not None and each.outcome.committed for each in members.values())  # noqa: S101
    return traffic, committee.owner


def live(peers: int, *, masks: bool) -> Traffic:
    """Return the traffic of live peers in the rounds between the first and the last."""
    changes = {"mode": "pairwise", "mask": 10.0, "departures": "go_on"} if masks else {"mode": "none"}
    experiment = read(
        {
            "name": "settlements",
            "rounds": ROUNDS,
            "topology": {"kind": "circulant", "degree": 4, "peers": peers},
            "data": {"name": "digits"},
            "model": {"name": "linear"},
            "learning": {"device": "cpu"},
            "evaluation": {"every": ROUNDS},
            "privacy": changes,
        }
    )
    traffic, transport = Traffic(), MemoryTransport()

    async def one(name: str) -> None:
        peer = Peer(
            name,
            plan(experiment, only=[name]),
            transport=transport,
            source=SeededSource(5),
            incarnation=FIRST,
        )
        async with peer:
            watch(peer, traffic)
            await peer.run()

    async def everybody() -> None:
        await asyncio.gather(*map(one, plan(experiment).topology.peers))

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(everybody())
    return traffic


def watch(peer: Peer, traffic: Traffic) -> None:
    """Count what a peer sends and receives."""
    connection, handle, carry_out = peer.connection, peer.connection.handle, peer.connection._carry_out  # noqa: SLF001

    def counts() -> bool:
        return 1 <= peer.mailbox.gossip_step[0] < ROUNDS - 1

    def handled(event: object) -> None:
        traffic.received[peer.name] += counts() and isinstance(event, Received)
        handle(event)  # type: ignore[arg-type]

    def carried_out(effect: object) -> None:
        traffic.sent[peer.name] += counts() and isinstance(effect, Publish)
        if counts():
            traffic.size.setdefault(peer.name, -connection.bytes_out)
        elif traffic.size[peer.name] < 0:  # the first effect after the last of these rounds
            traffic.size[peer.name] += connection.bytes_out
        carry_out(effect)  # type: ignore[arg-type]

    connection.handle, connection._carry_out = handled, carried_out  # type: ignore[method-assign]  # noqa: SLF001
    session = peer.session
    topics = {f"{peer.name}/in/+", *session.presence.places(), *session.neighbours.places()}
    traffic.subscriptions[peer.name] = len(topics)


def row(peers: int, *, largest: int) -> str:
    """Return a line of the table."""
    found = [settle(peers, round=round) for round in range(8)]
    mean = sum(each.sent.total() for each, _ in found) / peers / len(found)
    size = sum(each.size.total() for each, _ in found) / peers / len(found) / 1000
    owners = sum(each.sent[owner] for each, owner in found) / len(found)
    weight = sum(each.size[owner] for each, owner in found) / len(found) / 1000
    cells = [f"{peers}", f"{mean:.1f}, {size:.2f}", f"{owners:.0f}, {weight:.1f}"]
    if peers > largest:
        return f"| {' | '.join(cells)} |{' not run |' * 8}"
    plain, masked, rounds = live(peers, masks=False), live(peers, masks=True), ROUNDS - 2
    for kind, scale in (("sent", 1), ("received", 1), ("size", 1000)):
        cells += [f"{getattr(each, kind).total() / peers / rounds / scale:.1f}" for each in (plain, masked)]
    cells += [f"{each.subscriptions.total() / peers:.0f}" for each in (plain, masked)]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Measure, and print or write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.settlements", description=__doc__.splitlines()[0])
    parser.add_argument("--peers", type=int, nargs="+", default=[8, 16, 32, 64, 128, 256, 512])
    parser.add_argument("--live", type=int, default=64, metavar="N", help="most live peers")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table into this page")
    options = parser.parse_args()
    lines = [*HEAD]
    for peers in options.peers:
        lines.append(row(peers, largest=options.live))
        print(lines[-1], flush=True)
    if options.write is not None:
        before, rest = options.write.read_text().split(MARKS[0])
        _, after = rest.split(MARKS[1])
        options.write.write_text(before + "\n".join([MARKS[0], "", *lines, "", MARKS[1]]) + after)


if __name__ == "__main__":
    main()
