"""The two kinds of source: data in one place that are shared out, and data that peers own already.

A loader is a function of the data folder whose keyword-only parameters are the
options of that data set; it returns a :class:`Central` or a :class:`Private`.
Whatever is learned from features (means, deviations, imputed values) is learned
on the training part alone, so that the test part stays unseen.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from p2pfl.data.dataset import FloatArray, IntArray
from p2pfl.data.description import Description, Field
from p2pfl.errors import DataError

DIGITS = tuple(range(10))
"""The classes of handwritten digits."""


@dataclass(frozen=True, eq=False)
class Central:
    """Data in one place, to be shared out among peers.

    Parameters
    ----------
    targets
        ``[n]``, all of them.
    classes
        How many, or ``None`` where a number is predicted; such targets are standardised later.
    encode
        ``encode(train, keep)`` gives the features of the samples ``keep``, scaled by what the samples ``train`` show,
        and the description of what was done to the raw values.
    columns
        Original columns, ``[n]`` each.
    test
        The samples of an official test set, where there is one.
    """

    targets: npt.NDArray[Any]
    classes: int | None
    encode: Callable[[IntArray, IntArray], tuple[FloatArray, Description]]
    columns: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    test: IntArray | None = None


class Load(Protocol):
    """A function that gives one peer its own data: features ``[n, *shape]`` and targets ``[n]``."""

    def __call__(self, *, peer: str, peers: tuple[str, ...], seed: int) -> tuple[Any, Any]:
        """Load the data of ``peer``, one of ``peers``."""


class Hold(Protocol):
    """A function that says which of a peer's own samples its recipe holds out: positions ``[m]``, sorted."""

    def __call__(self, *, peer: str, peers: tuple[str, ...]) -> IntArray:
        """Positions among the samples that ``peer`` loads."""


@dataclass(frozen=True, eq=False)
class Private:
    """Data that peers own already; each is loaded on its own.

    Parameters
    ----------
    load
        Called for each peer at hand, and for no other.
    classes
        How many, if known; else ``None``, and the data of all peers have to show it.
    test
        Share of each peer's samples that the recipe holds out, if it says so.
    held
        Which samples it holds out, if it says that.
    description
        What the features and classes are.
    """

    load: Load
    classes: int | None = None
    test: float | None = None
    held: Hold | None = None
    description: Description = field(default_factory=Description)


def moments(values: FloatArray, train: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return mean and deviation of each column on ``train``, ``[d]`` each; a constant column has the deviation 1.

    Missing values (NaN) count as the mean.
    """
    known = ~np.isnan(values[train])
    mean: FloatArray = np.where(known, values[train], 0).sum(0) / known.sum(0).clip(1)
    filled = np.where(known, values[train], mean)
    deviation = filled.std(0)
    # Rounding leaves a constant column with a deviation near 1e-17, which must not blow it up.
    constant = deviation <= 1e-12 * np.abs(filled).max(0, initial=0)
    return mean, np.where(constant, 1, deviation)


def scaled(values: FloatArray, mean: FloatArray, deviation: FloatArray) -> FloatArray:
    r"""Return :math:`(x - \mu) / \sigma` of each column; missing values (NaN) become the mean first.

    Examples
    --------
    >>> values = np.array([[1.0], [3.0], [np.nan], [9.0]])
    >>> scaled(values, *moments(values, np.array([0, 1]))).ravel().tolist()
    [-1.0, 1.0, 0.0, 7.0]
    """
    found: FloatArray = (np.where(np.isnan(values), mean, values) - mean) / deviation
    return found


def digits(_: Path | None) -> Central:
    """1,797 handwritten digits, ``(1, 8, 8)`` in [0, 1], 10 classes (UCI, CC BY 4.0; Alpaydin and Kaynak 1998)."""
    bundled = _bundled("digits")
    pictures = bundled.data.reshape(-1, 1, 8, 8) / 16  # [n, 1, 8, 8]
    told = Description(
        raw="the pictures of sklearn.datasets.load_digits: whole numbers from 0 to 16", deviation=16.0, classes=DIGITS
    )
    return Central(bundled.target, 10, lambda _, keep: (pictures[keep], told))


def breast_cancer(_: Path | None) -> Central:
    """569 tumours, 30 standardised features, malignant 0 or benign 1 (UCI, CC BY 4.0; Wolberg et al. 1995)."""
    return _standardised("breast_cancer", 2)


def wine(_: Path | None) -> Central:
    """178 wines, 13 standardised features, 3 growers (UCI, CC BY 4.0; Aeberhard and Forina 1992)."""
    return _standardised("wine", 3)


def diabetes(_: Path | None) -> Central:
    """442 patients, 10 standardised features, progression after a year (Efron, Hastie, Johnstone, Tibshirani 2004)."""
    return _standardised("diabetes", None)


def nearest(name: str, known: Iterable[str]) -> str:
    """Name what a misspelt name may have meant, as the end of an error's sentence.

    Examples
    --------
    >>> nearest("mnits", ["digits", "mnist"])
    'did you mean "mnist"?'
    """
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f'did you mean "{close[0]}"?' if close else f"choose from {', '.join(names) or 'none'}"


def _standardised(name: str, classes: int | None) -> Central:
    bundled = _bundled(name)
    options = "scaled=False" if name == "diabetes" else ""
    raw = f"the columns of sklearn.datasets.load_{name}({options})"
    names = None if classes is None else tuple(map(str, bundled.target_names))

    def encode(train: IntArray, keep: IntArray) -> tuple[FloatArray, Description]:
        mean, deviation = moments(bundled.data, train)
        pairs = zip(map(str, bundled.feature_names), mean.tolist(), strict=True)
        columns = tuple(Field(column, missing=middle) for column, middle in pairs)
        return scaled(bundled.data, mean, deviation)[keep], Description(raw, columns, mean, deviation, names)

    return Central(bundled.target, classes, encode)


def _bundled(name: str) -> Any:
    """Return a set that comes inside scikit-learn: ``data``, ``target`` and their names."""
    try:
        from sklearn import datasets  # noqa: PLC0415 - a device that brings its own data does without scikit-learn
    except ImportError:
        raise DataError(
            f'expected scikit-learn, which holds the data set "{name}", but it is not installed; '
            'run `pip install "p2pfl-mqtt[local]"`'
        ) from None
    # diabetes is scaled by scikit-learn with all rows unless told otherwise.
    raw = {"scaled": False} if name == "diabetes" else {}
    return getattr(datasets, f"load_{name}")(**raw)
