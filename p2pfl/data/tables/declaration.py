""":class:`Table`, the declaration of columns that the tables of all peers fit."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from p2pfl.core.errors import DataError
from p2pfl.data.data_description import Cells as Rules
from p2pfl.data.data_description import Description, Field
from p2pfl.data.dataset import FloatArray, IntArray
from p2pfl.data.sources import Private, nearest
from p2pfl.data.tables.cells import MISSING, TextCells, is_missing, read
from p2pfl.data.tables.encoding import code_cells, encode_features, labels, numbers

NUMBER, INTEGER = "number", "integer"

KEYS = ("type", "levels", "missing", "unknown", "mean", "deviation")
"""Keys of a column that is declared by a table."""


class Table:
    r"""Columns, types and levels that all peers agree on, and the target to predict.

    A column is declared as ``"number"``, as ``"integer"``, by the list of its levels, or by a dictionary with ``type``
    or ``levels`` and with rules: ``missing`` replaces a missing cell (a number, or one of the levels) and ``unknown``
    replaces a text that is not one of the levels (one of them). Without these rules such a cell is an error. A number
    may have a ``mean`` and a ``deviation`` that are known without looking at the data; its feature is then
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
        target is. The targets of samples without the event are negative.

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

    def __init__(self, columns: Mapping[str, Any], *, target: str, event: str | None = None) -> None:
        if not isinstance(target, str):
            raise DataError(f'the option "target" must be the name of a column, but it is {target!r}; change it')
        if not isinstance(columns, Mapping):
            raise DataError(
                f'the option "columns" must declare columns by their names, but it is {columns!r}; `p2pfl columns FILE '
                "--target COLUMN` proposes a declaration"
            )
        declared = {name: _field(name, columns[name]) for name in sorted(columns)}
        if target not in declared:
            raise DataError(f'the target "{target}" is not declared in the columns; {nearest(target, declared)}')
        self.target = declared.pop(target)
        self.event = None if event is None else _event(declared, event, self.target)
        self.fields = tuple(declared.values())
        if not self.fields:
            raise DataError("the columns declare no feature besides the target; declare at least one")
        if isinstance(columns[target], Mapping) and (extra := {*columns[target]} - {"type", "levels"}):
            raise DataError(f'the target "{target}" has the key `{min(extra)}`, which is for features; leave it out')
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
        cells = source if isinstance(source, TextCells) else read(source)
        features = encode_features(code_cells(cells, self.fields), self.fields)
        return (features - self.mean) / self.deviation, self._targets(cells)

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
        wrong = np.flatnonzero((happened != 0) & (happened != 1) | ~(values >= 0))
        if len(wrong):
            raise DataError(
                f"{cells.place(int(wrong[0]))}: a time must be at least 0 and an event 0 or 1; correct the row"
            )
        return np.where(happened == 1, values, -values)

    def source(self, load: Any) -> Private:
        """Return the source of data whose samples ``load`` reads for each peer."""
        return Private(load, classes=self.classes, description=self.description)


def _event(declared: dict[str, Field], event: str, target: Field) -> Field:
    """Take the column of the event out of the features."""
    if event not in declared:
        raise DataError(f'the event "{event}" is not declared in the columns; {nearest(event, declared)}')
    field = declared.pop(event)
    if target.levels is not None:
        raise DataError(
            f'the target "{target.name}" has levels, but an event belongs to a time; declare it as a number'
        )
    if field.levels is not None and len(field.levels) != 2:
        raise DataError(f'the event "{event}" has {len(field.levels)} levels; declare two, no event and event')
    return field


def _field(name: str, value: Any) -> Field:
    if isinstance(value, str):
        value = {"type": value}
    elif isinstance(value, Sequence):
        value = {"levels": value}
    if not isinstance(value, Mapping):
        raise _wrong(name, f"is {value!r}", 'write "number", "integer" or a list of levels')
    for key in value:
        if key not in KEYS:
            raise _wrong(name, f'has the unknown key "{key}"', nearest(key, KEYS))
    if ("type" in value) == ("levels" in value):
        raise _wrong(name, "needs either `type` or `levels`", "declare one of them")
    return _category(name, value) if "levels" in value else _number(name, value)


def _number(name: str, value: Mapping[str, Any]) -> Field:
    kind, missing = value["type"], value.get("missing")
    if kind not in (NUMBER, INTEGER):
        raise _wrong(name, f"has the type {kind!r}", 'write "number", "integer" or a list of levels')
    if "unknown" in value:
        raise _wrong(name, "is a number and has the rule `unknown`", "leave it out")
    for key in ("mean", "deviation"):
        if key in value and not (_is_number(value[key]) and (key == "mean" or value[key] > 0)):
            raise _wrong(name, f"has the {key} {value[key]!r}", "write a number, above 0 for a deviation")
    stays = isinstance(missing, float) and bool(np.isnan(missing))
    if missing is not None and not stays and not _is_number(missing):
        raise _wrong(name, f"replaces missing cells by {missing!r}", "write a number, or leave `missing` out")
    if missing is not None and not stays and kind == INTEGER and missing != int(missing):
        raise _wrong(name, f"replaces missing whole numbers by {missing!r}", "write a whole number")
    return Field(name, missing=None if missing is None else float(missing), integer=kind == INTEGER)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and bool(np.isfinite(value))


def _category(name: str, value: Mapping[str, Any]) -> Field:
    levels = value["levels"]
    for key in ("mean", "deviation"):
        if key in value:
            raise _wrong(name, f"has levels and a {key}", "leave it out")
    if isinstance(levels, str) or not isinstance(levels, Sequence) or not levels:
        raise _wrong(name, f"has the levels {levels!r}", "write a list of texts or whole numbers")
    for level in levels:
        if not isinstance(level, str | int) or isinstance(level, bool):
            raise _wrong(name, f"has the level {level!r}", "write texts or whole numbers")
        if is_missing(str(level)):
            raise _wrong(name, f'has the level "{level}", which stands for a missing cell', "rename the level")
    texts = tuple(str(level).strip() for level in levels)
    if twice := sorted({text for text in texts if texts.count(text) > 1}):
        raise _wrong(name, f'has the level "{twice[0]}" twice', "leave one out")
    rules = {}
    for rule in ("missing", "unknown"):
        rules[rule] = None if value.get(rule) is None else str(value[rule])
        if rules[rule] is not None and rules[rule] not in texts:
            raise _wrong(name, f'names the level "{rules[rule]}" in `{rule}`', nearest(str(rules[rule]), texts))
    return Field(name, texts, missing=rules["missing"], unknown=rules["unknown"])


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


def _wrong(name: str, what: str, remedy: str) -> DataError:
    return DataError(f'the declaration of column "{name}" {what}; {remedy}')


PEER = "{peer}"
"""Part of a path that stands for the name of a peer."""


def table(
    data_dir: Path | None, *, path: str, target: str, columns: Mapping[str, Any], event: str | None = None
) -> Private:
    """Read the table of each peer: a CSV file, or a Parquet file.

    Parameters
    ----------
    data_dir
        Folder in which to look up a relative ``path`` that does not exist as it stands.
    path
        Path of the file, in which ``{peer}`` stands for the name of a peer.
    target, columns
        Declaration that all peers agree on, see :class:`~p2pfl.data.tables.declaration.Table`.
    event
        Column that says by its second level, or by 1, whether the event happened at the time that the target is; the
        time of a sample without the event becomes negative.

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
    declared = Table(columns, target=target, event=event)
    read = dict[Path, str]()

    def load(*, peer: str, peers: tuple[str, ...], seed: int) -> tuple[FloatArray, FloatArray | IntArray]:
        del peers, seed
        file = locate_file(str(path).replace(PEER, peer), data_dir, peer=peer)
        if read.setdefault(file, peer) != peer:
            raise DataError(
                f'peers "{read[file]}" and "{peer}" would both own {file}; write {PEER} in `path` for the name of the '
                'peer, or use the data set "csv", which shares out one table'
            )
        return declared.read(file)

    return declared.source(load)


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
        raise DataError(
            f'no table of "{peer}" at {searched}; correct `path`, or name the peer whose table is here with --name'
        )
    return file
