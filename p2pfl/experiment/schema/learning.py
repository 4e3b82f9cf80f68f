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
        ``iid``, ``dirichlet``, ``shards``, ``power_law``, ``column``; or a ``package.module:function`` of the targets
        that returns the positions of each peer's samples.
    alpha
        Of the Dirichlet split; smaller values make peers differ more.
    shards
        Per peer.
    exponent
        Of the power law of sample counts.
    column
        Its values name the peer of a sample.
    test
        Share held out for testing.
    validation
        Share of each peer's training data held out for validation.
    scale
        Scale features to mean 0 and deviation 1 over all peers, by sums before the first round.
    options
        Arguments of the loader, such as ``path``, ``target`` and ``columns`` of a table.
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
        ``linear``, ``mlp``, ``cnn``; ``torchvision:NAME``, ``timm:NAME`` or ``transformers:CLASS``; a
        ``package.module:Class``; a model from exact totals: ``boosting``, ``random_boosting``, ``forest``, ``glm``,
        ``private_glm``, ``lasso``, ``cox``, ``componentwise``; or statistics: ``description``, ``private_description``,
        ``kaplan_meier``, ``private_kaplan_meier``, ``pca``, ``private_pca``.
    hidden
        Widths of the hidden layers of ``mlp``.
    options
        Arguments of the model, including ``weights`` for models of libraries.
    pretrained
        File of safetensors or ``torch.save`` to start from.
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
        Largest L2 norm of a batch's gradient, before terms that the algorithm adds.
    schedule
        A scheduler of torch.optim.lr_scheduler, or a ``package.module:function`` of any of ``round``, ``step`` and
        ``steps`` that returns a factor of ``rate``.
    schedule_options
        Arguments of the schedule.
    schedule_by
        Call the schedule once per round, or at each optimiser step, counted over all rounds.
    warmup
        Optimiser steps over which the rate rises linearly.
    batch
        Samples per optimiser step.
    epochs
        Passes over the data per round.
    steps
        Optimiser steps per round, instead of ``epochs``.
    stragglers
        Share of the peers that do only a random part of a round's training.
    drop_stragglers
        Leave stragglers out of the round.
    fraction
        Share of the peers in a round, for algorithms that allow it.
    weighted
        Weight peers by their samples, for algorithms that allow it.
    stop
        Convergence: stop when no peer's released model moves by more than this in a round.
    patience
        Early stopping: end when no peer's validation loss has improved for so many rounds; each keeps its best model.
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
    learner
        A ``package.module:factory`` of a learner of your own.
    learner_options
        Arguments of the factory besides those of the keys above.
    device
        ``auto``, or a device of torch.
    precision
        ``mixed`` trains in bfloat16 where the device supports it.
    dtype
        Of the parameters.
    example_noise
        DP-SGD for each sample inside its peer (FedAvg): noise of this multiple of ``example_clip`` on every gradient,
        secret batches of mean size ``batch``, guarantee for ``privacy.delta``.
    example_clip
        Bound of the norm of a sample's gradient.
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
    """What ``simulate`` evaluates after each round; it evaluates the last round in full.

    By default it evaluates as much as costs at most a fifth of the training, by counted operations: fewer peers, then
    fewer samples, then fewer rounds. With any of these keys set, the others mean all. A live peer evaluates its model
    in full after each round.

    Attributes
    ----------
    every
        Rounds from one evaluation to the next.
    peers
        Evaluated peers, the same in each round.
    samples
        Most test samples, and validation samples, of a peer.
    """

    every: Number | None = None
    peers: Number | None = None
    samples: Number | None = None


class CompressionSettings(Section, frozen=True):
    """Compression of models; later messages make up for what compression lost.

    Attributes
    ----------
    name
        ``none``; ``float16`` or ``bfloat16``; differences from what was sent before: their largest numbers (``top_k``),
        random numbers (``random_k``), or all in few bits (``qsgd``, ``quantise``); or a ``package.module:Class``.
    options
        Arguments of the class: ``share`` of the numbers that ``top_k`` and ``random_k`` send, ``levels`` of ``qsgd`` (7
        take 4 bits, 127 take 8), ``bits`` of ``quantise``. Where differences travel also ``gamma``, how far a peer
        moves towards what its neighbours sent, and ``refresh``, rounds between whole models, which repair what lost
        messages left.
    zstd
        Also compress without loss; works with every other setting.
    """

    name: Reference = "none"
    options: dict[str, Any] = {}
    zstd: bool = False
