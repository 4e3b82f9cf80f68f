"""Results of all peers together in ``summary.json``."""

from __future__ import annotations

import msgspec


class LostWeight(msgspec.Struct, frozen=True):
    """Weight that died with peers.

    Attributes
    ----------
    peers
        Joined by edges whose traffic no survivor knows.
    mass
        Their weight.
    """

    peers: tuple[str, ...]
    mass: float


class PushSumWeights(msgspec.Struct, frozen=True):
    """Push-sum weights at the end of a run.

    Attributes
    ----------
    of
        Total at the start.
    held
        In the models of survivors.
    on_its_way
        That never arrived.
    lost
        That died with peers.
    statement
        What is missing in the average, in a sentence.
    """

    of: int
    held: float
    on_its_way: float
    lost: tuple[LostWeight, ...]
    statement: str


class Evaluated(msgspec.Struct, frozen=True):
    """What a simulation evaluated after each round but the last.

    Attributes
    ----------
    every
        Rounds from one evaluation to the next.
    peers
    samples
        Most samples of a peer.
    """

    every: int
    peers: int
    samples: int | None


class WorkerResult(msgspec.Struct, frozen=True):
    """One process of a simulation by several.

    Attributes
    ----------
    peers
    bytes_sent
        To the other processes.
    training_s
        Seconds.
    memory
        Largest resident memory in bytes.
    """

    peers: int
    bytes_sent: int
    training_s: float
    memory: int | None


class FeatureStatistics(msgspec.Struct, frozen=True):
    """Statistics by which features are scaled.

    Attributes
    ----------
    samples
        Training samples.
    classes
        Samples of each class.
    mean
        Of each feature.
    deviation
        Likewise.
    """

    samples: int
    classes: tuple[float, ...] | None
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
