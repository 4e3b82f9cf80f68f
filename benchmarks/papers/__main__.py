"""Run published experiments through this code and print their results beside ours.

    python -m benchmarks.papers [NAME ...] [--write]

Without names it runs all papers, one after the other, on one thread. With --write the results replace their
sections of docs/notes/papers.md. The status is 1 if a line is not met and gives no reason. P2PFL_DATA names the folder
of the data sets; a line whose data are missing is not run, and says so.
"""

import argparse
import ast
import os
import re
import sys
import time
from pathlib import Path

import torch

from benchmarks.papers import PAPERS, Line
from p2pfl.core.errors import P2PFLError

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "notes" / "papers.md"
MARKS = ("<!-- summary -->", "<!-- /summary -->")
"""Between which the page has its summary."""
HEAD = f"""# Published and measured

This page compares published results with those of p2pfl in the same experiments. The command of a section runs its
experiment; with `--write` it also writes the section and the summary. Seconds are wall time of one thread on two cores
that also ran other work. "Equal" means in all published digits; "no" is followed by the size of a difference or
its reason.

{MARKS[0]}
{MARKS[1]}
"""


def verdict(line: Line) -> str:
    """Return whether a line is met, and why not."""
    said = {True: "yes", False: "no", None: "-"}[line.met]
    return f"{said}: {line.why}" if line.why else said


def title(name: str) -> str:
    """Return the first line of a paper's docstring, read without importing it."""
    file = Path(__file__).parent / f"{name}.py"
    text = file.read_text("utf-8") if file.exists() else ""
    return (ast.get_docstring(ast.parse(text)) or name).splitlines()[0]


def section(name: str, lines: list[Line], *, seconds: float) -> str:
    """Return a paper's section of the page."""
    listed = "\n".join(map(item, lines))
    return f"## {name}\n\n`python -m benchmarks.papers {name}`, {seconds:.0f} s\n\n{listed}\n"


def item(line: Line) -> str:
    """Return a line of the page.

    Examples
    --------
    >>> item(Line("rounds", "10", "12", met=False, why="other data"))
    '- rounds: 12 (published: 10); **no**: other data'
    """
    claimed = line.published not in {"", "-"}
    equal = line.met and line.measured == line.published
    unclaimed = " (met)" if line.met else ""
    beside = " (equal)" if equal else f" (published: {line.published})" if claimed else unclaimed
    kind = "; not compared" if line.met is None and claimed else "" if line.met is None or line.met else "; **no**"
    return f"- {line.what}: {line.measured}{beside}{kind}{f': {line.why}' if line.why else ''}"


def written(page: str, sections: dict[str, str]) -> str:
    r"""Return the page with these sections in place of those of the same name, sorted by name.

    Examples
    --------
    >>> written("# Page\n\n## a\n\nold\n\n## c\n\nkept\n", {"a": "## a\n\nnew\n", "b": "## b\n"})
    '# Page\n\n## a\n\nnew\n\n## b\n\n## c\n\nkept\n'
    """
    head, *old = page.split("\n## ")
    kept = {text.partition("\n")[0]: f"## {text.strip()}\n" for text in old}
    kept |= sections
    before, begin, after = head.partition(MARKS[0])
    if begin:
        head = f"{before}{begin}\n{summary(kept)}\n{MARKS[1]}{after.partition(MARKS[1])[2]}"
    return "\n".join([head.rstrip() + "\n", *(kept[name] for name in sorted(kept))])


def summary(sections: dict[str, str]) -> str:
    r"""Return a table that counts the verdicts of each section.

    Examples
    --------
    >>> print(summary({"a": "## a\n\n- x: 1 (equal)\n- y: 1 (published: 2); **no**: late\n- z: 3\n"}))
    | section | paper | met | not met |
    | --- | --- | ---: | ---: |
    | [a](#a) | a | 1 | 1 |
    """
    rows = ["| section | paper | met | not met |", "| --- | --- | ---: | ---: |"]
    for name in sorted(sections):
        lines = sections[name].splitlines()
        compared = [
            line for line in lines if re.search(r"\((published: .*|equal|met)\)", line) and "; not compared" not in line
        ]
        unmet = sum("; **no**" in line for line in compared)
        about = title(name).rstrip(".")
        rows.append(f"| [{name}](#{name}) | {about} | {len(compared) - unmet} | {unmet} |")
    return "\n".join(rows)


def run(name: str) -> tuple[list[Line], float]:
    """Return the lines of a paper, and the seconds they took."""
    begun = time.perf_counter()
    try:
        lines = PAPERS[name]()
    except P2PFLError as error:  # above all data that are not there
        lines = [Line("all", "", "not run", None, str(error))]
    return lines, time.perf_counter() - begun


def show(name: str, lines: list[Line], *, seconds: float) -> None:
    """Print a paper."""
    print(f"{name}: {title(name)} ({seconds:.0f} s)")
    widths = [max(len(getattr(line, field)) for line in lines) for field in ("what", "published", "measured")]
    for line in lines:
        cells = zip((line.what, line.published, line.measured), widths, strict=True)
        print("  " + "  ".join(text.ljust(width) for text, width in cells) + f"  {verdict(line)}")
    print(flush=True)


def main() -> int:
    """Run the papers that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PAPERS))
    parser.add_argument("--write", action="store_true", help="also into docs/notes/papers.md")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(PAPERS))
    if unknown:
        parser.error(f"expected papers of {', '.join(PAPERS)}, got {', '.join(unknown)}")
    torch.set_num_threads(1)
    beside = ROOT.parent / "shared" / "data"
    if beside.is_dir():
        os.environ.setdefault("P2PFL_DATA", str(beside))
    unmet = False
    for name in options.names or PAPERS:
        lines, seconds = run(name)
        show(name, lines, seconds=seconds)
        unmet |= any(line.met is False and not line.why for line in lines)
        if options.write:  # as soon as it is known, and what others wrote meanwhile stays
            page = PAGE.read_text("utf-8") if PAGE.exists() else HEAD
            PAGE.write_text(written(page, {name: section(name, lines, seconds=seconds)}), "utf-8")
    return int(unmet)


if __name__ == "__main__":
    sys.exit(main())
