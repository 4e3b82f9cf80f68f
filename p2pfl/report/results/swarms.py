"""Results of all peers together in ``summary.json``."""

from __future__ import annotations

import msgspec


class LostWeight(msgspec.Struct, frozen=True):
    """Weight that peers took with them when they died.

    Attributes
    ----------
    peers
        Peers that died, joined by edges whose traffic no survivor knows.
    mass
        Weight that they took.
    """

    peers: tuple[str, ...]
    mass: float


class PushSumWeights(msgspec.Struct, frozen=True):
    """Places of the push-sum weights at the end of a run.

    Attributes
    ----------
    of
        Total weight at the start.
    held
        Weight in the models of survivors.
    on_its_way
        Weight that never arrived.
    lost
        Weight that died with peers.
    statement
        Sentence on what is missing in the average; empty if nothing is.
    """

    of: int
    held: float
    on_its_way: float
    lost: tuple[LostWeight, ...]
    statement: str


class Evaluated(msgspec.Struct, frozen=True):
    """Amount that a simulation evaluated after each round; it evaluated the last round in full.

    Attributes
    ----------
    every
        Rounds from one evaluation to the next.
    peers
        Number of evaluated peers.
    samples
        Largest number of samples of a peer; null for all.
    """

    every: int
    peers: int
    samples: int | None


class WorkerResult(msgspec.Struct, frozen=True):
    """Part of one process in a simulation by several.

    Attributes
    ----------
    peers
        Number of its peers.
    bytes_sent
        Bytes that it sent to the other processes.
    training_s
        Seconds of training.
    memory
        Largest resident memory in bytes; null where the system does not tell.
    """

    peers: int
    bytes_sent: int
    training_s: float
    memory: int | None


class FeatureStatistics(msgspec.Struct, frozen=True):
    """Statistics of the features of all peers, by which they are scaled.

    Attributes
    ----------
    samples
        Number of training samples.
    classes
        Number of samples of each class; null without classes.
    mean
        Mean of each feature.
    deviation
        Standard deviation of each feature.
    """

    samples: int
    classes: tuple[float, ...] | None
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
