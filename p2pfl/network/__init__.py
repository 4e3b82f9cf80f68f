"""Live peers: transport, protocol (pure decisions), peer (the shell around them), secure sums, and virtual time."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
