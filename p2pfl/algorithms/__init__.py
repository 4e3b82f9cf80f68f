"""One idea, one file: how peers learn from each other."""

from p2pfl.algorithms.algorithm import Algorithm, AsyncLearner, State, change, start
from p2pfl.algorithms.averaging import Averaging
from p2pfl.algorithms.ditto import Ditto
from p2pfl.algorithms.dpsgd import DPSGD
from p2pfl.algorithms.fedavg import FedAvg
from p2pfl.algorithms.fedper import FedPer
from p2pfl.algorithms.fedrep import FedRep
from p2pfl.algorithms.fine_tuning import FineTuning
from p2pfl.algorithms.gossip import Gossip, maximum
from p2pfl.algorithms.ifca import IFCA
from p2pfl.algorithms.multitask import MultiTask
from p2pfl.algorithms.per_fedavg import PerFedAvg
from p2pfl.algorithms.pfedme import PFedMe
from p2pfl.algorithms.propagation import Propagation
from p2pfl.algorithms.rounds import Stop, learn

__all__ = [
    "DPSGD",
    "IFCA",
    "Algorithm",
    "AsyncLearner",
    "Averaging",
    "Ditto",
    "FedAvg",
    "FedPer",
    "FedRep",
    "FineTuning",
    "Gossip",
    "MultiTask",
    "PFedMe",
    "PerFedAvg",
    "Propagation",
    "State",
    "Stop",
    "change",
    "learn",
    "maximum",
    "start",
]
