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
    """Who hears whom.

    Attributes
    ----------
    kind, peers
        A builder and its number of peers; or
    file
        any graph that networkx reads (GraphML, GML, node-link JSON, edge list, adjacency list), or a
        list of them over the same peers: a schedule, one graph for each exchange, over and over.
    degree
        Neighbours of a peer in small worlds, random regular graphs, circulants and epidemic schedules;
        k of the Base-(k+1) graph.
    rewire, probability, rows
        Of small worlds; of Erdős-Rényi; of grids and tori.
    branching
        Children of a peer in a tree.
    clusters, inside, every
        Of the hierarchical schedule: how many there are, what each is, and in which exchanges the bridges
        between them are used.
    period
        Exchanges after which the draws of an epidemic schedule repeat.
    heal
        Whether neighbours of a peer that went become each other's: rings, circulants, random regular graphs
        (as sums of cycles) and exponential ones.
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
        Of docs/algorithms.md (``fedavg``; ``fedsgd`` is that with one step on all data a round), or a
        ``package.module:Class`` of your own; and the parameters that it has beside.
    optimizer, rate, options, schedule, schedule_options
        Any elementwise optimiser of torch.optim, and a scheduler that is stepped once a round.
    batch, epochs, steps
        Samples a step; passes over the data a round, or steps a round instead.
    stragglers, drop_stragglers
        Share of the peers that, each round, do only a random number of the epochs (or steps), from 1 to all of
        them; and whether these are left out of the round instead of counting with what they did.
    fraction
        Share of the peers that take part in a round, where not all must, as in D-PSGD.
    weighted
        Whether peers count by their number of samples, where not all must count alike, as in D-PSGD.
    stop
        End when no peer's released row moves by more than this in a round.
    consensus
        After the last round exchange until all peers hold one and the same model, the mean of what they
        released, and add up what it scores on everybody's test data (``common`` in the summary).
    loss, metrics
        ``package.module:function`` of (outputs, targets), each giving one number a sample.
    learner, learner_options
        ``package.module:factory`` of a learner of your own, such as a training loop of another framework, and what it
        is given beside the keys above for which it has parameters.
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
    """How peers agree.

    Attributes
    ----------
    steps
        Exchanges a round; by default as many as bring a disagreement down to
    tolerance
        times what it was (masks included: what is left of them in a number is below it). D-PSGD and
        other algorithms that train between exchanges make one.
    weights
        ``metropolis``, ``max_degree``, a file with a doubly stochastic matrix (``.npy`` or text), or
        ``push`` for directed graphs of any shape: sums that are divided by masses. By default those that
        come with the kind of graph, else ``metropolis``.
    acceleration
        ``chebyshev`` needs about the square root of as many steps; ``heavy_ball`` a few more than that,
        all of them alike.
    """

    steps: Number | None = None
    tolerance: Annotated[float, Meta(gt=0, lt=1)] = 1e-3
    weights: Reference | None = None
    acceleration: Literal["none", "chebyshev", "heavy_ball"] = "none"


class Compression(Section, frozen=True):
    """How rows are made small; what is lost now is made up for later.

    Attributes
    ----------
    name
        ``none``; ``float16``, ``bfloat16``; or differences from what was sent before: the numbers of largest
        magnitude (``top_k``), any (``random_k``), or all of them in few bits (``qsgd``, ``quantise``); or a
        ``package.module:Class`` of your own, which is given those of the keys below that it has parameters for.
    share
        Of the numbers (top_k, random_k).
    levels
        Of a number's magnitude (qsgd): 7 take 4 bits, 127 take 8.
    bits
        Of a number (quantise).
    gamma
        How far a peer moves towards what its neighbours have sent; by default what no graph that was
        tried diverges with: twice the share (top_k), half of it (random_k), 1 where little is lost.
    refresh
        Every so many rounds whole rows are sent, which repairs what lost messages have left.
    zstd
        Squeeze what is sent without loss; this goes with everything.
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
        ``none``; ``independent``: private noise only; ``pairwise``: also masks that cancel; ``secagg``: each
        peer is given the exact sum of its neighbours' rows and none of them; or a ``package.module:Class`` of your own,
        which is given those of the keys below that it has parameters for.
    clip
        Bound of the norm of an update; 1 where an epsilon is asked for and none is given.
    clipping
        ``flat``: the update as a whole; ``layer``: each of the m tensors of the model by itself, to
        clip / sqrt(m), so that the whole is bounded all the same.
    noise
        Standard deviation of the private noise in each number.
    mask
        Standard deviation of the noise of each edge in each number (pairwise). The default follows from the initial
        parameters, the learning rate, the steps and the graph (docs/protection.md); with ``noise`` and ``clip`` it is
        the clip.
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
    partners
        How many mask partners must be present before a row leaves under masks (pairwise): ``colluders + 1`` by default
        where masks are all that hides it; with ``noise`` and ``clip`` 1, as the budget counts who is missing.
    adjacency
        What may change: a peer's update to nothing (``zero-out``) or to any other (``replace``).
    budget
        A file that adds up what is spent on the same data by all runs under one adjacency and number of
        colluders; ``epsilon`` is then for all of them. For data in a file it lies beside that by default.
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
    adjacency: Literal["zero-out", "replace"] = "zero-out"
    budget: File | None = None


class Robustness(Section, frozen=True):
    """What takes the place of the average where peers may lie.

    Attributes
    ----------
    rule
        ``none``; ``clipped_gossip``; ``self_centred_clipping`` (radius); ``trimmed_mean``, ``median``, ``krum`` or
        ``multi_krum``, which weigh all rows alike; or a ``package.module:Class`` of your own, which is given
        ``attackers`` and ``radius`` if it has such parameters.
    attackers
        How many of those that a peer hears may lie.
    radius
        How far one row may pull (self_centred_clipping).
    nearest
        Mix each row with those nearest to it before (trimmed_mean, median, krum, multi_krum).
    """

    rule: Reference = "none"
    attackers: Annotated[int, Meta(ge=0)] = 1
    radius: Positive | None = None
    nearest: bool = False


class Attack(Section, frozen=True):
    """Peers that lie, to see what becomes of the others.

    Attributes
    ----------
    name
        ``none``; ``sign_flip``, ``scaled``, ``random``, ``label_flip``; or, where liars know all honest rows, which
        only ``simulate`` can tell them, ``alie``, ``ipm``, ``dissensus``.
    share, peers
        How many of the peers lie, drawn from the seed; or who does.
    scale
        How much; by default as in the paper of the attack.
    """

    name: Literal["none", "sign_flip", "scaled", "random", "label_flip", "alie", "ipm", "dissensus"] = "none"
    share: Annotated[float, Meta(ge=0, lt=1)] = 0.2
    peers: tuple[str, ...] = ()
    scale: Positive | None = None


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
        ``embedded``, or ``mqtt://``, ``mqtts://``, ``ws://`` or ``wss://`` and host and port; a list of these to fail
        over, the first that lets us in.
    credentials
        A TOML file with ``user`` and ``password``, or a folder of one for each peer, ``NAME.toml``; without it they
        are in the environment, if anywhere: ``P2PFL_BROKER_USER`` and ``P2PFL_BROKER_PASSWORD``.
    ca, certificate, key
        Files for TLS: the authority that signed the broker's certificate, and one's own.
    version
        Of MQTT: 4 is 3.1.1.
    chunk
        Bytes in a publish.
    patience
        Seconds without a sign of progress after which a round goes on without a neighbour; those in which we have
        no connection ourselves do not count.
    outage
        Seconds that a peer waits for the broker, when it starts and when it loses the connection; 0 gives up at once.
    hurry
        Quantile of what neighbours take, of which twice is waited for the others in an exchange; 1 waits for all.
    gather
        Seconds within which neighbours must be there before the first round, and
    quorum
        the share of them that suffices.
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
    """What goes wrong in ``simulate``; live peers meet the real thing.

    Attributes
    ----------
    loss
        Probability that a listener misses a neighbour's row.
    absence
        Probability that a peer sits out a round.
    delay
        How many cycles a row takes, on average (``gossip_learning``, whose peers wait for nobody).
    slow, pace
        Share of the peers that are slow, and how many cycles of the others one of theirs takes (the same).
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
    compression: Compression = Compression()
    privacy: Privacy = Privacy()
    robustness: Robustness = Robustness()
    attack: Attack = Attack()
    trust: Trust = Trust()
    transport: Transport = Transport()
    simulation: Simulation = Simulation()
