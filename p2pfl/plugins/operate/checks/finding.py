"""Result of one check."""

from __future__ import annotations

from dataclasses import dataclass, field
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


@dataclass
class Report:
    """Findings of all checks, in order.

    Attributes
    ----------
    findings
        Results.
    latest
        By source, seconds since 1970 that have passed for certain.
    """

    findings: list[Finding] = field(default_factory=list)
    latest: dict[str, float] = field(default_factory=dict)

    def add(self, *findings: Finding | None) -> bool:
        """Add findings, but ``None``; return whether none of them is a problem."""
        present = [each for each in findings if each is not None]
        self.findings += present
        return all(each.status != "problem" for each in present)


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
