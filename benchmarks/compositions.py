"""What goes with which algorithm, asked of the code itself.

    python -m benchmarks.compositions [--why]

prints the table of docs/algorithms.md (a test holds it there), or every refusal with its sentence.
"""

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from p2pfl.errors import InputError
from p2pfl.experiment import plan, read
from p2pfl.experiment.algorithms import ALGORITHMS, known

SMALL: dict[str, Any] = {
    "topology": {"kind": "complete", "peers": 8},
    "data": {"name": "wine"},
    "model": {"name": "mlp", "hidden": [8]},
}
WITH: dict[str, dict[str, dict[str, Any]]] = {
    "masks": {"privacy": {"mode": "pairwise"}},
    "noise": {"privacy": {"mode": "independent", "noise": 0.01}},
    "sums": {"privacy": {"mode": "secagg"}, "gossip": {"steps": 1}},
    "float16": {"compression": {"name": "float16"}},
    "differences": {"compression": {"name": "quantise"}},
    "schedule": {"topology": {"kind": "one_peer_exponential"}},
    "one-way": {"gossip": {"weights": "push"}},
    "accelerated": {"gossip": {"acceleration": "chebyshev"}},
    "robust": {"robustness": {"rule": "median"}, "learning": {"weighted": False}},
}
"""The settings of each column."""


def asked(name: str, settings: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """An experiment with an algorithm and the settings of a column, and no key that it has no use for."""
    table = {section: SMALL.get(section, {}) | dict(settings.get(section, {})) for section in {*SMALL, *settings}}
    table["learning"] = {"algorithm": name, **table.get("learning", {})}
    if known(name).everybody:
        table["learning"].pop("weighted", None)
    if known(name).once or name == "gossip_learning":
        table.get("gossip", {}).pop("steps", None)
    if name == "relay_sgd" and "topology" not in settings:
        table["topology"] |= {"kind": "star"}
    return table


def refusal(name: str, column: str) -> str:
    """Why an algorithm does not go with it; empty if it does."""
    table = asked(name, WITH[column])
    with tempfile.TemporaryDirectory() as folder:
        if column == "one-way":
            table["topology"] = {"file": str(one_way(Path(folder)))}
        try:
            plan(read(table))
        except InputError as error:
            return str(error)
    return ""


def one_way(folder: Path) -> Path:
    """Write a ring of one-way edges and two more, so that not all peers are heard by as many."""
    names = [f"peer{number}" for number in range(8)]
    pairs = [*zip(names, names[1:] + names[:1], strict=True), ("peer0", "peer3"), ("peer0", "peer5")]
    path = folder / "one_way.json"
    nodes, edges = [{"id": name} for name in names], [{"source": a, "target": b} for a, b in pairs]
    path.write_text(json.dumps({"directed": True, "multigraph": False, "graph": {}, "nodes": nodes, "edges": edges}))
    return path


def table() -> str:
    """The table, in Markdown."""
    rows = [["", *WITH], ["---"] * (1 + len(WITH))]
    rows += [[f"`{name}`", *("-" if refusal(name, column) else "yes" for column in WITH)] for name in ALGORITHMS]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    """Print it."""
    if "--why" not in sys.argv:
        print(table())
        return
    for name in ALGORITHMS:
        for column in WITH:
            if why := refusal(name, column):
                print(f"{name}, {column}: {why}")


if __name__ == "__main__":
    main()
