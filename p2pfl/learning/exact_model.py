""":class:`ExactModel`, a model that all peers compute from the same totals."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import DataError
from p2pfl.core.explanations import Explained
from p2pfl.core.rows import Layout
from p2pfl.core.tensors import torch
from p2pfl.core.traits import ModelTraits
from p2pfl.data.data_description import Description, Field, FloatArray
from p2pfl.learning.additive import Questions, Result
from p2pfl.learning.losses import PerSample
from p2pfl.learning.small_cells import CellCheck

Tensors = Mapping[str, Floats]
"""Public numbers of a model by name, float64."""


def zeros(layout: Layout) -> dict[str, Floats]:
    """Return zeros under the names and in the shapes of a layout."""
    return {name: np.zeros(shape) for name, shape in zip(layout.names, layout.shapes, strict=True)}


def symmetric(upper: Floats, *, size: int) -> Floats:
    """Return the symmetric matrix ``[size, size]`` whose upper triangle, diagonal included, is given row by row.

    Examples
    --------
    >>> symmetric(np.array([1.0, 2.0, 3.0]), size=2).tolist()
    [[1.0, 2.0], [2.0, 3.0]]
    """
    matrix = np.zeros((size, size))
    corner = np.triu_indices(size)
    matrix[corner] = matrix.T[corner] = upper
    return matrix


@dataclass(frozen=True, eq=False)
class Part:
    """Samples of one peer, or the test samples that all peers share.

    Parameters
    ----------
    features
        ``[n, F]`` float64, or float32 where the traits of the model say ``single``; NaN where a value is missing.
    targets
        ``[n]``: int64 classes, or float64 numbers.
    kept
        Results that follow from these samples and public numbers, kept because they are needed again.
    """

    features: FloatArray
    targets: npt.NDArray[Any]
    kept: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.targets)

    def check_complete(self, peer: str, *, model: str) -> None:
        """Refuse missing values, for a model that takes none.

        Parameters
        ----------
        peer, model
            Names of the owner and of the model, for the error.

        Raises
        ------
        DataError
            A value is missing.
        """
        if np.isnan(self.features).any():
            raise DataError(
                f"{peer} has missing values, which {model} does not take; give the columns a rule `missing`"
            )


@dataclass(frozen=True, eq=False)
class Own:
    """Private samples of one peer.

    Parameters
    ----------
    train, validation
        Samples that a model follows from, and samples that decide when it is good enough.
    test
        Samples for scores, which statistics of all data count as well.
    """

    train: Part
    validation: Part
    test: Part | None = None


Owns = Callable[[str], Own]
"""Function that returns the samples of a peer; only the answer of a question may call it."""


@dataclass(frozen=True)
class Outcome:
    """Public result of a round.

    Parameters
    ----------
    tensors
        The model after the round.
    loss
        Mean training loss that the totals showed; ``None`` if they show none.
    over
        True if further rounds would change nothing.
    """

    tensors: Tensors
    loss: float | None = None
    over: bool = False


Asked = Questions[Result]
"""Part of a round: it yields questions, receives their totals, and returns a result."""

Round = Asked[Outcome]
"""A round of a model."""


class ExactModel(ABC):
    """A model that is a public function of totals; how it asks and computes, without data, peers or a network.

    What runs between two questions must be deterministic on every computer: integers, comparisons, and the operations
    that IEEE 754 defines (``+ - * /`` and square roots, element by element). An ``answer`` may use anything, because
    only its owner computes it.

    Attributes
    ----------
    name
        Name in the experiment file.
    shows
        Facts about all data that its totals show, to complete the sentence "every peer learns ...".
    checks
        Cells in which the check of small cells lets nobody be alone, to complete that sentence; empty without a check.
    traits
        Offers of the model.
    column_options
        Names of the options that name columns which are no features, such as weights.
    places_knots
        True if it finds the knots of splines in a formula.

    See Also
    --------
    Tallied : Scores from histograms that are no classifier's.
    Personal : Effects of each peer's own.
    """

    name: ClassVar[str]
    shows: ClassVar[str]
    checks: ClassVar[str] = ""
    traits: ClassVar[ModelTraits] = ModelTraits()
    column_options: ClassVar[tuple[str, ...]] = ()
    places_knots: ClassVar[bool] = False

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """Names and shapes of the tensors."""

    @property
    @abstractmethod
    def scored(self) -> str:
        """Kind of the score: ``classes``, ``numbers``, ``risks`` for times until an event, or ``nothing``.

        ``tallied risks`` have strata or times of entry, so that the tallies of the model alone compare the right pairs.
        """

    @abstractmethod
    def start(self) -> Tensors:
        """Return the model before the first round, the same at all peers."""

    @abstractmethod
    def round(self, tensors: Tensors, own: Owns) -> Round:
        """Run one round from a model."""

    def check_cells(self, tensors: Tensors, check: CellCheck[Own]) -> Asked[Tensors]:
        """Look for cells with few samples before the first round, and return the model that starts.

        A model that merges small cells returns how; it has nothing to look for where its totals have private noise.

        Raises
        ------
        DataError
            A total would single out few samples; the message names columns and what to do, and no count.
        """
        del check
        yield from ()
        return tensors

    def check_rows(self, tensors: Tensors, check: CellCheck[Own]) -> Asked[None]:
        """Look, before each round, for samples that make up nearly all of a total of the round.

        Parameters
        ----------
        tensors
            The model before the round.
        check
            Check of the samples that totals are taken of, with features as they have them.

        Raises
        ------
        DataError
            There is one; the message names columns and what to do.
        """
        del tensors, check
        yield from ()

    def advance(self, tensors: Tensors, own: Owns) -> Round:
        """Run one round with what the check of small cells has merged."""
        return (yield from self.round(tensors, own))

    @abstractmethod
    def module(self) -> torch.nn.Module:
        """Return a torch module for predictions elsewhere; its tensors are those of the model."""

    @abstractmethod
    def predicted(self, tensors: Tensors, part: Part) -> Floats:
        """Return logits ``[n, C]`` of C classes, or predicted numbers ``[n, 1]``."""

    @property
    def alone(self) -> ExactModel:
        """The model of a peer that learns alone, without limits on what others see."""
        return self

    @property
    def least(self) -> int:
        """Least number of samples of whatever a total singles out; 1 if a single one may be shown."""
        return 1

    @property
    def merges(self) -> bool:
        """True if the check of small cells may merge them."""
        return False

    @property
    def lost(self) -> PerSample | None:
        """Loss of predicted numbers; ``None`` for the squared error, and for classes."""
        return None

    @property
    def unscaled(self) -> tuple[int, ...]:
        """Positions of the features that must keep their units."""
        return ()

    @property
    def event_kinds(self) -> str | None:
        """Name of the column that says which kind of event happened, which is no feature."""
        return None

    @property
    def predicts_alone(self) -> bool:
        """True if its file is enough for predictions; False for a part of a model of several peers."""
        return True

    @property
    def training_only(self) -> tuple[str, ...]:
        """Names of the columns that a table for predictions may lack."""
        return ()

    @classmethod
    def shown(cls, options: Mapping[str, Any]) -> str:
        """Return what totals show with some options of the experiment file."""
        del options
        return cls.shows

    def check(self) -> None:
        """Refuse options before anything starts, by a :class:`p2pfl.core.errors.P2PFLError`."""
        return

    def explained(self, tensors: Tensors, *, fields: Sequence[Field], classes: Sequence[str]) -> Explained | None:
        """Return what a model says of its features; ``None`` if it says nothing.

        Parameters
        ----------
        tensors
            The model.
        fields
            Columns of its table.
        classes
            Names of the classes; empty for a regression of numbers.
        """
        del tensors, fields, classes
        return None

    def predictor(self, names: Collection[str]) -> torch.nn.Module:
        """Return the torch module for the tensors of these names, which a file of the model holds."""
        del names
        return self.module()


@runtime_checkable
class Tallied(Protocol):
    """A model whose scores on the test data of all peers follow from histograms that are no classifier's."""

    def tally(self, tensors: Tensors, part: Part) -> Ints:
        """Return histograms of what the model predicts for samples, ``[T]`` int64."""
        ...

    def tallied(self, tensors: Tensors, total: Ints) -> dict[str, float]:
        """Return the scores that follow from their sum over all peers, by name."""
        ...


@runtime_checkable
class Comparing(Protocol):
    """A model whose totals show an owner how its samples differ from those of the others."""

    def compared(self, own: Own, meaning: Description) -> tuple[str, ...]:
        """Return sentences for an owner alone, after a round; nothing before."""
        ...


@runtime_checkable
class Personal(Protocol):
    """A model with effects of each peer's own, which follow from its samples and the public model, and stay there."""

    def personal(self, tensors: Tensors, own: Own, part: Part) -> Floats:
        """Return outputs as ``predicted`` does, with the effects of a peer's own."""
        ...

    def owned(self, tensors: Tensors, own: Own) -> Tensors:
        """Return the effects of a peer's own by name, for a file that it keeps; nothing if there are none."""
        ...
