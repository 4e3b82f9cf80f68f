"""Finished runs side by side, for Python and notebooks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from p2pfl.core.errors import InputError
from p2pfl.results.comparisons.comparison import Comparison, RunOutcome
from p2pfl.results.comparisons.comparison_tables import text
from p2pfl.results.comparisons.figures import By, figure
from p2pfl.results.comparisons.outcomes import SweepFile, compare_runs, is_sweep, load_sweep
from p2pfl.results.records import columns_of, frame
from p2pfl.results.run import Run


class RunComparison(Comparison, frozen=True, kw_only=True):
    """Comparison that shows itself: as the tables of the terminal, and in notebooks as those of the report."""

    def __repr__(self) -> str:
        """Return the scores, differences and costs as text."""
        return text(self)

    def _repr_html_(self) -> str:
        """Return them as a part of a page."""
        from p2pfl.results.pages.comparison_page import comparison_fragment  # noqa: PLC0415 (only notebooks ask for it)

        return comparison_fragment(self)


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
    comparison, _ = compare_runs(runs, metric=metric)
    return msgspec.convert(comparison, RunComparison, from_attributes=True)


class Sweep:
    """Sweep with its directory, as ``p2pfl sweep`` has written it.

    Parameters
    ----------
    folder
        Directory of the sweep.
    content
        Content of ``sweep.json``.

    Attributes
    ----------
    folder, content
        The parameters.
    """

    def __init__(self, folder: Path, content: SweepFile) -> None:
        self.folder = folder
        self.content = content

    @staticmethod
    def load(folder: str | Path) -> Sweep:
        """Read the directory of a sweep.

        Parameters
        ----------
        folder
            Directory that holds ``sweep.json``.

        Raises
        ------
        InputError
            The folder is not that of a sweep that has ended, or cannot be read.
        """
        folder = Path(folder)
        if not is_sweep(folder):
            raise InputError(
                f"{folder} is not the directory of a sweep with sweep.json; check the path, or end the sweep"
            )
        return Sweep(folder, load_sweep(folder))

    @property
    def outcomes(self) -> tuple[RunOutcome, ...]:
        """Results and costs of each run, with its setting; a run that failed has its reason."""
        return self.content.outcomes

    @property
    def runs(self) -> list[tuple[RunOutcome, Run]]:
        """The runs that ended, read from their directories, with what each gave."""
        return [(each, Run.load(self.folder / each.folder)) for each in self.outcomes if each.folder]

    @property
    def comparison(self) -> RunComparison:
        """The settings side by side."""
        return msgspec.convert(self.content.comparison, RunComparison, from_attributes=True)

    @property
    def history(self) -> Any:
        """All records as a pandas data frame: a row for each run, round and peer, with its setting and seed.

        The columns are the keys that vary, ``seed``, and those of :attr:`p2pfl.Run.history`.

        Raises
        ------
        InputError
            Pandas is not installed.
        """
        columns: dict[str, list[Any]] = {}
        length = 0
        for each, run in self.runs:
            records = columns_of(run.metrics)
            for name, value in self._describe_setting(each).items():
                records.setdefault(name, [value] * len(run.metrics))
            for name in {**columns, **records}:
                column = columns.setdefault(name, [None] * length)
                column += records.get(name, [None] * len(run.metrics))
            length += len(run.metrics)
        first = [name for name in self._names if name in columns]
        ordered = {name: columns[name] for name in [*first, *(name for name in columns if name not in first)]}
        return frame(ordered, of="sweep.history", instead="sweep.runs")

    @property
    def summary(self) -> Any:
        """Results of the runs as a pandas data frame: a row for each run, with its setting, seed, score and costs.

        Raises
        ------
        InputError
            Pandas is not installed.
        """
        names = ("rounds", "bytes_sent", "gradients", "seconds", "folder", "failure")
        rows = [
            {
                **self._describe_setting(each),
                self.content.metric: each.score,
                **{name: getattr(each, name) for name in names},
            }
            for each in self.outcomes
        ]
        columns = {name: [row[name] for row in rows] for name in rows[0]} if rows else {}
        return frame(columns, of="sweep.summary", instead="sweep.outcomes")

    def plot(self, path: str | Path | None = None, *, by: By = "round") -> Any:
        """Draw the mean score of each setting with 95 % intervals over the seeds.

        Parameters
        ----------
        path
            Path of a PDF, SVG or PNG; ``None`` writes none.
        by
            Horizontal axis: ``"round"``, or ``"bytes"`` that all peers have sent.

        Returns
        -------
        matplotlib.figure.Figure
            The figure.

        Raises
        ------
        InputError
            Matplotlib is not installed, there are too many settings, or the file cannot be written.
        """
        comparison = self.comparison
        indices = {tuple(each.values.items()): index for index, each in enumerate(comparison.settings)}
        parts = [(indices[tuple(each.values.items())], run) for each, run in self.runs]
        return figure(comparison, parts, by=by, path=path)

    def __repr__(self) -> str:
        """Return the scores, differences and costs as text."""
        return repr(self.comparison)

    def _repr_html_(self) -> str:
        """Return them as a part of a page."""
        return self.comparison._repr_html_()

    @property
    def _names(self) -> list[str]:
        return [*(self.outcomes[0].values if self.outcomes else ()), "seed"]

    @staticmethod
    def _describe_setting(outcome: RunOutcome) -> dict[str, Any]:
        """Return the setting of a run, and its seed, with numbers as numbers."""
        return {key: _parse_number(value) for key, value in outcome.values.items()} | {"seed": outcome.seed}


def _parse_number(value: str) -> Any:
    """Return a number or a truth value for its text, and all else as it is."""
    try:
        number = json.loads(value)
    except ValueError:
        return value
    return number if isinstance(number, int | float) else value
