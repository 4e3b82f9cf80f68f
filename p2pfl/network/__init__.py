"""Live peers: transport, protocol (pure decisions), peer (the shell around them), secure sums, and virtual time."""

from p2pfl.core.lazily import lazily

__all__ = ["transport"]

__getattr__ = lazily(__name__, {"transport": ""})
