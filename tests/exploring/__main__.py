"""``scripts/explore --peers 4``: all that can happen to the agreement of a few peers."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from ballots import AGAIN, COUNTS
from exploring.explorer import Explorer, ViolationError
from exploring.malicious import Malicious
from exploring.masked import Masked, MaskInvariants
from exploring.members import NAMES, SUBJECT, Invariants, Member, committee, members
from exploring.rounds import explorer as rounds
from p2pfl.network.protocol.agreement.agreement import Agreement
from p2pfl.network.protocol.wire.verdict_messages import Ballot

NONSENSE = b"nonsense"
"""Outcome that no honest member believes."""

MARKS = ("<!-- explored -->", "<!-- /explored -->")
"""Between which a page has its table."""

HEAD = [
    "| peers | malicious | proposed | ledgers | disk | ballots begun | crashes | messages | states | steps | seconds |",
    "| ---: | --- | --- | --- | --- | --- | --- | ---: | ---: | ---: | ---: |",
]


@dataclass(frozen=True)
class Setting:
    """Events that an exploration allows.

    Parameters
    ----------
    ballots, crashes
        By member, how many ballots it may begin, and how often it may crash and come back.
    masked
        Whether the members have mask ledgers, and release.
    blocking
        Whether a member takes nothing else while it writes.
    malicious
        Member that sends whatever it can sign, and has one ballot; empty if all are honest.
    values
        Outcomes that the malicious member states.
    proposed
        What the owner proposes; others want the other outcome.
    most
        States after which it stops, if the command does not say.
    """

    ballots: tuple[int, ...]
    crashes: tuple[int, ...]
    masked: bool = False
    blocking: bool = True
    malicious: str = ""
    values: tuple[bytes, ...] = (COUNTS, AGAIN)
    proposed: bytes = COUNTS
    most: int = 3_000_000

    def explorer(self, *, most: int, make: type[Agreement] = Agreement, progress: bool = True) -> Explorer:
        """Return what explores it."""
        size, malicious = len(self.ballots), {self.malicious} - {""}
        kind, judge = (Masked, MaskInvariants) if self.masked else (Member, Invariants)
        how = {"ballots": self.ballots, "crashes": self.crashes, "blocking": self.blocking, "malicious": malicious}
        how["proposed"] = self.proposed
        actors = members(size, make=make, kind=kind, **how)
        invariants = judge(size, malicious=malicious, progress=progress, proposed=self.proposed)
        given = {} if not malicious else {"enemy": self.enemy.says}
        return Explorer(actors, invariants.actors, invariants.messages, most=most, **given)

    @property
    def enemy(self) -> Malicious:
        """The malicious member."""
        group = committee(len(self.ballots))
        begun = {name for name, number in zip(group.members, self.ballots, strict=True) if number}
        ballots = tuple(Ballot(1, name) for name in sorted(begun | {self.malicious}))
        return Malicious(self.malicious, group, SUBJECT, ballots, self.values)

    def row(self, *, most: int | None) -> str:
        """Explore it; return a line of a table."""
        begun = time.perf_counter()
        found = self.explorer(most=most or self.most).run()
        seconds = time.perf_counter() - begun
        ballots, crashes = (", ".join(map(str, each)) for each in (self.ballots, self.crashes))
        disk = "blocks" if self.blocking else "does not block"
        masked, end = "yes" if self.masked else "no", "" if found.complete else "the first "
        lies = "none" if not self.malicious else "the owner" if self.malicious == NAMES[0] else "another"
        lies += ", also what nobody believes" if NONSENSE in self.values else ""
        proposed = "it counts" if self.proposed == COUNTS else "again"
        return (
            f"| {len(self.ballots)} | {lies} | {proposed} | {masked} | {disk} | {ballots} | {crashes} "
            f"| {found.messages} | {end}{found.states:,} | {found.transitions:,} | {seconds:.0f} |"
        )


def main() -> int:
    """Explore; the exit status is 1 if an invariant does not hold."""
    parser = argparse.ArgumentParser(prog="scripts/explore", description="Every interleaving of an agreement.")
    parser.add_argument("--most", type=int, metavar="N", help="states (default: what is stated for each row)")
    parser.add_argument("--rows", type=int, nargs="+", metavar="ROW", help="rows of the table, from 1 (default: all)")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the rows into the table of this page")
    parser.add_argument("--rounds", action="store_true", help="explore attempts at a round of two gossip steps instead")
    options = parser.parse_args()
    if options.rounds:
        return attempts(most=options.most or ROUNDS)
    for row in options.rows or range(1, len(SETTINGS) + 1):
        setting = SETTINGS[row - 1]
        try:
            line = setting.row(most=options.most)
        except ViolationError as violated:
            sys.stderr.write(f"{setting}: {violated}\n")
            return 1
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
        if options.write is not None:
            options.write.write_text(refreshed(options.write.read_text(), row, line))
    return 0


def refreshed(page: str, row: int, line: str) -> str:
    """Return a page with another line as one row of its table; all other rows are as they were."""
    before, rest = page.split(MARKS[0])
    table, after = rest.split(MARKS[1])
    lines = [*HEAD, *table.strip().splitlines()[len(HEAD) :]]
    lines += [""] * (len(HEAD) + row - len(lines))
    lines[len(HEAD) + row - 1] = line
    return before + "\n".join([MARKS[0], "", *lines, "", MARKS[1]]) + after


def attempts(*, most: int) -> int:
    """Explore attempts at a round; the exit status is 1 if an invariant does not hold."""
    for ballots in ({}, {NAMES[1]: 1}):
        try:
            found = rounds(ballots=ballots, most=most).run()
        except ViolationError as violated:
            sys.stderr.write(f"{ballots}: {violated}\n")
            return 1
        sys.stdout.write(f"ballots {ballots}: {found.states:,} states, complete: {found.complete}\n")
    return 0


SETTINGS = (
    Setting((0, 0, 0), (1, 1, 1), blocking=False),
    Setting((0, 0, 0), (1, 1, 1), blocking=False, proposed=AGAIN),
    Setting((0, 1, 0), (1, 1, 0)),
    Setting((0, 1, 0), (1, 1, 0), proposed=AGAIN),
    Setting((0, 1, 0), (0, 1, 0), masked=True),
    Setting((0, 1, 1), (0, 0, 0)),
    Setting((0, 1, 1), (0, 0, 0), proposed=AGAIN),
    Setting((0, 0, 0, 0), (0, 0, 0, 0), malicious=NAMES[0], most=200_000),
    Setting((0, 0, 0, 0), (0, 0, 0, 0), malicious=NAMES[0], values=(COUNTS, NONSENSE), most=200_000),
    Setting((0, 0, 0, 0), (0, 0, 0, 0), malicious=NAMES[3]),
    Setting((0, 0, 0, 0), (0, 0, 0, 0), malicious=NAMES[3], proposed=AGAIN),
    Setting((0, 1, 0, 0), (0, 0, 0, 0), malicious=NAMES[0]),
    Setting((0, 1, 0, 0), (0, 0, 0, 0), malicious=NAMES[3]),
)
"""Settings that ``scripts/explore`` explores."""

ROUNDS = 1_000_000
"""States after which ``scripts/explore --rounds`` stops."""

if __name__ == "__main__":
    sys.exit(main())
