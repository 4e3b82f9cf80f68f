"""The experiment file: every key, its default and its range."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from p2pfl.experiment.schema.learning_sections import (
    CompressionSettings,
    DataSettings,
    EvaluationSettings,
    LearnerSettings,
    LearningSettings,
    ModelSettings,
    ScheduleSettings,
    StragglerSettings,
)
from p2pfl.experiment.schema.network_sections import (
    GossipSettings,
    SimulationSettings,
    SlowSettings,
    TelemetrySettings,
    TopologySettings,
    TransportSettings,
    TrustSettings,
)
from p2pfl.experiment.schema.protection_sections import AttackSettings, PrivacySettings, RobustnessSettings
from p2pfl.experiment.schema.values import LARGEST, NotNegative, Number, Section

__all__ = [
    "LARGEST",
    "AttackSettings",
    "CompressionSettings",
    "DataSettings",
    "EvaluationSettings",
    "Experiment",
    "GossipSettings",
    "LearnerSettings",
    "LearningSettings",
    "ModelSettings",
    "NotNegative",
    "PrivacySettings",
    "RobustnessSettings",
    "ScheduleSettings",
    "Section",
    "SimulationSettings",
    "SlowSettings",
    "StragglerSettings",
    "TelemetrySettings",
    "TopologySettings",
    "TransportSettings",
    "TrustSettings",
]


class Experiment(Section, frozen=True):
    """One experiment; the same for ``run``, ``peer`` and ``simulate``.

    Attributes
    ----------
    name
        Name of the run and its directory.
    seed
        Of everything reproducible.
    rounds
        How many.
    """

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,40}\Z")] = "experiment"
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    rounds: Number = 10
    topology: TopologySettings = TopologySettings()
    data: DataSettings = DataSettings()
    model: ModelSettings = ModelSettings()
    learning: LearningSettings = LearningSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    gossip: GossipSettings = GossipSettings()
    compression: CompressionSettings = CompressionSettings()
    privacy: PrivacySettings = PrivacySettings()
    robustness: RobustnessSettings = RobustnessSettings()
    attack: AttackSettings = AttackSettings()
    trust: TrustSettings = TrustSettings()
    transport: TransportSettings = TransportSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    simulation: SimulationSettings = SimulationSettings()
