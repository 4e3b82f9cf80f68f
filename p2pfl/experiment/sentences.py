"""What a key of the experiment file expects, in words."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from typing import Any

from msgspec import inspect

from p2pfl.experiment.schema import Experiment


def mismatch(message: str, table: Mapping[str, Any]) -> str:
    """One sentence for what msgspec says of a value: the key, what was expected, what came.

    Examples
    --------
    >>> mismatch("Expected `int` >= 1 - at `$.rounds`", {"rounds": 0})
    'rounds: expected a whole number >= 1, got 0'
    >>> mismatch("Invalid enum value 'pair' - at `$.privacy.mode`", {"privacy": {"mode": "pairwize"}})
    'privacy.mode: expected "independent", "none" or "pairwise", got "pairwize": did you mean "pairwise"?'
    """
    found = re.search(r" - at `\$\.([\w.]+)", message)
    if found is None:  # the table itself, which is one by now
        return message
    key = found[1].rstrip(".")
    value: Any = table
    kind: inspect.Type = inspect.type_info(Experiment)
    for part in key.split("."):
        value = value[part]
        if isinstance(kind, inspect.StructType):
            kind = next(field.type for field in kind.fields if field.name == part)
    choices = [choice for choice in _choices(kind) if isinstance(choice, str)]
    near = difflib.get_close_matches(value, choices, n=1) if isinstance(value, str) else []
    hint = f': did you mean "{near[0]}"?' if near else ""
    return f"{key}: expected {_words(kind)}, got {_shown(value)}{hint}"


def _words(kind: inspect.Type) -> str:
    match kind:
        case inspect.IntType() | inspect.FloatType():
            bounds = {">": kind.gt, ">=": kind.ge, "<": kind.lt, "<=": kind.le}
            limits = " and ".join(f"{sign} {limit:g}" for sign, limit in bounds.items() if limit is not None)
            return f"{'a whole number' if isinstance(kind, inspect.IntType) else 'a number'} {limits}".rstrip()
        case inspect.LiteralType():
            return _listed([_shown(value) for value in kind.values])
        case inspect.UnionType():
            return _listed([_words(option) for option in kind.types if not isinstance(option, inspect.NoneType)])
        case inspect.StrType() if kind.pattern is not None:
            return f"text that matches {kind.pattern}"
        case inspect.VarTupleType():
            return f"a list, each {_words(kind.item_type)}"
        case inspect.DictType():
            return (
                "a table"
                if isinstance(kind.value_type, inspect.AnyType)
                else f"a table, each {_words(kind.value_type)}"
            )
        case _:
            plain = {inspect.StructType: "a section with keys of its own", inspect.BoolType: "true or false"}
            return plain.get(type(kind), "text in quotes")


def _choices(kind: inspect.Type) -> tuple[Any, ...]:
    if isinstance(kind, inspect.UnionType):
        return tuple(choice for option in kind.types for choice in _choices(option))
    return kind.values if isinstance(kind, inspect.LiteralType) else ()


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _shown(value: Any) -> str:
    """The value as one would write it in the file."""
    return json.dumps(value, default=str)
