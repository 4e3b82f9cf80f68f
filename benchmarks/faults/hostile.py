"""How many hostile messages were tried: by the tests, and by a fuzzer that coverage guides."""

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.faults.page import Shown

ROOT = Path(__file__).parent.parent.parent

TESTS = (
    "tests/network/protocol/wire",
    "tests/network/peer/attacks/test_security.py",
    "tests/network/peer/attacks/test_equivocation.py",
    "tests/network/peer/attacks/test_insider.py",
    "tests/network/protocol/incoming/test_rate_limit.py",
)


def hostile(options: argparse.Namespace, folder: Path) -> Shown:
    """The tests of what no honest peer sends; how many messages they drew."""
    del folder
    began = time.perf_counter()
    done = _run("-m", "pytest", "-q", "--hypothesis-show-statistics", *TESTS)
    if done.returncode:
        raise SystemExit(done.stdout)
    passed = int(re.findall(r"(\d+) passed", done.stdout)[-1])
    tried = [
        tuple(map(int, each)) for each in re.findall(r"(\d+) passing, \d+ failing, and (\d+) invalid", done.stdout)
    ]
    return Shown(
        options.command,
        "messages with changed fields and bytes, forged, replayed, reordered and equivocating messages, floods",
        f"{time.perf_counter() - began:.0f} s",
        f"{passed} tests passed, with {sum(map(sum, tried)):,} cases drawn by Hypothesis",
    )


def fuzz(options: argparse.Namespace, folder: Path) -> Shown:
    """Bytes that coverage guides (atheris), into all that reads what others send."""
    inputs, covered, crashes = fuzzed(options.seconds, folder)
    return Shown(
        options.command,
        "coverage-guided bytes (atheris) for all readers of `tests/support/fuzz.py`: as from strangers, and signed and "
        "sealed as by a malicious neighbour, up to the decision about them",
        f"{options.seconds} s",
        f"{inputs:,} inputs reached {covered:,} edges: {crashes} crashes",
    )


def fuzzed(seconds: int, folder: Path) -> tuple[int, int, int]:
    """Run the fuzzer; its inputs, the edges that they reached, and how often it crashed."""
    corpus = folder / "corpus"
    corpus.mkdir(parents=True)
    places = [f"-max_total_time={seconds}", "-print_final_stats=1", f"-artifact_prefix={folder}/", str(corpus)]
    done = _run("tests/support/fuzz.py", *places)
    units = re.findall(r"stat::number_of_executed_units: (\d+)", done.stderr)
    covered = re.findall(r"cov: (\d+)", done.stderr)
    if not units or not covered:
        raise SystemExit(done.stderr[-2000:])
    return int(units[-1]), int(covered[-1]), len([*folder.glob("crash-*"), *folder.glob("timeout-*")])


def _run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(  # noqa: S603 - our own command line
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
