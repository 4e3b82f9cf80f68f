import sys

import pytest

from p2pfl.core.codecs import Zstd
from p2pfl.core.errors import DecodeError, InputError

zstandard = pytest.importorskip("zstandard")


def test_bytes_come_back_as_they_went():
    data = bytes(range(256)) * 100
    squeezed = Zstd().squeeze(data)
    assert len(squeezed) < len(data)
    assert Zstd().expand(squeezed, size=len(data)) == data


@pytest.mark.slow
def test_a_frame_that_holds_more_than_it_may_is_refused_before_it_is_expanded():
    bomb = zstandard.ZstdCompressor(level=19).compress(bytes(2**28))
    assert len(bomb) < 2**15
    with pytest.raises(DecodeError, match="a frame contains 268435456 bytes instead of 1000"):
        Zstd().expand(bomb, size=1000)


def test_a_frame_that_holds_more_than_it_says_is_refused():
    honest = bytearray(zstandard.ZstdCompressor().compress(bytes(5000)))
    place = honest.index((5000 - 256).to_bytes(2, "little"))
    honest[place : place + 2] = (1000 - 256).to_bytes(2, "little")
    with pytest.raises(
        DecodeError,
        match=r"the bytes are not a Zstandard frame \(decompression error: Destination buffer is too small\)",
    ):
        Zstd().expand(bytes(honest), size=1000)


@pytest.mark.parametrize(
    "data", [b"", b"\x28\xb5\x2f\xfd", b"hello" * 10, zstandard.ZstdCompressor().compress(b"ab") + b"c"]
)
def test_what_is_no_frame_is_refused(data):
    with pytest.raises(DecodeError):
        Zstd().expand(data, size=2)


def test_a_frame_without_a_size_is_refused():
    stream = zstandard.ZstdCompressor().compressobj()
    data = stream.compress(bytes(1000)) + stream.flush()
    with pytest.raises(DecodeError, match="a frame contains -1 bytes instead of 1000"):
        Zstd().expand(data, size=1000)


def test_without_the_library_the_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(InputError, match="pip install"):
        Zstd()
