"""Sections on what is learned, and how it is compressed."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from p2pfl.experiment.schema.values import NotNegative, Number, Positive, Reference, Section, Share

Split = Literal["iid", "dirichlet", "shards", "power_law", "column"]
"""Splits that p2pfl has."""


class DataSettings(Section, frozen=True):
    """Data of the peers, and their split across peers.

    Attributes
    ----------
    name
        A known data set, or a ``package.module:function`` that returns the data of one peer.
    split
        Split of the samples: ``iid``, ``dirichlet`` (``alpha``), ``shards`` (``shards``), ``power_law``
        (``exponent``), ``column`` (``column``); or a ``package.module:function`` of the targets that returns the
        positions of each peer's samples.
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
        Arguments of the data set's loader, such as ``path``, ``target`` and ``columns`` of a table.
    """

    name: Reference = "digits"
    split: Reference = "iid"
    alpha: Positive = 0.3
    shards: Number = 2
    exponent: Positive = 1.5
    column: str | None = None
    test: Annotated[float, Meta(gt=0, lt=1)] = 0.2
    validation: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    scale: bool = False
    options: dict[str, Any] = {}

    @property
    def owned(self) -> bool:
        """True if peers own their data, so that nothing is split and nobody knows the data of others."""
        return ":" in self.name or self.name in {"synthetic", "table"}


class ModelSettings(Section, frozen=True):
    """The model to train.

    Attributes
    ----------
    name
        ``linear``, ``mlp``, ``cnn``; a model of a library, ``torchvision:NAME``, ``timm:NAME`` or
        ``transformers:CLASS``; a ``package.module:Class``; a model that follows from exact totals: ``boosting``,
        ``random_boosting``, ``forest``, ``glm``, ``private_glm``, ``lasso``, ``cox``, ``componentwise``; or statistics
        of all data: ``description``, ``private_description``, ``kaplan_meier``, ``private_kaplan_meier``, ``pca``,
        ``private_pca``.
    hidden
        Widths of the hidden layers of ``mlp``.
    options
        Keyword arguments of a model of a library (with ``weights``), of a class of your own, or of a model that follows
        from totals.
    pretrained
        A file of safetensors, or of ``torch.save``, with parameters to start from.
    frozen
        Name patterns of parameters that are neither trained nor shared.
    norm
        Treatment of batch normalisation, whose running statistics cannot be averaged: it is constant (``frozen``),
        replaced by group normalisation (``group``), or each peer's own (``local``, the default with ``fedbn``). A layer
        whose parameters are frozen is constant without this key.
    """

    name: Reference = "mlp"
    hidden: tuple[Number, ...] = (64,)
    options: dict[str, Any] = {}
    pretrained: str | None = None
    frozen: tuple[str, ...] = ()
    norm: Literal["frozen", "group", "local"] | None = None


class LearningSettings(Section, frozen=True):
    """Training of the peers.

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
    max_norm
        Largest L2 norm of the gradient of each batch, as of torch.nn.utils.clip_grad_norm_; terms that the algorithm
        adds to gradients come after.
    schedule
        A scheduler of torch.optim.lr_scheduler; or a ``package.module:function`` of ``round``, ``step`` and ``steps``
        (of the peer in a round), or some of them, that returns a factor of ``rate``.
    schedule_options
        Arguments of the scheduler, or further ones of the function.
    schedule_by
        Call the schedule once per ``round``, or at each optimiser ``step``. A peer's steps are counted over all rounds,
        those that it missed included.
    warmup
        First optimiser steps of each peer, over rounds too, in which the rate rises linearly.
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
        Convergence: end the run when no peer's released model moves by more than this in a round after the first one.
    patience
        Early stopping: end the run when no peer's loss on its validation part has improved for so many rounds. Each
        peer judges its own model after each round and keeps its best one; all stop in the same round.
    consensus
        After the last round, give all peers the same model, the exact mean of what they released, and add up its scores
        on the test data of all peers (``common`` in the summary).
    loss
        ``cross_entropy`` (the default for classes, also at each place), ``squared_error`` (for numbers),
        ``binary_cross_entropy`` (for several labels in a sample, 0 or 1 each), or a ``package.module:function`` of
        (outputs, targets) that returns one number per sample.
    augment
        A ``package.module:function`` of (features, generator) that changes the features of each training batch at
        random, such as crops of pictures. Its numbers follow from the seed, peer, round and step.
    metrics
        Names, each with ``accuracy``, ``auc``, ``macro_f1``, ``mean_iou``, a loss, or a function of your own like that
        of ``loss``. A function with the attribute ``whole`` returns one number for all outputs and targets instead.
    learner
        A ``package.module:factory`` of a learner, such as a training loop of another framework.
    learner_options
        Arguments of the factory besides the keys above for which it has parameters.
    device
        Device for training: ``auto``, or a device of torch.
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
    max_norm: Positive | None = None
    schedule: str | None = None
    schedule_options: dict[str, Any] = {}
    schedule_by: Literal["round", "step"] = "round"
    warmup: Annotated[int, Meta(ge=0)] = 0
    batch: Number | Literal["all"] = 32
    epochs: Number = 1
    steps: Number | None = None
    stragglers: Share = 0.0
    drop_stragglers: bool = False
    fraction: Annotated[float, Meta(gt=0, le=1)] = 1.0
    weighted: bool = True
    stop: Positive | None = None
    patience: Number | None = None
    consensus: bool = False
    learner: Reference | None = None
    learner_options: dict[str, Any] = {}
    loss: Reference | None = None
    augment: Reference | None = None
    metrics: dict[str, Reference] = {}
    device: str = "auto"
    precision: Literal["full", "mixed"] = "full"
    dtype: Literal["float32", "float64"] = "float32"
    example_noise: NotNegative = 0.0
    example_clip: Positive = 1.0


class EvaluationSettings(Section, frozen=True):
    """Amount that ``simulate`` evaluates after each round; the last round is always evaluated in full.

    By default it evaluates as much as costs at most a fifth of the training, by counted operations: fewer peers, then
    fewer samples, then fewer rounds. With any of these keys set, the others mean all. A live peer evaluates its model
    in full after each round.

    Attributes
    ----------
    every
        Rounds from one evaluation to the next.
    peers
        Number of peers that are evaluated, the same in each round, drawn by key.
    samples
        Largest number of test samples, and of validation samples, that a peer is evaluated on, drawn by key.
    """

    every: Number | None = None
    peers: Number | None = None
    samples: Number | None = None


class CompressionSettings(Section, frozen=True):
    """Compression of models; later messages make up for what compression lost.

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
