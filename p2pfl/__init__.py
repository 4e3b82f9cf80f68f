"""Fully decentralised learning: peers gossip masked models over MQTT, no server.

Names are imported when they are first used, so that ``import p2pfl`` costs nothing and
``p2pfl --help`` need not wait for torch.

Examples
--------
>>> import p2pfl
>>> run = p2pfl.simulate({"rounds": 1, "topology": {"kind": "complete", "peers": 2}})
>>> sorted(run.models)
['peer0', 'peer1']

The parts of a run are classes: algorithms, codecs, privacy modes, robust rules, learners and topologies.

>>> import torch
>>> data = {peer: (torch.eye(4), torch.tensor([0, 1, 0, 1])) for peer in p2pfl.topology.ring(4).peers}
>>> learner = p2pfl.TorchLearner(torch.nn.Linear(4, 2), data, rate=0.5)
>>> run = p2pfl.simulate(p2pfl.FedAvg(epochs=2), learner, p2pfl.topology.ring(4), rounds=2, codec=p2pfl.Quantise())
>>> len(run.models)
4
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from p2pfl import data, topology
    from p2pfl.algorithms import (
        D2,
        DPSGD,
        IFCA,
        SCAFFOLD,
        SGP,
        Algorithm,
        Averaging,
        Choco,
        Ditto,
        ExactDiffusion,
        FedAdagrad,
        FedAdam,
        FedAvg,
        FedAvgM,
        FedBN,
        FedNova,
        FedPer,
        FedProx,
        FedRep,
        FedSGD,
        FedYogi,
        FineTuning,
        Gossip,
        GossipLearning,
        GradientTracking,
        MultiTask,
        PartialSharing,
        PerFedAvg,
        PFedMe,
        PowerGossip,
        Propagation,
        QGDSGDm,
        RelaySGD,
        State,
    )
    from p2pfl.algorithms.robust import (
        Attack,
        ClippedGossip,
        Krum,
        Median,
        NearestMixed,
        SelfCentredClipping,
        TrimmedMean,
    )
    from p2pfl.core import errors
    from p2pfl.core.codecs import QSGD, Half, Quantise, RandomK, TopK
    from p2pfl.core.traits import CodecTraits, LearnerTraits, ModeTraits, RuleTraits, Traits
    from p2pfl.data import Table
    from p2pfl.experiment import Experiment, Plan, read
    from p2pfl.experiment.composing import compose
    from p2pfl.experiment.modes import Independent, NoPrivacy, Pairwise, SecAgg
    from p2pfl.experiment.resolving import plan
    from p2pfl.learning import ExternalLearner, Learner, TorchLearner
    from p2pfl.network import transport
    from p2pfl.network.peer import Peer
    from p2pfl.network.peer.launch.in_loop import live
    from p2pfl.network.transport import MemoryTransport
    from p2pfl.network.transport.mqtt import MqttTransport
    from p2pfl.results import Run
    from p2pfl.results.comparing.finished import Sweep, compare
    from p2pfl.results.models import Predictor
    from p2pfl.simulation import simulate

__version__ = "0.2.0"

__all__ = [
    "D2",
    "DPSGD",
    "IFCA",
    "QSGD",
    "SCAFFOLD",
    "SGP",
    "Algorithm",
    "Attack",
    "Averaging",
    "Choco",
    "ClippedGossip",
    "CodecTraits",
    "Ditto",
    "ExactDiffusion",
    "Experiment",
    "ExternalLearner",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedBN",
    "FedNova",
    "FedPer",
    "FedProx",
    "FedRep",
    "FedSGD",
    "FedYogi",
    "FineTuning",
    "Gossip",
    "GossipLearning",
    "GradientTracking",
    "Half",
    "Independent",
    "Krum",
    "Learner",
    "LearnerTraits",
    "Median",
    "MemoryTransport",
    "ModeTraits",
    "MqttTransport",
    "MultiTask",
    "NearestMixed",
    "NoPrivacy",
    "PFedMe",
    "Pairwise",
    "PartialSharing",
    "Peer",
    "PerFedAvg",
    "Plan",
    "PowerGossip",
    "Predictor",
    "Propagation",
    "QGDSGDm",
    "Quantise",
    "RandomK",
    "RelaySGD",
    "RuleTraits",
    "Run",
    "SecAgg",
    "SelfCentredClipping",
    "State",
    "Sweep",
    "Table",
    "TopK",
    "TorchLearner",
    "Traits",
    "TrimmedMean",
    "__version__",
    "compare",
    "compose",
    "data",
    "errors",
    "live",
    "plan",
    "read",
    "simulate",
    "topology",
    "transport",
]


def _refuse_namesake() -> None:
    """Raise ``ImportError`` if the unrelated distribution ``p2pfl`` is installed, whose files would mix with these."""
    for folder in sys.path:
        for found in Path(folder).glob("p2pfl-*.*-info"):  # ours is p2pfl_mqtt-*
            version = found.name.removeprefix("p2pfl-").rpartition(".")[0]
            raise ImportError(
                f"the unrelated distribution p2pfl {version} is installed in {found.parent} and provides a package of "
                f"the same name; run `pip uninstall p2pfl`, then reinstall p2pfl-mqtt"
            )


_refuse_namesake()

if not TYPE_CHECKING:  # mypy would take any name from a module with __getattr__
    from p2pfl.core.lazily import lazily

    _find = lazily(
        __name__,
        {
            "Algorithm": "algorithms",
            "Attack": "algorithms.robust",
            "Averaging": "algorithms",
            "Choco": "algorithms",
            "ClippedGossip": "algorithms.robust",
            "CodecTraits": "core.traits",
            "D2": "algorithms",
            "DPSGD": "algorithms",
            "Ditto": "algorithms",
            "ExactDiffusion": "algorithms",
            "Experiment": "experiment",
            "ExternalLearner": "learning",
            "FedAdagrad": "algorithms",
            "FedAdam": "algorithms",
            "FedAvg": "algorithms",
            "FedAvgM": "algorithms",
            "FedBN": "algorithms",
            "FedNova": "algorithms",
            "FedPer": "algorithms",
            "FedProx": "algorithms",
            "FedRep": "algorithms",
            "FedSGD": "algorithms",
            "FedYogi": "algorithms",
            "FineTuning": "algorithms",
            "Gossip": "algorithms",
            "GossipLearning": "algorithms",
            "GradientTracking": "algorithms",
            "Half": "core.codecs",
            "IFCA": "algorithms",
            "Independent": "experiment.modes",
            "Krum": "algorithms.robust",
            "Learner": "learning",
            "LearnerTraits": "core.traits",
            "Median": "algorithms.robust",
            "MemoryTransport": "network.transport",
            "ModeTraits": "core.traits",
            "MqttTransport": "network.transport.mqtt",
            "MultiTask": "algorithms",
            "NearestMixed": "algorithms.robust",
            "NoPrivacy": "experiment.modes",
            "PFedMe": "algorithms",
            "Pairwise": "experiment.modes",
            "PartialSharing": "algorithms",
            "Peer": "network.peer",
            "PerFedAvg": "algorithms",
            "Plan": "experiment",
            "PowerGossip": "algorithms",
            "Predictor": "results.models",
            "Propagation": "algorithms",
            "QGDSGDm": "algorithms",
            "QSGD": "core.codecs",
            "Quantise": "core.codecs",
            "RandomK": "core.codecs",
            "RelaySGD": "algorithms",
            "RuleTraits": "core.traits",
            "Run": "results",
            "SCAFFOLD": "algorithms",
            "SGP": "algorithms",
            "SecAgg": "experiment.modes",
            "SelfCentredClipping": "algorithms.robust",
            "State": "algorithms",
            "Sweep": "results.comparing.finished",
            "Table": "data",
            "TopK": "core.codecs",
            "TorchLearner": "learning",
            "Traits": "core.traits",
            "TrimmedMean": "algorithms.robust",
            "compare": "results.comparing.finished",
            "compose": "experiment.composing",
            "data": "",
            "errors": "core",
            "live": "network.peer.launch.in_loop",
            "plan": "experiment",
            "read": "experiment",
            "simulate": "simulation",
            "topology": "",
            "transport": "network",
        },
    )

    def __getattr__(name: str) -> object:
        """Import a name where it lives (PEP 562); the next use finds it here."""
        return _find(name)

    def __dir__() -> list[str]:
        """List what is meant to be used, imported or not yet."""
        return __all__
