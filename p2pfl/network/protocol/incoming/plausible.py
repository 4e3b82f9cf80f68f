"""Plausibility checks of messages, beyond the bounds of their types.

An authentic message can still say what cannot be: that a neighbour is in a round after the last, or holds chunks that
it never sent. Such a message is refused before anything of it is stored.
"""

from __future__ import annotations

from p2pfl.core.errors import DecodeError
from p2pfl.network.protocol.wire.messages import Pulse

AFTER = 8
"""Rounds that peers play after the last of the experiment, to settle and to agree, and some to spare."""

CHUNK = 64 * 2**20
"""Bytes of the largest chunk that an experiment may ask for."""

UNLIMITED = 2**32
"""The last round where nobody has stated which it is."""


def heartbeat(pulse: Pulse, *, last: int) -> None:
    """Refuse a heartbeat that no peer of this run can send.

    Parameters
    ----------
    pulse
        As it came, authentic.
    last
        The last round that anybody plays.

    Raises
    ------
    DecodeError
        The stream ends before it begins, or the round is after the last.

    Examples
    --------
    >>> heartbeat(Pulse(1, 0, 2, 9, round=4, first=0), last=10)
    """
    if pulse.tail > pulse.head:
        raise DecodeError(f"the stream ends at {pulse.head}, before its first chunk {pulse.tail}")
    playable(max(pulse.round, pulse.first or 0), last=last)


def playable(round: int, *, last: int) -> None:
    """Refuse a round that nobody plays.

    Raises
    ------
    DecodeError
        It is after the last.
    """
    if round > last:
        raise DecodeError(f"round {round} is after the last round, {last}")


def largest(row_bytes: int) -> int:
    """Return the most bytes of data that one message carries.

    Parameters
    ----------
    row_bytes
        Upper bound of a row's message; a term of a sum has numbers of up to twice the size.
    """
    return min(2 * row_bytes, CHUNK)
