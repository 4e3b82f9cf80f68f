"""Published results beside ours; one module a paper."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """One published result and ours.

    Attributes
    ----------
    what
        Which result.
    published, measured
        As they are to be printed.
    met
        Whether ours is what it should be; ``None`` where it was not run, or nothing is claimed.
    why
        The reason, where it is not met or was not run.
    """

    what: str
    published: str
    measured: str
    met: bool | None
    why: str = ""
