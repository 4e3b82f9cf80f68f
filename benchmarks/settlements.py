"""Messages and bytes that settle a round under masks, of a peer and of the owner of the committee.

    python -m benchmarks.settlements [--peers 8 16 32 64 128 256 512] [--failed] [--write docs/notes/settled-rounds.md]

The state machines of all members settle rounds in which nobody dies, over a network that loses nothing. With
``--failed`` the last member has died, its four neighbours report that they lack its model, and the others report a
failure once one has reached them. Without masks none of these messages is sent. Bytes are those of encoded messages,
which are not sealed. The figures are counts, the same on every machine.
"""

from __future__ import annotations

import argparse
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from p2pfl.network.protocol.agreement.agreement_effects import Send, StoreRecord
from p2pfl.network.protocol.agreement.attempt_reports import FAILED, complete
from p2pfl.network.protocol.agreement.settlement import Settlement
from p2pfl.network.protocol.wire.verdict_messages import Place, Reports, draw_committee
from p2pfl.network.protocol.wire.wire_codec import encode

MARKS = {False: ("<!-- measured -->", "<!-- /measured -->"), True: ("<!-- failed -->", "<!-- /failed -->")}
"""Lines around the table in a page, by whether the attempts fail."""

DEGREE = 4
"""Neighbours of a member that dies, which lack its model."""

HEAD = [
    "| peers | messages that a peer sends | KB | that a peer receives | KB | that the owner sends | KB |",
    f"|{' ---: |' * 7}",
]
ATTEMPTS = 8
"""Attempts over which a row is the mean."""

SIGNATURE = bytes(64)


@dataclass
class Traffic:
    """Messages and bytes that each peer sends and receives."""

    sent: Counter[str] = field(default_factory=Counter)
    sent_bytes: Counter[str] = field(default_factory=Counter)
    received: Counter[str] = field(default_factory=Counter)
    received_bytes: Counter[str] = field(default_factory=Counter)


def settle(peers: int, *, round: int, failed: bool = False) -> tuple[Traffic, str]:
    """Return the traffic of one settlement, with a death if it has failed, and the owner of its committee."""
    names, place, traffic = tuple(f"peer{number}" for number in range(peers)), Place(round, 0), Traffic()
    committee = draw_committee(names, place, swarm="benchmark")
    members = {
        name: Settlement(name, place, names, committee, sign=lambda _: SIGNATURE, incarnation=2**60) for name in names
    }
    gone = names[-1:] if failed else ()
    waiting = {*names[: -1 - DEGREE]} if failed else set()  # for models, and nobody has told them that none will come
    for name in gone:
        del members[name]
    for each in members.values():
        each.doubt(gone=gone, slow=(), now=0.0)
    queue: deque[tuple[str, str, tuple[Any, ...]]] = deque()
    for name in sorted(members.keys() - waiting):
        queue.append((name, "report", (FAILED if failed else complete(bytes(29)),)))
    while queue:
        name, what, given = queue.popleft()
        for effect in getattr(members[name], what)(*given, now=0.0):
            match effect:
                case StoreRecord():
                    queue.append((name, "finish_write", ()))
                case Send(to, message):
                    publishes = 1 if {*to, name} == {*names} else len(to)  # all others subscribe to one topic
                    traffic.sent[name] += publishes
                    size = len(encode(message))
                    traffic.sent_bytes[name] += publishes * size
                    for each in to:
                        traffic.received[each] += 1
                        traffic.received_bytes[each] += size
                    queue.extend((each, "receive", (name, message)) for each in to if each in members)
        if what == "receive" and isinstance(given[1], Reports) and name in waiting:
            waiting.remove(name)
            queue.append((name, "report", (FAILED,)))
    outcomes = {each.outcome for each in members.values()}
    assert {each and each.committed for each in outcomes} == {not failed}  # noqa: S101
    return traffic, committee.owner


def row(peers: int, *, failed: bool) -> str:
    """Return a line of the table."""
    found = [settle(peers, round=round, failed=failed) for round in range(ATTEMPTS)]
    cells = [f"{peers}"]
    for kind in ("sent", "received"):
        cells.append(f"{sum(getattr(each, kind).total() for each, _ in found) / peers / ATTEMPTS:.1f}")
        size = sum(getattr(each, f"{kind}_bytes").total() for each, _ in found)
        cells.append(f"{size / peers / ATTEMPTS / 1000:.2f}")
    cells.append(f"{sum(each.sent[owner] for each, owner in found) / ATTEMPTS:.0f}")
    cells.append(f"{sum(each.sent_bytes[owner] for each, owner in found) / ATTEMPTS / 1000:.1f}")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Measure, and print or write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.settlements", description=__doc__.splitlines()[0])
    parser.add_argument("--peers", type=int, nargs="+", default=[8, 16, 32, 64, 128, 256, 512])
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table into this page")
    parser.add_argument("--failed", action="store_true", help="settle attempts that fail because a member has died")
    options = parser.parse_args()
    lines = [*HEAD]
    for peers in options.peers:
        lines.append(row(peers, failed=options.failed))
        print(lines[-1], flush=True)
    if options.write is not None:
        start, end = MARKS[options.failed]
        before, rest = options.write.read_text().split(start)
        _, after = rest.split(end)
        options.write.write_text(before + "\n".join([start, "", *lines, "", end]) + after)


if __name__ == "__main__":
    main()
