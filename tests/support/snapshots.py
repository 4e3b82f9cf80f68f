"""Snapshot of a session's state as one comparable and hashable value, to explore the reachable states."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import torch

from p2pfl.core.rows import raw

PLAIN = (str, bytes, int, float, bool, type(None))


def snapshot(value: Any) -> Hashable:
    """Return a hashable value that is equal for equal states.

    Parameters
    ----------
    value
        Session, or any part of one: plain values, collections, arrays, and objects that consist of these.

    Examples
    --------
    >>> snapshot({"a": [1, 2]}) == snapshot({"a": [1, 2]}), snapshot({"a": [1, 2]}) == snapshot({"a": [1, 3]})
    (True, False)
    """
    return _frozen(value, {})


def _frozen(value: Any, seen: dict[int, int]) -> Hashable:
    if isinstance(value, PLAIN):
        return value
    if id(value) in seen:
        return "seen", seen[id(value)]
    if isinstance(value, (list, tuple)) or type(value).__name__ == "deque":
        return tuple(_frozen(each, seen) for each in value)
    if isinstance(value, AbstractSet):
        return frozenset(_frozen(each, seen) for each in value)
    if isinstance(value, Mapping):
        items = sorted(value.items(), key=lambda item: repr(item[0]))  # independent of insertion order
        return tuple((_frozen(key, seen), _frozen(each, seen)) for key, each in items)
    return _object(value, seen)


def _object(value: Any, seen: dict[int, int]) -> Hashable:
    name = type(value).__qualname__
    if isinstance(value, np.ndarray):
        return name, value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, torch.Tensor):
        return name, str(value.dtype), tuple(value.shape), bytes(raw(value))
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    if callable(getattr(value, "digest", None)) and not hasattr(value, "__dict__"):
        return name, value.digest()  # a running hash
    seen[id(value)] = len(seen)
    return name, tuple((key, _frozen(each, seen)) for key, each in _parts(value))


def _parts(value: Any) -> list[tuple[str, Any]]:
    """Return the attributes of an object without its cached properties."""
    if isinstance(value, msgspec.Struct):
        return [(key, getattr(value, key)) for key in value.__struct_fields__]
    if is_dataclass(value):
        return [(each.name, getattr(value, each.name)) for each in fields(value)]
    kept = {key for key, each in vars(type(value)).items() if isinstance(each, cached_property)}
    return sorted((key, each) for key, each in vars(value).items() if key not in kept)
