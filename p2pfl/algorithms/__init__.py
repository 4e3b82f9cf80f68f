"""One idea, one file: how peers learn from each other."""

from p2pfl.algorithms.algorithm import Algorithm, AsyncLearner, State, change, start
from p2pfl.algorithms.averaging import Averaging
from p2pfl.algorithms.dpsgd import DPSGD
from p2pfl.algorithms.fedavg import FedAvg
from p2pfl.algorithms.gossip import Gossip, maximum
from p2pfl.algorithms.rounds import Stop, learn
from p2pfl.algorithms.statistics import Accord, Statistics, pooled, statistics

__all__ = [
    "DPSGD",
    "Accord",
    "Algorithm",
    "AsyncLearner",
    "Averaging",
    "FedAvg",
    "Gossip",
    "State",
    "Statistics",
    "Stop",
    "change",
    "learn",
    "maximum",
    "pooled",
    "start",
    "statistics",
]
