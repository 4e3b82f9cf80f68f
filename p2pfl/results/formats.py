"""Numbers and values as people read them, the same on terminals, pages and model cards."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

MIN_LARGE_SCORE = 1000
"""Scores from here on have four digits in all."""

MAX_NAMES = 3
"""Largest number of names in a sentence, see :func:`join_names`."""


def size(count: float) -> str:
    """Return a number of bytes.

    Examples
    --------
    >>> size(9640), size(50e6), size(3.2e9)
    ('9.6 kB', '50.0 MB', '3.2 GB')
    """
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def number(value: float | None, *, unknown: str = "") -> str:
    """Return a score; ``unknown`` where there is none, or it is not a number.

    Examples
    --------
    >>> number(0.92345), number(28123.4), number(None, unknown="-")
    ('0.923', '2.812e+04', '-')
    """
    if value is None or math.isnan(value):
        return unknown
    return f"{value:.3f}" if abs(value) < MIN_LARGE_SCORE else f"{value:.4g}"


def format_value(value: Any) -> str:
    """Return the value of a key of an experiment.

    Examples
    --------
    >>> format_value("fedavg"), format_value(0.1), format_value(True), format_value([64, 32]), format_value(None)
    ('fedavg', '0.1', 'true', '[64, 32]', '-')
    >>> format_value({"path": "{peer}.csv", "columns": {"age": "integer"}})
    '{ path = {peer}.csv, columns = { age = integer } }'
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{key} = {format_value(each)}' for key, each in value.items())} }}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(format_value(each) for each in value)}]"
    return str(value)


def describe_exchange(steps: int) -> str:
    """Return the name of the exchanges of a round: gossip steps, or exact totals where there are none.

    Examples
    --------
    >>> describe_exchange(1), describe_exchange(3), describe_exchange(0)
    ('1 gossip step', '3 gossip steps', 'exact totals')
    """
    return f"{steps} gossip step{'s' if steps > 1 else ''}" if steps else "exact totals"


def join_names(names: Sequence[str]) -> str:
    """Return names for a sentence.

    Examples
    --------
    >>> join_names(["ada"]), join_names(["ada", "bob"]), join_names(["ada", "bob", "cy", "dan", "eve"])
    ('ada', 'ada and bob', 'ada, bob, cy and 2 more')
    """
    if len(names) > MAX_NAMES + 1:
        return f"{', '.join(names[:MAX_NAMES])} and {len(names) - MAX_NAMES} more"
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]


def count_of(count: int, what: str) -> str:
    """Return a number of things in words.

    Examples
    --------
    >>> count_of(1, "mask"), count_of(2, "gossip step")
    ('1 mask', '2 gossip steps')
    """
    return f"{count} {what}{'' if count == 1 else 's'}"


def duration(seconds: int) -> str:
    """Return a number of seconds in the two largest units that it fills.

    Examples
    --------
    >>> duration(59), duration(3600), duration(40 * 86400)
    ('59 s', '1 h 0 min', '40 d 0 h')
    """
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if not minutes:
        return f"{seconds} s"
    if not hours:
        return f"{minutes} min {seconds % 60} s"
    return f"{days} d {hours % 24} h" if days else f"{hours} h {minutes % 60} min"


def of_rounds(done: int, rounds: int | str) -> str:
    """Return how many rounds of an experiment are done.

    Examples
    --------
    >>> of_rounds(12, 40), of_rounds(12, "endless")
    ('12 of 40', '12')
    """
    return f"{done}" if rounds == "endless" else f"{done} of {rounds}"
