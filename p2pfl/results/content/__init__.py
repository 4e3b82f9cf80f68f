"""Content of ``summary.json``; docs/schema.json is made of these classes."""

from p2pfl.core.explanations import Explained
from p2pfl.results.content.peers import BestKept, GainInterval, PeerResult, Unsettled
from p2pfl.results.content.summaries import PeerSummary, Summary
from p2pfl.results.content.swarms import Evaluated, FeatureStatistics, WorkerResult

__all__ = [
    "BestKept",
    "Evaluated",
    "Explained",
    "FeatureStatistics",
    "GainInterval",
    "PeerResult",
    "PeerSummary",
    "Summary",
    "Unsettled",
    "WorkerResult",
]
