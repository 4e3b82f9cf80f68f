"""Result of one check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

Status = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """Result of one check.

    Attributes
    ----------
    check
        Name of the check.
    status
        ``problem`` keeps the peer from learning, ``warning`` does not.
    message
        One sentence: what was found; what is wrong and what to do about it.
    """

    check: str
    status: Status
    message: str

    def results(self) -> Mapping[str, str]:
        """Return what ``--json`` prints."""
        return asdict(self)


def ok(check: str, message: str) -> Finding:
    """Return a finding that nothing is wrong."""
    return Finding(check, "ok", message)


def warning(check: str, message: str) -> Finding:
    """Return a finding that does not keep the peer from learning."""
    return Finding(check, "warning", message)


def problem(check: str, message: str) -> Finding:
    """Return a finding that keeps the peer from learning."""
    return Finding(check, "problem", message)


def duration(seconds: float) -> str:
    """Return a duration in the unit that people would use.

    Examples
    --------
    >>> duration(0.0123), duration(90), duration(7200), duration(200_000)
    ('12 ms', '90 s', '2 h', '2 days')
    """
    if seconds < 0.001:
        return "less than 1 ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for unit, length, least in (("days", 86400, 2 * 86400), ("h", 3600, 7200), ("min", 60, 120)):
        if seconds >= least:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def about(seconds: float) -> str:
    """Return an estimate of a duration.

    Examples
    --------
    >>> about(0.0001), about(90)
    ('less than 1 ms', 'about 90 s')
    """
    return duration(seconds) if seconds < 0.001 else f"about {duration(seconds)}"


def size(amount: float) -> str:
    """Return a number of bytes in the unit that people would use.

    Examples
    --------
    >>> size(900), size(65536), size(3e9)
    ('900 bytes', '66 kB', '3.0 GB')
    """
    for unit, length in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if amount >= length:
            return f"{amount / length:.1f} {unit}" if amount < 10 * length else f"{amount / length:.0f} {unit}"
    return f"{amount:.0f} bytes"
