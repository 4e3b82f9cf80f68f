"""What every room rests on: errors, rows, keyed draws, integers, traits, codecs, and the interface of algorithms."""

from p2pfl.core.lazily import lazily

__all__ = ["errors"]

__getattr__ = lazily(__name__, {"errors": ""})
