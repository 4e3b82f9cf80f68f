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

Waiting = Annotated[float, Meta(ge=0)]
"""Seconds to wait, where 0 is not to wait at all."""

Share = Annotated[float, Meta(ge=0, le=1)]
Number = Annotated[int, Meta(ge=1)]
Reference = Annotated[str, Meta(min_length=1)]
"""A known name, or ``package.module:name``."""


File = Annotated[str, Meta(min_length=1)]
"""A path."""


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file."""


class Topology(Section, frozen=True):
    """Which peers exchange models.

    Attributes
    ----------
    kind
        A builder: ``ring``, ``path``, ``star``, ``complete``, ``grid``, ``torus``, ``hypercube``, ``tree``,
        ``small_world``, ``random_regular``, ``circulant``, ``random_k_out``, ``erdos_renyi``, ``exponential``, or a
        schedule: ``one_peer_exponential``, ``base``, ``epidemic_oracle``, ``epidemic_local``, ``hierarchical``,
        ``double_binary_tree``.
    peers
        Number of peers of ``kind``.
    file
        A graph in a format that networkx reads (GraphML, GML, node-link JSON, edge list, adjacency list), instead of
        ``kind`` and ``peers``. A list of files over the same peers is a schedule: one graph for each gossip step,
        repeated.
    degree
        Neighbours of a peer in small worlds, random regular graphs, circulants and epidemic schedules; k of the
        Base-(k+1) graph.
    rewire
        Probability that a small world rewires an edge.
    probability
        Probability of an edge in an Erdős-Rényi graph.
    rows
        Rows of a grid or torus; by default as square as possible.
    branching
        Children of a peer in a tree.
    clusters
        Number of clusters of the hierarchical schedule.
    inside
        Graph inside each cluster of the hierarchical schedule.
    every
        The hierarchical schedule uses the bridges between clusters in every such gossip step.
    period
        Gossip steps after which the draws of an epidemic schedule repeat.
    heal
        Connect the neighbours of a peer that disappeared to each other. Rings, circulants, random regular graphs (as
        sums of cycles) and exponential graphs can.
    """

    kind: str = "ring"
    peers: Number = 8
    file: str | Annotated[tuple[str, ...], Meta(min_length=1)] | None = None
    degree: Number = 4
    rewire: Share = 0.1
    probability: Share = 0.3
    rows: Number | None = None
    branching: Number = 2
    clusters: Number = 4
    inside: Literal["complete", "ring"] = "complete"
    every: Number = 4
    period: Number = 64
    heal: bool = False


class Data(Section, frozen=True):
    """What peers learn from, and which peer holds which samples.

    Attributes
    ----------
    name
        A known data set, or a ``package.module:function`` that returns the data of one peer.
    split
        How the samples are shared out: ``iid``, ``dirichlet`` (``alpha``), ``shards`` (``shards``), ``power_law``
        (``exponent``), ``column`` (``column``).
    alpha
        Parameter of the Dirichlet split; smaller values make peers differ more.
    shards
        Shards per peer.
    exponent
        Exponent of the power law of sample counts.
    column
        The column whose values name the peer of a sample.
    test
        Share of the data that is held out for testing.
    validation
        Share of each peer's training data that is held out for validation.
    scale
        Scale each feature to mean 0 and deviation 1 over the training parts of all peers. Peers agree on both by sums
        before the first round, under masks if masks are on.
    options
        Arguments of the data set's loader, such as ``path`` and ``target`` of a CSV file.
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
    """The model to train.

    Attributes
    ----------
    name
        ``linear``, ``mlp``, ``cnn``, or a ``package.module:Class``.
    hidden
        Widths of the hidden layers of ``mlp``.
    options
        Keyword arguments of a class of your own.
    pretrained
        A safetensors file with parameters to start from.
    frozen
        Name patterns of parameters that are neither trained nor shared.
    """

    name: Reference = "mlp"
    hidden: tuple[Number, ...] = (64,)
    options: dict[str, Any] = {}
    pretrained: str | None = None
    frozen: tuple[str, ...] = ()


class Learning(Section, frozen=True):
    """How peers train.

    Attributes
    ----------
    algorithm
        An algorithm of docs/algorithms.md, or a ``package.module:Class``. ``fedsgd`` is ``fedavg`` with one step on all
        data per round.
    algorithm_options
        Parameters of the algorithm.
    optimizer
        Any elementwise optimiser of torch.optim.
    rate
        Learning rate.
    options
        Arguments of the optimiser.
    schedule
        A scheduler of torch.optim.lr_scheduler, stepped once per round.
    schedule_options
        Arguments of the scheduler.
    batch
        Samples per optimiser step.
    epochs
        Passes over the data per round.
    steps
        Optimiser steps per round, instead of ``epochs``.
    stragglers
        Share of the peers that, in each round, do only a random number of their epochs or steps, from 1 to all.
    drop_stragglers
        Leave stragglers out of the round instead of counting what they did.
    fraction
        Share of the peers that take part in a round, for algorithms that allow it.
    weighted
        Weight peers by their number of samples, for algorithms that allow it.
    stop
        Stop when no peer's released model moves by more than this in a round.
    consensus
        After the last round, gossip until all peers hold the same model, the mean of what they released, and add up its
        scores on the test data of all peers (``common`` in the summary).
    loss
        A ``package.module:function`` of (outputs, targets) that returns one number per sample.
    metrics
        Names, each with a function like that of ``loss``.
    learner
        A ``package.module:factory`` of a learner, such as a training loop of another framework.
    learner_options
        What the factory receives besides the keys above for which it has parameters.
    device
        Where to train: ``auto``, or a device of torch.
    precision
        ``mixed`` trains in bfloat16 where the device supports it.
    dtype
        The type of the parameters.
    example_noise
        Protect each sample inside its peer by DP-SGD: noise of this multiple of ``example_clip`` on every gradient.
        ``batch`` is then the mean size of secret batches. Works with FedAvg; the guarantee is for ``privacy.delta``.
    example_clip
        Bound of the norm of each sample's gradient under ``example_noise``.
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
    stragglers: Share = 0.0
    drop_stragglers: bool = False
    fraction: Annotated[float, Meta(gt=0, le=1)] = 1.0
    weighted: bool = True
    stop: Positive | None = None
    consensus: bool = False
    learner: Reference | None = None
    learner_options: dict[str, Any] = {}
    loss: Reference | None = None
    metrics: dict[str, Reference] = {}
    device: str = "auto"
    precision: Literal["full", "mixed"] = "full"
    dtype: Literal["float32", "float64"] = "float32"
    example_noise: NotNegative = 0.0
    example_clip: Positive = 1.0


class Gossip(Section, frozen=True):
    """How peers average.

    Attributes
    ----------
    steps
        Gossip steps per round; by default as many as ``tolerance`` asks for. D-PSGD and other algorithms that train
        between gossip steps make one.
    tolerance
        The share of a disagreement that may be left after the gossip steps of a round, masks included.
    weights
        ``metropolis``, ``max_degree``, a file with a doubly stochastic matrix (``.npy`` or text), or ``push`` for
        directed graphs of any shape, where sums are divided by weights. By default those that come with the kind of
        graph, else ``metropolis``.
    acceleration
        ``chebyshev`` needs about the square root of as many gossip steps; ``heavy_ball`` needs a few more than that,
        all of them alike. Live peers refuse it under masks.
    """

    steps: Number | None = None
    tolerance: Annotated[float, Meta(gt=0, lt=1)] = 1e-3
    weights: Reference | None = None
    acceleration: Literal["none", "chebyshev", "heavy_ball"] = "none"


class Compression(Section, frozen=True):
    """How models are made smaller; later messages make up for what compression lost.

    Attributes
    ----------
    name
        ``none``; ``float16`` or ``bfloat16``; a codec of differences from what was sent before: the numbers of
        largest magnitude (``top_k``), random numbers (``random_k``), or all numbers in few bits (``qsgd``,
        ``quantise``); or a ``package.module:Class``, which receives those of the keys below that it has parameters for.
    share
        Share of the numbers that ``top_k`` and ``random_k`` send.
    levels
        Levels of a number's magnitude under ``qsgd``: 7 take 4 bits, 127 take 8.
    bits
        Bits of a number under ``quantise``.
    gamma
        How far a peer moves towards what its neighbours sent; by default a value with which no tested graph diverges:
        twice ``share`` (top_k), half of it (random_k), 1 where little is lost.
    refresh
        Send whole models every so many rounds, which repairs what lost messages left.
    zstd
        Compress messages without loss as well; works with every other setting.
    """

    name: Reference = "none"
    share: Annotated[float, Meta(gt=0, le=1)] = 0.01
    levels: Annotated[int, Meta(ge=1, lt=2**15)] = 127
    bits: Annotated[int, Meta(ge=2, le=8)] = 8
    gamma: Annotated[float, Meta(gt=0, le=1)] | None = None
    refresh: Number | None = None
    zstd: bool = False


class Privacy(Section, frozen=True):
    """What hides a peer's update.

    Attributes
    ----------
    mode
        ``none``; ``independent``: private noise only; ``pairwise``: also masks that cancel; ``secagg``: each peer
        receives the exact sum of its neighbours' models and none of them; or a ``package.module:Class``, which receives
        those of the keys below that it has parameters for.
    clip
        Bound of the norm of an update; 1 if ``epsilon`` is set and this is not.
    clipping
        ``flat`` clips the update as a whole; ``layer`` clips each of the m tensors of the model to clip / sqrt(m), so
        that the same bound holds for the whole.
    noise
        Standard deviation of the private noise in each number.
    mask
        Standard deviation of the mask of each edge in each number (pairwise). The default follows from the initial
        parameters, the learning rate, the steps and the graph (docs/protection.md); with ``noise`` and ``clip`` it is
        the clip.
    bits
        Fraction bits of the fixed-point grid on which masks cancel.
    participation
        Probability with which a peer takes part in a release (FedAvg). Who does stays secret, so the guarantee counts
        it.
    mask_graph
        Which peers share masks: the neighbours (``same``), or a denser graph, which hides better and costs no gossip
        step: ``complete``, ``circulant`` or ``random``.
    mask_degree
        Mask partners of a peer under ``circulant`` and ``random``; by default as many as ``colluders`` asks for.
    epsilon
        The guarantee over the whole run. Without ``noise``, the least costly noise and mask are calibrated to it; with
        ``noise`` it is a budget, and the run stops before it is exceeded.
    delta
        The probability in the guarantee (epsilon, delta).
    colluders
        How many peers may collude with the broker.
    partners
        How many mask partners must be present before a model leaves under masks (pairwise): by default ``colluders +
        1`` where masks alone hide it; 1 with ``noise`` and ``clip``, because the budget counts missing partners.
    departures
        What live peers do under masks when a peer disappears in the middle of a round. ``unsettled``: they continue at
        once, and the masks that it shared stay in the models. ``go_on``: a majority of its neighbours decides whether
        its model counts; if not, they remove its masks before they train again, which can show its update under its
        private noise alone. ``stop``: they decide the same, and end if it does not count (docs/settled-rounds.md).
    adjacency
        What the guarantee compares: a peer's update with nothing (``zero-out``), or with any other (``replace``).
    budget
        A file that adds up what all runs on the same data spend, under one adjacency and number of colluders;
        ``epsilon`` then bounds them together. For data in a file it lies beside that file by default.
    """

    mode: Reference = "none"
    clip: Endless = math.inf
    clipping: Literal["flat", "layer"] = "flat"
    noise: NotNegative = 0.0
    mask: NotNegative | None = None
    bits: Annotated[int, Meta(ge=1, le=40)] = 20
    participation: Annotated[float, Meta(gt=0, le=1)] = 1.0
    mask_graph: Literal["same", "complete", "circulant", "random"] = "same"
    mask_degree: Number | None = None
    epsilon: Positive | None = None
    delta: Annotated[float, Meta(gt=0, lt=1)] = 1e-5
    colluders: Annotated[int, Meta(ge=0)] = 1
    partners: Number | None = None
    departures: Literal["unsettled", "go_on", "stop"] = "unsettled"
    adjacency: Literal["zero-out", "replace"] = "zero-out"
    budget: File | None = None


class Robustness(Section, frozen=True):
    """What replaces the average where peers may be Byzantine.

    Attributes
    ----------
    rule
        ``none``; ``clipped_gossip``; ``self_centred_clipping``; ``trimmed_mean``, ``median``, ``krum`` and
        ``multi_krum``, which weight all models alike; or a ``package.module:Class``, which receives ``attackers`` and
        ``radius`` if it has such parameters.
    attackers
        How many of the models that a peer receives may be Byzantine.
    radius
        How far one model may pull the average (self_centred_clipping).
    nearest
        Average each model with those nearest to it first (trimmed_mean, median, krum, multi_krum).
    """

    rule: Reference = "none"
    attackers: Annotated[int, Meta(ge=0)] = 1
    radius: Positive | None = None
    nearest: bool = False


class Attack(Section, frozen=True):
    """Byzantine peers, to see what becomes of the others.

    Attributes
    ----------
    name
        ``none``; ``sign_flip``, ``scaled``, ``random``, ``label_flip``; or attacks that know all honest models, which
        only ``simulate`` can run: ``alie``, ``ipm``, ``dissensus``.
    share
        Share of the peers that attack, drawn from the seed.
    peers
        Names of the peers that attack, instead of ``share``.
    scale
        Strength of the attack; by default that of its paper.
    """

    name: Literal["none", "sign_flip", "scaled", "random", "label_flip", "alie", "ipm", "dissensus"] = "none"
    share: Annotated[float, Meta(ge=0, lt=1)] = 0.2
    peers: tuple[str, ...] = ()
    scale: Positive | None = None


class Trust(Section, frozen=True):
    """Which key belongs to which peer.

    Attributes
    ----------
    roster
        A file with the public keys of all peers (``p2pfl identity`` writes it). Without one, a peer trusts the first
        key seen for a name and warns about it; ``run`` creates a roster of its own.
    keys
        A folder on this device: ``NAME.pem``, its private key, created if it is missing, and ``known.toml``, the keys
        trusted on first use. Without one, an identity lasts for one run.
    """

    roster: str | None = None
    keys: str | None = None


class Transport(Section, frozen=True):
    """How live peers communicate.

    Attributes
    ----------
    broker
        ``embedded``, or an address with ``mqtt://``, ``mqtts://``, ``ws://`` or ``wss://``, host and port. From a list,
        a peer uses the first broker that accepts it.
    credentials
        A TOML file with ``user`` and ``password``, or a folder with one ``NAME.toml`` per peer. Without it, the
        environment variables ``P2PFL_BROKER_USER`` and ``P2PFL_BROKER_PASSWORD`` apply.
    ca
        A file with the authority that signed the broker's certificate.
    certificate
        A file with the client certificate of this peer.
    key
        A file with the private key of ``certificate``.
    version
        Version of MQTT: 4 is 3.1.1.
    chunk
        Bytes per message.
    patience
        Seconds without progress after which a round continues without a neighbour. Seconds in which the peer itself has
        no connection do not count.
    outage
        Seconds that a peer waits for the broker when it starts or loses the connection; 0 stops at once.
    hurry
        A quantile of the time that neighbours take. In a gossip step a peer waits for at most twice that; 1 waits for
        all.
    gather
        Seconds within which neighbours must be present before the first round.
    quorum
        Share of the neighbours that suffices at the end of ``gather``.
    """

    broker: str | Annotated[tuple[Reference, ...], Meta(min_length=1)] = "embedded"
    credentials: str | None = None
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    version: Literal[4, 5] = 4
    chunk: Annotated[int, Meta(ge=1024, le=64 * 2**20)] = 256 * 1024
    patience: Endless = 30.0
    hurry: Share = 1.0
    outage: Waiting = 600.0
    gather: Endless = 60.0
    quorum: Share = 1.0


class Simulation(Section, frozen=True):
    """Faults in ``simulate``; live peers meet the real ones.

    Attributes
    ----------
    loss
        Probability that a peer misses a neighbour's message.
    absence
        Probability that a peer sits out a round.
    delay
        Mean number of cycles that a message takes (``gossip_learning``, whose peers do not wait).
    slow
        Share of the peers that are slow (``gossip_learning``).
    pace
        How many cycles of the others one cycle of a slow peer takes.
    """

    loss: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    absence: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    delay: Annotated[float, Meta(ge=0, le=1000)] = 0.0
    slow: Share = 0.0
    pace: Number = 10


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
    gossip: Gossip = Gossip()
    compression: Compression = Compression()
    privacy: Privacy = Privacy()
    robustness: Robustness = Robustness()
    attack: Attack = Attack()
    trust: Trust = Trust()
    transport: Transport = Transport()
    simulation: Simulation = Simulation()
