"""The experiment file: every key, its default and its range."""

from __future__ import annotations

import math
import sys
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

LARGEST = sys.float_info.max
"""Of all finite numbers."""

Positive = Annotated[float, Meta(gt=0, le=LARGEST)]
NotNegative = Annotated[float, Meta(ge=0, le=LARGEST)]
Endless = Annotated[float, Meta(gt=0)]
"""A bound, of which infinity is none."""

Share = Annotated[float, Meta(ge=0, le=1)]
Number = Annotated[int, Meta(ge=1)]
Reference = Annotated[str, Meta(min_length=1)]
"""A known name, or ``package.module:name``."""


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file."""


class Topology(Section, frozen=True):
    """Who hears whom.

    Attributes
    ----------
    kind, peers
        A builder and its number of peers; or
    file
        any graph that networkx reads (GraphML, GML, node-link JSON, edge list, adjacency list), or a
        list of them over the same peers: a schedule, one graph for each exchange, over and over.
    degree, rewire, probability, rows
        Of small worlds and random regular graphs; of small worlds; of Erdős-Rényi; of grids and tori.
    """

    kind: str = "ring"
    peers: Number = 8
    file: str | Annotated[tuple[str, ...], Meta(min_length=1)] | None = None
    degree: Number = 4
    rewire: Share = 0.1
    probability: Share = 0.3
    rows: Number | None = None


class Data(Section, frozen=True):
    """What is learned from, and who has it.

    Attributes
    ----------
    name
        A known data set, or ``package.module:function`` that gives a peer its own data.
    split
        ``iid``, ``dirichlet`` (alpha), ``shards`` (shards a peer), ``power_law`` (exponent), ``column``.
    test, validation
        Shares held out: of all data for everybody's test, of each peer's own for validation.
    scale
        Bring each feature to mean 0 and deviation 1 over the training parts of all peers, who agree on
        both by sums before the first round, under masks where there are any.
    options
        Passed to the data set's loader, such as ``path`` and ``target`` of a CSV file.
    """

    name: Reference = "digits"
    split: Literal["iid", "dirichlet", "shards", "power_law", "column"] = "iid"
    alpha: Positive = 0.3
    shards: Number = 2
    exponent: Positive = 1.5
    column: str | None = None
    test: Annotated[float, Meta(gt=0, lt=1)] = 0.2
    validation: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    scale: bool = False
    options: dict[str, Any] = {}


class Model(Section, frozen=True):
    """What is learned.

    Attributes
    ----------
    name
        ``linear``, ``mlp`` (hidden), ``cnn``, or ``package.module:Class``.
    options
        Keyword arguments of a user's own class.
    pretrained
        A safetensors file to start from.
    frozen
        Name patterns of parameters that are neither trained nor shared.
    """

    name: Reference = "mlp"
    hidden: tuple[Number, ...] = (64,)
    options: dict[str, Any] = {}
    pretrained: str | None = None
    frozen: tuple[str, ...] = ()


class Learning(Section, frozen=True):
    """How peers learn.

    Attributes
    ----------
    algorithm, algorithm_options
        ``fedavg``, ``fedsgd`` (one step on all data a round), ``dpsgd``, or a ``package.module:Class`` of
        your own; and the parameters that it has beside.
    optimizer, rate, options, schedule, schedule_options
        Any elementwise optimiser of torch.optim, and a scheduler that is stepped once a round.
    batch, epochs, steps
        Samples a step; passes over the data a round, or steps a round instead.
    fraction
        Share of the peers that take part in a round (FedAvg).
    weighted
        Whether peers count by their number of samples (FedAvg).
    stop
        End when no peer's released row moves by more than this in a round.
    consensus
        After the last round exchange until all peers hold one and the same model, the mean of what they
        released, and add up what it scores on everybody's test data (``common`` in the summary).
    loss, metrics
        ``package.module:function`` of (outputs, targets), each giving one number a sample.
    device, precision, dtype
        Where and in which numbers; ``mixed`` is bfloat16 where the device has it.
    example_noise, example_clip
        Hide each sample inside its peer by DP-SGD (FedAvg): the gradient of each is clipped to that norm,
        under noise of so many times that deviation; ``batch`` is then the mean size of secret batches.
        The guarantee is for ``privacy.delta``.
    """

    algorithm: Reference = "fedavg"
    algorithm_options: dict[str, Any] = {}
    optimizer: str = "sgd"
    rate: NotNegative = 0.1
    options: dict[str, Any] = {}
    schedule: str | None = None
    schedule_options: dict[str, Any] = {}
    batch: Number | Literal["all"] = 32
    epochs: Number = 1
    steps: Number | None = None
    fraction: Annotated[float, Meta(gt=0, le=1)] = 1.0
    weighted: bool = True
    stop: Positive | None = None
    consensus: bool = False
    loss: Reference | None = None
    metrics: dict[str, Reference] = {}
    device: str = "auto"
    precision: Literal["full", "mixed"] = "full"
    dtype: Literal["float32", "float64"] = "float32"
    example_noise: NotNegative = 0.0
    example_clip: Positive = 1.0


class Gossip(Section, frozen=True):
    """How peers agree.

    Attributes
    ----------
    steps
        Exchanges a round; by default as many as bring a disagreement down to
    tolerance
        times what it was (masks included: what is left of them in a number is below it). D-PSGD
        makes one.
    weights
        ``metropolis``, ``max_degree``, or a file with a doubly stochastic matrix (``.npy`` or text).
    acceleration
        ``chebyshev`` needs about the square root of as many steps.
    """

    steps: Number | None = None
    tolerance: Annotated[float, Meta(gt=0, lt=1)] = 1e-3
    weights: str = "metropolis"
    acceleration: Literal["none", "chebyshev"] = "none"


class Privacy(Section, frozen=True):
    """What hides a peer's update.

    Attributes
    ----------
    mode
        ``none``; ``independent``: private noise only; ``pairwise``: also masks that cancel.
    clip
        Bound of the norm of an update.
    noise
        Standard deviation of the private noise in each number.
    mask
        Standard deviation of the noise of each edge in each number (pairwise).
    bits
        Fraction bits of the fixed-point grid on which masks cancel.
    participation
        Probability with which a peer takes part in a release; who does stays secret, so it counts in
        the guarantee (FedAvg).
    mask_graph, mask_degree
        Who shares masks: the neighbours (``same``), or denser than that, which hides better and costs no
        exchange: ``complete``, ``circulant`` or ``random`` with so many neighbours each, by default as
        many as ``colluders`` ask for.
    epsilon, delta
        The guarantee over the whole run. Without ``noise`` the least costly noise and mask are
        calibrated to it; with ``noise`` it is a budget, and the run ends before it is exceeded.
    colluders
        How many peers may collude with the broker.
    adjacency
        What may change: a peer's update to nothing (``zero-out``) or to any other (``replace``).
    budget
        A file that adds up what is spent on the same data by all runs; ``epsilon`` is then for all of
        them. For data in a file it lies beside that by default.
    """

    mode: Literal["none", "independent", "pairwise"] = "none"
    clip: Endless = math.inf
    noise: NotNegative = 0.0
    mask: NotNegative = 1.0
    bits: Annotated[int, Meta(ge=1, le=40)] = 20
    participation: Annotated[float, Meta(gt=0, le=1)] = 1.0
    mask_graph: Literal["same", "complete", "circulant", "random"] = "same"
    mask_degree: Number | None = None
    epsilon: Positive | None = None
    delta: Annotated[float, Meta(gt=0, lt=1)] = 1e-5
    colluders: Annotated[int, Meta(ge=0)] = 1
    adjacency: Literal["zero-out", "replace"] = "zero-out"
    budget: str | None = None


class Trust(Section, frozen=True):
    """Whose key is whose.

    Attributes
    ----------
    roster
        A file with the public keys of all peers (``p2pfl identity`` writes it). Without one the
        first key seen for a name is trusted, which is said aloud; ``run`` makes a roster of its own.
    keys
        A folder for this device: ``NAME.pem``, its identity, made when it is missing, and
        ``known.toml``, the keys it has trusted on first use. Without one an identity lasts for one run.
    """

    roster: str | None = None
    keys: str | None = None


class Transport(Section, frozen=True):
    """How bytes travel.

    Attributes
    ----------
    broker
        ``embedded``, or ``mqtt://``, ``mqtts://``, ``ws://`` or ``wss://`` and host and port.
    ca, certificate, key
        Files for TLS: the authority that signed the broker's certificate, and one's own.
    version
        Of MQTT: 4 is 3.1.1.
    chunk
        Bytes in a publish.
    patience
        Seconds without a sign of progress after which a round goes on without a neighbour.
    gather
        Seconds within which neighbours must be there before the first round, and
    quorum
        the share of them that suffices.
    """

    broker: str = "embedded"
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    version: Literal[4, 5] = 4
    chunk: Annotated[int, Meta(ge=1024, le=64 * 2**20)] = 256 * 1024
    patience: Endless = 30.0
    gather: Endless = 60.0
    quorum: Share = 1.0


class Simulation(Section, frozen=True):
    """What goes wrong in ``simulate``; live peers meet the real thing.

    Attributes
    ----------
    loss
        Probability that a listener misses a neighbour's row.
    absence
        Probability that a peer sits out a round.
    """

    loss: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    absence: Annotated[float, Meta(ge=0, lt=1)] = 0.0


class Experiment(Section, frozen=True):
    """One experiment; the same for ``run``, ``peer`` and ``simulate``.

    Attributes
    ----------
    name
        Of the swarm and of its run directory.
    seed
        Of all that must be reproducible.
    """

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,40}$")] = "experiment"
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    rounds: Number = 10
    topology: Topology = Topology()
    data: Data = Data()
    model: Model = Model()
    learning: Learning = Learning()
    gossip: Gossip = Gossip()
    privacy: Privacy = Privacy()
    trust: Trust = Trust()
    transport: Transport = Transport()
    simulation: Simulation = Simulation()
