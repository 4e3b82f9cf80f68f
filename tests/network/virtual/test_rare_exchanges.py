"""Peers that train while models travel, and one that dies meanwhile."""

import math

import pytest

from benchmarks.rare_exchanges import play_live
from p2pfl.experiment import plan, read
from swarms import SMALL


@pytest.mark.slow
@pytest.mark.parametrize("overlap", ["start", "late"])
def test_the_others_learn_on_when_a_peer_is_killed_while_models_travel(overlap):
    changes = ["learning.algorithm=diloco", f"learning.algorithm_options.overlap={overlap}", "rounds=5"]
    resolved = plan(read(SMALL, changes=changes), live=True)
    whole = play_live(resolved, killed=None, at=2)
    less = play_live(resolved, killed="peer5", at=2)
    assert {*less} == {*whole} == {*resolved.topology.peers}
    survivors = [peer for peer in whole if peer != "peer5"]
    assert all(math.isfinite(less[peer]) for peer in survivors)
    assert any(less[peer] != whole[peer] for peer in survivors)
    assert max(less[peer] / whole[peer] for peer in survivors) < 1.2
