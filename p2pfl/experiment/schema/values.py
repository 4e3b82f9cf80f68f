"""Ranges of values in the experiment file, and the base of its sections."""

from __future__ import annotations

import sys
from typing import Annotated

import msgspec
from msgspec import Meta

LARGEST = sys.float_info.max
"""Of all finite numbers."""

Positive = Annotated[float, Meta(gt=0, le=LARGEST)]
NotNegative = Annotated[float, Meta(ge=0, le=LARGEST)]
Endless = Annotated[float, Meta(gt=0)]
"""A bound, of which infinity is none."""

Waiting = Annotated[float, Meta(ge=0)]
"""Seconds to wait, where 0 is not to wait at all."""

Share = Annotated[float, Meta(ge=0, le=1)]
Number = Annotated[int, Meta(ge=1)]
Reference = Annotated[str, Meta(min_length=1)]
"""A known name, or ``package.module:name``."""

File = Annotated[str, Meta(min_length=1)]
"""A path."""


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file."""
