"""Declaration of one column: its type or levels, and the rules for its cells."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from p2pfl.core.errors import DataError
from p2pfl.data.data_description import Field
from p2pfl.data.sources import nearest
from p2pfl.data.tables.cells import drop_decimal_point, is_missing
from p2pfl.data.tables.file_format import PLAIN

TYPES = ("number", "integer", "date")
"""Types of a column of numbers."""

ISO_LENGTH = len("2000-01-01")

DROP = "drop"
"""Rule `missing` that leaves a row out of training."""

KEYS = (
    "type",
    "levels",
    "missing",
    "unknown",
    "missing_codes",
    "range",
    "outside",
    "since",
    "mean",
    "deviation",
)
"""Keys of a column that is declared by a table."""

TARGET_KEYS = frozenset({"type", "levels", "missing_codes", "range", "outside", "since"})
"""Keys of a target; `missing` may be "drop", too."""


def field_of(name: str, value: Any) -> Field:
    """Return the column that a declaration describes.

    Raises
    ------
    DataError
        The declaration contradicts itself.

    Examples
    --------
    >>> field_of("chol", {"type": "number", "missing_codes": [-9, 0], "missing": "drop"})
    Field(name='chol', levels=None, missing=None, unknown=None, integer=False, codes=('-9', '0'), range=None, \
outside_missing=False, since=None, drop=True)
    """
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


def check_target(name: str, value: Any) -> None:
    """Refuse rules that are for features in the declaration of the target.

    Raises
    ------
    DataError
        There is one.
    """
    if not isinstance(value, Mapping):
        return
    extra = {*value} - TARGET_KEYS - ({"missing"} if value.get("missing") == DROP else set())
    if extra:
        raise DataError(f'the target "{name}" has the key `{min(extra)}`, which is for features; leave it out')


def _number(name: str, value: Mapping[str, Any]) -> Field:
    kind, missing = value["type"], value.get("missing")
    if kind not in TYPES:
        raise _wrong(name, f"has the type {kind!r}", 'write "number", "integer", "date" or a list of levels')
    if "unknown" in value:
        raise _wrong(name, "is a number and has the rule `unknown`", "leave it out")
    for key in ("mean", "deviation"):
        if key in value and not (_is_number(value[key]) and (key == "mean" or value[key] > 0)):
            raise _wrong(name, f"has the {key} {value[key]!r}", "write a number, above 0 for a deviation")
    drop = missing == DROP
    if missing is not None and not drop:
        _check_filler(name, missing, integer=kind == "integer")
    return Field(
        name,
        missing=None if missing is None or drop else float(missing),
        integer=kind == "integer",
        codes=_codes(name, value),
        range=_range(name, value),
        outside_missing=_outside_missing(name, value),
        since=_since(name, value),
        drop=drop,
    )


def _check_filler(name: str, missing: Any, *, integer: bool) -> None:
    """Refuse what replaces a missing number, unless it is a number, or NaN, so that the value stays missing."""
    if isinstance(missing, float) and np.isnan(missing):
        return
    if not _is_number(missing):
        raise _wrong(
            name,
            f"replaces missing cells by {missing!r}, but no multiple imputation, and no statistic, fills cells here",
            'write a number, or "drop" to use complete rows',
        )
    if integer and missing != int(missing):
        raise _wrong(name, f"replaces missing whole numbers by {missing!r}", "write a whole number")


def _codes(name: str, value: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the declared codes of missing cells as texts, a whole number without a decimal point."""
    codes = value.get("missing_codes", ())
    listed = isinstance(codes, Sequence) and not isinstance(codes, str)
    if not listed or not all(_is_number(code) or isinstance(code, str) for code in codes):
        raise _wrong(name, f"has the missing_codes {codes!r}", "write a list of numbers or texts, such as [-9]")
    return tuple(drop_decimal_point(str(code).strip()) for code in codes)


def _range(name: str, value: Mapping[str, Any]) -> tuple[float, float] | None:
    ends = value.get("range")
    if ends is None:
        return None
    pair = isinstance(ends, Sequence) and len(ends) == 2 and all(map(_is_number, ends))
    if not pair or ends[0] > ends[1]:
        raise _wrong(name, f"has the range {ends!r}", "write the lowest and the highest number, such as [0, 600]")
    return float(ends[0]), float(ends[1])


def _outside_missing(name: str, value: Mapping[str, Any]) -> bool:
    if "outside" not in value:
        return False
    if value["outside"] != "missing" or "range" not in value:
        raise _wrong(name, f"has outside = {value['outside']!r}", 'write outside = "missing" with a `range`')
    return True


def _since(name: str, value: Mapping[str, Any]) -> str | None:
    since = value.get("since")
    if (value["type"] == "date") != (since is not None):
        remedy = 'write { type = "date", since = "2000-01-01" }, whose feature is the number of days since then'
        raise _wrong(name, 'needs both the type "date" and `since`', remedy)
    if since is None:
        return None
    if not PLAIN.days(str(since), since="2000-01-01").is_integer():
        raise _wrong(name, f"has since = {since!r}", 'write a date such as "2000-01-01"')
    return str(since)[:ISO_LENGTH]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and bool(np.isfinite(value))


def _category(name: str, value: Mapping[str, Any]) -> Field:
    for key in ("mean", "deviation", "range", "outside", "since"):
        if key in value:
            raise _wrong(name, f"has levels and a {key}", "leave it out")
    texts, drop = _levels(name, value["levels"]), value.get("missing") == DROP
    if drop and DROP in texts:
        raise _wrong(name, f'has the level "{DROP}", which is a rule for missing cells', "rename the level")
    missing = None if drop else _level(name, value, "missing", texts)
    codes = _codes(name, value)
    return Field(name, texts, missing=missing, unknown=_level(name, value, "unknown", texts), codes=codes, drop=drop)


def _levels(name: str, levels: Any) -> tuple[str, ...]:
    """Return the declared levels as texts."""
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
    return texts


def _level(name: str, value: Mapping[str, Any], rule: str, texts: Sequence[str]) -> str | None:
    """Return the level that a rule names; ``None`` without the rule."""
    level = None if value.get(rule) is None else str(value[rule])
    if level is not None and level not in texts:
        raise _wrong(name, f'names the level "{level}" in `{rule}`', nearest(level, texts))
    return level


def _wrong(name: str, what: str, remedy: str) -> DataError:
    return DataError(f'the declaration of column "{name}" {what}; {remedy}')
