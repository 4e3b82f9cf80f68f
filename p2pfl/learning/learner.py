""":class:`Learner`, the interface through which algorithms train and evaluate models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Required, Self, TypedDict, Unpack, runtime_checkable

from p2pfl.core.encodings import Ints
from p2pfl.core.errors import LearningError, ModelError
from p2pfl.core.explanations import Explained
from p2pfl.core.rows import Layout, Rows
from p2pfl.core.tensors import torch
from p2pfl.core.traits import LearnerTraits
from p2pfl.data import Dataset, Federation
from p2pfl.learning.losses import PerSample
from p2pfl.learning.models import model_file_of, read_row
from p2pfl.learning.set_scores import SetScore
from p2pfl.privacy.keys import Source

Memory = Mapping[str, torch.Tensor]
"""Optimiser state by name: ``[R, P]`` for state per parameter, ``[R]`` on the CPU for state per row."""

Correction = Callable[[Rows, torch.Tensor], Rows]
"""Function ``correction(rows, indices)`` that returns ``[K, P]``, added to the gradients of the K rows ``indices``."""


@dataclass(frozen=True)
class Report:
    """Losses and steps of a round of local training.

    Attributes
    ----------
    loss
        ``[R]`` float64: mean training loss of the last epoch, 0 for idle rows. On an accelerator it is NaN for a row
        that is no longer finite, and nothing has been checked: a check would wait for the device.
    steps
        ``[R]`` int64 on the CPU: optimiser steps taken in this round.
    """

    loss: torch.Tensor
    steps: torch.Tensor


@dataclass(frozen=True)
class Fitted:
    """Rows after a round of local training, with optimiser state and a report.

    Attributes
    ----------
    rows
        ``[R, P]``; idle rows stay as they were, bit for bit.
    memory
        Optimiser state to pass to the next round; empty for optimisers without state.
    report
        Loss and steps; it may be kept without keeping the rows.
    owned
        True if nobody else reads the rows, so that an algorithm may overwrite them to save memory.
    """

    rows: Rows
    memory: Memory
    report: Report
    owned: bool = False


class Fitting(TypedDict, total=False):
    """Keyword arguments of :meth:`Learner.fit` besides rows, for wrappers that pass them on."""

    peers: Required[Sequence[str]]
    round: Required[int]
    memory: Memory | None
    active: torch.Tensor | None
    correction: Correction | None


class Sloping(TypedDict, total=False):
    """Keyword arguments of :meth:`Learner.gradient` besides rows, for wrappers that pass them on."""

    peers: Required[Sequence[str]]
    round: Required[int]
    step: int
    whole: bool
    active: torch.Tensor | None


@runtime_checkable
class Learner(Protocol):
    """Interface that trains and evaluates rows; R = 1 on a device, R = N in a simulation."""

    @property
    def layout(self) -> Layout:
        """Places of the trained tensors in a row."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """Number type of the parameters."""
        ...

    @property
    def bare(self) -> Learner:
        """The innermost learner, without wrappers; its class offers more than this interface."""
        ...

    def on(self, federation: Federation) -> Self:
        """Return the same learner on other data of the same shape."""
        ...

    def drawing(self, source: Source) -> Self:
        """Return the same learner with another source for the secrets that hide single samples, if it uses any."""
        ...

    def start(self, peers: Sequence[str]) -> Rows:
        """Return the common initial parameters, the same row for every peer, ``[R, P]``."""
        ...

    def samples(self, peers: Sequence[str]) -> torch.Tensor:
        """Return the number of training samples of each peer, ``[R]`` int64."""
        ...

    def fit(
        self,
        rows: Rows,
        *,
        peers: Sequence[str],
        round: int,
        memory: Memory | None = None,
        active: torch.Tensor | None = None,
        correction: Correction | None = None,
    ) -> Fitted:
        """Train each row on the data of its peer; rows that are not ``active`` do not move.

        Rows may share memory; clone them before you write into them.
        """
        ...

    def gradient(
        self,
        rows: Rows,
        *,
        peers: Sequence[str],
        round: int,
        step: int = 0,
        whole: bool = False,
        active: torch.Tensor | None = None,
    ) -> Rows:
        r"""Return :math:`\nabla F_k(x_k; \xi)` of each row, ``[R, P]``, zero where a row is not ``active``.

        :math:`\xi` is the batch of a ``step`` of the round, or the ``whole`` training part.
        """
        ...

    def rate(self, round: int) -> float:
        """Return the step size of a round."""
        ...

    def evaluate(self, rows: Rows, *, peers: Sequence[str], part: str = "test") -> dict[str, torch.Tensor]:
        """Return scores by name, each ``[R]`` float64; ``loss`` is among them."""
        ...

    def state_dict(self, row: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return one row ``[P]`` under the names of the model, including frozen tensors."""
        ...


class SequentialLearner(ABC):
    """Base of learners that train one model after the other and show no gradients.

    Attributes
    ----------
    layout
        Places of the trained tensors in a row.
    gradients_missing
        Why there are no gradients and what to do, the end of a sentence.
    """

    layout: Layout
    gradients_missing: str

    @property
    def bare(self) -> Self:
        """The learner itself."""
        return self

    def drawing(self, source: Source) -> Self:
        """Return the learner itself, as it draws no secrets through p2pfl."""
        del source
        return self

    @abstractmethod
    def train(self, row: torch.Tensor, *, peer: str, round: int) -> tuple[torch.Tensor, float]:
        """Return the model ``[P]`` of a peer after a round, and its loss."""

    def fit(
        self,
        rows: Rows,
        *,
        peers: Sequence[str],
        round: int,
        memory: Memory | None = None,
        active: torch.Tensor | None = None,
        correction: Correction | None = None,
    ) -> Fitted:
        """Train each active row; a row counts as one step.

        Raises
        ------
        ModelError
            The algorithm corrects gradients.
        """
        if correction is not None:
            raise ModelError(f"this algorithm corrects gradients, but {self.gradients_missing}")
        awake = torch.ones(len(rows), dtype=torch.bool) if active is None else active.cpu()  # [R]
        trained = rows.clone()  # [R, P]
        loss = torch.zeros(len(rows), dtype=torch.float64)  # [R]
        for number, peer in enumerate(peers):
            if awake[number]:
                trained[number], loss[number] = self.train(rows[number].clone(), peer=peer, round=round)
        return Fitted(trained, dict(memory or {}), Report(loss, awake.to(torch.int64)))

    def gradient(self, rows: Rows, **arguments: Unpack[Sloping]) -> Rows:
        """Raise :class:`ModelError`, as there are no gradients.

        Raises
        ------
        ModelError
            Always.
        """
        del rows, arguments
        raise ModelError(f"this algorithm needs gradients, but {self.gradients_missing}")

    def rate(self, round: int) -> float:
        """Raise :class:`ModelError`, as there are no gradient steps.

        Raises
        ------
        ModelError
            Always.
        """
        del round
        raise ModelError(f"this algorithm takes gradient steps, but {self.gradients_missing}")

    def state_dict(self, row: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return one row ``[P]`` under the names of the layout."""
        return {name: part[0].detach().clone() for name, part in self.layout.split(row.unsqueeze(0)).items()}


@runtime_checkable
class Adjustable(Protocol):
    """A learner whose amount of training and seed a run sets."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings of the learner, as keys of ``[learning]``."""
        ...

    def adjusted(
        self, *, seed: int, epochs: int | None = None, steps: int | None = None, full_batch: bool = False
    ) -> Self:
        """Return the same learner with a seed where it has none, and with epochs or steps where they are given."""
        ...


@runtime_checkable
class Pools(Protocol):
    """A learner that can train one model on the data of all peers, to compare with."""

    def pooled(self, federation: Federation, *, peers: int, rounds: int) -> Learner:
        """Return the learner of one peer that does in a round what ``peers`` do together."""
        ...


@runtime_checkable
class Tallies(Protocol):
    """A learner whose histograms of predictions can be added up over peers."""

    @property
    def whole(self) -> Collection[str]:
        """Names of the scores of all samples together, which are no means over peers."""
        ...

    def tallies(self, rows: Rows, *, peers: Sequence[str]) -> torch.Tensor:
        """Return histograms of each row over the test part of its peer, ``[R, T]`` int64."""
        ...

    def tallied(self, row: torch.Tensor, total: Ints, *, copies: int) -> dict[str, float]:
        """Return the scores of a model ``[P]`` that follow from the sum of its :meth:`tallies` over all peers.

        Parameters
        ----------
        row
            The model.
        total
            The sum, ``[T]``.
        copies
            How often each sample counts.
        """
        ...


@runtime_checkable
class ChecksCells(Protocol):
    """A learner whose totals single out cells of samples, so that it looks for small ones first."""

    def checking_cells(self, source: Source, *, peers: Sequence[str], least: int) -> Learner:
        """Return the same learner, which hides the counts of its samples from the other peers.

        Parameters
        ----------
        source
            Source of the numbers that hide counts.
        peers
            Names of all peers, where each of them hides its samples from the others; empty in a simulation.
        least
            Least number of samples that this site lets any total single out.
        """
        ...


@runtime_checkable
class BeginsApart(Protocol):
    """A learner whose peers may begin with models of their own, such as those with which an earlier run ended."""

    def begin(self, peers: Sequence[str]) -> Rows | None:
        """Return the models ``[R, P]`` with which these peers begin; ``None`` if all begin with that of ``start``."""
        ...


@runtime_checkable
class KeepsOwn(Protocol):
    """A learner whose models have effects of each peer's own, which stay there."""

    def owned(self, row: torch.Tensor, *, peer: str) -> dict[str, torch.Tensor]:
        """Return one row ``[P]`` with the effects of a peer's own, under their names; nothing if it has none."""
        ...


@runtime_checkable
class KeepsModels(Protocol):
    """A learner for which the tensors of a row depend on the peer, such as adapters of a rank of its own."""

    def kept(self, row: torch.Tensor, *, peer: str) -> dict[str, torch.Tensor]:
        """Return the tensors of a peer's model in one row ``[P]``, for the file that it keeps."""
        ...


@runtime_checkable
class KeepsPrivate(KeepsModels, Protocol):
    """A learner each of whose peers ends with a private model, such as the coefficients of its own columns."""

    def described(self, peer: str | None = None) -> Mapping[str, Any]:
        """Return the description of a peer's model, which its file holds, or what all may know: JSON values."""
        ...


@runtime_checkable
class ShowsPredictors(Protocol):
    """A learner whose runs show one peer a linear predictor of each row of others, from many of which columns follow.

    Attributes
    ----------
    max_predictors
        Most predictors of a row that all runs together may show.
    """

    max_predictors: int

    def predictors(self, peer: str) -> int:
        """Return how many predictors of each row of a local peer the run shows another peer."""
        ...


@runtime_checkable
class SharesValue(Protocol):
    """A learner whose totals show what each peer adds to the explained variance, so that nothing is trained for it.

    Attributes
    ----------
    value_metric
        Name of the score that is shared out.
    """

    value_metric: str

    def shares(self, models: Mapping[str, Mapping[str, torch.Tensor]]) -> Mapping[str, float]:
        """Return Shapley's value of each peer with columns, given the tensors of the models of all peers.

        Raises
        ------
        ModelError
            The model has no such value.
        """
        ...


@dataclass(frozen=True)
class OwnBaselines:
    """Scores with which a learner compares learning together.

    Parameters
    ----------
    alone
        Scores by name of the peers that can learn alone, by peer.
    pooled
        Scores by name of one model on all data; ``None`` where it is not known.
    difference
        Largest difference of a number that the peers learned from that of the model on all data, in its own standard
        errors or, where there are none, relative to the largest of its kind; ``None`` where it is not known.
    """

    alone: Mapping[str, Mapping[str, float]]
    pooled: Mapping[str, float] | None = None
    difference: float | None = None


@runtime_checkable
class ComparesItself(Protocol):
    """A learner that knows what to compare learning together with, as peers alone cannot be trained like all."""

    def baselines(self, models: Mapping[str, torch.Tensor]) -> OwnBaselines:
        """Return the scores of learning alone and on all data, given the final models ``[P]`` of peers at hand."""
        ...


@runtime_checkable
class Predicts(Protocol):
    """A learner that shows what a model predicts for single samples, and by which functions it is scored."""

    @property
    def scoring(self) -> Mapping[str, PerSample | SetScore]:
        """Scores by name, as functions of outputs and targets, that can be computed for resampled sets."""
        ...

    def outputs(self, row: torch.Tensor, *, peer: str, part: str = "test") -> tuple[torch.Tensor, torch.Tensor]:
        """Return the outputs ``[n, *outputs]`` of a model ``[P]`` on a peer's samples and their targets, on the CPU."""
        ...


@runtime_checkable
class ProtectsSamples(Protocol):
    """A learner that bounds and hides what it learns from each sample, as DP-SGD does."""

    noise: float
    clip: float
    source: Source

    def cost(self, peer: str) -> tuple[float, int]:
        """Return the rate at which the samples of a peer are drawn, and the steps of a round."""
        ...


@runtime_checkable
class Explains(Protocol):
    """A learner whose models explain the role of their features."""

    def explained(self, row: torch.Tensor) -> Explained | None:
        """Return the explanation of a model ``[P]``; ``None`` if it has none."""
        ...


@runtime_checkable
class Federated(Protocol):
    """A learner that knows the data of its peers."""

    federation: Federation


@runtime_checkable
class SharesBase(Protocol):
    """A learner with constants that no row contains and all peers must share.

    Attributes
    ----------
    base
        Digest of the constants, which neighbours compare; empty if there are none.
    """

    base: str


def learner_traits(learner: Learner) -> LearnerTraits:
    """Return the traits of a learner, beneath its wrappers; the neutral ones where it declares none."""
    traits: LearnerTraits = getattr(learner.bare, "traits", LearnerTraits())
    return traits


class TrainRow(Protocol):
    """Function ``function(row, peer=..., round=...) -> row`` that trains the model of one peer."""

    def __call__(self, row: torch.Tensor, *, peer: str, round: int) -> torch.Tensor:
        """Return the trained row ``[P]``; the function may change its argument."""
        ...


@dataclass(frozen=True, eq=False)
class OwnModel:
    """Model that a training loop of your own trains, for those who use its files.

    Attributes
    ----------
    name
        Name of a model of p2pfl, or ``package.module:name`` of a torch module, whose tensors are those of the layout.
    data
        Samples of the same form as those of the peers. Their description states how raw values become features; the
        samples themselves are not saved.
    options
        Options of the model.

    Examples
    --------
    >>> from p2pfl.data.data_description import Description, Field
    >>> inputs = Description(columns=(Field("bar"), Field("rpm")))
    >>> one = Dataset(torch.zeros(1, 2), torch.zeros(1, dtype=torch.int64), classes=2, description=inputs)
    >>> OwnModel("linear", one).data.shape
    (2,)
    """

    name: str
    data: Dataset
    options: Mapping[str, Any] = field(default_factory=dict)


class ExternalLearner(SequentialLearner):
    """Learner that calls a training loop, in any framework, for one row after the other.

    Parameters
    ----------
    function
        Function that trains one row; it may be called for many peers, and must not depend on their order.
    start
        Common initial parameters, ``[P]``.
    samples
        Number of training samples of each peer; or a function of its name that returns the number of now, which is
        asked in each round, for data that grow.
    evaluate
        Function ``evaluate(row, peer) -> scores by name``; no scores if ``None``.
    layout
        Names and shapes of the tensors of a row; one tensor called ``row`` if ``None``.
    describe
        Function that returns the model, the same for all peers, so that ``p2pfl predict`` and ``p2pfl export`` take its
        files. It may be called several times, before and after training. The names and shapes of ``layout`` are those
        of the module, and the scaling is that of the loop: ``data.scale`` does not reach it.

    Raises
    ------
    ModelError
        ``start`` does not fit ``layout``.

    Examples
    --------
    >>> def halve(row, *, peer, round):
    ...     return row / 2
    >>> learner = ExternalLearner(halve, start=torch.ones(2), samples={"ada": 3})
    >>> learner.fit(learner.start(["ada"]), peers=["ada"], round=0).rows
    tensor([[0.5000, 0.5000]])
    """

    traits: ClassVar[LearnerTraits] = LearnerTraits()
    gradients_missing = "a training loop of your own does not expose them; use FedAvg, or a torch model"

    def __init__(
        self,
        function: TrainRow,
        *,
        start: torch.Tensor,
        samples: Mapping[str, int] | Callable[[str], int],
        evaluate: Callable[[torch.Tensor, str], Mapping[str, float]] | None = None,
        layout: Layout | None = None,
        describe: Callable[[], OwnModel] | None = None,
    ) -> None:
        self.describe = describe
        self.layout = layout or Layout(("row",), ((start.numel(),),))
        if tuple(start.shape) != (self.layout.size,) or not start.is_floating_point():
            raise ModelError(
                f"start has shape {tuple(start.shape)} and type {start.dtype}, not {self.layout.size} floats; "
                "flatten the trained tensors in the order of the layout"
            )
        self.function, self.scores = function, evaluate
        self.initial = start.detach().clone()
        self.counts = samples if callable(samples) else dict(samples).__getitem__
        self.models: str | None = None  # file of each peer's model to begin with

    @property
    def dtype(self) -> torch.dtype:
        """Number type of the parameters."""
        return self.initial.dtype

    def own_model(self) -> OwnModel | None:
        """Return what ``describe`` returns; ``None`` without it.

        Raises
        ------
        ModelError
            The result is not an :class:`OwnModel` with a name, a data set and options.
        """
        if self.describe is None:
            return None
        own = self.describe()
        if not isinstance(own, OwnModel):
            raise ModelError(f"describe of the learner returned {type(own).__name__}; return a p2pfl.OwnModel")
        for name, kind in (("name", str), ("data", Dataset), ("options", Mapping)):
            if not isinstance(found := getattr(own, name), kind):
                raise ModelError(
                    f"describe of the learner returned an OwnModel whose {name} is {type(found).__name__}; give it "
                    f"{kind.__name__}"
                )
        return own

    def on(self, federation: Federation) -> Self:
        """Raise :class:`ModelError`, as only the training loop knows its data.

        Raises
        ------
        ModelError
            Always.
        """
        del federation
        raise ModelError(
            "data.scale needs a torch model, but this is a training loop of your own; scale the features in the loop"
        )

    def start(self, peers: Sequence[str]) -> Rows:
        """Return the common initial parameters for every peer, ``[R, P]``."""
        return self.initial.repeat(len(peers), 1)  # [R, P]

    def begin(self, peers: Sequence[str]) -> Rows | None:
        """Return the models ``[R, P]`` with which peers begin, where each has a file of its own; else ``None``.

        Raises
        ------
        ModelError
            There is no file of a peer, or it holds another model.
        """
        if self.models is None:
            return None
        files = [model_file_of(self.models, peer) for peer in peers]
        return torch.stack([read_row(file, layout=self.layout, dtype=self.dtype) for file in files])  # [R, P]

    def samples(self, peers: Sequence[str]) -> torch.Tensor:
        """Return the number of training samples of each peer, ``[R]`` int64."""
        return torch.tensor([self.counts(peer) for peer in peers], dtype=torch.int64)  # [R]

    def train(self, row: torch.Tensor, *, peer: str, round: int) -> tuple[torch.Tensor, float]:
        """Return the row that the function trained; its loss counts as 0.

        Raises
        ------
        LearningError
            The function returns something other than a finite row.
        """
        trained = self.function(row, peer=peer, round=round)
        if tuple(trained.shape) != (self.layout.size,) or not torch.isfinite(trained).all():
            raise LearningError(
                f"the training function returns something other than a finite row of {self.layout.size} "
                f"numbers for {peer} in round {round}; check its learning rate and its result"
            )
        return trained.detach(), 0.0

    def evaluate(self, rows: Rows, *, peers: Sequence[str], part: str = "test") -> dict[str, torch.Tensor]:
        """Return scores by name, each ``[R]`` float64; the function only evaluates the ``test`` part."""
        if self.scores is None or part != "test":
            return {}
        each = [self.scores(row, peer) for row, peer in zip(rows, peers, strict=True)]
        return {
            name: torch.tensor([float(scores[name]) for scores in each], dtype=torch.float64)  # [R]
            for name in (each[0] if each else ())
        }
