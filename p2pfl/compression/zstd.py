"""Bytes squeezed without loss, by Zstandard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from p2pfl.errors import DecodeError, InputError


@dataclass(frozen=True)
class Zstd:
    """Zstandard frames that say how much is in them.

    Parameters
    ----------
    level
        1 to 19; more takes longer.

    Raises
    ------
    InputError
        The library is not installed.

    Examples
    --------
    >>> squeezed = Zstd().squeeze(bytes(10_000))
    >>> len(squeezed) < 100, Zstd().expand(squeezed, size=10_000) == bytes(10_000)
    (True, True)
    """

    level: int = 3

    def __post_init__(self) -> None:
        _library()

    def squeeze(self, data: bytes | memoryview) -> bytes:
        """One frame."""
        squeezed: bytes = _library().ZstdCompressor(level=self.level).compress(data)
        return squeezed

    def expand(self, data: bytes | memoryview, *, size: int) -> bytes:
        """Return the ``size`` bytes that are in a frame, which may be anybody's: no more than that is ever set aside.

        Raises
        ------
        DecodeError
            It is no frame, or holds more or less.
        """
        library = _library()
        try:
            if library.frame_content_size(data) != size:
                raise DecodeError(f"expected a frame of {size} bytes, got one of {library.frame_content_size(data)}")
            window = library.get_frame_parameters(data).window_size
            if window > max(size, 2**10):
                raise DecodeError(f"expected a window of at most {size} bytes, got {window}")
            expanded: bytes = library.ZstdDecompressor().decompress(data, allow_extra_data=False)
        except library.ZstdError as error:
            raise DecodeError(f"expected a Zstandard frame, got other bytes: {error}") from None
        return expanded


def _library() -> Any:
    try:
        import zstandard  # noqa: PLC0415 (an extra)
    except ImportError:
        raise InputError(
            'expected zstandard for compression.zstd, got none: pip install "p2pfl-mqtt[zstd]", or leave it out'
        ) from None
    return zstandard
