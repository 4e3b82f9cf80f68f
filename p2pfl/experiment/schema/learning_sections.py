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
    split_options
        Arguments of the split: ``alpha`` of ``dirichlet`` (smaller values make peers differ more), ``shards`` per peer,
        ``exponent`` of the ``power_law`` of sample counts, ``column``, whose values name the peer of a sample.
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
    split_options: dict[str, Any] = {}
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
        Largest L2 norm of a batch's gradient, before terms that the algorithm adds.
    schedule
        A scheduler of torch.optim.lr_scheduler; a ``package.module:function`` of any of ``round``, ``step`` and
        ``steps`` that returns a factor of ``rate``; or a table: its ``name`` and ``options``, ``by = "step"`` to call
        it at each optimiser step, counted over all rounds, instead of once per round, and ``warmup``, the optimiser
        steps over which the rate rises linearly.
    batch
        Samples per optimiser step.
    epochs
        Passes over the data per round.
    steps
        Optimiser steps per round, instead of ``epochs``.
    stragglers
        Share of the peers that do only a random part of a round's training; or a table of this ``share`` and
        ``drop = true``, which leaves them out of the round.
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
        A ``package.module:factory`` of a learner of your own; or a table of this ``name`` and ``options``, arguments of
        the factory besides those of the keys above.
    device
        ``auto``, or a device of torch.
    dtype
        Of the parameters; ``mixed`` keeps them in float32 and trains in bfloat16 where the device supports it.
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
    learner: Reference | LearnerSettings | None = None
    loss: Reference | None = None
    augment: Reference | None = None
    metrics: dict[str, Reference] = {}
    device: str = "auto"
    dtype: Literal["float32", "float64", "mixed"] = "float32"
    example_noise: NotNegative = 0.0
    example_clip: Positive = 1.0

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
