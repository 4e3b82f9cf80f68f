"""Notices: what people should know of a run besides its records, each as a kind with fields.

:func:`p2pfl.results.notices.notice_sentences.sentence` turns a notice into a sentence. The kind is the name of the
class in snake case; ``events.jsonl`` has one notice a line, and docs/schema.json describes each.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import ClassVar, Final, Literal

import msgspec

SCHEMA: Final = 1
"""Version of the files of a run; it grows when a field or a kind changes its meaning or disappears."""

Severity = Literal["info", "warning", "alarm", "resolved"]
"""Level of a notice: it is news, asks for attention, harms the result, or ends such harm."""


def kind_of(name: str) -> str:
    """Return the kind of a class of notices.

    Examples
    --------
    >>> kind_of("MasksCancelled")
    'masks_cancelled'
    """
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class Notice(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag=kind_of):
    """Something that people should know of a peer.

    Attributes
    ----------
    schema
    time
        When it was recorded, in UTC.
    peer
        Peer that reports it.
    """

    severity: ClassVar[Severity] = "warning"

    schema: Literal[1] = SCHEMA
    time: datetime | None = None
    peer: str
