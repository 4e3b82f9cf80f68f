"""Refusal of files that a later version of p2pfl has written, with fields that this version would lose."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from p2pfl.core.errors import RunError


class LaterVersionError(Exception):
    """A file has fields that this version does not know; it must stay as it is."""

    def refusal(self, path: Path) -> RunError:
        """Return the error for people."""
        return RunError(
            f"a later version of p2pfl has written {path}, with {self}, which this one would lose; install that "
            "version again, or begin a new run"
        )


def check_known(raw: Any, kept: Any) -> None:
    """Refuse what was read if it has fields that are lost when it is written again.

    Parameters
    ----------
    raw, kept
        What a file has, and what this version would write in its place; both as dictionaries and lists.

    Raises
    ------
    LaterVersionError
        Fields are lost.

    Examples
    --------
    >>> check_known({"round": 1}, {"round": 1, "added": None})
    >>> check_known({"costs": [{"mu": 1.0, "more": 2}]}, {"costs": [{"mu": 1.0}]})
    Traceback (most recent call last):
    p2pfl.network.peer.storage.later_versions.LaterVersionError: costs.more
    """
    if lost := sorted({*_lost(raw, kept)}):
        raise LaterVersionError(", ".join(lost[:3]))


def _lost(raw: Any, kept: Any, within: str = "") -> Iterator[str]:
    if isinstance(raw, dict) and isinstance(kept, dict):
        for key, value in raw.items():
            if key in kept:
                yield from _lost(value, kept[key], f"{within}{key}.")
            else:
                yield f"{within}{key}"
    elif isinstance(raw, list) and isinstance(kept, list):
        for value, other in zip(raw, kept, strict=False):
            yield from _lost(value, other, within)
        if len(raw) > len(kept):  # a field that was appended to a structure that is written as a list
            yield f"{within}{len(kept)}"
