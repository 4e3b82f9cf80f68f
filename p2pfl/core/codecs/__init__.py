"""Compression of models: lossy codecs, and lossless compression on the wire."""

from p2pfl.core.codecs.codecs import At, Codec, Coded, Codes, Half, Quantise, Whole, coded
from p2pfl.core.codecs.quantised import QSGD
from p2pfl.core.codecs.sparse import RandomK, TopK
from p2pfl.core.codecs.zstd import Zstd

__all__ = [
    "QSGD",
    "At",
    "Codec",
    "Coded",
    "Codes",
    "Half",
    "Quantise",
    "RandomK",
    "TopK",
    "Whole",
    "Zstd",
    "coded",
]
