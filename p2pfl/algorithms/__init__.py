"""One idea, one file: how peers learn from each other."""

from p2pfl.algorithms.algorithm import Algorithm, AsyncLearner, State, change, start
from p2pfl.algorithms.averaging import Averaging
from p2pfl.algorithms.diffusion import D2, ExactDiffusion
from p2pfl.algorithms.dpsgd import DPSGD
from p2pfl.algorithms.fedavg import FedAvg
from p2pfl.algorithms.gossip import Gossip, maximum
from p2pfl.algorithms.push import SGP
from p2pfl.algorithms.quasi_global import QGDSGDm
from p2pfl.algorithms.relay import RelaySGD
from p2pfl.algorithms.rounds import Stop, learn
from p2pfl.algorithms.running_sums import RobustSGP
from p2pfl.algorithms.tracking import GradientTracking

__all__ = [
    "D2",
    "DPSGD",
    "SGP",
    "Algorithm",
    "AsyncLearner",
    "Averaging",
    "ExactDiffusion",
    "FedAvg",
    "Gossip",
    "GradientTracking",
    "QGDSGDm",
    "RelaySGD",
    "RobustSGP",
    "State",
    "Stop",
    "change",
    "learn",
    "maximum",
    "start",
]
