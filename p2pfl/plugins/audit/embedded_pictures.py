"""Encoding of samples as pictures in a page."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np

from p2pfl.plugins.audit.pipeline import Floats


def uri(sample: Floats) -> str:
    """Return a sample of numbers from 0 to 1 as the data URI of a PNG: ``[H, W]``, ``[1 or 3, H, W]``, or a strip.

    Examples
    --------
    >>> uri(np.zeros((8, 8)))[:30]
    'data:image/png;base64,iVBORw0K'
    """
    levels = np.rint(255 * sample).astype(np.uint8)
    if levels.ndim == 3 and levels.shape[0] == 3:
        levels = np.moveaxis(levels, 0, -1)  # [H, W, 3]
    elif levels.ndim == 3 and levels.shape[0] == 1:
        levels = levels[0]  # [H, W]
    elif levels.ndim != 2:
        levels = levels.reshape(1, -1)  # [1, F]
    height, width = levels.shape[:2]
    lines = b"".join(b"\0" + line.tobytes() for line in levels)
    header = struct.pack(">2I5B", width, height, 8, 2 if levels.ndim == 3 else 0, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    data = b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, body) for kind, body in parts)
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
