"""Sections on the topology, the transport, trust and simulated faults."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from p2pfl.experiment.schema.values import Endless, Number, Reference, Section, Share, Waiting


class TopologySettings(Section, frozen=True):
    """Topology: which peers send models to each other.

    Attributes
    ----------
    kind
        A graph: ``ring``, ``path``, ``star``, ``complete``, ``grid``, ``torus``, ``hypercube``, ``tree``,
        ``small_world``, ``random_regular``, ``circulant``, ``random_k_out``, ``erdos_renyi``, ``exponential``; a
        schedule: ``one_peer_exponential``, ``base``, ``epidemic_oracle``, ``epidemic_local``, ``hierarchical``,
        ``nested``, ``double_binary_tree``; a ``package.module:function`` of the number of peers that returns either; a
        file that networkx reads (GraphML, GML, node-link JSON, edge list, adjacency list), or a list of them: one per
        gossip step, repeated.
    peers
        Number of peers; a file has its own.
    degree
        Neighbours in small worlds, random regular graphs, circulants and epidemic schedules; k of Base-(k+1).
    options
        Further arguments: ``rewire`` of small worlds, ``probability`` of Erdős-Rényi graphs, ``rows`` of grids and
        tori, ``branching`` of trees, ``clusters``, ``inside`` and ``every`` of hierarchical schedules, ``levels`` of
        ``nested``, such as ``[4, 5]`` for 4 regions of 5 hospitals, ``period`` of epidemic schedules, and those of a
        function.
    """

    kind: Reference | Annotated[tuple[str, ...], Meta(min_length=1)] = "ring"
    peers: Number = 8
    degree: Number = 4
    options: dict[str, Any] = {}

    @property
    def files(self) -> tuple[str, ...]:
        """Files that hold the graphs; empty if a name or a function makes them."""
        return graph_files(self.kind)


def graph_files(kind: object) -> tuple[str, ...]:
    """Return the files that a value of ``topology.kind`` names; none for a known kind or a function.

    Examples
    --------
    >>> graph_files("village.json"), graph_files("ring"), graph_files("own.graphs:wheel")
    (('village.json',), (), ())
    """
    if isinstance(kind, list | tuple):
        return tuple(kind)
    return (kind,) if isinstance(kind, str) and ("/" in kind or ("." in kind and ":" not in kind)) else ()


class GossipSettings(Section, frozen=True):
    """Averaging with the neighbours.

    Attributes
    ----------
    steps
        Gossip steps per round; by default as many as ``tolerance`` needs, or one for algorithms that train between
        gossip steps.
    tolerance
        Share of a disagreement, masks included, that may be left after a round.
    weights
        ``metropolis``, ``max_degree``, ``push`` (any directed graph), or a file with a doubly stochastic matrix
        (``.npy`` or text). By default those of the kind of graph, else ``metropolis``.
    acceleration
        ``chebyshev`` needs about the square root of as many gossip steps. Live peers refuse it under masks.
    """

    steps: Number | None = None
    tolerance: Annotated[float, Meta(gt=0, lt=1)] = 1e-3
    weights: Reference | None = None
    acceleration: Literal["none", "chebyshev"] = "none"


class TrustSettings(Section, frozen=True):
    """Keys of the peers.

    Attributes
    ----------
    roster
        File with the public keys of all peers (``p2pfl identity``); without one, a peer trusts the first key of a name.
    keys
        Folder with ``NAME.pem``, the private key, made if missing, and ``known.toml``, keys trusted on first use.
        Without one, an identity lasts for one run.
    """

    roster: str | None = None
    keys: str | None = None


class TransportSettings(Section, frozen=True):
    """Communication of live peers.

    Attributes
    ----------
    broker
        ``embedded``, or a URL with ``mqtt``, ``mqtts``, ``ws``, ``wss`` or a scheme of a package. From a list, a peer
        uses the first that accepts it.
    credentials
        TOML file with ``user`` and ``password``, or a folder of ``NAME.toml``; by default the environment's
        ``P2PFL_BROKER_USER`` and ``P2PFL_BROKER_PASSWORD``.
    ca
        File of the authority that signed the broker's certificate.
    certificate
        File of this peer's certificate.
    key
        File of its private key.
    version
        Of MQTT; 4 is 3.1.1.
    qos
        1 acknowledges each packet; ``nats-server`` clusters need 0.
    chunk
        Bytes per message.
    patience
        Timeout: seconds without progress before a round continues without a neighbour, but for time offline.
    outage
        Seconds to wait for the broker, and for a missing peer under ``privacy.departures = "stop"``.
    hurry
        Quantile of the time that neighbours take, of which a peer waits for at most twice; 1 waits for all.
    gather
        Seconds within which neighbours must be present before the first round.
    quorum
        Share of the neighbours that suffices after ``gather``.
    checkpoint
        Rounds from one checkpoint to the next, which a killed peer can lose; 1 for state of edges, compression
        and ``go_on``.
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
    """Telemetry that a peer of this device sends while observers look.

    Attributes
    ----------
    share
        ``none``; ``health``: rounds, waits, neighbours, bytes, durations and what went wrong; ``scores``: also losses,
        scores and the privacy spent.
    observers
        File with the public keys of those who may look (``p2pfl identity NAME --roster``); a running peer notices
        changes.
    unaccounted
        Share scores although a claimed guarantee does not cover them.
    """

    share: Literal["none", "health", "scores"] = "none"
    observers: Reference | None = None
    unaccounted: bool = False


class SlowSettings(Section, frozen=True):
    """Slow peers of a simulation.

    Attributes
    ----------
    share
        Share of the peers.
    pace
        Cycles of the others during one cycle of a slow peer.
    """

    share: Share
    pace: Number = 10


class SimulationSettings(Section, frozen=True):
    """Faults in ``simulate``; live peers meet the real ones.

    Attributes
    ----------
    loss
        Probability that a message is lost.
    absence
        Probability that a peer sits out a round.
    delay
        Mean number of cycles that a message takes (``gossip_learning``).
    slow
        Share of slow peers (``gossip_learning``); or a table of this ``share`` and ``pace``, the cycles of the others
        during one cycle of a slow peer, 10 by default.
    """

    loss: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    absence: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    delay: Annotated[float, Meta(ge=0, le=1000)] = 0.0
    slow: Share | SlowSettings = 0.0

    @property
    def slowed(self) -> SlowSettings:
        """Slow peers as a table."""
        return self.slow if isinstance(self.slow, SlowSettings) else SlowSettings(share=self.slow)
