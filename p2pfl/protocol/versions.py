"""Peers of different releases of p2pfl work together; that they differ is reported, not refused."""


def differing(peer: str, *, theirs: str, ours: str) -> str:
    """Return how the release that a peer announces differs from this one, empty where they are the same.

    The announced version is escaped, because whoever announces it chooses it.

    Examples
    --------
    >>> differing("ada", theirs="0.2.0", ours="0.1.0")
    'peer "ada" runs p2pfl 0.2.0, this peer runs 0.1.0'
    >>> differing("ada", theirs="0.1.0", ours="0.1.0")
    ''
    """
    if theirs == ours:
        return ""
    return f'peer "{peer}" runs p2pfl {ascii(theirs)[1:-1] or "of an unknown version"}, this peer runs {ours}'
