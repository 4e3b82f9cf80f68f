"""Many seeds: what was survived, and what was not."""

from __future__ import annotations

import gc
import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import torch

from worlds.faults import KINDS, history
from worlds.insiders import MEMBERS, insider, two
from worlds.keys import remember_signatures
from worlds.settings import Plans, setting
from worlds.settled import HARMLESS
from worlds.world import Outcome, World

NAMES = {
    "deliveries": "delivered messages",
    "forgeries": "forged messages",
    "lost": "lost messages",
    "overtaken": "reordered messages",
    "twice": "duplicated messages",
}
"""Names in the table of what is counted under a shorter name."""


def outcome(seed: int, *, plans: Plans, kinds: Sequence[str] = KINDS, insiders: bool = False) -> Outcome:
    """What becomes of the world of a seed; the same whenever it is asked for.

    Parameters
    ----------
    seed
        Which.
    plans
        Settings that were resolved before.
    kinds
        Of fault that may happen.
    insiders
        True if one of four members and more is malicious where rounds are settled, or two of seven. With two, all
        messages arrive in time, because six members tolerate one.
    """
    wanted = setting(seed)
    pair = insiders and wanted.settles and two(seed)
    if pair:
        wanted = replace(wanted, changes=(*wanted.changes, f"topology.peers={MEMBERS[2]}"))
        kinds = [each for each in kinds if each in HARMLESS]
    plan = plans.of(wanted, seed=seed)
    patience = plan.experiment.transport.patience
    faults = history(seed, peers=plan.topology.peers, patience=patience, kinds=kinds)
    bad = insiders and wanted.settles and len(plan.topology.peers) >= MEMBERS[1]
    members = [insider(seed, plan.topology.peers)] if bad else []
    if pair:
        members.append(insider(seed, plan.topology.peers, also=members[0].peer))
    if any(each.fault == "sample numbers" for each in members):
        wanted = replace(wanted, changes=(*wanted.changes, "learning.weighted=true"))
        plan = plans.of(wanted, seed=seed)
    return World(seed, wanted, plan, faults, insiders=members).run()


def explored(seeds: Iterable[int], *, insiders: bool = False, plans: Plans | None = None) -> Iterator[Outcome]:
    """The outcomes of many seeds, one by one; with insiders only those of settled rounds."""
    plans = plans or Plans()
    for seed in seeds:
        if not insiders or setting(seed).settles:
            yield outcome(seed, plans=plans, insiders=insiders)


@dataclass
class Tally:
    """What many worlds add up to.

    Attributes
    ----------
    kinds
        Worlds by the kinds of fault they had.
    faults
        How often which happened, over all worlds.
    failures
        Seeds, and what must not have happened in them.
    work
        Seconds of processor time.
    """

    seeds: int = 0
    events: int = 0
    seconds: float = 0.0
    kinds: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    failures: dict[int, str] = field(default_factory=dict)
    work: float = 0.0

    @staticmethod
    def of(found: Outcome) -> Tally:
        """What one world counts."""
        failures = {found.seed: found.failure} if found.failure else {}
        return Tally(1, found.events, found.seconds, Counter(found.kinds), Counter(found.faults), failures)

    def merge(self, other: Tally) -> None:
        """Count what another has counted."""
        self.seeds += other.seeds
        self.events += other.events
        self.seconds += other.seconds
        self.kinds.update(other.kinds)
        self.faults.update(other.faults)
        self.failures |= other.failures
        self.work += other.work

    def table(self) -> str:
        """Markdown: what was explored, and what happened in it; all numbers add up over parts."""
        faults = {NAMES.get(fault, fault): count for fault, count in self.faults.items()}
        rows = [
            ("seeds explored", f"{self.seeds:,}"),
            ("seeds that failed", f"{len(self.failures):,}"),
            ("events (callbacks of the loop)", f"{self.events:,}"),
            ("virtual hours", f"{self.seconds / 3600:,.1f}"),
            ("minutes of processor time", f"{self.work / 60:,.1f}"),
            *((f"worlds with {kind}", f"{self.kinds[kind]:,}") for kind in sorted(self.kinds)),
            *((f"{fault}, in all worlds", f"{faults[fault]:,}") for fault in sorted(faults)),
        ]
        return "\n".join(["| what | how many |", "| --- | ---: |", *(f"| {what} | {many} |" for what, many in rows)])


def searched(seeds: range, logs: Path, *, insiders: bool = False) -> Tally:
    """The sum of many worlds, in a process of its own; the logs of those that failed are written into a folder."""
    tally, plans, begun = Tally(), _prepared(), time.process_time()
    for found in explored(seeds, insiders=insiders, plans=plans):
        tally.merge(Tally.of(found))
        if found.failure:
            logs.mkdir(parents=True, exist_ok=True)
            (logs / f"seed-{found.seed}.log").write_text("\n".join([*found.log, found.failure, ""]), "utf-8")
    tally.work = time.process_time() - begun
    return tally


@dataclass
class Kept:
    """Sums of blocks of seeds in a file, which gains a line with each, so that an exploration can be interrupted.

    Parameters
    ----------
    path
        Its name; ``None`` keeps nothing.
    insiders
        True for worlds with a malicious member, which are counted apart.
    """

    path: Path | None
    insiders: bool = False

    def read(self) -> dict[tuple[int, int], Tally]:
        """Return the sums by the first seed of the block and that after its last; a line that was cut off is none."""
        if self.path is None or not self.path.exists():
            return {}
        found = {}
        for line in self.path.read_text("utf-8").split("\n")[:-1]:
            first, stop, insiders, tally = json.loads(line)
            failures = {int(seed): failure for seed, failure in tally["failures"].items()}
            counts = {"kinds": Counter(tally["kinds"]), "faults": Counter(tally["faults"]), "failures": failures}
            if insiders == self.insiders:
                found[first, stop] = Tally(**tally | counts)
        return found

    def add(self, seeds: range, tally: Tally) -> None:
        """Append the sum of a block."""
        if self.path is None:
            return
        with self.path.open("a+b") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - 1))
            torn = file.read() not in (b"", b"\n")
            if torn:  # the line that was written when the exploration ended
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)
            line = json.dumps([seeds.start, seeds.stop, self.insiders, vars(tally)])
            file.write(line.encode() + b"\n")


ALLOCATIONS = 100_000, 10, 10
"""Thresholds of the garbage collector, which by default takes a sixth of the time."""


@cache
def _prepared() -> Plans:
    """Prepare this process for many worlds; return the plans that they share."""
    torch.set_num_threads(1)
    remember_signatures()
    gc.freeze()
    gc.set_threshold(*ALLOCATIONS)
    return Plans()
