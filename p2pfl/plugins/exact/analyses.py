"""``p2pfl.glm``, ``cox``, ``describe`` and ``survival``: one call from tables of peers to a table of results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from p2pfl.core.errors import DataError, InputError
from p2pfl.core.tensors import torch
from p2pfl.data import Table, gather
from p2pfl.data.tables.cells import TextCells
from p2pfl.data.tables.cells import read as read_cells
from p2pfl.data.tables.declaration import PEER
from p2pfl.data.tables.formula import TOKEN
from p2pfl.data.tables.proposal import propose
from p2pfl.experiment import Experiment, Plan, plan, read
from p2pfl.experiment.catalogue import model_traits
from p2pfl.experiment.parts.formula_parts import with_formula
from p2pfl.experiment.schema import DataSettings, LearningSettings, ModelSettings, PrivacySettings, TopologySettings
from p2pfl.plugins.exact.statistics.described import described
from p2pfl.plugins.exact.statistics.group_comparison import group_rows
from p2pfl.plugins.exact.statistics.survival_results import survival as curves
from p2pfl.plugins.exact.statistics_commands import description_rows, meaning_of, tensors_of
from p2pfl.plugins.exact.statistics_pages import description_paper
from p2pfl.plugins.exact.survival_page import group_table, sentences, survival_rows, time_tables
from p2pfl.results import Run
from p2pfl.results.facts import FactTable
from p2pfl.results.models.model_description import metadata
from p2pfl.results.models.model_file import restore
from p2pfl.results.pages.features import coefficient_rows, regression_tables
from p2pfl.results.run_files import explanation_of
from p2pfl.simulation import simulate

Data = Mapping[str, Any] | Experiment | str | Path
"""Tables by peer: data frames or paths; or an experiment, or its file, which runs as it is if it has the same model."""

STEPS = 30
"""Largest number of steps of a regression."""


@dataclass(frozen=True)
class Analysis:
    """Result of a regression or a statistic from exact totals.

    Its ``repr`` is the printed table.

    Attributes
    ----------
    run
        The run, simulated or live.
    results
        All numbers, as the command prints them with ``--json``.
    head, rows
        Names of columns, and rows with all digits; ``None`` where a number is not stated.
    printed
        Tables for people.
    notes
        Sentences on how to read them.
    """

    run: Run
    results: Mapping[str, Any]
    head: Sequence[str]
    rows: Sequence[Sequence[Any]]
    printed: Sequence[FactTable]
    notes: Sequence[str] = ()

    @classmethod
    def of(cls, run: Run) -> Analysis:
        """Return the result of a run that has ended, simulated or live.

        Raises
        ------
        InputError
            The regression has not converged, or the model is neither one of ``glm``, ``lasso``, ``ordinal``, ``cox``,
            nor ``description`` or ``kaplan_meier``.

        Examples
        --------
        >>> import p2pfl
        >>> settings = {"rounds": 1, "topology": {"kind": "complete", "peers": 3}, "data": {"name": "wine"}}
        >>> run = p2pfl.simulate(settings | {"model": {"name": "description"}, "privacy": {"mode": "none"}})
        >>> Analysis.of(run).results["samples"] > 0
        True
        """
        explained = explanation_of(run.summary)
        if explained is not None and (fit := explained.regression) is not None:
            head, *rows = coefficient_rows(fit)
            return cls(run, fit.results(), [*map(str, head)], rows, regression_tables(fit), fit.notes())
        name = run.experiment.model.name.removeprefix("private_")
        if name not in {"description", "kaplan_meier"}:
            raise InputError(
                f"the model {run.experiment.model.name} of the run has no table of results, or has not converged; run "
                "more rounds of glm or cox, or one of description or kaplan_meier"
            )
        peer, model = next(iter(run.models.items()))
        saved = restore(Path(peer), metadata(run.description), dict(model))
        tensors, exact = tensors_of(saved), cast("Any", saved.exact)
        if name == "description":
            results = described(tensors, exact, meaning_of(saved))
            head, *rows = group_rows(results) if "groups" in results else description_rows(results)
            paper = description_paper(run.experiment.name, results)
            return cls(run, results, [*map(str, head)], rows, paper.tables, [*paper.notes, *results["warnings"]])
        results = curves(tensors, exact) | {"time": saved.about.outputs.target or "time"}
        results |= {"horizon": exact.horizon or float(max(tensors["times"], default=0.0))}
        head, *rows = survival_rows(results)
        tables = [group_table(results), *time_tables(results)]
        return cls(run, results, [*map(str, head)], rows, tables, [*sentences(results)])

    def table(self) -> Any:
        """Return the rows with all digits: a pandas data frame (extra ``pandas``), or else a list of dictionaries."""
        try:
            import pandas as pd  # noqa: PLC0415 (an extra)
        except ImportError:
            return [dict(zip(self.head, row, strict=False)) for row in self.rows]
        return pd.DataFrame([[*row] for row in self.rows], columns=[*self.head])

    def __repr__(self) -> str:
        """Return the tables and notes as text."""
        return "\n\n".join(["\n".join(table.lines()) for table in self.printed] + ["\n".join(self.notes)]).rstrip()


def glm(
    formula: str, data: Data, *, columns: Mapping[str, Any] | None = None, options: Mapping[str, Any] | None = None
) -> Analysis:
    r"""Fit a generalised linear model to the data of all peers, as ``model.name = "glm"`` does.

    Parameters
    ----------
    formula
        As of R: ``"low ~ age + smoke"``.
    data
        Tables by peer: data frames, or files whose paths differ in the names of the peers alone, beside which the
        ledger of runs lies; or an experiment.
    columns
        Declaration of the columns, as in ``data.options.columns``. By default it follows from all tables, which this
        process can read, as ``p2pfl columns`` proposes it.
    options
        Options of the model, such as ``{"family": "poisson", "least": 10}``.

    Returns
    -------
    Analysis
        Coefficients and their tests.

    Raises
    ------
    InputError
        The formula does not fit the data, a cell has too few people, the ledger refuses the run, or there is no fit.

    Examples
    --------
    >>> import pandas as pd, p2pfl
    >>> rows = pd.DataFrame({"dose": [1.0, 2, 3, 4, 5, 6] * 5, "y": [1.5, 2.5, 2.5, 4.5, 4.5, 6.5] * 5})
    >>> columns = {"dose": "number", "y": "number"}
    >>> fit = p2pfl.glm("y ~ dose", {"north": rows[:10], "south": rows[10:20], "west": rows[20:]}, columns=columns)
    >>> fit.table()["estimate"].round(4).tolist()
    [0.9429, 0.3667]
    """
    return _fit("glm", formula, data, columns=columns, event=None, options=options)


def cox(
    formula: str,
    data: Data,
    *,
    event: str | None = None,
    columns: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Analysis:
    """Fit proportional hazards to the data of all peers, as ``model.name = "cox"`` does.

    Parameters
    ----------
    formula
        The time on its left side: ``"time ~ age + sex"``.
    event
        Column that says whether the event happened; an experiment names it itself.
    data, columns
        As of :func:`glm`.
    options
        Options of the model, such as ``{"horizon": 1000, "width": "auto"}``.

    Returns
    -------
    Analysis
        Coefficients and their tests.

    Raises
    ------
    InputError
        As :func:`glm`.
    """
    return _fit("cox", formula, data, columns=columns, event=event, options=options)


def describe(
    data: Data,
    *,
    target: str | None = None,
    columns: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Analysis:
    """Describe the columns of all peers, as ``p2pfl describe`` does.

    Parameters
    ----------
    data, columns
        As of :func:`glm`.
    target
        Column that later models predict; by default the last one.
    options
        Options of the model ``description``, such as ``{"by": "treatment"}``.

    Returns
    -------
    Analysis
        Counts, means, deviations, quantiles, and samples of each level; Table 1 with the option ``by``.

    Raises
    ------
    InputError
        As :func:`glm`.
    """
    return _analyse("description", data, _Roles(target, columns=columns), options or {}, rounds=1)


def survival(
    data: Data,
    *,
    time: str | None = None,
    event: str | None = None,
    columns: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Analysis:
    """Estimate Kaplan-Meier curves of all peers, as ``p2pfl survival`` does.

    Parameters
    ----------
    data, columns
        As of :func:`glm`.
    time, event
        Columns of times and of whether the event happened; an experiment names them itself.
    options
        Options of the model ``kaplan_meier``, such as ``{"horizon": 1000, "width": 30, "group": "sex"}``.

    Returns
    -------
    Analysis
        A row for each group and time.

    Raises
    ------
    InputError
        As :func:`glm`.
    """
    return _analyse("kaplan_meier", data, _Roles(time, event, columns, numeric=True), options or {}, rounds=1)


@dataclass(frozen=True)
class _Roles:
    """Roles of columns: target, event, declaration, those in use, and whether the target is a time or a number."""

    target: str | None
    event: str | None = None
    columns: Mapping[str, Any] | None = None
    used: frozenset[str] | None = None
    numeric: bool = False


def _fit(
    model: str,
    formula: str,
    data: Data,
    *,
    columns: Mapping[str, Any] | None,
    event: str | None,
    options: Mapping[str, Any] | None,
) -> Analysis:
    target, tilde, _ = formula.partition("~")
    if not tilde or not target.strip():
        raise InputError(f'the formula is "{formula}"; write the target on its left side, as in "low ~ age + smoke"')
    words = {match["name"] or match["quoted"] or (match["text"] or "")[1:-1] for match in TOKEN.finditer(formula)}
    chosen = {**(options or {}), "formula": formula}
    words |= {value for value in chosen.values() if isinstance(value, str)}
    name = target.strip().strip("`")
    numeric = model == "cox" or chosen.get("family", "binomial") != "binomial"
    roles = _Roles(name, event, columns, frozenset({*words, name, *([event] if event else [])}), numeric=numeric)
    return _analyse(model, data, roles, chosen, rounds=STEPS)


def _analyse(model: str, data: Data, roles: _Roles, options: Mapping[str, Any], *, rounds: int) -> Analysis:
    """Return the result of a model from totals over the data of all peers."""
    made = ModelSettings(name=model, options=dict(options))
    resolved = (
        _of_tables(data, made, roles, rounds) if isinstance(data, Mapping) else _of_file(data, made, roles, rounds)
    )
    return Analysis.of(simulate(resolved, baselines=False))


def _of_file(data: Experiment | str | Path, model: ModelSettings, roles: _Roles, rounds: int) -> Plan:
    """Return the plan of a model on the data of an experiment, which runs as it is if that is its model."""
    given = read(data)
    named = {"target": roles.target, "event": roles.event, "columns": roles.columns}
    for key, value in named.items():
        if value is not None and given.data.options.get(key) != value:
            raise InputError(f"data.options.{key} of the experiment is not {value!r}; change one of them")
    if given.model == model:  # as its officer has approved it
        return plan(given)
    return plan(
        Experiment(
            name=given.name,
            seed=given.seed,
            rounds=rounds,
            topology=given.topology,
            data=read(given, changes=["data.scale=false"]).data,
            model=model,
            learning=LearningSettings(algorithm="exact"),
            privacy=PrivacySettings(mode="none", budget=given.privacy.budget),
        )
    )


def _of_tables(data: Mapping[str, Any], model: ModelSettings, roles: _Roles, rounds: int) -> Plan:
    """Return the plan of a model on tables by peer."""
    if not data:
        raise DataError("there are no tables; give one for each peer, as in {'north': frame}")
    path = _common_path(data)
    options: dict[str, Any] = _declared(data, roles)
    wanted = Experiment(
        rounds=rounds,
        topology=TopologySettings(kind="complete", peers=tuple(sorted(data))),
        data=DataSettings(name="table", options=options | ({} if path is None else {"path": path})),
        model=model,
        learning=LearningSettings(algorithm="exact"),
        privacy=PrivacySettings(mode="none"),
    )
    if path is not None:
        return plan(wanted)
    kind = torch.float32 if model_traits(model.name).single else torch.float64
    federation = gather(data, seed=wanted.seed, test=0.0, table=Table(**options), dtype=kind)
    return plan(wanted, data=with_formula(wanted, federation))


def _common_path(data: Mapping[str, Any]) -> str | None:
    """Return the path of the tables of all peers, in which ``{peer}`` stands for the name; ``None`` of data frames.

    Raises
    ------
    DataError
        Files and data frames are mixed, or the paths differ in more than the names of the peers.

    Examples
    --------
    >>> _common_path({"north": "data/north.csv", "south": "data/south.csv"})
    'data/{peer}.csv'
    """
    paths = {str(table).replace(peer, PEER) for peer, table in data.items() if isinstance(table, str | Path)}
    if not paths:
        return None
    files = all(isinstance(table, str | Path) for table in data.values())
    if not files or len(paths) > 1 or (len(data) > 1 and PEER not in next(iter(paths))):
        raise DataError(
            "the ledger of runs lies beside the tables, so give data frames alone, or files whose paths differ in the "
            "names of the peers alone, such as north.csv and south.csv"
        )
    return paths.pop()


def _declared(data: Mapping[str, Any], roles: _Roles) -> dict[str, Any]:
    """Return the options of the data: target, event, and columns as they are declared or follow from all tables."""
    cells = (
        {} if roles.columns is not None and roles.target is not None else {p: read_cells(t) for p, t in data.items()}
    )
    target = roles.target
    if target is None:
        target = [*roles.columns][-1] if roles.columns is not None else next(iter(cells.values())).names[-1]
    columns = roles.columns if roles.columns is not None else _proposed([*cells.values()], target, roles)
    return {"target": target, "columns": dict(columns)} | ({"event": roles.event} if roles.event else {})


def _proposed(tables: Sequence[TextCells], target: str, roles: _Roles) -> dict[str, Any]:
    """Return a declaration that fits all tables."""
    first = tables[0]
    if any(each.format != first.format for each in tables):
        raise DataError("the tables have numbers or dates of several formats; declare their columns with columns")
    names = [name for name in first.names if roles.used is None or name in roles.used]
    joined = {name: [cell for each in tables for cell in each.column(name)] for name in names}
    rows: dict[str, Callable[[], list[str]]] = {name: partial(list, cells) for name, cells in joined.items()}
    whole = TextCells("the tables", rows, rows=len(joined[names[0]]) if names else 0, format=first.format)
    columns, _ = propose(whole, target=target)
    if roles.numeric:
        columns[target] = "number"
    if roles.event:
        columns[roles.event] = "integer" if isinstance(columns.get(roles.event), str) else columns[roles.event]
    return columns
