"""Prints what the audit and the tests make of builds that are broken on purpose; docs/notes/protection.md sums it up.

    python -m benchmarks.audit [--tests-only] [--only NUMBER ...]

The audit runs all of its parts against each mutant but the games; the tests are those of the files near it.
"""

import argparse
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "audit")]

from mutants import HEADINGS, MUTANTS, PARTS, Mutant  # noqa: E402 (they lie beside the tests)


@contextmanager
def broken(mutant: Mutant) -> Iterator[None]:
    """Break the build for a while."""
    with pytest.MonkeyPatch.context() as patch:
        mutant.build(patch)
        yield


def audited(mutant: Mutant) -> str:
    """Return which claim the audit reports as broken, that of its own part first; ``no`` for none."""
    order = sorted(PARTS, key=lambda part: part != mutant.part)  # if its own part notices it, no other one has to run
    for part in order:
        with broken(mutant):
            found = [claim.name for claim in PARTS[part]() if claim.broken]
        if found:
            return f"caught: {next((name for name in found if mutant.said and name.startswith(mutant.said)), found[0])}"
    return "**no**"


def tested(mutant: Mutant) -> str:
    """Return the file of the first test that fails against a mutant; ``no`` for none."""
    files = [str(ROOT / file) for file in mutant.tests]
    first = _First()
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), broken(mutant):
        status = pytest.main(["-q", "-x", "--no-header", "--rootdir", str(ROOT), *files], plugins=[first])
    if status not in {0, 1}:
        raise SystemExit(f"pytest ended with status {status} for {mutant.name}")
    return f"caught ({first.failed})" if first.failed else "**no**"


def forked(work: Callable[[Mutant], str], mutant: Mutant) -> str:
    """Return the result of a function in a fork of this process, which has imported torch once and has no threads."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_send, args=(work, mutant, sender))
    child.start()
    sender.close()  # so that a child that ends early is noticed
    try:
        found: str = receiver.recv()
    except EOFError:
        raise SystemExit(f"no result of {work.__name__} against {mutant.name}") from None
    child.join()
    return found


def _send(work: Callable[[Mutant], str], mutant: Mutant, sender: Connection) -> None:
    sender.send(work(mutant))


class _First:
    """A pytest plugin that keeps the file of the first test that fails."""

    failed = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed = Path(report.location[0]).stem


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests-only", action="store_true", help="leave out the audit")
    every = range(len(MUTANTS))
    about = f"which lines of the table to make, from 0 to {every[-1]}; all by default"
    parser.add_argument("--only", type=int, nargs="*", default=every, choices=every, metavar="NUMBER", help=about)
    options = parser.parse_args()
    print("| mutant | audit | tests |\n| --- | --- | --- |", flush=True)
    for number in options.only:
        mutant = MUTANTS[number]
        if number in HEADINGS:
            print(f"| *{HEADINGS[number]}:* | | |")
        noticed = "" if options.tests_only else forked(audited, mutant)
        print(f"| {mutant.name} | {noticed} | {forked(tested, mutant)} |", flush=True)


if __name__ == "__main__":
    main()
