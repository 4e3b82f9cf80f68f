"""``p2pfl components``: principal components of the features of all peers."""

from __future__ import annotations

import argparse
import csv
import json
from typing import Any

from rich.text import Text

from p2pfl.cli import terminal
from p2pfl.cli.results import totalling
from p2pfl.cli.tables import grid
from p2pfl.exact.statistics.pca import PCA
from p2pfl.exact.statistics.projected import projected
from p2pfl.report.pages.components_page import components_page, largest

MOST = 10
"""Components that the terminal lists."""


def run(options: argparse.Namespace) -> int:
    """Print the components of an experiment, or those that peers have found."""
    given = {"components": options.components, "standardise": options.standardise or None}
    name, model, tensors, meaning = totalling.found(options, model="pca", given=given)
    results = projected(tensors, model, meaning)
    if options.csv:
        with terminal.output(options.csv) as file:
            writer = csv.writer(file)
            writer.writerow(["component", "variance", "share", *results["names"]])
            rows = zip(results["variance"], results["share"], results["components"], strict=False)
            writer.writerows([place + 1, *row[:2], *row[2]] for place, row in enumerate(rows))
    if options.html:
        with terminal.output(options.html) as file:
            file.write(components_page(name, results, disclosed=PCA.shows))
    if options.json:
        print(json.dumps(results, allow_nan=False))
    else:
        _show(results)
    return 0


def _show(found: dict[str, Any]) -> None:
    console = terminal.console()
    table = grid("component", "variance", "share", "in all")
    table.add_column("largest loadings")
    total = 0.0
    for place, loadings in enumerate(found["components"][:MOST]):
        total += found["share"][place]
        said = ", ".join(f"{name} {value:+.2f}" for name, value in largest(found["names"], loadings))
        numbers = [f"{found['variance'][place]:.5g}", f"{found['share'][place]:.1%}", f"{total:.1%}"]
        table.add_row(str(place + 1), *numbers, Text(said))
    console.print(table)
    console.print()
    console.print(Text(f"{found['samples']} samples of all peers, {len(found['names'])} features"))
