"""Foundations of all rooms: errors, rows, keyed draws, integers, traits, codecs, and the interface of algorithms."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
