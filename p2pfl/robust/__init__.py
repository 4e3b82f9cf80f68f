"""Peers that lie, and what is done about them."""

from p2pfl.robust.attacks import Attack, attacked
from p2pfl.robust.net import robust
from p2pfl.robust.rules import ClippedGossip, Krum, Median, NearestMixed, Rule, SelfCentredClipping, TrimmedMean

__all__ = [
    "Attack",
    "ClippedGossip",
    "Krum",
    "Median",
    "NearestMixed",
    "Rule",
    "SelfCentredClipping",
    "TrimmedMean",
    "attacked",
    "robust",
]
