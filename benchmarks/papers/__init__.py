"""Published results beside ours; one module a paper, run by ``python -m benchmarks.papers``.

A paper is a module of this package with ``lines() -> list[Line]`` and a docstring that begins with the
paper's name. Modules whose name begins with an underscore are no papers.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial


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


def _lines(name: str) -> list[Line]:
    """Import a paper only when it is run."""
    found: list[Line] = importlib.import_module(f"{__name__}.{name}").lines()
    return found


PAPERS: dict[str, Callable[[], list[Line]]] = {
    module.name: partial(_lines, module.name)
    for module in pkgutil.iter_modules(__path__)
    if not module.name.startswith("_")
}
"""The papers by name; calling one runs it."""
