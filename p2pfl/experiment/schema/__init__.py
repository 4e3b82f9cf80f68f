"""The experiment file: every key, its default and its range."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from p2pfl.experiment.schema.learning import Compression, Data, Evaluation, Learning, Model
from p2pfl.experiment.schema.network import Gossip, Simulation, Telemetry, Topology, Transport, Trust
from p2pfl.experiment.schema.protection import Attack, Privacy, Robustness
from p2pfl.experiment.schema.values import LARGEST, NotNegative, Number, Section

__all__ = [
    "LARGEST",
    "Attack",
    "Compression",
    "Data",
    "Evaluation",
    "Experiment",
    "Gossip",
    "Learning",
    "Model",
    "NotNegative",
    "Privacy",
    "Robustness",
    "Section",
    "Simulation",
    "Telemetry",
    "Topology",
    "Transport",
    "Trust",
]


class Experiment(Section, frozen=True):
    """One experiment; the same for ``run``, ``peer`` and ``simulate``.

    Attributes
    ----------
    name
        Name of the run and of its run directory.
    seed
        Seed of everything that must be reproducible.
    rounds
        Number of rounds.
    """

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,40}$")] = "experiment"
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    rounds: Number = 10
    topology: Topology = Topology()
    data: Data = Data()
    model: Model = Model()
    learning: Learning = Learning()
    evaluation: Evaluation = Evaluation()
    gossip: Gossip = Gossip()
    compression: Compression = Compression()
    privacy: Privacy = Privacy()
    robustness: Robustness = Robustness()
    attack: Attack = Attack()
    trust: Trust = Trust()
    transport: Transport = Transport()
    telemetry: Telemetry = Telemetry()
    simulation: Simulation = Simulation()
