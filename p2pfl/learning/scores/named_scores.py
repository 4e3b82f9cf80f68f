"""Losses and metrics as a user gives them: by name, by the name of their own function, or as a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from p2pfl.core.errors import ModelError
from p2pfl.core.importing import import_callable
from p2pfl.data.sources import nearest
from p2pfl.learning import metrics as arrays
from p2pfl.learning.losses import BUILT_IN, LOSSES, PerSample, UserFunction, accuracy
from p2pfl.learning.scores.set_scores import WHOLE, SetScore

METRICS: Mapping[str, PerSample | SetScore] = {**LOSSES, "accuracy": accuracy, **WHOLE}
"""Metrics by name."""

Score = TypeVar("Score", bound=PerSample | SetScore)
Find = Callable[..., Callable[..., Any]]
"""Function ``find(reference, *, key)`` that imports a function."""

_find: Find = partial(import_callable, refused=ModelError)


def choose_score(given: str | Score, *, key: str, known: Mapping[str, Score], find: Find = _find) -> Any:
    """Return a loss or a metric.

    Parameters
    ----------
    given
        One of the names, ``package.module:function``, or the function itself.
    key
        Key of the experiment file that stands for it, for errors.
    known
        Losses or metrics by name.
    find
        Function that imports a user's function; its error is the caller's.

    Raises
    ------
    ModelError
        The name is unknown, or the object is no loss or metric.

    Examples
    --------
    >>> choose_score("accuracy", key="learning.metrics.accuracy", known=METRICS).__name__
    'accuracy'
    """
    if not isinstance(given, str):
        return _checked(given, key=key, known=known)
    if given in known:
        return known[given]
    if ":" not in given:
        raise ModelError(
            f'{key} is "{given}", neither a known name nor a "package.module:function"; {nearest(given, known)}'
        )
    function = find(given, key=key)
    return function if function in BUILT_IN or isinstance(function, SetScore) else UserFunction(function, name=given)


def metrics_named(
    given: Mapping[str, PerSample | SetScore | str], *, find: Find = _find
) -> dict[str, PerSample | SetScore]:
    """Return metrics by the names under which they are reported, see :func:`choose_score`.

    Raises
    ------
    ModelError
        They have no names, or one of them is unknown or no metric.

    Examples
    --------
    >>> list(metrics_named({"right": "accuracy"}))
    ['right']
    """
    if not isinstance(given, Mapping):
        raise ModelError(
            f'metrics are of type {type(given).__name__}; give them by name, such as metrics={{"accuracy": "accuracy"}}'
        )
    return {
        name: choose_score(metric, key=f"learning.metrics.{name}", known=METRICS, find=find)
        for name, metric in given.items()
    }


def _checked(given: Any, *, key: str, known: Mapping[str, object]) -> Any:
    """Return what is no name, and refuse what is no loss or metric, either."""
    if isinstance(given, SetScore):
        return given
    if not callable(given):
        raise ModelError(f"{key} is of type {type(given).__name__}; pass a function, or a name: {', '.join(known)}")
    name = str(getattr(given, "__name__", ""))
    if getattr(given, "__module__", "") == arrays.__name__:  # of tables of predictions, not of outputs and targets
        own = f'pass the name "{name}"' if name in known else nearest(name, known)
        raise ModelError(
            f"{key} is {arrays.__name__}.{name}, which takes arrays of probabilities and no tensors; {own}"
        )
    return given
