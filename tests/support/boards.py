"""Programs for boards, built by the compiler of this machine."""

import shutil
import subprocess
from pathlib import Path

import pytest

MICRO = Path(__file__).parents[2] / "micro"
"""Folder of the peer for boards."""


def build(folder, target, *arguments):
    """Build a program of the Makefile into a folder; skip where that is impossible."""
    for tool in ("cc", "make"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    command = ["make", "-s", "-C", str(MICRO), f"BUILD={folder}", *arguments, target]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "needs libsodium" in done.stderr:
        pytest.skip(done.stderr.splitlines()[0])
    assert done.returncode == 0, done.stderr
    return Path(folder) / target


def section_sizes(path, *, tool="size"):
    """Return the bytes of code and constants, of data, and of zeroed memory."""
    text = subprocess.run([tool, path], capture_output=True, text=True, check=True).stdout
    return [int(number) for number in text.splitlines()[1].split()[:3]]
