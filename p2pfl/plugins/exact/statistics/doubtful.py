"""Columns of numbers that look like identifiers or timestamps, of which statistics make no sense."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from p2pfl.core.encodings import Floats

EXACT = 2**24
"""Largest magnitude up to which single precision has every whole number."""

MANY = 100
"""Smallest number of values among which whole numbers that are all different are no coincidence."""


def doubt(tensors: Mapping[str, Floats], place: int, name: str) -> str | None:
    """Return a sentence on a column that looks like an identifier or a timestamp; ``None`` for any other.

    Parameters
    ----------
    tensors
        Tensors of :class:`p2pfl.plugins.exact.statistics.column_statistics.Description`.
    place
        Number of the column.
    name
        Name of the column.

    Examples
    --------
    >>> alike = {"whole": np.ones(1), "present": np.array([200.0]), "distinct": np.array([200.0])}
    >>> doubt(alike | {"quantiles": np.array([[2.0, 3, 5, 7, 9]])}, 0, "code")
    'column "code" looks like an identifier, because all values of each peer differ; leave it out'
    """
    if not tensors["whole"][place]:
        return None
    middle = float(np.abs(tensors["quantiles"][place]).max(initial=0.0))
    if middle > EXACT:
        return (
            f'column "{name}" looks like an identifier or a timestamp, and loses its last digits, because features '
            f"are numbers of single precision, exact up to {EXACT:,}; leave it out, or give a difference of times"
        )
    present = float(tensors["present"][place])
    if present >= MANY and tensors["distinct"][place] == present:
        return f'column "{name}" looks like an identifier, because all values of each peer differ; leave it out'
    return None
