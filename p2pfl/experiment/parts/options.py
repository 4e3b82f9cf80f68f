"""Tables of options, such as ``[topology.options]``, checked against the parameters of what takes them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping
from typing import Any, get_type_hints

import msgspec

from p2pfl.core.errors import ExperimentError
from p2pfl.experiment.file.sentences import shown, words


def checked_options(
    options: Mapping[str, Any], kind: Callable[..., Any], *, known: Collection[str], key: str, name: str
) -> dict[str, Any]:
    """Return a user's options, each converted to the type of its parameter.

    Parameters
    ----------
    options
        The options.
    kind
        Class or function whose annotations have the types.
    known
        Names of the parameters that a user may set.
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
    >>> from p2pfl.topology import tree
    >>> checked_options({"branching": 3}, tree, known=["branching"], key="topology.options", name="tree")
    {'branching': 3}
    """
    if unknown := [option for option in options if option not in known]:
        near = difflib.get_close_matches(unknown[0], known, n=1)
        hint = f'; did you mean "{near[0]}"?' if near else ""
        listed = ", ".join(known) or "none"
        raise ExperimentError(f"{key}: {name} has no option {unknown[0]}; its options are: {listed}{hint}")
    hints = get_type_hints(kind, include_extras=True) if options else {}
    return {
        option: _converted(value, hints.get(option, Any), key=f"{key}.{option}") for option, value in options.items()
    }


def _converted(value: Any, kind: Any, *, key: str) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        raise ExperimentError(f"{key} is {shown(value)}; set it to {words(kind)}") from None
