"""Imports of the process of a peer, which are much of its memory."""

import subprocess
import sys

import pytest

CODE = """
import sys
import p2pfl.cli, p2pfl.network.peer.launch.worker
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
sparse = {"scipy.sparse.csgraph", "scipy.sparse.linalg"}
large = {"networkx", "scipy.linalg", "scipy.optimize", "scipy.special", "sklearn"} | sparse
print(sorted(large & set(sys.modules)))
"""


@pytest.mark.slow
def test_a_peer_on_a_ring_imports_no_large_library_that_it_does_not_use():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
