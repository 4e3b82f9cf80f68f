"""``p2pfl columns``, ``report``, ``predict`` and others: tables to learn from, and what became of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from p2pfl.cli import folders, terminal
from p2pfl.cli.core_commands import (
    CardOptions,
    ColumnsOptions,
    EvaluateOptions,
    ExportOptions,
    PredictOptions,
    SchemaOptions,
)
from p2pfl.cli.experiments import warn_of_table
from p2pfl.cli.options import ModelOptions
from p2pfl.core.errors import InputError
from p2pfl.experiment.partitionings import Partitioning, Written, partitioning

if TYPE_CHECKING:  # it imports torch
    from p2pfl.results.models import Predictor

REMARKS = (
    "remove columns that are no features, such as names and numbers of patients",
    "all owners need the same declaration, and read the levels in it; add those that only others have",
    "in `path`, {peer} stands for the name of a peer",
)
"""Advice to an owner who receives a proposal."""


NO_TABLE = "-"
"""Stands for the table of a peer without rows."""


def columns(options: ColumnsOptions) -> int:
    """``p2pfl columns``."""
    import tomli_w  # noqa: PLC0415 (each command imports what it needs)

    from p2pfl.data.tables import propose, read  # noqa: PLC0415

    warn_of_table(options.table, unaccounted=True)
    proposed, remarks = propose(read(options.table), target=options.target)
    data = {"name": "table", "options": {"path": options.table, "target": options.target, "columns": proposed}}
    print(json.dumps(data) if options.json else tomli_w.dumps({"data": data}), end="\n" if options.json else "")
    for remark in (*remarks, *REMARKS):
        terminal.note(f"note: {remark}")
    return 0


def predict(options: PredictOptions) -> int:
    """``p2pfl predict``."""
    if options.live:
        return _predict_live(options)
    _admit(options)
    return _write(_predict_table(options), options)


def _predict_live(options: PredictOptions) -> int:
    """``p2pfl predict --live``."""
    if options.average:
        raise InputError("--average takes models of whole peers, and --live parts of one model; leave one out")
    if options.table != NO_TABLE:
        _admit(options)
    predictions = _divided(Path(options.model)).predict_live(
        Path(options.model),
        None if options.table == NO_TABLE else options.table,
        peer=options.name,
        brokers=options.broker,
        most=options.most,
        unaccounted=options.unaccounted,
    )
    return _write(predictions, options)


def _write(predictions: Written, options: PredictOptions) -> int:
    with terminal.output(options.out) as file:
        predictions.write(file)
    return 0


def evaluate(options: EvaluateOptions) -> int:
    """``p2pfl evaluate``."""
    from p2pfl.cli import tables  # noqa: PLC0415
    from p2pfl.results.models import evaluate as evaluated  # noqa: PLC0415

    _admit(options)
    evaluation = evaluated(
        predictor(options, options.average),
        options.table,
        by=options.by,
        seed=options.seed,
        unaccounted=options.unaccounted,
    )
    if options.json:
        print(json.dumps(evaluation.results(), allow_nan=False))
    else:
        tables.evaluation(evaluation)
    return 0


def export(options: ExportOptions) -> int:
    """``p2pfl export``."""
    from p2pfl.results.models import export as exported  # noqa: PLC0415
    from p2pfl.results.models.exporters import exporter_of  # noqa: PLC0415

    out = options.out or Path(options.model).with_suffix(exporter_of(options.to).suffix)
    print(exported(predictor(options), out, to=options.to))
    return 0


def card(options: CardOptions) -> int:
    """``p2pfl card``."""
    from p2pfl.results import Run  # noqa: PLC0415
    from p2pfl.results.card import card as written  # noqa: PLC0415

    text = written(Run.load(options.run), exact=options.exact)
    with terminal.output(options.out) as file:
        file.write(text)
    return 0


def schema(options: SchemaOptions) -> int:
    """``p2pfl schema``."""
    from p2pfl.results.json_schema import json_schema  # noqa: PLC0415

    del options  # it has none
    print(json.dumps(json_schema(), indent=2))
    return 0


def _admit(options: PredictOptions | EvaluateOptions) -> None:
    """Refuse a table whose account cannot count exact results, or warn."""
    warn_of_table(options.table, unaccounted=options.unaccounted)


def _predict_table(options: PredictOptions) -> Written:
    """Return the predictions for a table, for an array of samples, or for tables of peers with different columns."""
    from p2pfl.results.models.arrays import SUFFIX, ArrayPredictor  # noqa: PLC0415

    if Path(options.model).is_dir() and options.average:
        raise InputError("--average takes models of whole peers, and a run directory has parts; leave out --average")
    if Path(options.model).is_dir():
        folder = Path(options.model)
        return _divided(folder).predict(folder, options.table, unaccounted=options.unaccounted)
    if not options.table.endswith(SUFFIX):
        return predictor(options, options.average).predict(options.table, unaccounted=options.unaccounted)
    if options.trust_model is not None:
        folders.accept_references(options.trust_model)
    loaded = ArrayPredictor.load(options.model, *options.average, model=options.trust_model)
    return loaded.predict(options.table, unaccounted=options.unaccounted)


def _divided(folder: Path) -> Partitioning:
    """Return how the data of a run lie, whose peers have parts of one model."""
    from p2pfl.results import Run  # noqa: PLC0415

    divided = partitioning(Run.load(folder).experiment.data)
    if divided is None:
        raise InputError(f"{folder} is a run whose peers have whole models; name one of them, in its folder peers/")
    return divided


def predictor(options: ModelOptions, others: Sequence[str] = ()) -> Predictor:
    """Return the saved model that a command names, averaged with others."""
    from p2pfl.results.models import Predictor  # noqa: PLC0415

    if options.trust_model is not None:
        folders.accept_references(options.trust_model)
    return Predictor.load(options.model, *others, model=options.trust_model)
