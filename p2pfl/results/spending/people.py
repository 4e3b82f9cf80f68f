"""People of a table as an account knows them: by keyed digests, so that runs can be compared row by row.

A digest covers all cells of a row, in the order of the file, and how often the same row came before it. It has 64 bits,
and nobody can test a guess at a row without the key of the account. Who steals the account and its key can test guesses
at whole rows; who steals the account alone learns how many rows it has had, and which run used which of them.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from p2pfl.core.encodings import Ints
from p2pfl.core.errors import DataError
from p2pfl.data import Federation, Table
from p2pfl.data.tables.cells import read
from p2pfl.experiment.account_entries import RunEntry
from p2pfl.experiment.accounts import data_files
from p2pfl.experiment.schema import Experiment

Bools = npt.NDArray[np.bool_]

DIGEST_BYTES = 8
"""Length of the digest of a row."""


@dataclass(frozen=True, eq=False)
class People:
    """Rows of the data of an owner, and which of them each part of a run has.

    Parameters
    ----------
    columns
        Names of the cells of a row; empty for data that are no table.
    cells
        Cells of each of the n rows.
    parts
        By name of a part, the rows that it has, ``[m]``.
    """

    columns: tuple[str, ...]
    cells: Sequence[tuple[object, ...]]
    parts: Mapping[str, Ints]

    @property
    def samples(self) -> int:
        """Number of rows that any part has."""
        return len(np.unique(np.concatenate([*self.parts.values(), np.empty(0, np.int64)])))

    def digests(self, key: bytes, columns: Sequence[str]) -> list[bytes]:
        """Return the digest of each row by some of its columns."""
        positions = [self.columns.index(name) for name in columns]
        seen = Counter[tuple[object, ...]]()
        keyed = list[bytes]()
        for row in self.cells:
            chosen = tuple(row[position] for position in positions) if columns else row
            message = repr((chosen, seen[chosen])).encode()
            seen[chosen] += 1
            keyed.append(hashlib.blake2b(message, key=key, digest_size=DIGEST_BYTES, person=b"p2pfl row").digest())
        return keyed


def people_of(experiment: Experiment, federation: Federation, peers: Sequence[str], *, whole: bool) -> People:
    """Return the people of some peers whose data are in one file.

    Parameters
    ----------
    experiment, federation
        Settings, and data of the peers.
    peers
        One peer, or all that share a table.
    whole
        True if totals are over all parts together, as those of statistics.

    Raises
    ------
    DataError
        The file has changed since it was read.
    """
    parts = {"train": federation.train, "validation": federation.validation, "test": federation.test}
    held = {name: np.unique(np.concatenate([part[peer] for peer in peers])) for name, part in parts.items()}
    if whole:
        counted = [held["train"], held["validation"], *([] if federation.common else [held["test"]])]
        held = {"all": np.unique(np.concatenate(counted))}
    if experiment.data.name == "table":
        (peer,) = peers
        first = min(int(part[peer].min()) for part in parts.values() if len(part[peer]))
        count = sum(len(part[peer]) for part in parts.values())
        declared = {key: value for key, value in experiment.data.options.items() if key != "path"}
        cells, _ = Table(**declared).complete(read(data_files(experiment, [peer])[peer]))
        if len(cells) != count:
            raise DataError(f"{cells.source} has changed since it was read; start again")
        columns = [cells.column(name) for name in cells.names]
        rows = [*zip(*columns, strict=True)]
        return People(cells.names, rows, {name: part - first for name, part in held.items() if len(part)})
    return People(*_samples(federation), {name: part for name, part in held.items() if len(part)})


def _samples(federation: Federation) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """Return the columns and cells of data that are in one place, or the bytes of each sample."""
    dataset = federation.dataset
    if dataset.columns:
        return tuple(dataset.columns), [*zip(*(values.tolist() for values in dataset.columns.values()), strict=True)]
    rows = zip(dataset.features.flatten(1).numpy(), dataset.targets.numpy(), strict=True)
    return (), [(features.tobytes(), target.tobytes()) for features, target in rows]


class KnownRows:
    """Rows that the entries of an account have, numbered as they came."""

    def __init__(self, runs: Iterable[RunEntry] = ()) -> None:
        self.numbers: dict[bytes, int] = {}
        for run in runs:
            self.number(run.rows)

    def __len__(self) -> int:
        return len(self.numbers)

    def number(self, rows: str) -> None:
        """Give numbers to the new rows of an entry."""
        data = base64.b64decode(rows)
        for start in range(0, len(data), DIGEST_BYTES):
            self.numbers.setdefault(data[start : start + DIGEST_BYTES], len(self.numbers))

    def new(self, digests: Iterable[bytes]) -> str:
        """Return the digests of rows that are new, as :attr:`RunEntry.rows` has them."""
        return base64.b64encode(b"".join(dict.fromkeys(each for each in digests if each not in self.numbers))).decode()


def packed(numbers: Ints, *, size: int) -> str:
    """Return a set of numbers below ``size`` as text.

    Examples
    --------
    >>> unpacked(packed(np.array([0, 2]), size=4)).tolist()
    [0, 2]
    """
    bits = np.zeros(size, np.uint8)
    bits[numbers] = 1
    return base64.b64encode(zlib.compress(np.packbits(bits).tobytes())).decode()


def unpacked(text: str) -> Ints:
    """Return the numbers of a set."""
    return np.flatnonzero(np.unpackbits(np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8)))
