"""``scripts/worlds --seeds 0:10000``: look for a history that the peers do not survive."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from itertools import product
from pathlib import Path

from worlds.explore import Kept, Tally, outcome, searched
from worlds.random_ballots import SIZES, Chaos
from worlds.settings import Plans

BLOCK = 10
"""Seeds that a worker takes at a time."""

MARKS = ("<!-- explored -->", "<!-- /explored -->")
"""Between which a page has its table."""


def main() -> int:
    """Explore, or replay one seed; the exit status is 1 if anything failed."""
    options = _options()
    if options.seed is not None:
        return _replay(options.seed, log=options.log, insiders=options.insiders)
    if options.ballots:
        return _vote(options.seeds)
    tally, table = Tally(), ""
    play = partial(searched, logs=Path(options.logs), insiders=options.insiders)
    kept = Kept(options.keep, insiders=options.insiders)
    for found in _results(options.seeds, play, workers=options.workers, kept=kept):
        for seed, failure in found.failures.items():
            _say(f"seed {seed}: {failure} (scripts/worlds --seed {seed} --log)")
        tally.merge(found)
        table = tally.table()
        if options.write:  # whatever ends it later
            _write(options.write, table)
    sys.stdout.write(table + "\n")
    return 1 if tally.failures else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/worlds", description="Real peers in a simulated world.")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--seeds", type=_span, default=range(100), metavar="FROM:TO", help="default: 0:100")
    parser.add_argument("--ballots", action="store_true", help="agreements with false proofs instead of worlds")
    parser.add_argument("--insiders", action="store_true", help="settled rounds alone, with a malicious member")
    parser.add_argument("--workers", type=_count, default=1, metavar="N", help="processes (default: %(default)s)")
    what.add_argument("--seed", type=_seed, metavar="N", help="replay this one")
    parser.add_argument("--log", action="store_true", help="print all that happens in it")
    parser.add_argument("--logs", default="runs/world", metavar="DIR", help="for failures (default: %(default)s)")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="of sums, to go on from after an interruption")
    parser.add_argument("--write", type=_page, metavar="FILE", help="put the table into this page")
    return parser.parse_args()


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 0, got {text}")
    return int(text)


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text}")
    return int(text)


def _page(text: str) -> Path:
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"expected a page that there is, got {text}")
    return Path(text)


def _span(text: str) -> range:
    first, colon, last = text.partition(":")
    if not colon or not first.isdecimal() or not last.isdecimal() or int(first) >= int(last):
        raise argparse.ArgumentTypeError(f"expected FROM:TO such as 0:10000, got {text}")
    return range(int(first), int(last))


def _replay(seed: int, *, log: bool, insiders: bool) -> int:
    found = outcome(seed, plans=Plans(), insiders=insiders)
    if log:
        sys.stdout.write("".join(f"{line}\n" for line in found.log))
    _say(f"{' '.join(found.setting.changes)}; {', '.join(sorted(found.kinds)) or 'nothing goes wrong'}")
    _say(f"{found.events} events in {found.seconds:.3f} virtual seconds, log {found.digest}")
    _say(found.failure or "all is well")
    return 1 if found.failure else 0


def _vote(seeds: range) -> int:
    """Play histories of one agreement in committees of each size; no two members may decide differently."""
    failed = 0
    for seed, (seats, faulty) in product(seeds, SIZES):
        if len(Chaos(seats, faulty, seed).run()) > 1:
            failed += 1
            _say(f"seed {seed}: {seats} members, {faulty} of them malicious, decided differently")
    _say(f"{len(seeds) * len(SIZES):,} histories, of which {failed} failed")
    return 1 if failed else 0


def _results(seeds: range, play: Callable[[range], Tally], *, workers: int, kept: Kept) -> Iterator[Tally]:
    blocks = [seeds[start : start + BLOCK] for start in range(0, len(seeds), BLOCK)]
    known = kept.read()
    yield from (known[block.start, block.stop] for block in blocks if (block.start, block.stop) in known)
    for block, found in _played([each for each in blocks if (each.start, each.stop) not in known], play, workers):
        kept.add(block, found)
        yield found


def _played(blocks: list[range], play: Callable[[range], Tally], workers: int) -> Iterator[tuple[range, Tally]]:
    if workers == 1:
        yield from ((block, play(block)) for block in blocks)
        return
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        pending = {pool.submit(play, block): block for block in blocks}
        for done in as_completed(pending):
            yield pending[done], done.result()


def _write(page: Path, table: str) -> None:
    text = page.read_text("utf-8")
    before, _, rest = text.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    page.write_text(f"{before}{MARKS[0]}\n{table}\n{MARKS[1]}{after}", "utf-8")


def _say(sentence: str) -> None:
    sys.stderr.write(f"{sentence}\n")


if __name__ == "__main__":
    sys.exit(main())
