"""The address of the page appears at once: before the graph is made, and without the libraries of numbers."""

import json
import subprocess
import sys

import pytest

from growing import Growing

HEAVY = ("torch", "numpy", "scipy", "networkx", "sklearn", "pandas", "matplotlib")
"""Libraries that take longer to import than all that the page needs."""

CODE = f"""
import builtins, json, sys
from p2pfl.cli import main

def told(text, **more):
    if not text.startswith("open http"):
        return said(text, **more)
    said(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))
    raise SystemExit(0)

said, builtins.print = print, told
main(["watch", *sys.argv[1:]])
"""
"""Run the command until it prints its address; print which libraries it holds then."""


def held(*arguments):
    """Return the libraries that the command holds when it prints its address."""
    said = subprocess.run(
        [sys.executable, "-c", CODE, *map(str, arguments)], check=True, capture_output=True, text=True
    )
    assert said.stderr == ""
    return json.loads(said.stdout)


@pytest.mark.slow
def test_the_page_of_a_run_has_its_address_before_the_graph_is_made(place):
    growing = Growing(place / "run")
    (growing.folder / "experiment.toml").write_text('name = "plant"\n[topology]\nkind = "missing.graphml"\n')
    assert held(growing.folder) == []
