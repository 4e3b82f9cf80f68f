"""Commands before and after training: a declaration of columns, predictions, evaluation, export, a model card."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from p2pfl.cli import tables
from p2pfl.errors import StorageError

if TYPE_CHECKING:  # they import torch
    from p2pfl.inference import Evaluation, Predictor
    from p2pfl.inference.fits import Fit


def columns(options: argparse.Namespace) -> int:
    """``p2pfl columns``."""
    import tomli_w  # noqa: PLC0415 (each command imports what it needs)

    from p2pfl.data.tables import propose, read  # noqa: PLC0415

    found, remarks = propose(read(options.table), target=options.target)
    data = {"name": "table", "options": {"path": options.table, "target": options.target, "columns": found}}
    print(json.dumps(data) if options.json else tomli_w.dumps({"data": data}), end="\n" if options.json else "")
    for remark in (*remarks, *REMARKS):
        print(f"note: {remark}", file=sys.stderr)
    return 0


REMARKS = (
    "remove columns that are no features, such as names and numbers of patients",
    "all owners need the same declaration; add the levels that only others have",
    "in `path`, {peer} stands for the name of a peer",
)
"""What an owner does with a proposal."""


def predict(options: argparse.Namespace) -> int:
    """``p2pfl predict``."""
    found = _predictor(options).predict(options.table)
    with _output(options.out) as file:
        found.write(file)
    return 0


def evaluate(options: argparse.Namespace) -> int:
    """``p2pfl evaluate``."""
    from p2pfl.inference import evaluate as evaluated  # noqa: PLC0415

    found = evaluated(_predictor(options), options.table, by=options.by, seed=options.seed)
    if options.json:
        print(json.dumps(found.results(), allow_nan=False))
    else:
        _show(found)
    return 0


def coefficients(options: argparse.Namespace) -> int:
    """``p2pfl coefficients``."""
    from p2pfl.inference.fits import fit  # noqa: PLC0415

    found = fit(_predictor(options).saved)
    if options.json:
        print(json.dumps(found.results(), allow_nan=False))
    else:
        _show_fit(found)
    return 0


def export(options: argparse.Namespace) -> int:
    """``p2pfl export``."""
    from p2pfl.inference import export as exported  # noqa: PLC0415
    from p2pfl.inference.exporting import SUFFIXES  # noqa: PLC0415

    out = options.out or Path(options.model).with_suffix(SUFFIXES[options.to])
    print(exported(_predictor(options), out, to=options.to))
    return 0


def card(options: argparse.Namespace) -> int:
    """``p2pfl card``."""
    from p2pfl.report import Run  # noqa: PLC0415
    from p2pfl.report.card import card as written  # noqa: PLC0415

    text = written(Run.load(options.run))
    with _output(options.out) as file:
        file.write(text)
    return 0


@contextmanager
def _output(path: str | None) -> Iterator[TextIO]:
    """Open a file to write, or standard output where none is named."""
    if path is None:
        yield sys.stdout
        return
    try:
        with Path(path).open("w", newline="", encoding="utf-8") as file:
            yield file
    except OSError as error:
        raise StorageError(f"{path} cannot be written ({error.strerror}); choose another file") from None


def _predictor(options: argparse.Namespace) -> Predictor:
    from p2pfl.inference import Predictor  # noqa: PLC0415

    if options.trust_model is not None:
        sys.path.insert(0, str(Path.cwd()))  # where the user's own module is
    return Predictor.load(options.model, model=options.trust_model)


def _show(found: Evaluation) -> None:
    """Print the scores of all samples, and below them those of each group."""
    from rich.console import Console  # noqa: PLC0415
    from rich.markup import escape  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console(highlight=False)
    table = tables.grid("score", "value", "95 % interval")
    for name, score in found.whole.scores.items():
        table.add_row(name.replace("_", " "), _number(score.value), _interval(score))
    console.print(f"{found.whole.samples} samples")
    console.print(table)
    if found.by is not None:
        first = "auc" if "auc" in found.whole.scores else "r2"
        groups = tables.grid(escape(found.by), "samples", "loss", "95 % interval", first, "95 % interval")
        for group in found.groups:
            cells = [cell for name in ("loss", first) for cell in _cells(group.scores[name])]
            groups.add_row(Text(group.name), str(group.samples), *cells)
        console.print()
        console.print(groups)
    console.print(f"\nIntervals are percentiles of {found.draws} bootstrap samples, drawn with seed {found.seed}.")


def _show_fit(found: Fit) -> None:
    """Print the coefficients, as statistics software does."""
    from rich.console import Console  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console(highlight=False)
    table = tables.grid("", "estimate", "std. error", "z", "p", "95 % interval")
    for each in found.coefficients:
        if each.estimate is None or each.error is None or each.z is None or each.p is None:
            table.add_row(Text(each.name), *5 * ["-"])
            continue
        likely = "< 0.0001" if each.p < LEAST else f"{each.p:.4f}"
        interval = f"{each.low:.5g} to {each.high:.5g}"
        table.add_row(Text(each.name), f"{each.estimate:.5g}", f"{each.error:.5g}", f"{each.z:.3f}", likely, interval)
    console.print(table)
    if any(each.estimate is None for each in found.coefficients):
        console.print("\n-: the features above determine it, so it has no coefficient of its own")
    console.print()
    tables.facts({key.replace("_", " "): f"{value:.6g}" for key, value in found.facts.items() if key != "converged"})


LEAST = 1e-4
"""Least p-value that is printed as it is."""


def _cells(score: Any) -> tuple[str, str]:
    return _number(score.value), _interval(score)


def _interval(score: Any) -> str:
    return "-" if math.isnan(score.low) else f"{_number(score.low)} to {_number(score.high)}"


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}" if abs(value) < 100 else f"{value:.4g}"
