"""Memory of large messages that arrive, which later messages take again."""

from __future__ import annotations

import contextlib
import mmap
import weakref
from collections import deque

import numpy as np
from numpy.typing import NDArray

MIN_REUSED_BYTES = 2**20
"""Bytes of the smallest message whose memory is taken again; that of smaller ones is in the heap of the C library."""

MAX_REUSED_BYTES = 2**26
"""Bytes of the largest one: memory for larger models returns to the system at once."""

MAX_FREE_BLOCKS = 2
"""Blocks that may wait for later messages: a gossip step has a sum and a model that is added to it."""

_UNIT = 2**16  # models whose heads differ by a few bytes have blocks of one size


class MessageMemory:
    """Blocks of memory for large messages, each taken again once nothing refers to its message any more.

    The system fills fresh memory with zeros, which takes longer than all that is done with a model that arrives. A
    model is read where it has arrived, and becomes the sum of a gossip step and the next model of the peer. So the last
    array, tensor or view of a message that is deleted frees its block. The system may take free blocks back when it is
    short of memory.

    Examples
    --------
    >>> memory = MessageMemory()
    >>> message = memory.take(2**20)
    >>> place = message.ctypes.data
    >>> del message
    >>> memory.take(2**20).ctypes.data == place
    True
    """

    def __init__(self) -> None:
        self._free = deque[mmap.mmap](maxlen=MAX_FREE_BLOCKS)  # whose operations are atomic: any thread frees a block

    def __deepcopy__(self, memo: object) -> MessageMemory:
        return MessageMemory()  # a copy of a session has messages of its own

    def take(self, size: int) -> NDArray[np.uint8]:
        """Return memory for a message of so many bytes, with any content."""
        capacity = size + -size % _UNIT
        if not MIN_REUSED_BYTES <= capacity <= MAX_REUSED_BYTES:
            return np.empty(size, np.uint8)
        block = self._reuse(capacity) or _map(capacity)
        # Over a block, which is no array: views of the message refer to the message, not to the block behind it.
        message = np.frombuffer(block, np.uint8, count=size)
        weakref.finalize(message, self._return, block).atexit = False
        return message

    def _reuse(self, capacity: int) -> mmap.mmap | None:
        """Return a free block, and give up those of other sizes."""
        while True:
            try:
                block = self._free.popleft()
            except IndexError:
                return None
            if len(block) == capacity:
                return block

    def _return(self, block: mmap.mmap) -> None:
        """Keep a block to which nothing refers any more, in place of the oldest one if there are too many."""
        _advise(block, "MADV_FREE")
        self._free.append(block)


def _map(capacity: int) -> mmap.mmap:
    """Return private memory, in large pages where the system has them."""
    if not hasattr(mmap, "MAP_ANONYMOUS"):  # Windows, where it is private
        return mmap.mmap(-1, capacity)
    block = mmap.mmap(-1, capacity, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    _advise(block, "MADV_HUGEPAGE")
    return block


def _advise(block: mmap.mmap, name: str) -> None:
    """Give advice about a block, where the system knows it."""
    advice = getattr(mmap, name, None)
    if advice is not None:
        with contextlib.suppress(OSError):
            block.madvise(advice)
