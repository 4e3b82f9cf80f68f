"""The experiment file: every key, its default and its range."""

from __future__ import annotations

import math
import sys
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from p2pfl.core.registry import find_entry_points

PARTITIONINGS = "p2pfl.partitionings"
"""Group of entry points of ways in which data lie at peers."""

MAX_FLOAT = sys.float_info.max
"""Largest finite number."""

ENDLESS = 2**31
"""Number of rounds that nobody reaches: at one a second it takes 68 years."""

Positive = Annotated[float, Meta(gt=0, le=MAX_FLOAT)]
NotNegative = Annotated[float, Meta(ge=0, le=MAX_FLOAT)]
Endless = Annotated[float, Meta(gt=0)]
"""A bound, of which infinity is none."""

Waiting = Annotated[float, Meta(ge=0)]
"""Seconds to wait, where 0 is not to wait at all."""

Share = Annotated[float, Meta(ge=0, le=1)]
Lasting = Annotated[float, Meta(ge=0, le=4e6)]
"""Seconds of a client, 46 days at most."""

Number = Annotated[int, Meta(ge=1)]
Reference = Annotated[str, Meta(min_length=1)]
"""A known name, or ``package.module:name``."""

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,22}\Z")]
"""Name of a peer."""

_PREFIX = 'levels of A-Z a-z 0-9 . _ : @ = ~ -, each with a slash at its end, 64 characters in all, such as "plant7/"'
Prefix = Annotated[str, Meta(pattern=r"^([A-Za-z0-9._:@=~-]+/)*\Z", max_length=64, description=_PREFIX)]
"""Prefix of topics: levels without wildcards, each with a slash at its end."""

File = Annotated[str, Meta(min_length=1)]
"""A path."""


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file."""


class TopologySettings(Section, frozen=True):
    """Topology: which peers send models to each other.

    Attributes
    ----------
    kind
        A graph: ``ring``, ``path``, ``star``, ``complete``, ``grid``, ``torus``, ``hypercube``, ``tree``,
        ``small_world``, ``random_regular``, ``circulant``, ``random_k_out``, ``erdos_renyi``, ``exponential``; a
        schedule: ``one_peer_exponential``, ``base``, ``epidemic_oracle``, ``epidemic_local``, ``nested``,
        ``double_binary_tree``; a ``package.module:function`` of the number of peers that returns either; a
        file that networkx reads (GraphML, GML, node-link JSON, edge list, adjacency list), or a list of them: one per
        gossip step, repeated.
    peers
        Number of peers, or the list of their names, such as ``["north", "south"]``; a file has its own.
    degree
        Neighbours in small worlds, random regular graphs, circulants and epidemic schedules; k of Base-(k+1).
    options
        Further arguments: ``rewire`` of small worlds, ``probability`` of Erdős-Rényi graphs, ``rows`` of grids and
        tori, ``branching`` of trees, ``levels`` of ``nested``, such as ``[4, 5]`` for 4 regions of 5 hospitals,
        ``period`` of epidemic schedules, and those of a function.
    """

    kind: Reference | Annotated[tuple[str, ...], Meta(min_length=1)] = "ring"
    peers: Number | Annotated[tuple[Name, ...], Meta(min_length=1)] = 8
    degree: Number = 4
    options: dict[str, Any] = {}

    @property
    def count(self) -> int:
        """Number of peers."""
        return self.peers if isinstance(self.peers, int) else len(self.peers)

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


class PaceSettings(Section, frozen=True):
    """When live peers learn; :mod:`p2pfl.experiment.timetable` reads it.

    Attributes
    ----------
    every, hours
        Of all peers: duration from the begin of a round to that of the next at least, and hours of UTC in which rounds
        begin.
    awake, bytes
        Of this device: hours of UTC in which it takes part, and what it sends and receives on a day of UTC at most.
    """

    every: str | None = None
    hours: str | None = None
    awake: str | None = None
    bytes: str | None = None


class GatherSettings(Section, frozen=True):
    """Neighbours that must be present before the first round.

    Attributes
    ----------
    seconds
        Seconds within which they must come.
    quorum
        Share of them that suffices afterwards.
    """

    seconds: Endless = 60.0
    quorum: Share = 1.0


class MqttSettings(Section, frozen=True):
    """Settings of MQTT.

    Attributes
    ----------
    version
        5, or 4 for 3.1.1.
    qos
        1 acknowledges each packet.
    """

    version: Literal[4, 5] = 4
    qos: Literal[0, 1] = 1


class TransportSettings(Section, frozen=True):
    """Communication of live peers.

    Attributes
    ----------
    broker
        ``embedded``, or a URL with ``mqtt``, ``mqtts``, ``ws``, ``wss``, ``file`` (a shared folder) or a scheme of a
        package. From a list, a peer uses the first that accepts it.
    prefix
        Prefix of all topics, such as ``plant7/``, if the broker permits no others; the same for all peers.
    credentials
        TOML file with ``user`` and ``password``, or a folder of ``NAME.toml``; by default the environment's
        ``P2PFL_BROKER_USER`` and ``P2PFL_BROKER_PASSWORD``.
    ca
        File of the authority that signed the broker's certificate.
    certificate
        File of this peer's certificate.
    key
        File of its private key.
    mqtt
        Table of ``version``, 5 or by default 4 (3.1.1), and ``qos``: 1 acknowledges each packet, the default;
        ``nats-server`` clusters need 0.
    chunk
        Bytes per message.
    patience
        Timeout: seconds without progress before a round continues without a neighbour, but for time offline.
    outage
        Seconds to wait for the broker, for a peer whose heartbeats state that it computes its part of a total, and for
        a missing peer under ``privacy.departures = "wait"``.
    hurry
        Quantile of the time that neighbours take, of which a peer waits for at most twice; 1 waits for all.
    gather
        Seconds within which neighbours must be present before the first round; or a table of these ``seconds``, 60 by
        default, and ``quorum``, the share of the neighbours that suffices afterwards.
    checkpoint
        Rounds from one checkpoint to the next, which a killed peer can lose; 1 for state of edges, compression
        and ``go_on``.
    pace
        Table of when live peers learn, in UTC. The same at all peers: ``every``, from the begin of a round to that of
        the next, as ``"10 min"``; ``hours`` in which rounds begin, as ``"01:00-05:00"``. Of one device: its hours
        ``awake``; ``bytes`` of a day, as ``"50 MB"``.
    """

    broker: str | Annotated[tuple[Reference, ...], Meta(min_length=1)] = "embedded"
    prefix: Prefix = ""
    credentials: str | None = None
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    mqtt: MqttSettings = MqttSettings()
    chunk: Annotated[int, Meta(ge=1024, le=64 * 2**20)] = 256 * 1024
    patience: Endless = 30.0
    hurry: Share = 1.0
    outage: Waiting = 600.0
    gather: Endless | GatherSettings = 60.0
    checkpoint: Number = 1
    pace: PaceSettings | None = None

    @property
    def gathering(self) -> GatherSettings:
        """Neighbours that must be present before the first round, as a table."""
        return self.gather if isinstance(self.gather, GatherSettings) else GatherSettings(seconds=self.gather)


class TelemetrySettings(Section, frozen=True):
    """Telemetry that a peer of this device sends while observers look.

    Attributes
    ----------
    share
        ``none``; ``health``: rounds, waits, neighbours, bytes, durations and what went wrong; ``scores``: also losses,
        scores and the privacy spent; ``unaccounted``: scores although a claimed guarantee does not cover them.
    observers
        File with the public keys of those who may look (``p2pfl identity NAME --roster``), read again when it changes.
    """

    share: Literal["none", "health", "scores", "unaccounted"] = "none"
    observers: Reference | None = None


class TrainingTimes(Section, frozen=True):
    """Duration of training.

    Attributes
    ----------
    seconds, spread
        Seconds of a typical peer per round, and deviation of their logarithm between peers.
    stragglers, slowdown
        Share of slow peers, and the factor by which they are slower.
    """

    seconds: NotNegative = 0.0
    spread: NotNegative = 0.0
    stragglers: Share = 0.0
    slowdown: Annotated[float, Meta(ge=1, le=MAX_FLOAT)] = 1.0


class DeviceSettings(TrainingTimes, frozen=True):
    """Devices of the clients of a simulation, of which ``learning.fraction`` count in a round, or slow peers.

    Attributes
    ----------
    sample_seconds
        Further seconds of a typical client for each of its samples.
    invited
        Clients that are invited for each that counts.
    deadline
        Seconds of a round after which models are late.
    trace
        CSV file of the times at which clients are available.
    """

    invited: Annotated[float, Meta(ge=1, le=1000)] = 1.0
    seconds: Lasting = 0.0
    sample_seconds: Lasting = 0.0
    spread: Annotated[float, Meta(ge=0, le=10)] = 0.0
    slowdown: Annotated[float, Meta(ge=1, le=1e6)] = 1.0
    deadline: Annotated[float, Meta(gt=0, le=4e6)] | None = None
    trace: str | None = None

    @property
    def timeless(self) -> bool:
        """True if no client takes time."""
        return not self.seconds and not self.sample_seconds


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
    devices
        Table of clients that come, go and take their time (docs/scaling.md): ``trace``, a CSV file of
        ``client,on,off``; ``invited`` for each client that counts, 1 by default; ``deadline``; ``seconds``,
        ``spread``, ``stragglers`` and ``slowdown`` as in a network file; ``sample_seconds``. ``gossip_learning``
        takes ``stragglers``, a share of the peers, and ``slowdown``, the cycles of the others during one of theirs.
    """

    loss: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    absence: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    delay: Annotated[float, Meta(ge=0, le=1000)] = 0.0
    devices: DeviceSettings | None = None


Split = Literal["iid", "dirichlet", "shards", "power_law", "column"]
"""Splits that p2pfl has."""


class DataSettings(Section, frozen=True):
    """Data of the peers, and their split across peers.

    Attributes
    ----------
    name
        A known data set, or a ``package.module:function`` that returns the data of one peer; ``vertical`` for tables
        with different columns of the same people.
    split
        ``iid``, ``dirichlet``, ``shards``, ``power_law``, ``column``; or a ``package.module:function`` of the targets
        that returns the positions of each peer's samples. ``columns`` deals the columns of a data set.
    split_options
        Arguments of the split: ``alpha`` of ``dirichlet`` (smaller values make peers differ more), ``shards`` per peer,
        ``exponent`` of the ``power_law`` of sample counts, ``column``, whose values name the peer of a sample.
    test
        Share held out for testing; by default 0 of regressions and statistics, which use all samples, and 0.2 of
        other models.
    validation
        Share of each peer's training data held out for validation.
    scale
        Scale features to mean 0 and deviation 1 over all peers, by sums before the first round.
    refresh
        Rounds from one reading of a peer's own table or function to the next, for data that grow.
    options
        Arguments of the loader, such as ``path``, ``target`` and ``columns`` of a table.
    """

    name: Reference = "digits"
    split: Reference = "iid"
    split_options: dict[str, Any] = {}
    test: Annotated[float, Meta(ge=0, lt=1)] | None = None
    validation: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    scale: bool = False
    refresh: Annotated[int, Meta(ge=1)] | None = None
    options: dict[str, Any] = {}

    @property
    def owned(self) -> bool:
        """True if peers own their data, so that nothing is split and nobody knows the data of others."""
        return ":" in self.name or self.name in {"synthetic", "table"} or self.name in find_entry_points(PARTITIONINGS)


class ModelSettings(Section, frozen=True):
    """The model to train.

    Attributes
    ----------
    name
        ``linear``, ``mlp``, ``cnn``; ``torchvision:NAME``, ``timm:NAME`` or ``transformers:CLASS``; a
        ``package.module:Class``; a model from exact totals: ``boosting``, ``random_boosting``, ``forest``, ``glm``,
        ``private_glm``, ``ordinal``, ``meta_analysis``, ``lasso``, ``cox``, ``componentwise``; or statistics:
        ``description``, ``private_description``, ``kaplan_meier``, ``private_kaplan_meier``, ``pca``, ``private_pca``.
    hidden
        Widths of the hidden layers of ``mlp``.
    options
        Arguments of the model, including ``weights`` for models of libraries.
    pretrained
        File of safetensors or ``torch.save`` to start from; with ``{peer}`` that of each peer.
    frozen
        Name patterns of parameters that are neither trained nor shared.
    norm
        Batch normalisation, whose running statistics cannot be averaged: constant (``frozen``), replaced by group
        normalisation (``group``), or each peer's own (``local``, default with ``fedbn``).
    """

    name: Reference = "mlp"
    hidden: tuple[Number, ...] = (64,)
    options: dict[str, Any] = {}
    pretrained: str | None = None
    frozen: tuple[str, ...] = ()
    norm: Literal["frozen", "group", "local"] | None = None


class ScheduleSettings(Section, frozen=True):
    """Learning rate over time.

    Attributes
    ----------
    name
        A scheduler of torch.optim.lr_scheduler, or a ``package.module:function`` of any of ``round``, ``step`` and
        ``steps`` that returns a factor of ``rate``; without one, the rate is constant after ``warmup``.
    options
        Arguments of the schedule.
    by
        Call the schedule once per round, or at each optimiser step, counted over all rounds.
    warmup
        Optimiser steps over which the rate rises linearly.
    """

    name: Reference | None = None
    options: dict[str, Any] = {}
    by: Literal["round", "step"] = "round"
    warmup: Annotated[int, Meta(ge=0)] = 0


class StragglerSettings(Section, frozen=True):
    """Peers that do only a part of a round's training.

    Attributes
    ----------
    share
        Share of the peers.
    drop
        Leave them out of the round.
    """

    share: Share
    drop: bool = False


class LearnerSettings(Section, frozen=True):
    """A learner of the user's own.

    Attributes
    ----------
    name
        A ``package.module:factory``.
    options
        Arguments of the factory.
    """

    name: Reference
    options: dict[str, Any] = {}


class LearningSettings(Section, frozen=True):
    """Training of the peers.

    Attributes
    ----------
    algorithm
        A name from docs/algorithms.md, or a ``package.module:Class``. ``fedsgd`` is ``fedavg`` with one step on all
        data.
    algorithm_options
        Parameters of the algorithm.
    optimizer
        Any elementwise optimiser of torch.optim.
    rate
        Learning rate.
    options
        Arguments of the optimiser.
    max_norm
        Largest L2 norm of a batch's gradient, before terms that the algorithm adds; with ``example_noise`` that of each
        sample's gradient, 1 by default.
    schedule
        A scheduler of torch.optim.lr_scheduler or a ``package.module:function``, which gives a factor of ``rate``; or a
        table: its ``name`` and ``options``, ``by`` (``"round"`` or ``"step"``, counted over all rounds), and
        ``warmup``, optimiser steps over which the rate rises linearly.
    batch
        Samples per optimiser step.
    epochs
        Passes over the data per round.
    steps
        Optimiser steps per round, instead of ``epochs``.
    stragglers
        Share of the peers that do a random part of a round's training; or a table of this ``share`` and ``drop =
        true``, which leaves them out of the round.
    fraction
        Share of the peers in a round, for algorithms that allow it.
    weighted
        Weight peers by their samples, for algorithms that allow it.
    stop
        Convergence: stop when no peer's released model moves by more than this in a round.
    patience
        Early stopping: end when no peer's validation loss has improved for so many rounds.
    consensus
        After the last round, give all peers the exact mean of their releases, and score it on all test data.
    loss
        ``cross_entropy`` (default for classes), ``squared_error`` (for numbers), ``binary_cross_entropy`` (for several
        labels of 0 or 1), or a ``package.module:function`` of (outputs, targets) that returns one number per sample.
    augment
        A ``package.module:function`` of (features, generator) that changes each training batch at random, by key.
    metrics
        Names, each with ``accuracy``, ``auc``, ``macro_f1``, ``mean_iou``, a loss, or a function as for ``loss``, of
        all samples if it has the attribute ``whole``.
    without
        Peers that take part in nothing: the run is the one that never had them, with all draws and the data of the
        others as they were.
    learner
        A ``package.module:factory`` of a learner of your own, or a table of this ``name`` and ``options``, its further
        arguments.
    device
        ``auto``, or a device of torch.
    dtype
        Of the parameters; ``mixed`` keeps them in float32 and trains in bfloat16 where the device supports it.
    example_noise
        DP-SGD for each sample inside its peer (FedAvg): noise of this multiple of ``max_norm`` on every gradient,
        secret batches of mean size ``batch``, guarantee for ``privacy.delta``.
    """

    algorithm: Reference = "fedavg"
    algorithm_options: dict[str, Any] = {}
    optimizer: str = "sgd"
    rate: NotNegative = 0.1
    options: dict[str, Any] = {}
    max_norm: Positive | None = None
    schedule: Reference | ScheduleSettings | None = None
    batch: Number | Literal["all"] = 32
    epochs: Number = 1
    steps: Number | None = None
    stragglers: Share | StragglerSettings = 0.0
    fraction: Annotated[float, Meta(gt=0, le=1)] = 1.0
    weighted: bool = True
    stop: Positive | None = None
    patience: Number | None = None
    consensus: bool = False
    without: tuple[Name, ...] = ()
    learner: Reference | LearnerSettings | None = None
    loss: Reference | None = None
    augment: Reference | None = None
    metrics: dict[str, Reference] = {}
    device: str = "auto"
    dtype: Literal["float32", "float64", "mixed"] = "float32"
    example_noise: NotNegative = 0.0

    @property
    def example_clip(self) -> float:
        """Largest L2 norm of a sample's gradient under ``example_noise``."""
        return 1.0 if self.max_norm is None else self.max_norm

    @property
    def scheduling(self) -> ScheduleSettings:
        """The schedule as a table."""
        return self.schedule if isinstance(self.schedule, ScheduleSettings) else ScheduleSettings(name=self.schedule)

    @property
    def own_learner(self) -> LearnerSettings | None:
        """The learner of the user's own as a table; ``None`` if there is none."""
        return LearnerSettings(name=self.learner) if isinstance(self.learner, str) else self.learner

    @property
    def straggling(self) -> float:
        """Share of the peers that do only a part of a round's training."""
        return self.stragglers.share if isinstance(self.stragglers, StragglerSettings) else self.stragglers

    @property
    def dropped(self) -> float:
        """Share of the peers that are left out of a round for that."""
        return self.straggling if isinstance(self.stragglers, StragglerSettings) and self.stragglers.drop else 0.0


class EvaluationSettings(Section, frozen=True):
    """Evaluation by ``simulate`` after each round; it evaluates the last round in full.

    By default it evaluates as much as costs at most a fifth of the training, by counted operations: fewer peers, then
    fewer samples, then fewer rounds. With one of these keys set, the other means all, and all
    samples count. A live peer evaluates its model in full after each round.

    Attributes
    ----------
    every
        Rounds from one evaluation to the next.
    peers
        Evaluated peers, the same in each round.
    """

    every: Number | None = None
    peers: Number | None = None


class CompressionSettings(Section, frozen=True):
    """Compression of models; later messages make up for what compression lost.

    Attributes
    ----------
    name
        ``none``; ``float16`` or ``bfloat16``; differences from what was sent before: their largest numbers (``top_k``),
        random numbers (``random_k``), or all in few bits (``qsgd``, ``quantise``); or a ``package.module:Class``.
    options
        ``share`` of the numbers that ``top_k`` and ``random_k`` send, ``levels`` of ``qsgd`` (7 take 4 bits, 127 take
        8), ``bits`` of ``quantise`` and ``top_k``. Where differences travel also ``gamma``, how far a peer moves
        towards what its neighbours sent, and ``refresh``, rounds between whole models, which repair what lost messages
        left.
    zstd
        Also compress without loss; works with every other setting.
    """

    name: Reference = "none"
    options: dict[str, Any] = {}
    zstd: bool = False


class PrivacySettings(Section, frozen=True):
    """Protection of a peer's update.

    Attributes
    ----------
    mode
        ``none``; ``independent``: private noise; ``pairwise``: also masks that cancel; ``secagg``: each peer receives
        only the exact sum of its neighbours' models; or a ``package.module:Class`` with any keys below as parameters.
    clip
        Bound of the norm of an update; 1 if ``epsilon`` is set and this is not.
    noise
        Standard deviation of the private noise in each number.
    mask
        Standard deviation of an edge's mask in each number (pairwise): by default the clip with ``noise``, else by
        start, rate, steps and graph.
    bits
        Fraction bits of the grid on which masks cancel.
    participation
        Probability, kept secret, with which a peer takes part in a release (FedAvg).
    mask_graph
        Who shares masks: the neighbours (``same``), or all peers (``complete``), which hides better and costs no gossip
        step.
    epsilon
        Guarantee over the whole run: noise and mask follow from it, or with ``noise`` the run stops before exceeding
        it.
    delta
        Probability in the guarantee (epsilon, delta).
    colluders
        Peers that may collude with the broker.
    partners
        Mask partners that must be present before a model leaves (pairwise); default ``colluders + 1`` where masks alone
        hide it, else 1.
    departures
        What the others do when a peer disappears during a round under masks: ``wait`` for it, up to
        ``transport.outage``, and play the round again; ``stop`` with the parameters from before it; or ``go_on``
        without the peer, whose update this can show under ``noise`` alone. A malicious peer can cause it.
    adjacency
        Hide a peer's update against none (``zero-out``) or any other (``replace``).
    budget
        File that lists the runs on the same data and what they spend, which ``epsilon`` bounds together; beside the
        data file by default.
    """

    mode: Reference = "none"
    clip: Endless = math.inf
    noise: NotNegative = 0.0
    mask: NotNegative | None = None
    bits: Annotated[int, Meta(ge=1, le=40)] = 20
    participation: Annotated[float, Meta(gt=0, le=1)] = 1.0
    mask_graph: Literal["same", "complete"] = "same"
    epsilon: Positive | None = None
    delta: Annotated[float, Meta(gt=0, lt=1)] = 1e-5
    colluders: Annotated[int, Meta(ge=0)] = 1
    partners: Number | None = None
    departures: Literal["wait", "go_on", "stop"] = "wait"
    adjacency: Literal["zero-out", "replace"] = "zero-out"
    budget: File | None = None


class RobustnessSettings(Section, frozen=True):
    """Robust rule in place of the average, if peers may be Byzantine.

    Attributes
    ----------
    rule
        ``none``, ``clipped_gossip``, ``self_centred_clipping``; ``trimmed_mean``, ``median``, ``krum``, ``multi_krum``,
        which weight all models alike; or a ``package.module:Class``.
    options
        ``attackers``, received models that may be Byzantine, 1 by default; ``radius``, how far one model may pull the
        average (self_centred_clipping). With ``nearest = true``, the last four rules first average each model with
        those nearest to it.
    """

    rule: Reference = "none"
    options: dict[str, Any] = {}


class AttackSettings(Section, frozen=True):
    """Byzantine peers, to see what becomes of the others.

    Attributes
    ----------
    name
        ``sign_flip``, ``scaled``, ``random``, ``label_flip``; ``alie``, ``ipm``, ``dissensus``, which know all honest
        models, so that only ``simulate`` can run them; or a ``package.module:function``.
    peers
        Names of the peers that attack; or their share, drawn from the seed.
    scale
        Strength; by default that of its paper.
    """

    name: Reference = "none"
    peers: Annotated[float, Meta(ge=0, lt=1)] | tuple[str, ...] = 0.2
    scale: Positive | None = None


class Experiment(Section, frozen=True):
    """One experiment; the same for ``run``, ``peer`` and ``simulate``.

    Attributes
    ----------
    name
        Name of the run and its directory.
    seed
        Of everything reproducible.
    rounds
        How many; ``"endless"`` for live peers that learn until they are stopped.
    """

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,40}\Z")] = "experiment"
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    rounds: Number | Literal["endless"] = 10
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

    @property
    def endless(self) -> bool:
        """True if live peers learn until they are stopped."""
        return self.rounds == "endless"

    @property
    def horizon(self) -> int:
        """Number of rounds; :data:`ENDLESS` without an end."""
        return ENDLESS if self.rounds == "endless" else self.rounds
