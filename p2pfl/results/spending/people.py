"""People of a table as an account knows them: by keyed digests of their cells, so that runs can be compared row by row.

An account has the cells of the columns that a run used, and of the key column, as digests of 32 bits, enciphered with
the key of the account. Who steals the account alone learns how many rows it has had, and which run used which of them;
who steals the key as well can find each cell by trial.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from p2pfl.core.encodings import Ints
from p2pfl.core.errors import DataError
from p2pfl.data import Federation, Table
from p2pfl.data.parties import Party
from p2pfl.data.tables.cells import read
from p2pfl.data.tables.declaration import withdrawals
from p2pfl.experiment.account_entries import RunEntry
from p2pfl.experiment.accounts import data_files, data_folder
from p2pfl.experiment.schema import Experiment

CELL_BYTES = 4
"""Length of the digest of a cell."""

SAMPLE = "sample"
"""Name of the only cell of a row of data that are no table."""

Cells = npt.NDArray[np.uint32]


@dataclass(frozen=True, eq=False)
class People:
    """Rows of the data of an owner, and which of them each part of a run has.

    Parameters
    ----------
    columns
        Names of the cells of a row.
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
        return len(self.used)

    @property
    def used(self) -> Ints:
        """Rows that any part has."""
        return np.unique(np.concatenate([*self.parts.values(), np.empty(0, np.int64)]))

    def digests(self, key: bytes, columns: Sequence[str]) -> Cells:
        """Return the digests of some of the cells of each row, ``[n, len(columns)]``."""
        digests = np.empty((len(self.cells), len(columns)), np.uint32)
        for number, name in enumerate(columns):
            position = self.columns.index(name)
            cells = [row[position] for row in self.cells]
            of_cell = {cell: _digest(key, name, cell) for cell in set(cells)}
            digests[:, number] = [of_cell[cell] for cell in cells]
        return digests


def _digest(key: bytes, column: str, cell: object) -> int:
    message = repr((column, cell)).encode()
    return int.from_bytes(hashlib.blake2b(message, key=key, digest_size=CELL_BYTES, person=b"p2pfl cell").digest())


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
    if federation.parties is not None:
        return _of_parties([federation.parties.party(peer) for peer in peers])
    parts = {"train": federation.train, "validation": federation.validation, "test": federation.test}
    held = {name: np.unique(np.concatenate([part[peer] for peer in peers])) for name, part in parts.items()}
    if whole:
        counted = [held["train"], held["validation"], *([held["test"]] if experiment.data.owned else [])]
        held = {"all": np.unique(np.concatenate(counted))}
    files = data_files(experiment, peers)
    if experiment.data.name == "table" and files:
        (peer,) = peers
        first = min(int(part[peer].min()) for part in parts.values() if len(part[peer]))
        count = sum(len(part[peer]) for part in parts.values())
        options = dict(experiment.data.options)
        without = options.pop("without", None)
        declared = Table(**{key: value for key, value in options.items() if key != "path"})
        withdrawn = () if without is None else withdrawals(without, data_folder(), peer=peer)
        cells, _ = declared.complete(declared.remaining(read(files[peer]), withdrawn))
        if len(cells) != count:
            raise DataError(f"{cells.source} has changed since it was read; start again")
        columns = [cells.column(name) for name in cells.names]
        rows = [*zip(*columns, strict=True)]
        return People(cells.names, rows, {name: part - first for name, part in held.items() if len(part)})
    return People(*_samples(federation), {name: part for name, part in held.items() if len(part)})


def _of_parties(parties: Sequence[Party]) -> People:
    """Return the rows of one party, or those of several that share the columns of one data set."""
    cells = dict[str, list[object]]()
    for party in parties:
        rows = np.argsort(np.array(party.keys[0])) if len(parties) > 1 else np.arange(len(party))
        columns = [*party.features[rows].T.tolist(), *([] if party.target is None else [party.target[rows].tolist()])]
        cells |= dict(zip(party.used, columns, strict=True))
    people = [*zip(*cells.values(), strict=True)]
    return People(tuple(cells), people, {"all": np.arange(len(people))})


def _samples(federation: Federation) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """Return the columns and cells of data that are in one place, or the bytes of each sample."""
    dataset = federation.dataset
    if dataset.columns:
        return tuple(dataset.columns), [*zip(*(values.tolist() for values in dataset.columns.values()), strict=True)]
    rows = zip(dataset.features.flatten(1).numpy(), dataset.targets.numpy(), strict=True)
    return (SAMPLE,), [((features.tobytes(), target.tobytes()),) for features, target in rows]


def row_texts(cells: Cells) -> list[bytes]:
    """Return the digests of each row as bytes, by which equal rows are equal."""
    width = cells.shape[1] * CELL_BYTES
    data = np.ascontiguousarray(cells, ">u4").tobytes()
    return [data[start : start + width] for start in range(0, len(data), width)] if width else [b""] * len(cells)


def counted(texts: Iterable[bytes]) -> list[tuple[bytes, int]]:
    """Return each row with how often the same row came before it.

    Examples
    --------
    >>> counted([b"a", b"b", b"a"])
    [(b'a', 0), (b'b', 0), (b'a', 1)]
    """
    seen, rows = Counter[bytes](), list[tuple[bytes, int]]()
    for text in texts:
        rows.append((text, seen[text]))
        seen[text] += 1
    return rows


class KnownRows:
    """Rows that the entries of an account have, numbered as they came, those of each choice of columns by themselves.

    Parameters
    ----------
    runs
        Entries of the account.
    reveal
        Function that deciphers what an entry hides.
    """

    def __init__(self, runs: Iterable[RunEntry], reveal: Callable[[str], bytes]) -> None:
        self._rows: dict[tuple[str, ...], dict[tuple[bytes, int], int]] = {}
        self._seen: dict[tuple[str, ...], Counter[bytes]] = {}
        for run in runs:
            if run.rows:
                self.number(run.header, zlib.decompress(reveal(run.rows)))

    @property
    def headers(self) -> list[tuple[str, ...]]:
        """Choices of columns by which there are rows."""
        return [*self._rows]

    def numbers(self, header: tuple[str, ...]) -> dict[tuple[bytes, int], int]:
        """Return the number of each row by some columns."""
        return self._rows.setdefault(header, {})

    def cells(self, header: tuple[str, ...]) -> Cells:
        """Return the digests of all rows by some columns, in the order of their numbers."""
        data = b"".join(text for text, _ in self.numbers(header))
        return np.frombuffer(data, ">u4").astype(np.uint32).reshape(-1, len(header))

    def number(self, header: tuple[str, ...], data: bytes) -> None:
        """Give numbers to further rows."""
        known, seen = self.numbers(header), self._seen.setdefault(header, Counter())
        width = CELL_BYTES * len(header)
        for start in range(0, len(data), width):
            text = data[start : start + width]
            known[text, seen[text]] = len(known)
            seen[text] += 1

    def hidden(self, header: tuple[str, ...], rows: Iterable[tuple[bytes, int]], hide: Callable[[bytes], str]) -> str:
        """Give numbers to those rows that are new, and return them as :attr:`RunEntry.rows` has them."""
        known = self.numbers(header)
        new = b"".join(text for text, times in rows if (text, times) not in known)
        self.number(header, new)
        return hide(zlib.compress(new)) if new else ""


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
