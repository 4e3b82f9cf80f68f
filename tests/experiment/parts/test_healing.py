"""``topology.heal``: what it resolves to, and what it does not go with."""

import re

import pytest
import torch

from p2pfl import topology as graphs
from p2pfl.core.errors import ExperimentError
from p2pfl.experiment import plan, read
from p2pfl.experiment.rules.rule import Composition
from p2pfl.experiment.rules.table import check
from p2pfl.experiment.schema import Experiment, TopologySettings
from p2pfl.simulation import simulate

SMALL = {
    "rounds": 2,
    "topology": {"kind": "ring", "peers": 6, "heal": True},
    "data": {"name": "wine"},
    "model": {"name": "linear"},
    "learning": {"device": "cpu", "dtype": "float64"},
}


def resolved(*changes):
    return plan(read(SMALL, changes=changes))


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("kind", ["ring", "circulant", "exponential", "one_peer_exponential"])
def test_with_nobody_missing_it_is_the_experiment_that_does_not_heal_bit_for_bit(kind):
    healing, usual = (resolved(f"topology.kind={kind}", f"topology.heal={heal}") for heal in ("true", "false"))
    assert healing.topology == usual.topology
    for one, other in zip(healing.weights, usual.weights, strict=True):
        assert (one.matrix.toarray() == other.matrix.toarray()).all()
    rows = [simulate(each.experiment, baselines=False).models["peer0"] for each in (healing, usual)]
    assert all(torch.equal(rows[0][key], rows[1][key]) for key in rows[0])


def test_a_random_regular_graph_that_heals_is_another_than_one_that_does_not():
    healing, usual = (resolved("topology.kind=random_regular", f"topology.heal={heal}") for heal in ("true", "false"))
    assert healing.topology != usual.topology
    assert healing.topology == graphs.healing("random_regular", peers=6, seed=0).whole


def test_peers_must_agree_on_whether_it_heals():
    healing, usual = (resolved(f"topology.heal={heal}").facts for heal in ("true", "false"))
    assert healing == usual | {"topology.heal": "True"}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            ["topology.kind=star"],
            'a topology of kind "star" cannot heal, as it is no union of cyclic orders; use one of ring',
        ),
        (
            ["topology.kind=tree"],
            'a topology of kind "tree" cannot heal, as it is no union of cyclic orders; use one of ring',
        ),
        (["topology.kind=complete"], "does not work with complete graphs, where the remaining peers are neighbours"),
        (
            ["topology.kind=random_regular", "topology.degree=3"],
            "a random regular graph that heals is a sum of cycles and needs an even degree, but it is 3",
        ),
        (["privacy.mode=secagg"], 'does not work with privacy.mode = "secagg", where all senders must know the other'),
        (["gossip.weights=push"], 'does not work with gossip.weights = "push", because an edge that heals has the'),
        (["learning.algorithm=robust_sgp"], "does not work with robust_sgp, which keeps running totals of each"),
        (["learning.algorithm=choco"], "does not work with choco, which keeps sums of its neighbours' copies"),
        (["compression.name=top_k"], 'with compression.name = "top_k", which sends differences from what neighbours'),
    ],
)
def test_what_cannot_heal_is_refused_with_the_reason(changes, why):
    with pytest.raises(ExperimentError, match=f"^topology.heal.*{re.escape(why)}"):
        resolved(*changes)


def test_a_graph_of_a_file_stays_as_it_is():
    with pytest.raises(
        ExperimentError, match=r"^topology.heal = true does not work with topology.file, which does not"
    ):
        check(Composition.of(Experiment(topology=TopologySettings(file="ours.json", heal=True))))
