"""Notices about the disk and the memory of a device."""

from __future__ import annotations

from typing import Literal

from p2pfl.results.notices.kinds import Notice

Resource = Literal["disk", "memory"]
"""Resources that a device can run out of."""


class RoomShort(Notice, frozen=True, kw_only=True):
    """A device is about to run out of disk or memory.

    Attributes
    ----------
    resource
        ``disk`` or ``memory``.
    free
        Bytes.
    needed
        Bytes below which the peer reports it: five times its largest file, or a tenth of the memory.
    """

    resource: Resource
    free: int
    needed: int


class RoomRestored(Notice, frozen=True, kw_only=True):
    """A device has room again.

    Attributes
    ----------
    resource
        ``disk`` or ``memory``.
    """

    severity = "info"

    resource: Resource
