"""Tables of parties: each has its own file, and its own declaration of columns beside it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np

from p2pfl.core.errors import DataError
from p2pfl.data.data_description import Cells as Rules
from p2pfl.data.data_description import Description
from p2pfl.data.parties import IN_TABLE, CommonRows, Party
from p2pfl.data.sources import nearest
from p2pfl.data.tables.cells import MISSING, read
from p2pfl.data.tables.column_declaration import check_target, field_of
from p2pfl.data.tables.declaration import PEER, locate_file
from p2pfl.data.tables.encoding import code_cells, complete_rows, encode_features, labels, numbers
from p2pfl.plugins.vertical.keys import PersonKey, identify_rows, read_keys
from p2pfl.plugins.vertical.party_loading import PartySource
from p2pfl.plugins.vertical.party_roles import LEAST_ROWS

SUFFIX = ".columns.toml"
"""Ending that the name of a table gets, in place of its own, for the file that declares its columns."""

DECLARED = ("target", "columns", "bottom")
"""Keys of that file."""


def vertical(
    data_dir: Path | None,
    *,
    path: str,
    label: str,
    keys: Sequence[Sequence[str]],
    helper: str | None = None,
    rows: str = "common",
    least: int = LEAST_ROWS,
    sizes: Mapping[str, int] | None = None,
) -> PartySource:
    """Read the tables of peers that have different columns of the same people.

    Beside the table ``ada.csv``, its owner declares columns in ``ada.columns.toml``, which no other peer reads: a table
    ``[columns]`` as in ``data.options.columns`` of the data set ``table``, and ``target`` where the peer is the label
    holder, whose target is one of the columns. The others may have columns of the same names. ``bottom`` names the
    module of its columns in a split network, if it is not the agreed one.

    Parameters
    ----------
    data_dir
        Folder in which to look up a relative ``path`` that does not exist as it stands.
    path
        Path of the table, in which ``{peer}`` stands for the name of a peer.
    label
        The peer that has the target.
    keys
        Keys of people in the order in which rows are matched, see :mod:`p2pfl.plugins.vertical.keys`.
    helper
        The peer without a table that deals random numbers and matches pseudonyms.
    rows
        ``common`` for the rows that all parties have, ``labelled`` for all rows of the label holder, or ``hidden`` for
        common rows of two parties that neither of them knows.
    least
        Least number of common rows.
    sizes
        Numbers of rows that parties have agreed on, so that nobody comes with a longer list of guessed people.

    Returns
    -------
    PartySource
        Source that reads the tables of local parties.

    Raises
    ------
    DataError
        An option is invalid; later, if a file is missing or does not fit its declaration.
    """
    if not isinstance(path, str) or PEER not in path:
        raise DataError(f'the option "path" is {path!r}; write a path with {PEER} for the name of the peer')
    for name, value in (("label", label), *([] if helper is None else [("helper", helper)])):
        if not isinstance(value, str):
            raise DataError(f'the option "{name}" is {value!r}; write the name of a peer')
    modes: tuple[CommonRows, ...] = get_args(CommonRows)
    mode = next((each for each in modes if each == rows), None)
    if mode is None:
        raise DataError(f'the option "rows" is {rows!r}; {nearest(str(rows), modes)}')
    if type(least) is not int or least < 1:
        raise DataError(f'the option "least" is {least!r}; write a whole number above 0')
    agreed = {} if sizes is None else sizes
    if not isinstance(agreed, Mapping) or any(type(each) is not int or each < 1 for each in agreed.values()):
        raise DataError(f'the option "sizes" is {sizes!r}; write numbers of rows by party, such as {{ ada = 1000 }}')
    declared = read_keys(keys)
    if helper is not None and (own := Path(path.replace(PEER, helper))).exists():
        raise DataError(f'the helper "{helper}" has a table, {own}, but must be no party; name another `helper`')

    def load(peer: str) -> Party:
        table = locate_file(path.replace(PEER, peer), data_dir, peer=peer)
        return read_party(table, declared, labelled=peer == label, may_lack=mode == "labelled" and peer != label)

    names = tuple(key.name for key in declared)
    return PartySource(load, label, helper, names, least, mode, dict(agreed))


def read_party(table: Path, keys: Sequence[PersonKey], *, labelled: bool, may_lack: bool = False) -> Party:
    """Read the table of a party by the declaration beside it.

    Parameters
    ----------
    table
        Path of a CSV or Parquet file.
    keys
        Keys of people.
    labelled
        True if the party is the label holder.
    may_lack
        True to add a column that says whether a row of the label holder is in the table.

    Raises
    ------
    DataError
        The declaration is missing or contradicts itself, or the table does not fit it.
    """
    file = table.with_suffix(SUFFIX)
    declared = _declaration(file, labelled=labelled)
    target, columns = declared.target, declared.columns
    fields = [field_of(name, columns[name]) for name in sorted(columns)]
    predicted = next((each for each in fields if each.name == target), None)
    features = [each for each in fields if each.name != target]
    if not features and not labelled:
        raise DataError(f"{file} declares no column; only the label holder may have none besides the target")
    whole = read(table)
    cells, lacking = complete_rows(whole, fields)
    values, notes = identify_rows(cells, keys)
    if lacking:
        gone = ", ".join(f'"{name}" in {count}' for name, count in lacking.items())
        left_out = len(whole) - len(cells)
        notes += (f"{left_out} of {len(whole)} rows are left out, because cells are missing: {gone}",)
    encoded = encode_features(code_cells(cells, features), features) if features else np.zeros((len(cells), 0))
    if may_lack:
        if IN_TABLE.name in columns:
            raise DataError(f'{file} declares "{IN_TABLE.name}", a name that p2pfl needs; rename the column')
        features.append(IN_TABLE)
        encoded = np.hstack([encoded, np.tile([1.0, 0.0], (len(cells), 1))])
    description = Description(
        raw="the cells of a row",
        columns=tuple(features),
        cells=Rules(tuple(sorted(MISSING)), stripped=True),
        classes=None if predicted is None else predicted.levels,
        target=target,
        declared=True,
    )
    if predicted is None:
        return Party(encoded, values, description, None, notes, bottom=declared.bottom, file=table)
    read_target = numbers if predicted.levels is None else labels
    labelled_target = read_target(cells, predicted, role="target")
    return Party(encoded, values, description, labelled_target, notes, bottom=declared.bottom, file=table)


def declared_columns(table: Path, keys: Any) -> Mapping[str, object] | None:
    """Return the columns that the owner of a table declares, and those of keys, with the rule of each.

    Parameters
    ----------
    table
        Path of the table.
    keys
        Keys as an experiment declares them.

    Returns
    -------
    Mapping
        Rules by name of the column; ``None`` if there is no declaration.

    Raises
    ------
    DataError
        The declaration or the keys cannot be read.
    """
    file = table.with_suffix(SUFFIX)
    if not file.is_file():
        return None
    content = _read_toml(file)
    declared = content.get("columns")
    if not isinstance(declared, Mapping):
        raise DataError(f'{file} needs a table [columns] with a line for each feature, such as age = "number"')
    people = {column: "names a person" for key in read_keys(keys) for column in key.columns}
    target = content.get("target")
    return {**people, **declared, **({} if target is None else {str(target): f"target, {declared.get(target)}"})}


class _Declaration(NamedTuple):
    """Target, columns and module of columns that a file declares."""

    target: str | None
    columns: Mapping[str, Any]
    bottom: str | None


def _declaration(file: Path, *, labelled: bool) -> _Declaration:
    """Return what a file declares."""
    content = _read_toml(file)
    target, columns, bottom = (content.get(key) for key in DECLARED)
    if not isinstance(columns, Mapping):
        raise DataError(f'{file} needs a table [columns] with a line for each feature, such as age = "number"')
    if labelled != (target is not None):
        remedy = 'name its column by target = "..."' if labelled else "leave `target` out, or name the peer as `label`"
        raise DataError(f"{file} {'lacks' if labelled else 'has'} a target; {remedy}")
    for name, value in columns.items():
        if isinstance(value, Mapping) and (scale := {*value} & {"mean", "deviation"}):
            raise DataError(
                f'{file} gives "{name}" the rule `{min(scale)}`; leave it out, as columns are scaled over common rows'
            )
    if target is not None:
        _check_target(file, target, columns)
    if not isinstance(bottom, str | None):
        raise DataError(f'{file} has bottom = {bottom!r}; name a torch module as "package.module:Class"')
    return _Declaration(target, columns, bottom)


def _read_toml(file: Path) -> Mapping[str, Any]:
    try:
        content = tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        raise DataError(
            f"{file} is missing; declare the columns of your table there, such as "
            'columns = { age = "number", sex = ["f", "m"] }'
        ) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DataError(f"{file} is no TOML file ({error}); correct it") from None
    for key in content:
        if key not in DECLARED:
            raise DataError(f'{file} has the unknown key "{key}"; {nearest(key, DECLARED)}')
    return content


def _check_target(file: Path, target: Any, columns: Mapping[str, Any]) -> None:
    if target not in columns:
        raise DataError(f'{file} has the target "{target}", which [columns] lacks; {nearest(str(target), columns)}')
    check_target(target, columns[target])
    if len(field_of(target, columns[target]).levels or (0, 1)) < 2:
        raise DataError(f'{file} gives the target "{target}" one level; declare at least two')
