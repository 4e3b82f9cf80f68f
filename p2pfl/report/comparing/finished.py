"""Finished runs side by side, for Python and notebooks."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from p2pfl.errors import InputError
from p2pfl.report.comparing.comparison import Comparison
from p2pfl.report.comparing.outcomes import between
from p2pfl.report.comparing.tables import text
from p2pfl.report.run import Run


class RunComparison(Comparison, frozen=True, kw_only=True):
    """Comparison that shows itself: as the tables of the terminal, and in notebooks as those of the report."""

    def __repr__(self) -> str:
        """Return the scores, differences and costs as text."""
        return text(self)

    def _repr_html_(self) -> str:
        """Return them as a part of a page."""
        from p2pfl.report.pages.comparison_page import fragment  # noqa: PLC0415 (only notebooks ask for it)

        return fragment(self)


def compare(runs: Sequence[Run], *, metric: str | None = None) -> RunComparison:
    """Compare finished runs by the keys in which their experiments differ; seeds are repetitions.

    Parameters
    ----------
    runs
        Runs of :func:`p2pfl.simulate`, :func:`p2pfl.live` or :meth:`p2pfl.Run.load`. Each setting is compared with that
        of the first one.
    metric
        Name of the score; by default the one that all runs have.

    Returns
    -------
    RunComparison
        Means over seeds, paired differences with intervals, and costs.

    Raises
    ------
    InputError
        There is no run, the runs have different scores, or two have the same settings and seed.

    Examples
    --------
    >>> from p2pfl.simulation import simulate
    >>> table = {"rounds": 1, "topology": {"kind": "complete", "peers": 2}, "data": {"name": "wine"}}
    >>> runs = [simulate(table | {"learning": {"rate": rate}}, baselines=False) for rate in (0.01, 0.1)]
    >>> compare(runs).keys
    ('learning.rate',)
    """
    if not runs:
        raise InputError("there is no run to compare; pass the runs in a list")
    found, _ = between(runs, metric=metric)
    return msgspec.convert(found, RunComparison, from_attributes=True)
