"""Algorithms, one per file: how peers learn from each other."""

from p2pfl.algorithms.algorithm import (
    Algorithm,
    AsyncLearner,
    Idle,
    Local,
    ReadingAlgorithm,
    State,
    change,
    start,
    train_while,
)
from p2pfl.algorithms.averaging import Averaging, average_of, count_extra, count_shared, share_all
from p2pfl.algorithms.choco import Choco
from p2pfl.algorithms.compressed_gossip import Compressed
from p2pfl.algorithms.diffusion import D2, ExactDiffusion
from p2pfl.algorithms.diloco import DiLoCo
from p2pfl.algorithms.ditto import Ditto
from p2pfl.algorithms.dpsgd import DPSGD
from p2pfl.algorithms.exact import Exact
from p2pfl.algorithms.fedavg import FedAvg, FedSGD
from p2pfl.algorithms.fednova import FedNova
from p2pfl.algorithms.fedopt import FedAdagrad, FedAdam, FedAvgM, FedOpt, FedYogi
from p2pfl.algorithms.fedper import FedBN, FedPer
from p2pfl.algorithms.fedprox import FedProx
from p2pfl.algorithms.fedrep import FedRep
from p2pfl.algorithms.fine_tuning import FineTuning
from p2pfl.algorithms.gossip import UNSET, Gossip, maximum
from p2pfl.algorithms.gossip_learning import GossipLearning
from p2pfl.algorithms.ifca import IFCA
from p2pfl.algorithms.message_slots import slots, width
from p2pfl.algorithms.multitask import MultiTask
from p2pfl.algorithms.partial_sharing import PartialSharing
from p2pfl.algorithms.per_fedavg import PerFedAvg
from p2pfl.algorithms.pfedme import PFedMe
from p2pfl.algorithms.power_gossip import PowerGossip
from p2pfl.algorithms.propagation import Propagation
from p2pfl.algorithms.push import SGP
from p2pfl.algorithms.quasi_global import QGDSGDm
from p2pfl.algorithms.relay import RelaySGD
from p2pfl.algorithms.round_loop import StopCondition, learn
from p2pfl.algorithms.scaffold import SCAFFOLD
from p2pfl.algorithms.statistics import Statistics, score_pooled, statistics
from p2pfl.algorithms.tracking import GradientTracking
from p2pfl.algorithms.trait_checks import CheckedAlgorithm

__all__ = [
    "D2",
    "DPSGD",
    "IFCA",
    "SCAFFOLD",
    "SGP",
    "UNSET",
    "Algorithm",
    "AsyncLearner",
    "Averaging",
    "CheckedAlgorithm",
    "Choco",
    "Compressed",
    "DiLoCo",
    "Ditto",
    "Exact",
    "ExactDiffusion",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedBN",
    "FedNova",
    "FedOpt",
    "FedPer",
    "FedProx",
    "FedRep",
    "FedSGD",
    "FedYogi",
    "FineTuning",
    "Gossip",
    "GossipLearning",
    "GradientTracking",
    "Idle",
    "Local",
    "MultiTask",
    "PFedMe",
    "PartialSharing",
    "PerFedAvg",
    "PowerGossip",
    "Propagation",
    "QGDSGDm",
    "ReadingAlgorithm",
    "RelaySGD",
    "State",
    "Statistics",
    "StopCondition",
    "average_of",
    "change",
    "count_extra",
    "count_shared",
    "learn",
    "maximum",
    "score_pooled",
    "share_all",
    "slots",
    "start",
    "statistics",
    "train_while",
    "width",
]
