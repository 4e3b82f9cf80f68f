"""An attack of one's own."""


def stale(rows, since, *, noise, scale=0.0):  # noqa: ARG001
    """Return a part of each update: with 0, a peer that trains sends its last public model again."""
    return since + scale * (rows - since)
