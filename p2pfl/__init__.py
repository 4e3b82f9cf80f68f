"""Fully decentralised learning: peers gossip masked models over MQTT, no server.

Names are imported when they are first used, so that ``import p2pfl`` costs nothing and
``p2pfl --help`` need not wait for torch.

Examples
--------
>>> import p2pfl
>>> run = p2pfl.simulate({"rounds": 1, "topology": {"kind": "complete", "peers": 2}})
>>> sorted(run.models)
['peer0', 'peer1']
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from p2pfl import data, errors, topology
    from p2pfl.algorithms import DPSGD, FedAvg, Gossip
    from p2pfl.experiment import Experiment, read
    from p2pfl.experiment.resolving import plan
    from p2pfl.learning import ExternalLearner, TorchLearner
    from p2pfl.peer import Peer
    from p2pfl.report import Run
    from p2pfl.simulation import simulate
    from p2pfl.transport import MemoryTransport
    from p2pfl.transport.mqtt import MqttTransport

__version__ = "0.1.0"

__all__ = [
    "DPSGD",
    "Experiment",
    "ExternalLearner",
    "FedAvg",
    "Gossip",
    "MemoryTransport",
    "MqttTransport",
    "Peer",
    "Run",
    "TorchLearner",
    "__version__",
    "data",
    "errors",
    "plan",
    "read",
    "simulate",
    "topology",
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
    from p2pfl.lazily import lazily

    _find = lazily(
        __name__,
        {
            "DPSGD": "algorithms",
            "Experiment": "experiment",
            "ExternalLearner": "learning",
            "FedAvg": "algorithms",
            "Gossip": "algorithms",
            "MemoryTransport": "transport",
            "MqttTransport": "transport.mqtt",
            "Peer": "peer",
            "Run": "report",
            "TorchLearner": "learning",
            "data": "",
            "errors": "",
            "plan": "experiment",
            "read": "experiment",
            "simulate": "simulation",
            "topology": "",
        },
    )

    def __getattr__(name: str) -> object:
        """Import a name where it lives (PEP 562); the next use finds it here."""
        return _find(name)

    def __dir__() -> list[str]:
        """List what is meant to be used, imported or not yet."""
        return __all__
