"""``p2pfl components``: principal components of the features of all peers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text

from p2pfl.cli import terminal
from p2pfl.cli.tables import shown
from p2pfl.plugins.exact import simulated_totals
from p2pfl.plugins.exact.exact_commands import ComponentsOptions
from p2pfl.plugins.exact.pages.components_page import components_page, components_table
from p2pfl.plugins.exact.statistics.pca import PCA
from p2pfl.plugins.exact.statistics.private_pca import PrivatePCA
from p2pfl.plugins.exact.statistics.projected import projected

MOST = 10
"""Components that the terminal lists."""


def run(options: ComponentsOptions) -> int:
    """Print the components of an experiment, or those that peers have found."""
    given = {"components": options.components, "standardise": options.standardise or None}
    name, model, tensors, meaning = simulated_totals.found(
        options, model=PCA.name, given=given, private=PrivatePCA.name
    )
    results = projected(tensors, model, meaning)

    def page() -> str:
        return components_page(name, results, disclosed=model.shows)

    return terminal.write(options, results, rows=_rows(results), page=page, show=_show)


def _rows(found: dict[str, Any]) -> Iterator[Sequence[object]]:
    yield ["component", "variance", "share", *found["names"]]
    rows = zip(found["variance"], found["share"], found["components"], strict=False)
    yield from ([place, *row[:2], *row[2]] for place, row in enumerate(rows, start=1))


def _show(found: dict[str, Any]) -> None:
    console = terminal.console()
    console.print(shown(components_table(found, most=MOST)))
    console.print()
    console.print(Text(f"{found['samples']} samples of all peers, {len(found['names'])} features"))
