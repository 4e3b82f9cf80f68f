"""Results of all peers together in ``summary.json``."""

from __future__ import annotations

import msgspec


class Evaluated(msgspec.Struct, frozen=True):
    """Peers that a simulation evaluated after each round but the last.

    Attributes
    ----------
    every
        Rounds from one evaluation to the next.
    peers
    """

    every: int
    peers: int


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
