"""One idea, one file: how peers learn from each other."""

from p2pfl.algorithms.algorithm import Algorithm, AsyncLearner, State, change, start
from p2pfl.algorithms.averaging import Averaging
from p2pfl.algorithms.choco import Choco
from p2pfl.algorithms.compressed import Compressed
from p2pfl.algorithms.dpsgd import DPSGD
from p2pfl.algorithms.fedavg import FedAvg
from p2pfl.algorithms.gossip import Gossip, maximum
from p2pfl.algorithms.partial import PartialSharing
from p2pfl.algorithms.rounds import Stop, learn

__all__ = [
    "DPSGD",
    "Algorithm",
    "AsyncLearner",
    "Averaging",
    "Choco",
    "Compressed",
    "FedAvg",
    "Gossip",
    "PartialSharing",
    "State",
    "Stop",
    "change",
    "learn",
    "maximum",
    "start",
]
