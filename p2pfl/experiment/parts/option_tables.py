"""Tables of options, such as ``[topology.options]``, checked against the parameters of what takes them."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints

import msgspec
import numpy as np

from p2pfl.core.errors import ExperimentError
from p2pfl.experiment.file.sentences import show_value, words

PLAIN = (bool, int, float, str, np.generic)
"""Types of parameters that an experiment file can hold."""


def parameter_types(kind: Callable[..., Any], *, without: Collection[str] = ()) -> dict[str, Any]:
    """Return the parameters of a class or function, each with its type.

    Parameters
    ----------
    kind
        The class or function.
    without
        Parameters that a run fills in.

    Examples
    --------
    >>> from p2pfl.topology import tree
    >>> parameter_types(tree, without=["n"])
    {'branching': <class 'int'>}
    """
    hints = get_type_hints(kind, include_extras=True)
    return {name: hints.get(name, Any) for name in inspect.signature(kind).parameters if name not in without}


def checked_options(options: Mapping[str, Any], types: Mapping[str, Any], *, key: str, name: str) -> dict[str, Any]:
    """Return a user's options, each converted to the type of its parameter.

    Parameters
    ----------
    options
        The options.
    types
        Parameters that a user may set, each with its type.
    key
        Key of the experiment file that holds the options.
    name
        What takes the options, for errors.

    Raises
    ------
    ExperimentError
        An option is unknown, in which case the message names the nearest, or its value has another type.

    Examples
    --------
    >>> checked_options({"branching": 3}, {"branching": int}, key="topology.options", name="tree")
    {'branching': 3}
    """
    if unknown := [option for option in options if option not in types]:
        near = difflib.get_close_matches(unknown[0], types, n=1)
        hint = f'; did you mean "{near[0]}"?' if near else ""
        listed = ", ".join(types) or "none"
        raise ExperimentError(f"{key}: {name} has no option {unknown[0]}; its options are: {listed}{hint}")
    return {option: _convert(value, types[option], key=f"{key}.{option}") for option, value in options.items()}


def _convert(value: Any, kind: Any, *, key: str) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        raise ExperimentError(f"{key} is {show_value(value)}; set it to {words(kind)}") from None


def parameters_of(part: object, *, without: Collection[str] = (), strict: bool = True) -> dict[str, Any]:
    """Return the parameters of an object as an experiment file holds them, so that neighbours compare them.

    Parameters
    ----------
    part
        An algorithm, codec or robust rule, also of the user's own.
    without
        Parameters that a run fills in.
    strict
        True to refuse what the file cannot hold, false to leave it out.

    Raises
    ------
    ExperimentError
        A parameter would be lost: the class is no dataclass, or the value is neither a number, a text nor the default.
    """
    kind = type(part)
    if not is_dataclass(part):
        if strict and inspect.signature(kind).parameters:
            raise ExperimentError(
                f"{kind.__name__} has parameters and is no dataclass, so neighbours cannot compare them; make it one"
            )
        return {}
    made: Any = part
    plain: dict[str, Any] = {}
    for field in (field for field in fields(made) if field.name not in without):
        value = getattr(made, field.name)
        if isinstance(value, PLAIN):
            plain[field.name] = value.item() if isinstance(value, np.generic) else value
        elif strict and value is not field.default:
            raise ExperimentError(
                f"{kind.__name__}.{field.name} is a {type(value).__name__}, which an experiment file cannot hold; "
                "make it a number or a text, or the default of the class"
            )
    return plain
