"""``p2pfl describe``, ``components`` and ``coefficients``: statistics of all peers, and saved ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from p2pfl.cli import folders, tables, terminal
from p2pfl.cli.experiments import experiment_of, note_comparisons, note_tables, of_one_peer, warn_unaccounted
from p2pfl.cli.planning.explain import write_plan
from p2pfl.core.errors import InputError
from p2pfl.core.explanations import FittedRegression
from p2pfl.data.data_description import Description as Meaning
from p2pfl.experiment import Experiment, Plan, plan, read
from p2pfl.experiment.catalogue import SAVED_MODELS
from p2pfl.experiment.schema import LearningSettings, ModelSettings, PrivacySettings
from p2pfl.learning.exact_learner import ExactLearner
from p2pfl.plugins.exact.columns import TARGET
from p2pfl.plugins.exact.exact_commands import (
    CoefficientsOptions,
    ComponentsOptions,
    DescribeOptions,
    StatisticsOptions,
)
from p2pfl.plugins.exact.regression.inference import compare_nested
from p2pfl.plugins.exact.statistics.described import described
from p2pfl.plugins.exact.statistics.group_comparison import group_notes, group_rows, group_table
from p2pfl.plugins.exact.statistics.pca import projected
from p2pfl.plugins.exact.statistics.stratified_odds import odds_table
from p2pfl.plugins.exact.statistics_pages import (
    components_page,
    components_table,
    description_page,
    description_paper,
    level_table,
    number_table,
    smallest_stated,
    strongest,
)
from p2pfl.results.facts import FactTable
from p2pfl.results.forest_plot import draw_forest
from p2pfl.results.models.model_file import SavedModel, load
from p2pfl.results.pages.features import coefficient_rows, regression_blocks, regression_tables
from p2pfl.results.pages.rendering import page
from p2pfl.results.summary import describe as summarise
from p2pfl.results.table_files import Paper
from p2pfl.simulation import simulate

BARS = "▁▂▃▄▅▆▇█"
"""Heights of a histogram on a terminal."""

QUARTILES = ("25%", "50%", "75%")
"""Quantiles on a narrow terminal."""

LEAST_NAME = 14
"""Characters of a name of Table 1 on a narrow terminal, where it takes several lines."""

NO_LIMIT = 10_000
"""Characters in which any table fits."""

MAX_PAIRS = 8
"""Correlations that the terminal lists."""

LEAST_CORRELATION = 0.1
"""Smallest correlation that the terminal lists."""

MAX_COMPONENTS = 10
"""Components that the terminal lists."""

Statistics = tuple[str, Any, Mapping[str, np.ndarray], Meaning]
"""A name, a model, its numbers, and the meaning of the columns."""


def describe(options: DescribeOptions) -> int:
    """Describe the data of an experiment, or print a description that peers have made."""
    given = {
        "least": options.least,
        "bins": options.bins,
        "correlations": False if options.no_correlations else None,
        "by": options.by,
        "strata": options.strata,
    }
    if options.plan:
        return print_plan(options, "description", given)
    name, model, tensors, meaning = computed(options, "description", given)
    results = described(tensors, model, meaning)
    disclosed = model.shown({"by": results.get("groups")})
    return terminal.write(
        options,
        results,
        rows=group_rows(results) if "groups" in results else description_rows(results),
        page=lambda: description_page(name, results, disclosed=disclosed),
        paper=lambda: description_paper(name, results),
        show=show_description,
    )


def find_components(options: ComponentsOptions) -> int:
    """Print the components of an experiment, or those that peers have found."""
    given = {"components": options.components, "standardise": options.standardise or None, "least": options.least}
    if options.plan:
        return print_plan(options, "pca", given)
    name, model, tensors, meaning = computed(options, "pca", given)
    results = projected(tensors, model, meaning)
    return terminal.write(
        options,
        results,
        rows=_component_rows(results),
        page=lambda: components_page(name, results, disclosed=model.shows),
        paper=lambda: Paper(f"Principal components of {name}", [components_table(results)]),
        show=_show_components,
    )


def print_coefficients(options: CoefficientsOptions) -> int:
    """Print the coefficients of a saved regression."""
    if options.trust_model is not None:
        folders.accept_references(options.trust_model)
    saved = load(options.model, model=options.trust_model)
    regression, results, compared = regression_of(saved), {}, []
    if options.against is not None:
        test = compare_nested(regression, regression_of(load(options.against)))
        results["against"] = test.results()
        compared = [f"Test of {', '.join(test.lacking)} (against {options.against}): {test.sentence()}."]

    if options.plot:
        draw_forest(regression, path=options.plot)

    def show(_: Mapping[str, Any]) -> None:
        tables.regression(regression)
        if compared:
            print(f"\n{compared[0]}")

    title = f"Regression of {saved.about.outputs.target or saved.about.model.name}"
    return terminal.write(
        options,
        regression.results() | results,
        rows=coefficient_rows(regression),
        page=lambda: page(title, [("coefficients", "Coefficients", [*regression_blocks(regression), *compared])]),
        paper=lambda: Paper(title, regression_tables(regression), [*regression.notes(), *compared]),
        show=show,
    )


def regression_of(saved: SavedModel) -> FittedRegression:
    """Return the coefficients of a saved regression.

    Raises
    ------
    InputError
        The model has no coefficients, or has not converged.
    """
    if saved.exact is None or saved.exact.traits.command != "coefficients":
        raise InputError(
            f"{saved.path} is a model {saved.about.model.name}, which has no standard errors; train one of glm, "
            "private_glm, lasso, cox"
        )
    explained = saved.exact.explained(tensors_of(saved), fields=saved.columns, classes=saved.names)
    if explained is None or explained.regression is None:
        raise InputError(f"{saved.path} has not converged; train more rounds")
    return explained.regression


def computed(options: StatisticsOptions, model: str, given: Mapping[str, Any]) -> Statistics:
    """Return the statistic that an argument names, or that follows from the data of the experiment which it names.

    Parameters
    ----------
    options
        Arguments of the command.
    model
        Name of the model. That of the same name with ``private_`` runs as the experiment says if it names it.
    given
        Options of the model; ``None`` where the user has given none.

    Raises
    ------
    InputError
        Options are given of a model that has its own, or the file has another model.
    """
    chosen = {key: value for key, value in given.items() if value is not None}
    private = f"private_{model}"
    if Path(options.experiment).suffix == ".safetensors":
        return _loaded(options, [model, private], chosen)
    experiment = experiment_of(options)
    if options.name is not None:
        experiment = of_one_peer(experiment, options.name)
    wanted = _wanted(experiment, model, chosen, alone=options.name is not None)
    return experiment.name, *_run(plan(wanted, unaccounted=options.unaccounted))


def print_plan(options: StatisticsOptions, model: str, given: Mapping[str, Any]) -> int:
    """Print what a statistic needs and what every peer would learn, as ``p2pfl explain`` does, and count nothing.

    Parameters
    ----------
    options, model, given
        As of :func:`computed`.

    Raises
    ------
    InputError
        A saved model or an option has no effect.
    """
    files = {"--csv": options.csv, "--tex": options.tex, "--docx": options.docx}
    if named := ", ".join(option for option, path in files.items() if path):
        raise InputError(f"--plan counts nothing, so {named} has no effect; leave it out, or take --html")
    if Path(options.experiment).suffix == ".safetensors":
        raise InputError(f"{options.experiment} is saved, so --plan comes too late; name an experiment")
    chosen = {key: value for key, value in given.items() if value is not None}
    resolved = plan(_wanted(experiment_of(options), model, chosen), only=options.only, unaccounted=True)
    return write_plan(options, resolved, html=options.html, name=options.name)


def _wanted(experiment: Experiment, model: str, chosen: Mapping[str, Any], *, alone: bool = False) -> Experiment:
    """Return the experiment whose run has a statistic with some options; one peer that is ``alone`` needs no masks.

    Raises
    ------
    InputError
        Options are given of a model with private noise, which has its own.
    """
    private = f"private_{model}"
    if experiment.model.name == private and not chosen:
        return experiment
    if experiment.model.name == model and not chosen and not alone:  # as its officer has approved it
        return experiment
    if experiment.model.name == private:
        named = ", ".join(map(_option, chosen))
        raise InputError(f"options of {private} are in model.options, so {named} has no effect; leave it out")
    options = dict(chosen)
    if model == "description" and experiment.data.options.get("event") is not None:
        options["event"] = True
    target = experiment.data.options.get("target", TARGET)
    options |= {key: TARGET for key in ("by", "strata") if options.get(key) == target}
    return _exact(experiment, model, options)


def _loaded(options: StatisticsOptions, names: Sequence[str], chosen: Mapping[str, Any]) -> Statistics:
    """Return the statistic that a file of a model of some names has."""
    if options.changes or chosen or options.unaccounted or options.name:
        others = {"--set": options.changes, "--name": options.name, "--unaccounted": options.unaccounted}
        named = ", ".join([*map(_option, chosen), *(option for option, given in others.items() if given)])
        raise InputError(f"a saved model has its options already, so {named} has no effect; leave it out")
    saved = load(options.experiment)
    about = saved.about
    part = (
        about.model.name in SAVED_MODELS and saved.exact is not None and saved.exact.traits.command == options.command
    )
    if about.model.name not in names and not part:
        raise InputError(
            f'{saved.path} is a model {about.model.name}; "p2pfl {options.command}" takes an experiment, or a model '
            f'with model.name = "{names[0]}"'
        )
    return Path(options.experiment).stem, saved.exact, tensors_of(saved), meaning_of(saved)


def meaning_of(saved: SavedModel) -> Meaning:
    """Return the meaning of the columns of a saved model."""
    inputs, outputs = saved.about.inputs, saved.about.outputs
    return Meaning(
        raw=inputs.raw,
        columns=saved.columns,
        mean=np.asarray(inputs.mean),
        deviation=np.asarray(inputs.deviation),
        classes=outputs.class_names,
        target=outputs.target,
        target_mean=outputs.mean,
        target_deviation=outputs.deviation,
    )


def tensors_of(saved: SavedModel) -> Mapping[str, np.ndarray]:
    """Return the numbers of a saved model."""
    return {key: value.numpy() for key, value in saved.module.state_dict().items()}


def _exact(experiment: Experiment, model: str, options: Mapping[str, Any]) -> Experiment:
    """Return the experiment of a model from totals over the data of another one.

    What that says on learning and its protection has no part in it, except the account of its data, which cannot count
    exact totals.
    """
    return Experiment(
        name=experiment.name,
        seed=experiment.seed,
        rounds=1,
        topology=experiment.topology,
        data=read(experiment, changes=["data.scale=false"]).data,
        model=ModelSettings(name=model, options=dict(options)),
        learning=LearningSettings(algorithm="exact"),
        privacy=PrivacySettings(mode="none", budget=experiment.privacy.budget),
    )


def _run(resolved: Plan) -> tuple[Any, Mapping[str, np.ndarray], Meaning]:
    """Return the model of a plan after its rounds, its numbers, and the meaning of the columns."""
    warn_unaccounted(resolved)
    note_tables(resolved)
    terminal.note(f"privacy: {summarise(resolved, spent=None)['statement']}")
    run = simulate(resolved, baselines=False)
    note_comparisons(resolved)
    learner = cast("ExactLearner", resolved.learner)
    tensors = {name: tensor.numpy() for name, tensor in next(iter(run.models.values())).items()}
    return learner.model, tensors, resolved.federation.dataset.description


def _option(key: str) -> str:
    """Return the option of the command that sets an option of a model."""
    return "--union" if key == "times" else f"--{key}"


def show_description(results: Mapping[str, Any]) -> None:
    """Print a description."""
    console = terminal.console(wide=True)
    numbers = [each for each in results["columns"] if each["kind"] == "number"]
    others = [each for each in results["columns"] if each["kind"] == "levels"]
    shown = [_grouped(group_table(results), console)] if "groups" in results else []
    if "stratified" in results.get("groups", ()):
        odds = odds_table(results)
        shown.append(tables.render(odds))
        shown[-1].title, shown[-1].title_style = odds.caption, ""
    if made := number_table(numbers, private=results["private"]):
        shown.append(_fitting(made, numbers, console))
    if made := level_table(others, hidden=f"< {results['least']}"):
        shown.append(tables.render(made))
    every = strongest(results["names"], results["correlations"], most=MAX_PAIRS) if results["correlations"] else []
    pairs = [pair for pair in every if abs(pair[2]) > LEAST_CORRELATION]
    if pairs:
        rows = [(two, one, f"{value:+.3f}") for one, two, value in pairs]
        shown.append(tables.render(FactTable("", ("strongest correlations", "", "correlation"), rows, text=2)))
    for table in shown:
        console.print(table)
        console.print()
    for each in group_notes(results) if "groups" in results else []:
        console.print(Text(each), soft_wrap=not console.is_terminal)
    for each in results["warnings"]:
        console.print(Text(f"warning: {each}"), soft_wrap=not console.is_terminal)
    kept = "with private noise" if results["private"] else smallest_stated(results)
    summary = f"{results['samples']} samples of all peers; {kept}"
    console.print(Text(summary), soft_wrap=not console.is_terminal)


def _grouped(facts: FactTable, console: Console) -> Table:
    """Return Table 1 without the columns for which a terminal is too narrow: tests first, the groups never."""
    left_out = ((), ("test",), ("test", "p", "SMD"), ("test", "p", "SMD", facts.heads[2]))
    choices = [facts.without(*heads) for heads in left_out]
    fitting = (each for each in choices if max(map(len, each.lines())) <= console.width)
    table = tables.render(next(fitting, choices[-1]))
    table.columns[0].min_width = min(LEAST_NAME, max(len(str(row[0])) for row in facts.rows))
    return table


def _fitting(facts: FactTable, columns: Sequence[Mapping[str, Any]], console: Console) -> Table:
    """Return the table of columns of numbers that shows most and fits; if none fits, names take several lines."""
    bars = [_bars(each["counts"]) for each in columns]
    outer = [head for head in facts.heads if head.endswith("%") and head not in QUARTILES]
    drawn = replace(
        facts, heads=[*facts.heads, "histogram"], rows=[[*row, bar] for row, bar in zip(facts.rows, bars, strict=True)]
    )
    for each in (drawn, drawn.without("low", "high", *outer), facts.without("low", "high", *outer)):
        table = tables.render(each)
        table.columns[0].no_wrap = True
        if Measurement.get(console, console.options.update(width=NO_LIMIT), table).maximum <= console.width:
            return table
    names = table.columns[0]
    names.no_wrap, names.overflow, names.min_width = False, "fold", len("column")
    return table


def _bars(counts: list[int | None]) -> str:
    top = max((count or 0 for count in counts), default=0)
    if not top:
        return ""
    return "".join(
        "·" if count is None else " " if not count else BARS[min(7, (8 * count - 1) // top)] for count in counts
    )


def description_rows(results: Mapping[str, Any]) -> Iterator[Sequence[object]]:
    """Return a row for each column of numbers and each level; empty cells are not stated."""
    numbers = [each for each in results["columns"] if each["kind"] == "number"]
    shares = list(numbers[0]["quantiles"]) if numbers else []
    yield ["column", "level", "count", "missing", "mean", "std", "low", *shares, "high"]
    for each in results["columns"]:
        if each["kind"] == "levels":
            yield from ([each["name"], level, count] for level, count in each["levels"].items())
            continue
        values = [each["mean"], each["deviation"], each["low"], *each["quantiles"].values(), each["high"]]
        yield [each["name"], "", each["count"], each["missing"], *values]


def _component_rows(results: Mapping[str, Any]) -> Iterator[Sequence[object]]:
    yield ["component", "variance", "share", *results["names"]]
    rows = zip(results["variance"], results["share"], results["components"], strict=False)
    yield from ([number, *row[:2], *row[2]] for number, row in enumerate(rows, start=1))


def _show_components(results: Mapping[str, Any]) -> None:
    console = terminal.console()
    console.print(tables.render(components_table(results, most=MAX_COMPONENTS)))
    console.print()
    console.print(Text(f"{results['samples']} samples of all peers, {len(results['names'])} features"))
