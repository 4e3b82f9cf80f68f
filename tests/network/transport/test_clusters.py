"""Peers over clusters of brokers, one node of which is killed."""

import os
import shutil

import pytest

from benchmarks.brokers import KINDS, SBIN, row


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
def test_peers_end_with_one_model_although_a_node_of_their_brokers_is_killed(kind, tmp_path):
    if shutil.which(KINDS[kind][1], path=os.environ["PATH"] + SBIN) is None:
        pytest.skip(f"{KINDS[kind][1]} is not installed")
    *_, scores, _ = row(kind, tmp_path).split("|")
    least, most = map(float, scores.split(" to "))
    assert least > 0.85
    assert most - least < 0.02
