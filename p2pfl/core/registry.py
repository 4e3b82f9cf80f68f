"""Parts that packages register by entry points: p2pfl's own plug-ins and those of third parties, in the same way."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from functools import cache
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Any

from p2pfl.core.errors import InputError
from p2pfl.core.imports import describe_error


def find_entry_points(group: str) -> Mapping[str, EntryPoint]:
    """Return the entry points of a group by name, sorted.

    Nothing is imported. An entry point whose module does not exist is left out. If several packages register a name,
    that of p2pfl wins; without one of p2pfl, :func:`load` refuses the name.

    Parameters
    ----------
    group
        Group of entry points, such as ``p2pfl.commands``.
    """
    return MappingProxyType({name: entries[0] for name, entries in _entries(group).items()})


def load(group: str, name: str) -> Any:
    """Import what is registered under a name.

    Parameters
    ----------
    group
        Group of entry points.
    name
        A name in ``find_entry_points(group)``.

    Raises
    ------
    InputError
        Two packages register the name, or its module cannot be imported.
    """
    first, *others = _entries(group)[name]
    if others and not _is_own(first):
        values = " and ".join(f'"{entry.value}"' for entry in (first, *others))
        raise InputError(f'"{name}" is registered in {group} by {values}; uninstall all but one of their packages')
    return resolve(first.value)


def resolve(reference: str) -> Any:
    """Import what ``package.module:name`` names in a package that may be broken.

    Raises
    ------
    InputError
        It cannot be imported.
    """
    entry = EntryPoint("", reference, "")
    try:
        return entry.load()
    except (Exception, SystemExit) as error:
        reason = describe_error(error, module=entry.module)
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        own = missing is None or f"{entry.module}.".startswith(f"{missing}.")
        remedy = "reinstall its package, or uninstall it" if own else f"install {missing}, or uninstall its package"
        raise InputError(f'"{reference}" cannot be imported ({reason}); {remedy}') from error


@cache
def _entries(group: str) -> dict[str, list[EntryPoint]]:
    """Return the different entry points of each name, those of p2pfl first."""
    entries: dict[str, list[EntryPoint]] = {}
    for entry in sorted(entry_points(group=group), key=lambda entry: (entry.name, not _is_own(entry), entry.value)):
        if _exists(entry.module) and entry not in entries.get(entry.name, []):
            entries.setdefault(entry.name, []).append(entry)
    return entries


def _is_own(entry: EntryPoint) -> bool:
    return entry.module.startswith("p2pfl.")


def _exists(module: str) -> bool:
    """Return whether there is a module of this name, without importing it or the packages that contain it."""
    top, *parts = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except ValueError:  # the module is imported already, and has no spec
        return True
    for part in parts:
        if spec is None or spec.submodule_search_locations is None:
            return False
        spec = PathFinder.find_spec(f"{spec.name}.{part}", spec.submodule_search_locations)
    return spec is not None
