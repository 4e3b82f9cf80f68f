"""Two kinds of sources: central data that p2pfl splits, and data that peers already own.

A loader is a function of the data folder whose keyword-only parameters are the options of that data set; it returns
a :class:`Central` or a :class:`Private`. Everything learned from features (means, deviations, imputed values) comes
from the training part alone, so that the test part stays unseen.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from p2pfl.core.draws import draw
from p2pfl.core.errors import DataError
from p2pfl.data.bundled import read_bundled
from p2pfl.data.data_description import Description, Field
from p2pfl.data.dataset import FloatArray, IntArray

DIGITS = tuple(range(10))
"""Class names of handwritten digits."""


@dataclass(frozen=True, eq=False)
class Central:
    """Data in one place, to be split among peers.

    Parameters
    ----------
    targets
        All targets, ``[n]``.
    classes
        Number of classes, or ``None`` for regression, whose targets are standardised later.
    encode
        Function ``encode(train, keep)`` that returns the features of the samples ``keep``, scaled by the samples
        ``train``, and the description of the transformation.
    columns
        Original columns, ``[n]`` each.
    test
        Positions of an official test set, where there is one.
    units
        Mean and deviation by which numerical targets are scaled; those of the training part by default.
    """

    targets: npt.NDArray[Any]
    classes: int | None
    encode: Callable[[IntArray, IntArray], tuple[FloatArray, Description]]
    columns: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    test: IntArray | None = None
    units: tuple[float, float] | None = None


@dataclass(frozen=True, eq=False)
class OwnSamples:
    """Samples of one peer.

    Parameters
    ----------
    features, targets
        ``[n, *shape]`` and ``[n]``.
    notes
        Sentences on the table for its owner alone, such as how many rows were left out.
    keys
        Keys of the persons, to be compared with those of other peers; ``None`` if they are not compared.
    """

    features: npt.NDArray[Any]
    targets: npt.NDArray[Any]
    notes: tuple[str, ...] = ()
    keys: tuple[str, ...] | None = None


class Load(Protocol):
    """Function that returns the data of one peer: features ``[n, *shape]`` and targets ``[n]``."""

    def __call__(self, *, peer: str, peers: tuple[str, ...], seed: int) -> tuple[Any, Any] | OwnSamples:
        """Load the data of ``peer``, one of ``peers``."""


class Hold(Protocol):
    """Function that returns the positions ``[m]`` that a benchmark holds out of a peer's own samples, sorted."""

    def __call__(self, *, peer: str, peers: tuple[str, ...]) -> IntArray:
        """Return the positions to hold out among the samples that ``peer`` loads."""


@dataclass(frozen=True, eq=False)
class Private:
    """Data that peers already own, loaded peer by peer.

    Parameters
    ----------
    load
        Function called for each local peer, and for no other.
    classes
        Number of classes, if known; with ``None`` the data of all peers have to show it.
    test
        Share of each peer's samples that the benchmark holds out, if it defines one.
    held
        Positions that the benchmark holds out, if it defines them.
    description
        Meaning of the features and classes.
    """

    load: Load
    classes: int | None = None
    test: float | None = None
    held: Hold | None = None
    description: Description = field(default_factory=Description)


def moments(values: FloatArray, train: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return mean and deviation of each column over ``train``, ``[d]`` each; a constant column has the deviation 1.

    Missing values (NaN) count as the mean.
    """
    known = ~np.isnan(values[train])
    mean: FloatArray = np.where(known, values[train], 0).sum(0) / known.sum(0).clip(1)
    filled = np.where(known, values[train], mean)
    deviation = filled.std(0)
    # Rounding leaves a constant column with a deviation near 1e-17; dividing by it would blow the column up.
    constant = deviation <= 1e-12 * np.abs(filled).max(0, initial=0)
    return mean, np.where(constant, 1, deviation)


def scale_columns(values: FloatArray, mean: FloatArray, deviation: FloatArray) -> FloatArray:
    r"""Return :math:`(x - \mu) / \sigma` of each column; missing values (NaN) become the mean first.

    Examples
    --------
    >>> values = np.array([[1.0], [3.0], [np.nan], [9.0]])
    >>> scale_columns(values, *moments(values, np.array([0, 1]))).ravel().tolist()
    [-1.0, 1.0, 0.0, 7.0]
    """
    scaled: FloatArray = (np.where(np.isnan(values), mean, values) - mean) / deviation
    return scaled


def digits(_: Path | None) -> Central:
    """Load 1,797 handwritten digits, ``(1, 8, 8)`` in [0, 1], 10 classes (UCI, CC BY 4.0; Alpaydin and Kaynak 1998)."""
    table = read_bundled("digits")
    pictures = table.data.reshape(-1, 1, 8, 8) / 16  # [n, 1, 8, 8]
    description = Description(
        raw="the pictures of sklearn.datasets.load_digits: whole numbers from 0 to 16", deviation=16.0, classes=DIGITS
    )
    return Central(table.target, 10, lambda _, keep: (pictures[keep], description))


def breast_cancer(_: Path | None) -> Central:
    """Load 569 tumours with 30 standardised features, malignant 0 or benign 1 (UCI, CC BY 4.0; Wolberg et al. 1995)."""
    return _standardise("breast_cancer", 2)


def wine(_: Path | None) -> Central:
    """Load 178 wines with 13 standardised features of 3 growers (UCI, CC BY 4.0; Aeberhard and Forina 1992)."""
    return _standardise("wine", 3)


def diabetes(_: Path | None) -> Central:
    """Load 442 patients with 10 standardised features and their progression after a year (Efron et al. 2004)."""
    return _standardise("diabetes", None)


def nearest(name: str, known: Iterable[str]) -> str:
    """Suggest the known name that a misspelt name may mean, as the remedy of an error message.

    Examples
    --------
    >>> nearest("mnits", ["digits", "mnist"])
    'did you mean "mnist"?'
    """
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f'did you mean "{close[0]}"?' if close else f"choose from {', '.join(names) or 'none'}"


def _standardise(name: str, classes: int | None) -> Central:
    table = read_bundled(name)
    options = "scaled=False" if name == "diabetes" else ""
    raw = f"the columns of sklearn.datasets.load_{name}({options})"
    names = None if classes is None else table.target_names

    def encode(train: IntArray, keep: IntArray) -> tuple[FloatArray, Description]:
        mean, deviation = moments(table.data, train)
        pairs = zip(table.feature_names, mean.tolist(), strict=True)
        columns = tuple(Field(column, missing=middle) for column, middle in pairs)
        return scale_columns(table.data, mean, deviation)[keep], Description(raw, columns, mean, deviation, names)

    return Central(table.target, classes, encode)


def synthetic(
    _: Path | None, *, alpha: float = 1.0, beta: float = 1.0, iid: bool = False, features: int = 60, classes: int = 10
) -> Private:
    r"""Generate Synthetic(alpha, beta): devices whose models and inputs differ, one device for each peer.

    Device k has :math:`\lfloor e^{z} \rfloor + 50` samples with :math:`z \sim N(4, 2^2)`,

    .. math::
        x \sim N(v_k, \mathrm{diag}(j^{-1.2})), \quad v_{kj} \sim N(B_k, 1), \quad B_k \sim N(0, \beta^2), \\
        y = \arg\max_c (W_k x + b_k)_c, \quad W_k, b_k \sim N(u_k, 1), \quad u_k \sim N(0, \alpha^2).

    Here alpha and beta are standard deviations, as in the authors' program (the paper prints variances). Each device
    is drawn by the key of its name, independently of the others, and holds out a tenth of its samples for testing.

    Parameters
    ----------
    alpha, beta
        Differences between the models, and between the inputs, of devices.
    iid
        Use one model ``W, b ~ N(0, 1)`` for all devices, and :math:`v_k = 0`.
    features, classes
        Numbers of features and classes.

    References
    ----------
    Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith. Federated optimization in
    heterogeneous networks. MLSys 2020, arXiv:1812.06127.
    """
    for name, value in (("alpha", alpha), ("beta", beta)):
        if not isinstance(value, int | float) or not 0 <= value < np.inf:
            raise DataError(f'the option "{name}" must be at least 0, but it is {value!r}; 1 is usual')
    if not isinstance(iid, bool):
        raise DataError(f'the option "iid" is {iid!r}; use true or false')
    for name, count in (("features", features), ("classes", classes)):
        if not isinstance(count, int) or count < 1:
            raise DataError(f'the option "{name}" must be a whole number above 0, but it is {count!r}; change it')
    load = partial(_device, alpha=alpha, beta=beta, iid=iid, d=features, classes=classes)
    description = Description(raw="the features as they were drawn")
    return Private(load, classes=classes, test=0.1, description=description)


def _device(
    *, peer: str, peers: tuple[str, ...], seed: int, alpha: float, beta: float, iid: bool, d: int, classes: int
) -> tuple[FloatArray, IntArray]:
    del peers  # a device does not depend on the other peers
    rng = draw(seed, "synthetic", peer)
    samples = int(rng.lognormal(4, 2)) + 50
    if iid:
        v = np.zeros(d)
        W, b = _model(draw(seed, "synthetic"), 0, d, classes)
    else:
        v = rng.normal(rng.normal(0, beta), 1, d)
        W, b = _model(rng, rng.normal(0, alpha), d, classes)
    deviation = np.arange(1, d + 1) ** -0.6  # the square root of j^-1.2
    x = v + deviation * rng.standard_normal((samples, d))  # [n, d]
    return x, (x @ W + b).argmax(1)  # [n]


def _model(rng: np.random.Generator, mean: float, d: int, classes: int) -> tuple[FloatArray, FloatArray]:
    return rng.normal(mean, 1, (d, classes)), rng.normal(mean, 1, classes)
