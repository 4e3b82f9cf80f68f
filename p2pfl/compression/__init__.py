"""Compression of models: lossy codecs, and lossless compression on the wire."""

from p2pfl.compression.codecs import At, Codec, Coded, Codes, Half, Quantise, Whole, coded
from p2pfl.compression.quantised import QSGD
from p2pfl.compression.sparse import RandomK, TopK
from p2pfl.compression.zstd import Zstd

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
