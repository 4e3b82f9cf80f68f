"""One table of all proofs in a page."""

from dataclasses import dataclass
from pathlib import Path

MARKS = ("<!-- shown -->", "<!-- /shown -->")
"""Between which a page has its table."""

HEAD = (
    "| command: `python -m benchmarks.faults ...` | what happened | run | result |",
    "| --- | --- | --- | --- |",
)


@dataclass(frozen=True)
class Shown:
    """What a proof has shown: a line of the table.

    Attributes
    ----------
    command
        After ``python -m benchmarks.faults``; a line with the same command takes its place.
    faults, run, found
        What happened, to what, and what came of it.
    """

    command: str
    faults: str
    run: str
    found: str

    def __str__(self) -> str:
        """In Markdown."""
        return f"| `{self.command}` | {self.faults} | {self.run} | {self.found} |"


def written(text: str, shown: Shown) -> str:
    """A page with a line in its table, in place of an earlier one of the same command.

    Examples
    --------
    >>> page = written(f"{MARKS[0]}{MARKS[1]}", Shown("kills", "2 kills", "3 peers", "nothing"))
    >>> page == written(page, Shown("kills", "2 kills", "3 peers", "nothing"))
    True
    """
    before, _, rest = text.partition(MARKS[0])
    table, _, after = rest.partition(MARKS[1])
    lines = [line for line in table.splitlines() if line.startswith("| `")]
    names = [line.split("`")[1] for line in lines]
    if shown.command in names:
        lines[names.index(shown.command)] = str(shown)
    else:
        lines.append(str(shown))
    return "\n".join([f"{before}{MARKS[0]}", *HEAD, *lines, f"{MARKS[1]}{after}"])


def write(page: Path, shown: Shown) -> None:
    """Put a line into a page."""
    page.write_text(written(page.read_text("utf-8"), shown), "utf-8")
