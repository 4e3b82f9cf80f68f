"""Scores of whole sets of samples, which are no means over samples: area under the curve, F1, intersection over union.

Outputs are logits. Targets of the same number as the outputs are labels, each 0 or 1 by itself; others are classes, of
which the outputs have a score each on their second axis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar, runtime_checkable

from p2pfl.core.errors import LearningError, ModelError
from p2pfl.core.imports import describe_error, import_callable
from p2pfl.core.tensors import torch
from p2pfl.data import Dataset
from p2pfl.data.dataset import IGNORED
from p2pfl.data.sources import nearest
from p2pfl.learning import metrics as arrays
from p2pfl.learning.losses import (
    BUILT_IN_LOSSES,
    LOSSES,
    PerSample,
    UserFunction,
    accuracy,
    binary_cross_entropy,
    name_loss,
    squared_error,
)
from p2pfl.learning.metrics import auc as area
from p2pfl.learning.metrics import determination, macro_auc

KeptBatch = tuple[torch.Tensor, ...]
"""Tensors that a score keeps of a batch."""


@runtime_checkable
class SetScore(Protocol):
    """A score of a whole set of samples, computed from what it keeps of each batch."""

    def kept(self, outputs: torch.Tensor, targets: torch.Tensor) -> KeptBatch:
        """Return the part of a batch, ``[B, *outputs]`` and ``[B, ...]``, that the score needs."""
        ...

    def score(self, kept: Sequence[KeptBatch]) -> float:
        """Return the score of all batches; NaN where it has no value."""
        ...


class FunctionScore:
    """Score by a function of all outputs and all targets, such as one of the user's with the attribute ``whole``.

    Parameters
    ----------
    function
        Function ``function(outputs, targets) -> number``, of tensors on the CPU.
    name
        Name of the function, for errors.

    Examples
    --------
    >>> largest = FunctionScore(lambda outputs, targets: outputs.max(), name="clinic:largest")
    >>> largest.score([(torch.tensor([1.0, 3.0]), torch.zeros(2)), (torch.tensor([2.0]), torch.zeros(1))])
    3.0
    """

    def __init__(self, function: Callable[[torch.Tensor, torch.Tensor], float | torch.Tensor], *, name: str) -> None:
        self.function, self.name = function, name

    def kept(self, outputs: torch.Tensor, targets: torch.Tensor) -> KeptBatch:
        """Return the outputs and the targets, on the CPU."""
        return outputs.cpu(), targets.cpu()

    def score(self, kept: Sequence[KeptBatch]) -> float:
        """Return the number that the function returns.

        Raises
        ------
        LearningError
            The function raises, or returns something else than one number.
        """
        outputs, targets = (torch.cat(each) for each in zip(*kept, strict=True))
        try:
            return float(self.function(outputs, targets))
        except Exception as error:
            reason = describe_error(error, module=str(getattr(self.function, "__module__", "")))
            raise LearningError(
                f"{self.name} returns no number for all {len(targets)} samples ({reason}); fix the function"
            ) from error


class CountScore:
    """Mean over labels or classes of a function of their hits, false alarms and misses.

    A label or class that neither occurs nor is predicted does not count.

    Parameters
    ----------
    function
        Function of the numbers of hits, false alarms and misses, ``[C]`` each.
    """

    def __init__(self, function: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        self.function = function

    def kept(self, outputs: torch.Tensor, targets: torch.Tensor) -> KeptBatch:
        """Return the numbers of hits, false alarms and misses, ``[3, C]`` int64."""
        return (_counts(outputs, targets),)

    def score(self, kept: Sequence[KeptBatch]) -> float:
        """Return the mean over the labels or classes that count."""
        counts = torch.stack([each for (each,) in kept]).sum(0).double()  # [3, C]
        return float(self.function(*counts)[counts.sum(0) > 0].mean())


def _counts(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    if outputs.numel() == targets.numel():
        predicted, true = (each.reshape(len(targets), -1) for each in (outputs > 0, targets > 0))  # [B, L]
        return torch.stack([predicted & true, predicted & ~true, ~predicted & true]).sum(1).cpu()  # [3, L]
    classes = outputs.shape[1]
    counted = targets != IGNORED
    pairs = targets[counted] * classes + outputs.argmax(1)[counted]
    table = torch.bincount(pairs, minlength=classes**2).view(classes, classes).cpu()  # [C, C], targets first
    hits = table.diagonal()
    return torch.stack([hits, table.sum(0) - hits, table.sum(1) - hits])  # [3, C]


def _area(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the area under the ROC curve, averaged over labels that have both values, or over classes."""
    if outputs.numel() != targets.numel():
        counted = targets != IGNORED
        scores = outputs.double().softmax(1).movedim(1, -1)[counted]  # [n, C]
        return macro_auc(scores.numpy(), targets[counted].numpy())
    scores, true = (each.reshape(len(targets), -1) for each in (outputs.double(), targets > 0))  # [n, L]
    each = [area(score.numpy(), label.numpy()) for score, label in zip(scores.T, true.T, strict=True)]
    return float(torch.tensor(each, dtype=torch.float64).nanmean())


auc = FunctionScore(_area, name="auc")
"""Area under the ROC curve: of each class against the rest, or of each label that has both values; their mean."""


def _determination(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the coefficient of determination; NaN where the targets do not vary."""
    error = squared_error(outputs.double(), targets.double()).mean()
    return determination(float(error), float(targets.double().var(0, correction=0).mean()))


r2 = FunctionScore(_determination, name="r2")
"""Coefficient of determination of predicted numbers."""

macro_f1 = CountScore(lambda hits, alarms, misses: 2 * hits / (2 * hits + alarms + misses))
"""Mean over labels or classes of F1, the harmonic mean of precision and recall."""

mean_iou = CountScore(lambda hits, alarms, misses: hits / (hits + alarms + misses))
"""Mean over classes of the intersection over the union of where they are and where they are predicted."""

SET_SCORES: Mapping[str, SetScore] = {"auc": auc, "macro_f1": macro_f1, "mean_iou": mean_iou}
"""Scores by their name in ``learning.metrics``."""


def choose_usual(dataset: Dataset, *, loss: PerSample) -> Mapping[str, PerSample | SetScore]:
    """Return the scores of data for which none are chosen; those of numbers besides :math:`R^2`."""
    if loss is binary_cross_entropy:
        return {"auc": auc, "f1": macro_f1}
    if dataset.classes is None:
        return {}
    return {"accuracy": accuracy} | ({"iou": mean_iou} if dataset.targets.dim() > 1 else {})


def scores_of(metrics: Mapping[str, PerSample | SetScore]) -> tuple[dict[str, PerSample], dict[str, SetScore]]:
    """Return the metrics with one number per sample, and those of whole sets; functions under their own name."""
    each, whole = dict[str, PerSample](), dict[str, SetScore]()
    for name, metric in metrics.items():
        if isinstance(metric, SetScore):
            whole[name] = metric
            continue
        own = name_loss(metric)
        if isinstance(own, UserFunction) and getattr(own.function, "whole", False):
            whole[name] = FunctionScore(own.function, name=own.name)
        else:
            each[name] = own
    return each, whole


METRICS: Mapping[str, PerSample | SetScore] = {**LOSSES, "accuracy": accuracy, **SET_SCORES}
"""Metrics by name."""

Score = TypeVar("Score", bound=PerSample | SetScore)
Find = Callable[..., Callable[..., Any]]
"""Function ``find(reference, *, key)`` that imports a function."""

_find: Find = partial(import_callable, refused=ModelError)


def choose_score(score: str | Score, *, key: str, choices: Mapping[str, Score], find: Find = _find) -> Any:
    """Return a loss or a metric.

    Parameters
    ----------
    score
        One of the names, ``package.module:function``, or the function itself.
    key
        Key of the experiment file that stands for it, for errors.
    choices
        Losses or metrics by name.
    find
        Function that imports a user's function; its error is the caller's.

    Raises
    ------
    ModelError
        The name is unknown, or the object is no loss or metric.

    Examples
    --------
    >>> choose_score("accuracy", key="learning.metrics.accuracy", choices=METRICS).__name__
    'accuracy'
    """
    if not isinstance(score, str):
        return _check_score(score, key=key, choices=choices)
    if score in choices:
        return choices[score]
    if ":" not in score:
        raise ModelError(
            f'{key} is "{score}", neither a known name nor a "package.module:function"; {nearest(score, choices)}'
        )
    function = find(score, key=key)
    return (
        function
        if function in BUILT_IN_LOSSES or isinstance(function, SetScore)
        else UserFunction(function, name=score)
    )


def choose_metrics(
    metrics: Mapping[str, PerSample | SetScore | str], *, find: Find = _find
) -> dict[str, PerSample | SetScore]:
    """Return metrics by the names under which they are reported, see :func:`choose_score`.

    Raises
    ------
    ModelError
        They have no names, or one of them is unknown or no metric.

    Examples
    --------
    >>> list(choose_metrics({"right": "accuracy"}))
    ['right']
    """
    if not isinstance(metrics, Mapping):
        raise ModelError(
            f"metrics are of type {type(metrics).__name__}; give them by name, "
            'such as metrics={"accuracy": "accuracy"}'
        )
    return {
        name: choose_score(metric, key=f"learning.metrics.{name}", choices=METRICS, find=find)
        for name, metric in metrics.items()
    }


def _check_score(score: Any, *, key: str, choices: Mapping[str, object]) -> Any:
    """Return a function, and refuse everything that is no loss or metric."""
    if isinstance(score, SetScore):
        return score
    if not callable(score):
        raise ModelError(f"{key} is of type {type(score).__name__}; pass a function, or a name: {', '.join(choices)}")
    name = str(getattr(score, "__name__", ""))
    if getattr(score, "__module__", "") == arrays.__name__:  # of tables of predictions, not of outputs and targets
        own = f'pass the name "{name}"' if name in choices else nearest(name, choices)
        raise ModelError(
            f"{key} is {arrays.__name__}.{name}, which takes arrays of probabilities and no tensors; {own}"
        )
    return score
