"""Sections on the topology, the transport, trust and simulated faults."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from p2pfl.experiment.schema.values import Endless, Number, Reference, Section, Share, Waiting


class TopologySettings(Section, frozen=True):
    """Topology: which peers send models to each other.

    Attributes
    ----------
    kind
        A builder: ``ring``, ``path``, ``star``, ``complete``, ``grid``, ``torus``, ``hypercube``, ``tree``,
        ``small_world``, ``random_regular``, ``circulant``, ``random_k_out``, ``erdos_renyi``, ``exponential``, or a
        schedule: ``one_peer_exponential``, ``base``, ``epidemic_oracle``, ``epidemic_local``, ``hierarchical``,
        ``nested``, ``double_binary_tree``; or a ``package.module:function`` of the number of peers that returns a graph
        or a schedule.
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
    levels
        Parts of each level of the nested schedule, from the outermost, such as ``[4, 5]`` for 4 regions of 5 hospitals;
        their product is ``peers``.
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
    levels: tuple[Number, ...] = ()
    period: Number = 64
    heal: bool = False


class GossipSettings(Section, frozen=True):
    """Averaging with the neighbours.

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


class TrustSettings(Section, frozen=True):
    """Trust: which key belongs to which peer.

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


class TransportSettings(Section, frozen=True):
    """Communication of live peers.

    Attributes
    ----------
    broker
        ``embedded``, or an address with ``mqtt://``, ``mqtts://``, ``ws://`` or ``wss://``, host and port, or with a
        scheme that a package registers. From a list, a peer uses the first broker that accepts it.
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
    qos
        Quality of service of MQTT: 1 acknowledges each packet; 0 does not, which a cluster of ``nats-server`` needs.
    chunk
        Bytes per message.
    patience
        Timeout: seconds without progress after which a round continues without a neighbour. Seconds in which the peer
        itself has no connection do not count.
    outage
        Seconds that a peer waits for the broker when it starts or loses the connection, and for a missing peer with
        ``privacy.departures = "stop"``; 0 stops at once.
    hurry
        A quantile of the time that neighbours take. In a gossip step a peer waits for at most twice that; 1 waits for
        all.
    gather
        Seconds within which neighbours must be present before the first round.
    quorum
        Share of the neighbours that suffices at the end of ``gather``.
    checkpoint
        Rounds from one checkpoint to the next; a peer that is killed loses up to so many. What it uses and spends is on
        the disk before each release all the same, reserved for as many releases at a time. Each round has its
        checkpoint where a peer could go on from no older one: with state for each edge, compression, running sums, and
        ``privacy.departures = "go_on"``.
    """

    broker: str | Annotated[tuple[Reference, ...], Meta(min_length=1)] = "embedded"
    credentials: str | None = None
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    version: Literal[4, 5] = 4
    qos: Literal[0, 1] = 1
    chunk: Annotated[int, Meta(ge=1024, le=64 * 2**20)] = 256 * 1024
    patience: Endless = 30.0
    hurry: Share = 1.0
    outage: Waiting = 600.0
    gather: Endless = 60.0
    quorum: Share = 1.0
    checkpoint: Number = 1


class TelemetrySettings(Section, frozen=True):
    """Telemetry: what a peer of this device tells observers, while one of them looks.

    Attributes
    ----------
    share
        ``none``; ``health``: rounds, waits, neighbours, bytes, durations and what went wrong; ``scores``: losses,
        scores and the privacy spent as well.
    observers
        A file with the public keys of those who may look, in the format of a roster (``p2pfl identity NAME --roster``
        writes it). A running peer notices when it changes.
    unaccounted
        Share scores although a guarantee is claimed that does not cover them.
    """

    share: Literal["none", "health", "scores"] = "none"
    observers: Reference | None = None
    unaccounted: bool = False


class SimulationSettings(Section, frozen=True):
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
        Number of cycles of the others during one cycle of a slow peer.
    """

    loss: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    absence: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    delay: Annotated[float, Meta(ge=0, le=1000)] = 0.0
    slow: Share = 0.0
    pace: Number = 10
