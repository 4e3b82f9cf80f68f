"""What a peer does alone: train rows of torch models."""

from p2pfl.learning.dropout import KeyedDropout
from p2pfl.learning.external import ExternalLearner
from p2pfl.learning.learner import Correction, Fitted, Learner, Memory, Report
from p2pfl.learning.models import build
from p2pfl.learning.stragglers import straggles
from p2pfl.learning.torch_learner import TorchLearner

__all__ = [
    "Correction",
    "ExternalLearner",
    "Fitted",
    "KeyedDropout",
    "Learner",
    "Memory",
    "Report",
    "TorchLearner",
    "build",
    "straggles",
]
