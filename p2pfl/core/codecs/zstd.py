"""Lossless compression of bytes by Zstandard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from p2pfl.core.errors import DecodeError, InputError


@dataclass(frozen=True)
class Zstd:
    """Codec of Zstandard frames that state the size of their contents.

    Parameters
    ----------
    level
        Compression level from 1 to 19; higher levels take longer.

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
        """Compress data to one frame."""
        squeezed: bytes = _library().ZstdCompressor(level=self.level).compress(data)
        return squeezed

    def expand(self, data: bytes | memoryview, *, size: int) -> bytes:
        """Return the ``size`` bytes in an untrusted frame, without allocating more memory than that.

        Raises
        ------
        DecodeError
            The data are not a frame, or it contains more or fewer bytes.
        """
        library = _library()
        try:
            if library.frame_content_size(data) != size:
                raise DecodeError(f"a frame contains {library.frame_content_size(data)} bytes instead of {size}")
            window = library.get_frame_parameters(data).window_size
            if window > max(size, 2**10):
                raise DecodeError(f"a frame has a window of {window} bytes, above the limit of {size}")
            expanded: bytes = library.ZstdDecompressor().decompress(data, allow_extra_data=False)
        except library.ZstdError as error:
            raise DecodeError(f"the bytes are not a Zstandard frame ({error})") from None
        return expanded


def _library() -> Any:
    try:
        import zstandard  # noqa: PLC0415 (an extra)
    except ImportError:
        raise InputError(
            'compression.zstd needs zstandard, which is not installed; run pip install "p2pfl-mqtt[zstd]", or '
            "leave compression.zstd out"
        ) from None
    return zstandard
