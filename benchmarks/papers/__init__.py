"""Published results beside ours."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """One published result and ours."""

    what: str
    published: str
    measured: str
    met: bool | None
    why: str = ""
