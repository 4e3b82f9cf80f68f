""":class:`Table`, the declaration of columns that the tables of all peers fit."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from p2pfl.core.errors import DataError, MissingTableError
from p2pfl.data.data_description import Cells as Rules
from p2pfl.data.data_description import Description, Field
from p2pfl.data.dataset import FloatArray, IntArray
from p2pfl.data.sources import OwnSamples, Private, nearest
from p2pfl.data.tables.cells import MISSING, TextCells, drop_decimal_point, is_missing
from p2pfl.data.tables.cells import read as read_cells
from p2pfl.data.tables.column_declaration import check_target, field_of
from p2pfl.data.tables.encoding import code_cells, complete_rows, encode_features, labels, numbers


class Table:
    r"""Columns, types and levels that all peers agree on, and the target to predict.

    A column is declared as ``"number"``, as ``"integer"``, by the list of its levels, or by a dictionary with ``type``
    or ``levels`` and with rules: ``missing`` replaces a missing cell (a number, or one of the levels), or leaves its
    row out (``"drop"``); ``missing_codes`` are further cells that are missing; ``unknown`` replaces a text that is not
    one of the levels (one of them); a number outside of ``range`` is an error, or missing with ``outside = "missing"``.
    Without these rules such a cell is an error. The type ``"date"`` gives the days ``since`` a date. A number may have
    a ``mean`` and a ``deviation`` that are known without looking at the data; its feature is then
    :math:`(x - \mu) / \sigma`. Columns that are not declared are not read.

    Parameters
    ----------
    columns
        Declaration by name of the column, the target included. The features have the order of the sorted names, because
        a TOML table has no order.
    target
        Column to predict: levels give classes in their order, a number gives a regression.
    event
        Column of two levels, or of the numbers 0 and 1, that says whether the event happened at the time that the
        target is. The targets of samples without the event are negative. With more levels, the first is no event, each
        other one is a kind of event, and the column stays, for models that take it as ``model.options.cause``.
    key
        Column whose value names a person or a sample, so that an owner learns of rows that repeat one; no feature.
    key_across
        True to count also the people that several peers have in common; all peers learn the number.

    Raises
    ------
    DataError
        The declaration contradicts itself.

    Examples
    --------
    >>> table = Table({"age": "number", "sex": ["f", "m"], "ill": ["no", "yes"]}, target="ill")
    >>> table.classes, [field.name for field in table.fields]
    (2, ['age', 'sex'])
    >>> from p2pfl.data.tables.cells import TextCells
    >>> rows = {"age": lambda: ["31", "44"], "sex": lambda: ["m", "f"], "ill": lambda: ["no", "yes"]}
    >>> features, targets = table.read(TextCells("patients", rows, rows=2))
    >>> features.tolist(), targets.tolist()
    ([[31.0, 0.0, 1.0], [44.0, 1.0, 0.0]], [0, 1])
    """

    def __init__(
        self,
        columns: Mapping[str, Any],
        *,
        target: str,
        event: str | None = None,
        key: str | None = None,
        key_across: bool = False,
    ) -> None:
        if not isinstance(target, str):
            raise DataError(f'the option "target" must be the name of a column, but it is {target!r}; change it')
        if not isinstance(columns, Mapping):
            raise DataError(
                f'the option "columns" must declare columns by their names, but it is {columns!r}; `p2pfl columns FILE '
                "--target COLUMN` proposes a declaration"
            )
        declared = {name: field_of(name, columns[name]) for name in sorted(columns)}
        if target not in declared:
            raise DataError(f'the target "{target}" is not declared in the columns; {nearest(target, declared)}')
        if key is not None and (not isinstance(key, str) or key in declared):
            raise DataError(f'the option "key" is {key!r}; name a column that is not declared in the columns')
        if not isinstance(key_across, bool) or (key_across and key is None):
            raise DataError(f'the option "key_across" is {key_across!r}; set it to true beside a `key`')
        self.key, self.key_across, self.target = key, key_across, declared.pop(target)
        self.event = None if event is None else _event(declared, event, self.target)
        self.fields = tuple(declared.values())
        if not self.fields:
            raise DataError("the columns declare no feature besides the target; declare at least one")
        check_target(target, columns[target])
        self.mean = _spread(self.fields, columns, "mean", 0.0)  # [F]
        self.deviation = _spread(self.fields, columns, "deviation", 1.0)  # [F]
        self.names = None if self.target.levels is None else _class_names(columns[target])
        if self.names is not None and len(self.names) < 2:
            raise DataError(f'the target "{target}" has the one level "{self.names[0]}"; declare at least two')

    @property
    def classes(self) -> int | None:
        """Number of classes; ``None`` for a regression."""
        return None if self.names is None else len(self.names)

    @property
    def description(self) -> Description:
        """Meaning of the features and targets."""
        return Description(
            raw="the cells of a row",
            columns=self.fields,
            mean=self.mean,
            deviation=self.deviation,
            cells=Rules(tuple(sorted(MISSING)), stripped=True),
            classes=self.names,
            target=self.target.name,
            declared=True,
        )

    def read(self, source: Any) -> tuple[FloatArray, FloatArray | IntArray]:
        """Read a table and check it against the declaration.

        Parameters
        ----------
        source
            Path of a CSV or Parquet file, a data frame of pandas, polars or pyarrow, or cells already read.

        Returns
        -------
        features
            ``[n, F]`` float64: one feature for a number, and one per level for text.
        targets
            ``[n]``: int64 classes, or float64 numbers.

        Raises
        ------
        DataError
            A column is missing, or a cell does not fit; the message names the place, the column and the value.
        """
        samples = self.load(source)
        return samples.features, samples.targets

    def load(self, source: Any) -> OwnSamples:
        """Return what :meth:`read` returns, with notes on the table for its owner.

        Parameters
        ----------
        source
            As for :meth:`read`.

        Raises
        ------
        DataError
            As for :meth:`read`.
        """
        cells = source if isinstance(source, TextCells) else read_cells(source)
        notes = [] if self.key is None else repeated_values(cells, self.key)
        rows = len(cells)
        cells, lacking = self.complete(cells)
        if lacking:
            columns = ", ".join(f'"{name}" in {count}' for name, count in lacking.items())
            notes.append(f"{rows - len(cells)} of {rows} rows are left out, because cells are missing: {columns}")
        features = encode_features(code_cells(cells, self.fields), self.fields)
        scaled = (features - self.mean) / self.deviation
        keys = tuple(known_values(cells, self.key)) if self.key is not None and self.key_across else None
        return OwnSamples(scaled, self._targets(cells), tuple(notes), keys)

    def remaining(self, cells: TextCells, withdrawn: Collection[str]) -> TextCells:
        """Return the rows of people who have not withdrawn.

        Parameters
        ----------
        cells
            A table.
        withdrawn
            Values of the key that name the others.

        Raises
        ------
        DataError
            There is no key, an identifier is in no row, or nobody remains.
        """
        if not withdrawn:
            return cells
        if self.key is None:
            raise DataError('the option "without" names people by a key; set the option "key" to its column')
        values = [drop_decimal_point(cell) for cell in cells.column(self.key)]
        if unknown := {*withdrawn} - {*values}:
            raise DataError(
                f'{len(unknown)} of {len(withdrawn)} withdrawn identifiers are in no row of the column "{self.key}" of '
                f"{cells.source}; correct the file of withdrawals"
            )
        rows = [row for row, value in enumerate(values) if value not in withdrawn]
        if not rows:
            raise DataError(f"everybody in {cells.source} has withdrawn, so there is nothing to learn from")
        return cells.keep(rows)

    def complete(self, cells: TextCells) -> tuple[TextCells, dict[str, int]]:
        """Return the rows that are used, and the missing cells of each column that leaves others out.

        Raises
        ------
        DataError
            No row is complete.
        """
        targets = [self.target] if self.event is None else [self.target, self.event]
        return complete_rows(cells, [*self.fields, *targets])

    def _targets(self, cells: TextCells) -> FloatArray | IntArray:
        """Return classes, numbers, or times, which are negative where the event has not happened."""
        if self.target.levels is not None:
            return labels(cells, self.target, role="target")
        values = numbers(cells, self.target, role="target")
        if self.event is None:
            return values
        happened = (
            numbers(cells, self.event, role="target")
            if self.event.levels is None
            else labels(cells, self.event, role="target")
        )
        kinds = 1 if self.event.levels is None else len(self.event.levels) - 1
        wrong = np.flatnonzero((happened != 0) & (happened != 1) & (kinds == 1) | ~(values >= 0))
        if len(wrong):
            raise DataError(
                f"{cells.place(int(wrong[0]))}: a time must be at least 0 and an event 0 or 1; correct the row"
            )
        return np.where(happened > 0, values, -values)

    def source(self, load: Any) -> Private:
        """Return the source of data whose samples ``load`` reads for each peer."""
        return Private(load, classes=self.classes, description=self.description)


def repeated_values(cells: TextCells, key: str) -> list[str]:
    """Return a sentence on the rows that repeat a value of a key; nothing if there are none.

    Examples
    --------
    >>> repeated_values(TextCells("patients", {"patid": lambda: ["a", "b", "a", "", ""]}, rows=5), "patid")
    ['1 of 5 rows repeats a value of the key "patid"; keep one row of each person', '"patid" is missing in 2 of 5 rows']
    """
    known = known_values(cells, key)
    repeated, missing, notes = len(known) - len(set(known)), len(cells) - len(known), []
    if repeated:
        verb = "rows repeats" if repeated == 1 else "rows repeat"
        notes.append(f'{repeated} of {len(cells)} {verb} a value of the key "{key}"; keep one row of each person')
    if missing:
        notes.append(f'"{key}" is missing in {missing} of {len(cells)} rows')
    return notes


def known_values(cells: TextCells, key: str) -> list[str]:
    """Return the values of a key that are there, a whole number without a decimal point."""
    return [drop_decimal_point(cell) for cell in cells.column(key) if not is_missing(cell)]


def _event(declared: dict[str, Field], event: str, target: Field) -> Field:
    """Take the column of the event out of the features, unless it has kinds of events."""
    if event not in declared:
        raise DataError(f'the event "{event}" is not declared in the columns; {nearest(event, declared)}')
    field = declared[event]
    if field.levels is None or len(field.levels) == 2:
        del declared[event]
    if target.levels is not None:
        raise DataError(
            f'the target "{target.name}" has levels, but an event belongs to a time; declare it as a number'
        )
    if field.levels is not None and len(field.levels) < 2:
        raise DataError(f'the event "{event}" has one level; declare no event, and one event or several kinds of it')
    return field


def _spread(fields: Sequence[Field], columns: Mapping[str, Any], key: str, usual: float) -> FloatArray:
    """Return the declared mean or deviation of each feature, ``[F]``."""
    deviations = []
    for field in fields:
        value = columns[field.name]
        declared = value.get(key, usual) if isinstance(value, Mapping) else usual
        deviations += [float(declared)] * (1 if field.levels is None else len(field.levels))
    return np.array(deviations)


def _class_names(value: Any) -> tuple[str | int, ...]:
    levels = value["levels"] if isinstance(value, Mapping) else value
    return tuple(level.strip() if isinstance(level, str) else level for level in levels)


PEER = "{peer}"
"""Part of a path that stands for the name of a peer."""


def table(
    data_dir: Path | None,
    reading: int | None = None,
    *,
    path: str,
    target: str,
    columns: Mapping[str, Any],
    event: str | None = None,
    key: str | None = None,
    key_across: bool = False,
    without: str | None = None,
) -> Private:
    """Read the table of each peer: a CSV file, or a Parquet file.

    Parameters
    ----------
    data_dir
        Folder in which to look up a relative ``path`` that does not exist as it stands.
    reading
        Round before which a table that grows is read; ``None`` for one that nobody writes meanwhile.
    path
        Path of the file, in which ``{peer}`` stands for the name of a peer.
    target, columns
        Declaration that all peers agree on, see :class:`~p2pfl.data.tables.declaration.Table`.
    event
        Column that says by its second level, or by 1, whether the event happened at the time that the target is; the
        time of a sample without the event becomes negative.
    key
        Column whose value names a person; each owner learns how many rows of its table repeat one.
    key_across
        True to count the people that several peers have in common before a model from totals; all learn the number.
    without
        Path of the file of each peer, ``{peer}`` its name, with the keys of people who have withdrawn, one a line; it
        stays there. The run is the one of the tables without their rows.

    Returns
    -------
    Private
        Source that reads the table of each local peer.

    Raises
    ------
    DataError
        An option is invalid; later, if a file is missing or does not fit the declaration.
    """
    if not isinstance(path, str | Path):
        raise DataError(f'the option "path" must be the name of a file, but it is {path!r}; change it')
    declared = Table(columns, target=target, event=event, key=key, key_across=key_across)
    read = dict[Path, str]()

    def load(*, peer: str, peers: tuple[str, ...], seed: int) -> OwnSamples:
        del peers, seed
        file = locate_file(str(path).replace(PEER, peer), data_dir, peer=peer)
        if read.setdefault(file, peer) != peer:
            raise DataError(
                f'peers "{read[file]}" and "{peer}" would both own {file}; write {PEER} in `path` for the name of the '
                'peer, or use the data set "csv", which shares out one table'
            )
        withdrawn = () if without is None else withdrawals(without, data_dir, peer=peer)
        return declared.load(declared.remaining(read_cells(file, growing=reading is not None), withdrawn))

    return declared.source(load)


def withdrawals(path: str, data_dir: Path | None, *, peer: str) -> frozenset[str]:
    """Return the keys of people who have withdrawn from the table of a peer.

    Parameters
    ----------
    path
        Path of a text file with one key a line, in which ``{peer}`` stands for the name of the peer; empty lines and
        lines that begin with # do not count.
    data_dir
        Folder in which to look up a relative path that does not exist as it stands.
    peer
        Name of the peer.

    Raises
    ------
    DataError
        There is no such file, which would let people stay who have withdrawn.
    """
    named = str(path).replace(PEER, peer)
    file = next((each for each in (Path(named), *([data_dir / named] if data_dir else [])) if each.is_file()), None)
    if file is None:
        raise DataError(f'no file of withdrawals of "{peer}" at {named}; make an empty one if nobody has withdrawn')
    try:
        lines = [line.strip() for line in file.read_text("utf-8").splitlines()]
    except UnicodeDecodeError:
        raise DataError(f"{file} is no text; write one key a line") from None
    return frozenset(drop_decimal_point(line) for line in lines if line and not line.startswith("#"))


def locate_file(path: str | Path, data_dir: Path | None, *, peer: str | None = None) -> Path:
    """Return the path of a file as it stands, or in the data folder; ``peer`` owns it, if one peer does.

    Raises
    ------
    DataError
        There is no such file.
    """
    candidates = dict.fromkeys((Path(path), *([data_dir / path] if data_dir else [])))  # one, if the path is absolute
    file = next((file for file in candidates if file.is_file()), None)
    if file is None:
        searched = " or ".join(map(str, candidates))
        if peer is None:
            raise DataError(f"no table at {searched}; correct `path`")
        raise MissingTableError(f'no table of "{peer}" at {searched}; correct `path`')
    return file
