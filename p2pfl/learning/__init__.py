"""Local training of torch models on a peer's own data."""

from p2pfl.learning.dropout import KeyedDropout
from p2pfl.learning.external import ExternalLearner
from p2pfl.learning.learner import Correction, Fitted, Fitting, Learner, Memory, Report, Sloping
from p2pfl.learning.models import build
from p2pfl.learning.stragglers import straggles
from p2pfl.learning.torch_learner import TorchLearner

__all__ = [
    "Correction",
    "ExternalLearner",
    "Fitted",
    "Fitting",
    "KeyedDropout",
    "Learner",
    "Memory",
    "Report",
    "Sloping",
    "TorchLearner",
    "build",
    "straggles",
]
