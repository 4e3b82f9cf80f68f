"""Print which settings each algorithm allows, by the table of rules.

    python -m benchmarks.compositions [--why]

prints what goes with what (docs/algorithms.md lists what does not), or every refusal with its sentence.
"""

import sys
from collections.abc import Mapping
from typing import Any

from p2pfl import topology as graphs
from p2pfl.core.errors import InputError
from p2pfl.experiment.catalogue import ALGORITHMS, MODELS, traits_of
from p2pfl.experiment.composition import Composition
from p2pfl.experiment.file.reading import read
from p2pfl.experiment.parts.gossip_parts import mixing_weights
from p2pfl.experiment.parts.peer_graph import built
from p2pfl.experiment.settings_rules import check

PEERS = 8
SMALL: dict[str, Any] = {
    "topology": {"kind": "complete", "peers": PEERS},
    "data": {"name": "wine"},
    "model": {"name": "mlp", "hidden": [8]},
}
COLUMNS: dict[str, dict[str, dict[str, Any]]] = {
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
"""The settings of each column of the table."""


def asked(name: str, settings: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return an experiment with an algorithm and the settings of a column, without keys that have no effect.

    Parameters
    ----------
    name
        Name of an algorithm, or ``package.module:Class``.
    settings
        Settings of a column.
    """
    table = {section: SMALL.get(section, {}) | dict(settings.get(section, {})) for section in {*SMALL, *settings}}
    table["learning"] = {"algorithm": name, **table.get("learning", {})}
    traits = traits_of(name)
    if traits.additive:
        table["model"] = {"name": next(iter(MODELS), "")}
        table.setdefault("privacy", {"mode": "none"})
    if traits.full_participation:
        table["learning"].pop("weighted", None)
    if traits.single_step or traits.asynchronous:
        table.get("gossip", {}).pop("steps", None)
    if traits.needs_difference_codec:
        table.setdefault("compression", {"name": "quantise"})
    return table


def refusal(name: str, column: str) -> str:
    """Return why an algorithm does not work with the settings of a column; empty if it does.

    Parameters
    ----------
    name
        Name of an algorithm, or ``package.module:Class``.
    column
        One of :data:`COLUMNS`.

    Returns
    -------
    str
        The sentence of the error.

    Examples
    --------
    >>> refusal("dpsgd", "masks"), refusal("sgp", "masks")[:47]
    ('', 'privacy.mode = "pairwise" does not work with sg')
    """
    try:
        experiment = read(asked(name, COLUMNS[column]))
        topology = one_way() if column == "one-way" else built(experiment)
        check(Composition.of(experiment).on(topology, mixing_weights(experiment, topology)))
    except InputError as error:
        return str(error)
    return ""


def one_way() -> graphs.Topology:
    """Return a ring of one-way edges and two more, so that peers send to different numbers of others."""
    names = graphs.ring(PEERS).peers
    pairs = [*zip(names, names[1:] + names[:1], strict=True), (names[0], names[3]), (names[0], names[5])]
    return graphs.Topology(names, tuple(pairs), directed=True)


def table() -> str:
    """Return the table, in Markdown."""
    rows = [["", *COLUMNS], ["---"] * (1 + len(COLUMNS))]
    rows += [[f"`{name}`", *("-" if refusal(name, column) else "yes" for column in COLUMNS)] for name in ALGORITHMS]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    """Print it."""
    if "--why" not in sys.argv:
        print(table())
        return
    for name in ALGORITHMS:
        for column in COLUMNS:
            if why := refusal(name, column):
                print(f"{name}, {column}: {why}")


if __name__ == "__main__":
    main()
