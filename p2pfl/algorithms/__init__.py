"""One idea, one file: how peers learn from each other."""

from p2pfl.algorithms.algorithm import Algorithm, AsyncLearner, State, change, start
from p2pfl.algorithms.averaging import Averaging
from p2pfl.algorithms.dpsgd import DPSGD
from p2pfl.algorithms.fedavg import FedAvg
from p2pfl.algorithms.fednova import FedNova
from p2pfl.algorithms.fedopt import FedAdagrad, FedAdam, FedAvgM, FedOpt, FedYogi
from p2pfl.algorithms.fedprox import FedProx
from p2pfl.algorithms.gossip import Gossip, maximum
from p2pfl.algorithms.rounds import Stop, learn
from p2pfl.algorithms.scaffold import SCAFFOLD

__all__ = [
    "DPSGD",
    "SCAFFOLD",
    "Algorithm",
    "AsyncLearner",
    "Averaging",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedNova",
    "FedOpt",
    "FedProx",
    "FedYogi",
    "Gossip",
    "State",
    "Stop",
    "change",
    "learn",
    "maximum",
    "start",
]
