"""The tables that come inside scikit-learn, read from its files without importing it.

Importing scikit-learn imports scipy.stats and, where they are installed, pandas and pyarrow: more than a second of
processor time in every process that learns from a table of a hundred kilobytes.
"""

import csv
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from p2pfl.core.errors import DataError
from p2pfl.data.dataset import FloatArray, IntArray

MEASURES = (
    "radius, texture, perimeter, area, smoothness, compactness, concavity, concave points, symmetry, fractal dimension"
)
"""Measurements of each cell nucleus of a tumour."""

WINE = (
    "alcohol malic_acid ash alcalinity_of_ash magnesium total_phenols flavanoids nonflavanoid_phenols proanthocyanins "
    "color_intensity hue od280/od315_of_diluted_wines proline"
)
"""Names of the columns of wines."""

COLUMNS = {
    "breast_cancer": tuple(
        form.format(measure) for form in ("mean {}", "{} error", "worst {}") for measure in MEASURES.split(", ")
    ),
    "diabetes": ("age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6"),
    "digits": tuple(f"pixel_{line}_{column}" for line in range(8) for column in range(8)),
    "wine": tuple(WINE.split()),
}
"""Names of the columns of each table, in the order of its file."""


@dataclass(frozen=True, eq=False)
class Bundled:
    """Table that comes inside scikit-learn; its arrays cannot be written to.

    Parameters
    ----------
    data
        Features as published, ``[n, d]``.
    target
        Classes from zero, or numbers, ``[n]``.
    feature_names
        Names of the columns.
    target_names
        Names of the classes; empty for numbers.
    """

    data: FloatArray
    target: IntArray | FloatArray
    feature_names: tuple[str, ...]
    target_names: tuple[str, ...] = ()


@cache
def read_bundled(name: str) -> Bundled:
    """Return a table by its name, one of :data:`COLUMNS`; it is read once in a process.

    Raises
    ------
    DataError
        If scikit-learn is not installed, or its table has another shape.

    Examples
    --------
    >>> read_bundled("wine").data.shape, read_bundled("wine").feature_names[0]
    ((178, 13), 'alcohol')
    """
    folder = _folder(name)
    try:
        table = _READ.get(name, _with_header)(folder, name)
    except (OSError, ValueError) as problem:
        raise DataError(
            f'the data set "{name}" in {folder} cannot be read ({problem}); install a scikit-learn from 1.5 on'
        ) from problem
    for array in (table.data, table.target):
        array.setflags(write=False)
    return table


def _folder(name: str) -> Path:
    """Return the folder of scikit-learn's tables."""
    try:
        spec = find_spec("sklearn")
    except ValueError:  # a module without a specification stands in its place
        spec = None
    if spec is None or spec.origin is None:
        raise DataError(
            f'scikit-learn, which contains the data set "{name}", is not installed; run `pip install scikit-learn`'
        )
    return Path(spec.origin).parent / "datasets" / "data"


def _with_header(folder: Path, name: str) -> Bundled:
    """Read a table whose first line states its shape and its classes."""
    with next(folder.glob(f"{name}*.csv"), folder / f"{name}.csv").open(encoding="utf-8", newline="") as lines:
        header, *cells = csv.reader(lines)
    table = np.array(cells, dtype=np.float64)  # [n, d + 1]
    if table.shape != (int(header[0]), int(header[1]) + 1) or table.shape[1] != len(COLUMNS[name]) + 1:
        raise ValueError(f"its first line does not fit a table of shape {table.shape}")
    return Bundled(table[:, :-1], table[:, -1].astype(np.int64), COLUMNS[name], tuple(header[2:]))


def _digits(folder: Path, name: str) -> Bundled:
    """Read pictures of 64 pixels, each with its digit."""
    table = _compressed(folder / "digits.csv.gz", delimiter=",", columns=65)
    names = tuple(map(str, range(10)))
    return Bundled(table[:, :-1], table[:, -1].astype(np.int64), COLUMNS[name], names)


def _diabetes(folder: Path, name: str) -> Bundled:
    """Read patients as they were measured, and their progression."""
    data = _compressed(folder / "diabetes_data_raw.csv.gz", delimiter=None, columns=10)
    target = _compressed(folder / "diabetes_target.csv.gz", delimiter=None, columns=1)
    return Bundled(data, target[:, 0], COLUMNS[name])


def _compressed(path: Path, *, delimiter: str | None, columns: int) -> FloatArray:
    table: FloatArray = np.loadtxt(path, delimiter=delimiter, ndmin=2)  # [n, columns]
    if table.shape[1] != columns:
        raise ValueError(f"{path.name} has {table.shape[1]} columns instead of {columns}")
    return table


_READ = {"digits": _digits, "diabetes": _diabetes}
"""Readers of the tables without a first line that describes them."""
