"""Print which settings each algorithm allows, by the table of rules.

    python -m benchmarks.compositions [--why]

prints what goes with what (docs/algorithms.md lists what does not), or every refusal with its sentence.
"""

import sys

from p2pfl.experiment.catalogue import ALGORITHMS
from p2pfl.experiment.rules.matrix import COLUMNS, refusal


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
