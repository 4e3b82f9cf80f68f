"""Byzantine peers: attacks on learning, and aggregation rules that tolerate them."""

from p2pfl.algorithms.robust.attacks import Attack, add_attack
from p2pfl.algorithms.robust.net import robust
from p2pfl.algorithms.robust.rules import (
    ClippedGossip,
    Krum,
    Median,
    NearestMixed,
    Rule,
    SelfCentredClipping,
    TrimmedMean,
)

__all__ = [
    "Attack",
    "ClippedGossip",
    "Krum",
    "Median",
    "NearestMixed",
    "Rule",
    "SelfCentredClipping",
    "TrimmedMean",
    "add_attack",
    "robust",
]
