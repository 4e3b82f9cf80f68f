"""Names of networkx, which is imported when one of them is first used: it takes 11 MiB, which most devices need not."""

from typing import Any


def __getattr__(name: str) -> Any:
    """Return what networkx calls by this name (PEP 562)."""
    import networkx as nx  # noqa: PLC0415 (the purpose of this module)

    return getattr(nx, name)
