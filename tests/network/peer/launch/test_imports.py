"""Imports of the process of a peer, which are much of its memory."""

import subprocess
import sys

import pytest

CODE = """
import sys
import p2pfl.cli, p2pfl.network.peer.launch.worker
from p2pfl.data.sources import wine
from p2pfl.experiment import plan, read
from p2pfl.privacy.accounting.leakage import NoiseCover
from p2pfl.topology import flood_steps

experiment = read(
    {"topology": {"kind": "ring", "peers": 3}, "data": {"name": "digits"}, "model": {"name": "linear"}}
)
resolved = plan(experiment, only=["peer0"])
flood_steps(resolved.topology)
cover = NoiseCover.of(resolved.topology, noise=0.0, mask=0.0)
cover.leaks(cover.honest([]))
wine(None)  # a bundled table as well
scipy = {"linalg", "optimize", "sparse.csgraph", "sparse.linalg", "special", "stats"}
large = {"networkx", "pandas", "sklearn", "torch._dynamo"} | {f"scipy.{name}" for name in scipy}
print(sorted(large & set(sys.modules)))
"""


@pytest.mark.slow
def test_a_peer_on_a_ring_imports_no_large_library_that_it_does_not_use():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
