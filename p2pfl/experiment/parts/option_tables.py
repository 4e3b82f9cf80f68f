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
from p2pfl.experiment.file.sentences import shown, words

PLAIN = (bool, int, float, str)
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
    return {option: _converted(value, types[option], key=f"{key}.{option}") for option, value in options.items()}


def _converted(value: Any, kind: Any, *, key: str) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        raise ExperimentError(f"{key} is {shown(value)}; set it to {words(kind)}") from None


def parameters_of(part: object, *, without: Collection[str] = ()) -> dict[str, Any]:
    """Return the parameters of an object as an experiment file holds them, so that neighbours compare them.

    Parameters
    ----------
    part
        A codec or robust rule, also of the user's own.
    without
        Parameters that a run fills in.

    Raises
    ------
    ExperimentError
        A parameter would be lost: the class is no dataclass, or the value is neither a number, a text nor the default.
    """
    kind = type(part)
    if not is_dataclass(part):
        if inspect.signature(kind).parameters:
            raise ExperimentError(
                f"{kind.__name__} has parameters and is no dataclass, so neighbours cannot compare them; make it one"
            )
        return {}
    made: Any = part
    values = {field.name: (getattr(made, field.name), field.default) for field in fields(made)}
    values = {name: given for name, given in values.items() if name not in without}
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, (value, _) in values.items()}
    lost = [name for name, value in plain.items() if not isinstance(value, PLAIN) and value is not values[name][1]]
    if lost:
        raise ExperimentError(
            f"{kind.__name__}.{lost[0]} is a {type(plain[lost[0]]).__name__}, which an experiment file cannot hold; "
            "make it a number or a text, or the default of the class"
        )
    return {name: value for name, value in plain.items() if isinstance(value, PLAIN)}
