"""Releases that peers announce; peers of different releases work together, and the difference is reported."""


def escaped(version: str) -> str:
    r"""Return an announced version in ASCII without control characters, because whoever announces it chooses it.

    Examples
    --------
    >>> escaped("0.2.0"), escaped("1" + chr(10) + chr(27))
    ('0.2.0', '1\\n\\x1b')
    """
    return ascii(version)[1:-1]
