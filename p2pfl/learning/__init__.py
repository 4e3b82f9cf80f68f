"""Local training of torch models on a peer's own data."""

from p2pfl.learning.additive import Additive, Question, Step, additive
from p2pfl.learning.dropout import KeyedDropout
from p2pfl.learning.exact_learner import ExactLearner
from p2pfl.learning.exact_model import ExactModel, Outcome, Own, Part
from p2pfl.learning.learner import (
    Adjustable,
    Correction,
    ExternalLearner,
    Federated,
    Fitted,
    Fitting,
    Learner,
    Memory,
    Pools,
    Report,
    Sloping,
    learner_traits,
)
from p2pfl.learning.models import build
from p2pfl.learning.steps.training import straggles
from p2pfl.learning.torch_learner import TorchLearner, home

__all__ = [
    "Additive",
    "Adjustable",
    "Correction",
    "ExactLearner",
    "ExactModel",
    "ExternalLearner",
    "Federated",
    "Fitted",
    "Fitting",
    "KeyedDropout",
    "Learner",
    "Memory",
    "Outcome",
    "Own",
    "Part",
    "Pools",
    "Question",
    "Report",
    "Sloping",
    "Step",
    "TorchLearner",
    "additive",
    "build",
    "home",
    "learner_traits",
    "straggles",
]
